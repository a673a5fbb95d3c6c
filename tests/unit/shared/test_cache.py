"""The cache under events that come late, twice, or not at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.cache import Cache
from shared.kube import POD, Kind, Obj
from shared.ownership import INSTANCE, MANAGED_BY, key_of
from shared.queue import Key

THING = Kind("example.com", "v1", "Thing", "things")
OWNER = Key("default", "owner")


def pod(name: str, version: int, *, instance: str = "owner", manager: str = "op", namespace: str = "default") -> Obj:
    labels = {INSTANCE: instance, MANAGED_BY: manager}
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "labels": labels, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": metadata}


class Watched:
    """A cache and the keys it told of."""

    def __init__(self) -> None:
        self.told: list[Key] = []
        self.cache = Cache(
            [THING, POD], key_of=lambda kind, obj: key_of(THING, "op", kind, obj), changed=self.told.append
        )

    def names(self, key: Key = OWNER) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.cache.owned(POD, key)]


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_an_owned_object_tells_of_its_owner(watched: Watched) -> None:
    watched.cache.seen(POD, pod("p-1", 5))
    assert watched.told == [OWNER]
    assert watched.names() == ["p-1"]


def test_an_own_write_makes_its_echo_no_news(watched: Watched) -> None:
    watched.cache.put(POD, pod("p-1", 5))
    watched.cache.seen(POD, pod("p-1", 5))
    watched.cache.seen(POD, pod("p-1", 4))
    assert watched.told == []


def test_a_deleted_object_does_not_come_back_by_a_late_event(watched: Watched) -> None:
    watched.cache.seen(POD, pod("p-1", 5))
    watched.cache.gone(POD, pod("p-1", 7))
    watched.cache.seen(POD, pod("p-1", 6))
    assert watched.names() == []
    watched.cache.seen(POD, pod("p-1", 8))
    assert watched.names() == ["p-1"], "a new object of the same name does"


def test_a_late_deletion_spares_the_object_that_came_after(watched: Watched) -> None:
    watched.cache.seen(POD, pod("p-1", 9))
    watched.cache.gone(POD, pod("p-1", 7))
    assert watched.names() == ["p-1"]


def test_an_object_that_changes_hands_tells_both_owners(watched: Watched) -> None:
    watched.cache.seen(POD, pod("p-1", 1))
    watched.told.clear()
    watched.cache.seen(POD, pod("p-1", 2, instance="other"))
    assert set(watched.told) == {OWNER, Key("default", "other")}
    assert watched.names() == []


def test_an_object_that_loses_its_labels_is_forgotten(watched: Watched) -> None:
    watched.cache.seen(POD, pod("p-1", 1))
    watched.cache.seen(POD, pod("p-1", 2, manager="someone"))
    assert watched.names() == []
    assert watched.told == [OWNER, OWNER]


def test_a_list_heals_missed_deletions_but_spares_what_is_newer(watched: Watched) -> None:
    watched.cache.put(POD, pod("gone", 1))
    watched.cache.put(POD, pod("kept", 2))
    watched.cache.put(POD, pod("own-write", 11))
    watched.cache.put(POD, pod("elsewhere", 3, namespace="other"))
    listing = {"metadata": {"resourceVersion": "10"}, "items": [pod("kept", 2), pod("found", 4)]}
    assert watched.cache.replace(POD, "default", listing) == {OWNER}
    assert watched.names() == ["found", "kept", "own-write"]
    assert watched.names(Key("other", "owner")) == ["elsewhere"]
    assert watched.cache.replace(POD, "default", listing) == set()


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_events_does_not_matter(story: list[tuple[int, bool]], random: Any) -> None:
    """Whatever order a history arrives in, and however often, the end is the history's end."""
    events = [(pod(f"p-{name}", version), gone) for version, (name, gone) in enumerate(story, start=1)]
    straight, shuffled = Watched(), Watched()
    for obj, gone in events:
        (straight.cache.gone if gone else straight.cache.seen)(POD, obj)
    again = events + random.sample(events, len(events) // 2)
    random.shuffle(again)
    for obj, gone in again:
        (shuffled.cache.gone if gone else shuffled.cache.seen)(POD, obj)
    assert straight.names() == shuffled.names()
