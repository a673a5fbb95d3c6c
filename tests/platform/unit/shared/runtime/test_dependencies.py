"""A change of a Secret that a reconcile has read starts the next one, with and without the right to watch."""

from __future__ import annotations

import asyncio

import pytest

from shared.kubernetes import secrets
from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import METADATA_ONLY, Kube, Request, Response
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, Key, Obj
from shared.runtime.dependencies import MAX_COPY_BYTES, Dependencies, NamedContent, poll
from shared.runtime.reflector import Reflector
from simulator.api_server.streams import WatchServer
from tests.harness import ApiServer, requests

SHOP, OTHER = Key("default", "shop"), Key("default", "other")


class Bench:
    """A server with the Secrets `users` and `unused`, of which the resource `shop` has read the first."""

    def __init__(self) -> None:
        self.server = ApiServer()
        self.user = self.server.actor("kubectl")
        self.kube = Kube(self.server, manager="op")
        self.reported: list[Key] = []
        self.dependencies = Dependencies([SECRET], self.reported.append)

    def write(self, name: str, password: str, namespace: str = "default") -> None:
        metadata = {"name": name, "namespace": namespace}
        obj = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": secrets.encoded({"p": password})}
        self.user.apply(SECRET, obj, force=True)

    async def read(self, key: Key, *names: str) -> None:
        with self.dependencies.noting(key, self.kube) as kube:
            await secrets.find(kube, "default", {}, names)

    async def poll(self) -> None:
        await poll(self.kube, SECRET, None, [self.dependencies])


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    bench.write("users", "old")
    bench.write("unused", "old")
    await bench.read(SHOP, "users")
    return bench


async def test_poll_reports_a_change_once(bench: Bench) -> None:
    await bench.poll()
    assert bench.reported == []
    bench.write("unused", "new")
    bench.write("users", "new")
    await bench.poll()
    await bench.poll()
    assert bench.reported == [SHOP]


async def test_poll_reports_creation_and_deletion(bench: Bench) -> None:
    await bench.read(OTHER, "missing")
    await bench.poll()
    assert bench.reported == []
    bench.write("missing", "new")
    bench.user.delete(SECRET, "default", "users")
    await bench.poll()
    assert sorted(bench.reported) == [OTHER, SHOP]


async def test_poll_reads_no_content_and_lets_namespaces_take_turns(bench: Bench) -> None:
    requested: list[Request] = []

    class Recorded:
        async def request(self, request: Request) -> Response:
            requested.append(request)
            return await bench.server.request(request)

    for number in range(10):
        with bench.dependencies.noting(Key("a", f"r{number}"), bench.kube) as kube:
            await secrets.find(kube, "a", {}, [f"s{number}"])
    await poll(Kube(Recorded(), manager="op"), SECRET, None, [bench.dependencies])
    assert {request.accept for request in requested} == {METADATA_ONLY}
    assert any("/default/" in request.path for request in requested[:2])
    assert bench.reported == []


async def test_poll_that_fails_reports_nothing(bench: Bench) -> None:
    bench.server.faults.answer(503, when=requests("GET", "/secrets"))
    await bench.poll()
    assert bench.reported == []


async def test_former_leader_reads_nothing(bench: Bench) -> None:
    """Otherwise it would read every Secret of a shard that another replica leads, for ever."""
    await bench.read(OTHER, "unused")
    bench.dependencies.forget_all(lambda key: key == SHOP)
    assert bench.dependencies.names(SECRET, None) == [("default", "unused")], "the other shard is still led"
    bench.dependencies.forget_all(lambda _: True)
    bench.server.log.reset()
    await bench.poll()
    assert bench.server.log.is_empty


async def test_only_what_the_last_reconcile_read_counts(bench: Bench) -> None:
    await bench.read(SHOP, "unused")
    bench.write("users", "new")
    await bench.poll()
    assert bench.reported == []
    bench.dependencies.forget(SHOP)
    bench.server.log.reset()
    await bench.poll()
    assert bench.server.log.is_empty


async def test_change_during_the_first_read_is_not_missed(bench: Bench) -> None:
    """The event of the change arrives before the response with the old content."""

    class Slow:
        async def request(self, request: Request) -> Response:
            answer = await bench.server.request(request)
            bench.write("unused", "new")
            live = bench.user.get(SECRET, "default", "unused")
            bench.dependencies.report(SECRET, "default", "unused", resource_version(live))
            return answer

    with bench.dependencies.noting(OTHER, Kube(Slow(), manager="op")) as kube:
        await kube.get(SECRET, "default", "unused")
    assert bench.reported == [OTHER]


async def own_write(bench: Bench, *events: int) -> int:
    """Write the Secret `own` in a reconcile of SHOP that has read it, while events with these versions arrive.

    Args:
        events: versions relative to the one that is written.
    """

    async def write() -> Obj:
        bench.write("own", "new")
        live = bench.user.get(SECRET, "default", "own")
        for event in events:
            bench.dependencies.report(SECRET, "default", "own", resource_version(live) + event)
        return live

    with bench.dependencies.reconcile(SHOP):
        await bench.read(SHOP, "users", "own")
        written = await bench.dependencies.written(SHOP, SECRET, "default", "own", write())
        bench.server.log.reset()
        await bench.read(SHOP, "users", "own")
        assert bench.server.log.is_empty, "a reconcile reads each Secret once, and knows what it writes"
    return resource_version(written)


async def test_event_of_an_own_write_is_not_reported(bench: Bench) -> None:
    """Neither before nor after the response."""
    version = await own_write(bench, 0)
    bench.dependencies.report(SECRET, "default", "own", version)
    assert bench.reported == []


async def test_change_by_another_client_during_an_own_write_is_reported(bench: Bench) -> None:
    await own_write(bench, 0, 1)
    assert bench.reported == [SHOP]


async def test_own_write_is_reported_to_the_other_readers(bench: Bench) -> None:
    await bench.read(OTHER, "own")
    await own_write(bench, 0)
    assert bench.reported == [OTHER]


async def test_failed_write_hides_no_change(bench: Bench) -> None:
    async def write() -> Obj:
        bench.dependencies.report(SECRET, "default", "users", 1_000_000)
        raise Unavailable("lost")

    with pytest.raises(Unavailable):
        await bench.dependencies.written(SHOP, SECRET, "default", "users", write())
    assert bench.reported == [SHOP]


async def test_change_while_a_reconcile_fails_is_not_missed(bench: Bench) -> None:
    bench.server.faults.lose_answer(when=requests("GET", "/secrets/unused"))
    with pytest.raises(Unavailable):
        await bench.read(SHOP, "users", "unused")
    bench.write("users", "new")
    await bench.poll()
    assert set(bench.reported) == {SHOP}


async def test_other_kinds_are_not_noted(bench: Bench) -> None:
    with bench.dependencies.noting(OTHER, bench.kube) as kube:
        bench.user.apply(
            CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
        )
        await kube.get(CONFIG_MAP, "default", "c")
    assert bench.dependencies.names(CONFIG_MAP, None) == []
    assert bench.dependencies.names(SECRET, None) == [("default", "users")]
    assert bench.dependencies.names(SECRET, "elsewhere") == []


async def test_watch_reports_changes_of_what_was_read_and_nothing_else(bench: Bench) -> None:
    streams = WatchServer(bench.server)
    watch = Reflector(streams, NamedContent(SECRET, [bench.dependencies]), SECRET, None, is_vital=False)
    task = asyncio.create_task(watch.run())
    await asyncio.sleep(0.01)
    assert bench.reported == [], "present objects are no change"
    bench.server.log.reset()
    bench.write("unused", "new")
    bench.write("users", "new")
    await asyncio.sleep(0.01)
    assert bench.reported == [SHOP]
    bench.user.delete(SECRET, "default", "users")
    await asyncio.sleep(0.01)
    assert bench.reported == [SHOP, SHOP]
    assert bench.server.log.is_empty, "a watch needs neither lists nor reads"
    task.cancel()


# Copies.


class Settled(Bench):
    """A bench whose resource `shop` has settled with the Secret `users`, while every change is reported."""

    SPEC = ("u-1", 1)

    def __init__(self) -> None:
        super().__init__()
        self.dependencies.are_observed = True

    async def reconcile(self, spec: object = SPEC, *, settles: bool = True, name: str = "users") -> int:
        """Read the Secret as a reconcile does; return the number of requests."""
        before = self.server.log.reads.total()
        with self.dependencies.noting(SHOP, self.kube, spec) as kube:
            (self.found,) = (await secrets.find(kube, "default", {}, [name])).values()
        if settles:
            self.dependencies.settle(SHOP, spec)
        return self.server.log.reads.total() - before


@pytest.fixture
async def settled() -> Settled:
    bench = Settled()
    bench.write("users", "old")
    assert await bench.reconcile() == 1
    return bench


async def test_unchanged_resource_reads_nothing_again(settled: Settled) -> None:
    first = settled.found
    assert [await settled.reconcile() for _ in range(3)] == [0, 0, 0]
    assert settled.found == first


async def test_reported_change_is_read(settled: Settled) -> None:
    settled.write("users", "new")
    await settled.poll()
    assert settled.reported == [SHOP]
    assert [await settled.reconcile(), await settled.reconcile()] == [1, 0]
    assert secrets.content_of(settled.found) == {"p": "new"}


async def test_missing_object_is_read_again_after_its_creation(settled: Settled) -> None:
    assert [await settled.reconcile(name="missing"), await settled.reconcile(name="missing")] == [1, 0]
    assert settled.found is None
    settled.write("missing", "new")
    await settled.poll()
    assert [await settled.reconcile(name="missing"), await settled.reconcile(name="missing")] == [1, 0]
    assert secrets.content_of(settled.found) == {"p": "new"}


async def test_own_object_is_not_polled_and_read_again_at_the_next_reconcile(settled: Settled) -> None:
    with settled.dependencies.noting(OTHER, settled.kube) as kube:
        await kube.find_own(SECRET, "default", "connection", is_new=False)
    assert ("default", "connection") not in settled.dependencies.names(SECRET, None)

    async def reconcile() -> int:
        before = settled.server.log.reads.total()
        with settled.dependencies.noting(OTHER, settled.kube, settled.SPEC) as kube:
            await kube.find_own(SECRET, "default", "connection", is_new=False)
        settled.dependencies.settle(OTHER, settled.SPEC)
        return settled.server.log.reads.total() - before

    await reconcile()
    assert await reconcile() == 0, "a watch reports every change"
    await settled.poll()  # there is no watch
    assert await reconcile() == 1


async def test_changed_spec_reads_everything_again(settled: Settled) -> None:
    assert [await settled.reconcile(("u-1", 2)), await settled.reconcile(("u-1", 2))] == [1, 0]


async def test_reconcile_that_changes_something_reads_everything_again(settled: Settled) -> None:
    """The operator may have written the Secret itself."""
    assert await settled.reconcile(settles=False) == 0
    assert [await settled.reconcile(settles=False), await settled.reconcile()] == [1, 1]


async def test_another_leader_reads_everything_again(settled: Settled) -> None:
    settled.dependencies.forget_all(lambda _: True)
    assert await settled.reconcile() == 1


async def test_broken_watch_reads_everything_again(settled: Settled) -> None:
    """A deletion while the watch was broken is not reported."""
    await NamedContent(SECRET, [settled.dependencies]).load()
    assert await settled.reconcile() == 1


async def test_nothing_is_kept_while_changes_are_not_reported(settled: Settled) -> None:
    settled.dependencies.are_observed = False
    assert [await settled.reconcile(), await settled.reconcile()] == [1, 1]


async def test_copies_are_bounded(settled: Settled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.dependencies.MAX_COPIES_BYTES", 10)
    settled.dependencies.drop_copies(SECRET)
    assert [await settled.reconcile(), await settled.reconcile()] == [1, 1]


async def test_large_object_is_not_kept(settled: Settled) -> None:
    settled.write("users", "x" * MAX_COPY_BYTES)
    settled.dependencies.drop_copies(SECRET)
    assert [await settled.reconcile(), await settled.reconcile()] == [1, 1]


async def test_copies_of_one_namespace_do_not_displace_those_of_others(
    settled: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.runtime.dependencies.MAX_COPIES_BYTES", 8_000)
    settled.dependencies.drop_copies(SECRET)
    for number in range(100):
        settled.write(f"s{number}", "x", "greedy")
        with settled.dependencies.noting(Key("greedy", f"r{number}"), settled.kube) as kube:
            await secrets.find(kube, "greedy", {}, [f"s{number}"])
    assert [await settled.reconcile(), await settled.reconcile()] == [1, 0]
    for number in range(100, 200):
        settled.write(f"s{number}", "x", "greedy")
        with settled.dependencies.noting(Key("greedy", f"r{number}"), settled.kube) as kube:
            await secrets.find(kube, "greedy", {}, [f"s{number}"])
    assert await settled.reconcile() == 0
    assert settled.dependencies._copies_bytes <= 8_000


async def test_content_that_changed_while_it_was_read_is_not_kept(settled: Settled) -> None:
    settled.dependencies.drop_copies(SECRET)
    server = settled.server

    class Slow:
        async def request(self, request: Request) -> Response:
            answer = await server.request(request)
            settled.write("users", "new")
            live = settled.user.get(SECRET, "default", "users")
            settled.dependencies.report(SECRET, "default", "users", resource_version(live))
            return answer

    settled.kube = Kube(Slow(), manager="op")
    await settled.reconcile()
    assert settled.reported == [SHOP]
    assert secrets.content_of(settled.found) == {"p": "old"}
    settled.kube = Kube(server, manager="op")
    assert await settled.reconcile() == 1
    assert secrets.content_of(settled.found) == {"p": "new"}
