"""The cache with late, repeated and missing events."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import POD, Key, Kind, Obj
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, key_of
from shared.runtime.cache import MAX_TOMBSTONES, Cache, Relist
from tests.harness import cost

THING = Kind("example.com", "v1", "Thing", "things")
OWNER = Key("default", "owner")


def pod(name: str, version: int, *, instance: str = "owner", manager: str = "op", namespace: str = "default") -> Obj:
    labels = {INSTANCE: instance, MANAGED_BY: manager}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": metadata}


class Watched:
    """A cache and the keys that it reported."""

    def __init__(self) -> None:
        self.reported: list[Key] = []
        self.cache = Cache(
            [THING, POD], key_of=lambda kind, obj: key_of(THING, "op", kind, obj), changed=self.reported.append
        )

    def names(self, key: Key = OWNER) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.cache.owned(POD, key)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_owned_object_reports_its_owner(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 5))
    assert watched.reported == [OWNER]
    assert watched.names() == ["p-1"]


def test_resource_is_outdated_until_its_status_describes_its_spec(watched: Watched) -> None:
    def thing(version: int, generation: int, observed: int) -> Obj:
        metadata = {"name": "owner", "namespace": "default", "resourceVersion": str(version), "generation": generation}
        return {"kind": "Thing", "metadata": metadata, "status": {"observedGeneration": observed}}

    watched.cache.on_changed(THING, thing(1, 2, 1))
    assert watched.cache.outdated == {OWNER}
    watched.cache.put(THING, thing(2, 2, 2))
    assert watched.cache.outdated == set()
    watched.cache.on_changed(THING, thing(3, 3, 2))
    watched.cache.on_deleted(THING, thing(3, 3, 2))
    assert watched.cache.outdated == set()


def test_watch_event_of_an_own_write_is_not_reported(watched: Watched) -> None:
    watched.cache.put(POD, pod("p-1", 5))
    watched.cache.on_changed(POD, pod("p-1", 5))
    watched.cache.on_changed(POD, pod("p-1", 4))
    assert watched.reported == []


def test_late_event_does_not_resurrect_a_deleted_object(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 5))
    watched.cache.on_deleted(POD, pod("p-1", 7))
    watched.cache.on_changed(POD, pod("p-1", 6))
    assert watched.names() == []
    watched.cache.on_changed(POD, pod("p-1", 8))
    assert watched.names() == ["p-1"], "a new object of the same name is stored"


async def test_list_after_many_deletions_costs_little(watched: Watched) -> None:
    for number in range(MAX_TOMBSTONES):
        watched.cache.on_deleted(POD, pod(f"former-{number}", 5))
    relist = Relist(watched.cache, POD, None)
    pages = [{"items": [pod(f"p-{n}", 6) for n in range(first, first + 25)]} for first in range(0, 10_000, 25)]
    for page in pages:
        relist.take(page | {"metadata": {"resourceVersion": "7", "continue": "more"}})
    async with cost.bounded():
        relist.take({"items": [], "metadata": {"resourceVersion": "7"}})
    assert len(list(watched.cache.all(POD))) == 10_000
    watched.cache.on_changed(POD, pod("former-1", 7))
    assert len(list(watched.cache.all(POD))) == 10_000, "deleted as of this list"


def test_late_deletion_does_not_remove_a_newer_object(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 9))
    watched.cache.on_deleted(POD, pod("p-1", 7))
    assert watched.names() == ["p-1"]


def test_object_that_changes_owner_reports_both(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 1))
    watched.reported.clear()
    watched.cache.on_changed(POD, pod("p-1", 2, instance="other"))
    assert set(watched.reported) == {OWNER, Key("default", "other")}
    assert watched.names() == []


def test_object_that_loses_its_labels_is_removed(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 1))
    watched.cache.on_changed(POD, pod("p-1", 2, manager="someone"))
    assert watched.names() == []
    assert watched.reported == [OWNER, OWNER]


def test_list_recovers_missed_deletions_in_its_namespace(watched: Watched) -> None:
    watched.cache.put(POD, pod("gone", 1))
    watched.cache.put(POD, pod("kept", 2))
    watched.cache.put(POD, pod("elsewhere", 3, namespace="other"))
    found = listing(10, pod("kept", 2), pod("found", 4))
    assert Relist(watched.cache, POD, "default").take(found) == {OWNER}
    assert watched.names() == ["found", "kept"]
    assert watched.names(Key("other", "owner")) == ["elsewhere"]
    assert Relist(watched.cache, POD, "default").take(found) == set()


def listing(version: int, *items: Obj, more: str = "") -> Obj:
    return {"metadata": {"resourceVersion": str(version)} | ({"continue": more} if more else {}), "items": list(items)}


def test_list_of_a_restored_control_plane_replaces_newer_versions(watched: Watched) -> None:
    """After a restore, resourceVersions begin again below those in the cache."""
    watched.cache.put(POD, pod("gone", 900))
    watched.cache.put(POD, pod("kept", 950))
    watched.cache.on_changed(POD, pod("deleted-later", 960))
    watched.cache.on_deleted(POD, pod("deleted-later", 970))
    Relist(watched.cache, POD, None).take(listing(60, pod("kept", 50), pod("deleted-later", 40)))
    assert watched.names() == ["deleted-later", "kept"]
    assert watched.cache.owned(POD, OWNER)[1]["metadata"]["resourceVersion"] == "50"
    watched.cache.on_changed(POD, pod("kept", 61))
    watched.cache.on_changed(POD, pod("gone", 62))
    assert [obj["metadata"]["resourceVersion"] for obj in watched.cache.owned(POD, OWNER)] == ["40", "62", "61"]


def test_same_version_with_other_content_is_replaced(watched: Watched) -> None:
    """In another space of resourceVersions, an equal number does not mean an equal object."""
    watched.cache.put(POD, pod("p-1", 5) | {"spec": "old"})
    assert Relist(watched.cache, POD, None).take(listing(9, pod("p-1", 5) | {"spec": "new"})) == {OWNER}
    assert watched.cache.owned(POD, OWNER)[0]["spec"] == "new"


def test_own_write_during_a_list_is_kept(watched: Watched) -> None:
    relist = Relist(watched.cache, POD, None)
    watched.cache.put(POD, pod("written", 11))
    watched.cache.put(POD, pod("created", 12))
    watched.cache.put(POD, pod("deleted", 4))
    watched.cache.drop(POD, pod("deleted", 13))
    relist.take(listing(10, pod("written", 3), pod("deleted", 4)))
    assert [obj["metadata"]["resourceVersion"] for obj in watched.cache.owned(POD, OWNER)] == ["12", "11"]


def test_late_event_does_not_resurrect_an_object_after_a_list(watched: Watched) -> None:
    watched.cache.on_changed(POD, pod("p-1", 5))
    watched.cache.on_deleted(POD, pod("p-1", 7))
    Relist(watched.cache, POD, None).take(listing(10))
    watched.cache.on_changed(POD, pod("p-1", 6))
    assert watched.names() == []


def test_paged_list_removes_nothing_before_its_last_page(watched: Watched) -> None:
    watched.cache.put(POD, pod("gone", 1))
    watched.cache.put(POD, pod("kept", 2))
    relist = Relist(watched.cache, POD, None)
    assert relist.take({"metadata": {"resourceVersion": "10", "continue": "more"}, "items": [pod("found", 4)]}) == {
        OWNER
    }
    assert watched.names() == ["found", "gone", "kept"]
    assert relist.take({"metadata": {"resourceVersion": "10"}, "items": [pod("kept", 2)]}) == {OWNER}
    assert watched.names() == ["found", "kept"], "objects of the first page count as listed"


def test_modifying_a_read_object_does_not_change_the_cache(watched: Watched) -> None:
    watched.cache.put(POD, pod("p-1", 1))
    for read in (watched.cache.get(POD, "default", "p-1"), *watched.cache.owned(POD, OWNER)):
        assert read is not None
        read["metadata"]["labels"].clear()
        assert watched.cache.get(POD, "default", "p-1") == pod("p-1", 1)


class Write:
    """A write in progress; `answer` completes it."""

    def __init__(self, watched: Watched) -> None:
        self._answered: asyncio.Future[Obj] = asyncio.get_running_loop().create_future()
        self._entering = asyncio.ensure_future(watched.cache.written(POD, "default", "p-1", self._answered))

    async def answer(self, version: int) -> None:
        self._answered.set_result(pod("p-1", version))
        await self._entering

    def fail(self) -> Awaitable[Obj]:
        self._answered.set_exception(Unavailable("no answer"))
        return self._entering


async def in_progress(watched: Watched) -> Write:
    write = Write(watched)
    await asyncio.sleep(0)
    return write


async def test_event_that_overtakes_the_response_is_not_reported(watched: Watched) -> None:
    write = await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-1", 5))
    assert watched.names() == ["p-1"]
    await write.answer(5)
    assert watched.reported == []


async def test_event_newer_than_the_response_is_reported_after_it(watched: Watched) -> None:
    write = await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-1", 5))
    watched.cache.on_changed(POD, pod("p-1", 6))
    assert watched.reported == [], "it may be the event of this write"
    await write.answer(5)
    assert watched.reported == [OWNER]


async def test_event_during_a_failed_write_is_reported(watched: Watched) -> None:
    """The write may have succeeded with its response lost: the event is then the only information."""
    write = await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-1", 5))
    with pytest.raises(Unavailable):
        await write.fail()
    assert watched.reported == [OWNER]


async def test_deletion_is_reported_at_once_even_during_a_write(watched: Watched) -> None:
    watched.cache.put(POD, pod("p-1", 5))
    write = await in_progress(watched)
    watched.cache.on_deleted(POD, pod("p-1", 7))
    assert watched.reported == [OWNER]
    await write.answer(6)
    assert watched.names() == []


async def test_events_of_other_objects_do_not_wait_for_a_write(watched: Watched) -> None:
    await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-2", 5))
    assert watched.reported == [OWNER]


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.randoms(use_true_random=False))
def test_result_does_not_depend_on_the_order_of_events(history: list[tuple[int, bool]], random: Any) -> None:
    """Any order and repetition of a history's events results in the state at its end."""
    events = [(pod(f"p-{name}", version), deleted) for version, (name, deleted) in enumerate(history, start=1)]
    straight, shuffled = Watched(), Watched()
    for obj, deleted in events:
        (straight.cache.on_deleted if deleted else straight.cache.on_changed)(POD, obj)
    again = events + random.sample(events, len(events) // 2)
    random.shuffle(again)
    for obj, deleted in again:
        (shuffled.cache.on_deleted if deleted else shuffled.cache.on_changed)(POD, obj)
    assert straight.names() == shuffled.names()


async def test_two_writes_of_one_object_at_once_report_what_neither_made(watched: Watched) -> None:
    first, second = await in_progress(watched), await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-1", 5))
    await first.answer(5)
    watched.cache.on_changed(POD, pod("p-1", 6))
    await second.answer(6)
    assert watched.reported == []
    first, second = await in_progress(watched), await in_progress(watched)
    watched.cache.on_changed(POD, pod("p-1", 9))
    await second.answer(8)
    await first.answer(7)
    assert watched.reported == [OWNER]
    watched.cache.on_changed(POD, pod("p-1", 10))
    assert watched.reported == [OWNER, OWNER], "no write is in progress any more"
