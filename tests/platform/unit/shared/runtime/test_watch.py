"""Each collection of an operator is lost alone; a resource is reconciled only if everything it needs is observed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

import pytest

from shared.kubernetes import ownership
from shared.kubernetes.accessors import condition
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.encoding import MAX_PARSED_BYTES
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, SERVICE, Key, Kind, Obj
from shared.runtime import cache as caches
from shared.runtime import reflector
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.plan import Plan
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.runtime.reflector import Loss
from shared.runtime.supervisor import Supervisor
from shared.runtime.watch import Watch, Watched
from shared.status.events import Recorder
from shared.status.verdict import Verdict
from simulator.api_server.streams import WatchServer
from tests.harness import ApiServer, requests
from tests.support.virtual_time import in_virtual_time

THING = Kind("example.com", "v1", "Thing", "things")
OTHER = Kind("example.com", "v1", "Other", "others")


class Bench:
    """Two controllers on an in-memory API server; what each reconcile sees is recorded."""

    def __init__(self, *namespaces: str) -> None:
        self.server = ApiServer([THING, OTHER])
        self.streams = WatchServer(self.server)
        self.user = self.server.actor("kubectl")
        self.kube = Kube(self.server, manager="op")
        self.seen: list[tuple[Key, list[str]]] = []
        self.lanes = [self._lane(THING, CONFIG_MAP), self._lane(OTHER, SERVICE)]
        self.watch = Watch(
            [watched for watched, _ in self.lanes],
            kube=self.kube,
            streams=self.streams,
            namespaces=namespaces,
            supervisor=Supervisor(),
        )

    def _lane(self, kind: Kind, owned: Kind) -> tuple[Watched, Reconciler]:
        async def observe(resource: Obj, cache: Any, kube: Kube) -> list[str]:
            key = Key(resource["metadata"]["namespace"], resource["metadata"]["name"])
            names = [obj["metadata"]["name"] for obj in cache.owned(owned, key)]
            self.seen.append((key, names))
            return names

        def plan(resource: Obj, observed: list[str], now: datetime) -> Plan:
            return Plan((), Verdict(), {"names": observed})

        async def call(*_: Any) -> NoReturn:
            raise AssertionError

        controller: Any = Controller("op", kind, (owned,), lambda obj: obj, observe, plan, call)
        queue = Queue(controller.name, jitter=lambda: 0.0)
        cache = controller.cache(queue.add)
        dependencies = Dependencies(controller.reads, queue.add)
        reconciler = Reconciler(
            controller,
            kube=self.kube,
            cache=cache,
            queue=queue,
            recorder=Recorder(self.kube, component="op"),
            clock=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            loss=lambda key: self.watch.loss(controller, key.namespace),
            dependencies=dependencies,
        )
        self.queues = [*getattr(self, "queues", ()), queue]
        return Watched(controller, cache, dependencies), reconciler

    def create(self, kind: Kind, namespace: str, name: str = "a", owned: Kind = CONFIG_MAP) -> Key:
        metadata = {"name": name, "namespace": namespace}
        self.user.create(kind, {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata})
        labels = {ownership.MANAGED_BY: "op", ownership.INSTANCE: name}
        self.user.create(owned, {"metadata": {**metadata, "labels": labels}})
        return Key(namespace, name)

    async def reconcile(self, key: Key, lane: int = 0) -> str:
        return await self.lanes[lane][1].reconcile(key)

    def ready(self, key: Key) -> Obj:
        return condition(self.user.get(THING, *key), "Ready")

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(300):
            if holds():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("it did not become true")


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(reflector, "MAX_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(reflector, "LOSS_REPORTED_SECONDS", 0.05)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """Watch the namespaces `a` and `b`."""
    bench = Bench("a", "b")
    yield bench
    await bench.watch.stop()


async def test_operator_works_when_everything_was_listed(bench: Bench) -> None:
    key = bench.create(THING, "a")
    assert bench.watch.unready() is not None
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    assert (bench.watch.unready(), bench.watch.note()) == (None, None)
    assert await bench.reconcile(key) == "success"
    assert bench.seen == [(key, ["a"])]


async def test_namespace_that_is_forbidden_at_start_is_lost_alone(bench: Bench) -> None:
    bench.server.faults.answer(403, when=lambda method, path: "/namespaces/b/" in path, times=None)
    key = bench.create(THING, "a")
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    assert await bench.reconcile(key) == "success"
    assert bench.watch.unready() is None
    assert "things in b: injected fault: 403" in (bench.watch.note() or "")


async def test_resource_whose_objects_were_never_listed_is_not_touched(bench: Bench) -> None:
    """Objects that are not visible would look deleted."""
    key, other = bench.create(THING, "b"), bench.create(THING, "a")
    bench.server.faults.answer(403, when=requests("GET", "/namespaces/b/configmaps"), times=None)
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    await bench.until(lambda: bench.lanes[0][0].cache.get(THING, *key) is not None)
    assert await bench.reconcile(key) == "error"
    assert await bench.reconcile(other) == "success"
    assert bench.seen == [(other, ["a"])]


async def test_loss_is_reported_in_the_status_and_taken_back(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.reconciler.LOSS_REPORTED_SECONDS", 0.05)
    key, other = bench.create(THING, "b"), bench.create(THING, "a")
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    await bench.until(lambda: not bench.watch.losses)
    for each in (key, other):
        await bench.reconcile(each)
    assert bench.ready(key)["status"] == "True"
    bench.seen.clear()
    while len(bench.queues[0]):
        bench.queues[0].done(await bench.queues[0].get())
    bench.server.faults.answer(403, when=requests("GET", "/namespaces/b/configmaps"), times=None)
    bench.streams.cut("/namespaces/b/configmaps")
    await bench.until(lambda: len(bench.queues[0]) > 0)
    assert await bench.queues[0].get() == key, "only the resources that need the lost collection are reconciled"
    assert await bench.reconcile(key) == "error"
    ready = bench.ready(key)
    assert (ready["status"], ready["reason"]) == ("True", "NotObserved"), "blindness is no outage"
    assert ready["message"].startswith("The operator does not observe configmaps in b, and changes nothing")
    assert condition(bench.user.get(THING, *key), "Reconciling")["status"] == "True"
    assert bench.user.get(THING, *key)["status"]["names"] == ["a"]
    assert bench.seen == []
    bench.queues[0].done(key)
    bench.server.faults.clear()
    await bench.until(lambda: bench.watch.loss(bench.lanes[0][0].controller, "b") is None)
    assert await bench.queues[0].get() == key
    assert await bench.reconcile(key) == "success"
    assert bench.ready(key)["reason"] == "Ready"


async def test_spec_that_changes_while_blind_is_not_reported_as_ready(bench: Bench) -> None:
    key = bench.create(THING, "a")
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    await bench.until(lambda: not bench.watch.losses)
    await bench.reconcile(key)
    bench.user.merge(THING, "a", "a", {"spec": {"size": 2}})
    lost = Loss("pods in a", "403", 99.0)
    bench.lanes[0][1]._loss = lambda _: lost
    await bench.reconcile(key)
    assert (bench.ready(key)["status"], bench.ready(key)["reason"]) == ("False", "NotObserved")


async def test_controller_is_served_although_another_is_lost(bench: Bench) -> None:
    key = bench.create(THING, "a")
    bench.server.faults.answer(404, when=requests("GET", "/others"), times=None)
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    assert await bench.reconcile(key) == "success"
    assert "waiting for the lists of others in a: injected fault: 404" in (bench.watch.unready() or "")
    bench.server.faults.clear()
    await bench.until(lambda: bench.watch.unready() is None)


async def test_operator_that_observes_nothing_for_long_is_not_ready(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    await bench.until(lambda: not bench.watch.losses)
    bench.server.faults.answer(500, when=requests("GET"), times=None)
    bench.streams.cut()
    await bench.until(lambda: bench.watch.is_blind)
    assert bench.watch.unready() is None, "webhooks are served while the API server restarts"
    monkeypatch.setattr("shared.runtime.watch.MAX_BLIND_SECONDS", 0.0)
    assert "nothing is observed" in (bench.watch.unready() or "")


async def test_secret_is_polled_only_without_the_right_to_watch(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.runtime.dependencies.POLL_SECONDS", 0.01)
    bench.user.create(SECRET, {"metadata": {"name": "users", "namespace": "a"}})
    bench.server.faults.answer(403, when=lambda _, path: path.endswith("/secrets"), times=None)
    bench.watch.start()
    await asyncio.wait_for(bench.watch.synced.wait(), 5)
    assert bench.watch.note() is None, "what is polled instead is not missing"
    with bench.lanes[0][0].dependencies.noting(Key("a", "shop"), bench.kube) as kube:
        await kube.get(SECRET, "a", "users")
    bench.user.merge(SECRET, "a", "users", {"metadata": {"labels": {"a": "b"}}})
    assert await asyncio.wait_for(bench.queues[0].get(), 5) == Key("a", "shop")
    bench.server.faults.clear()
    await bench.until(lambda: sum(path.endswith("/secrets") for path in bench.streams.opened) == 2)
    await asyncio.sleep(0.1)
    bench.server.log.reset()
    await asyncio.sleep(0.1)
    assert bench.server.log.is_empty


@in_virtual_time
async def test_space_that_changes_lists_only_its_namespace_and_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One tenant made each replica list all kinds of all namespaces every half minute."""
    monkeypatch.setattr(caches, "MAX_STORED_BYTES", 2 * MAX_PARSED_BYTES)
    monkeypatch.setattr(caches, "ENTRY_BYTES", MAX_PARSED_BYTES // 10)
    bench, lists = Bench(), list[tuple[float, str]]()
    answer = bench.server.request

    async def request(sent: Request) -> Response:
        if "limit" in sent.query:
            lists.append((asyncio.get_running_loop().time(), sent.path))
        return await answer(sent)

    def create(*names: str) -> None:
        labels = {ownership.MANAGED_BY: "op", ownership.INSTANCE: "a"}
        for name in names:
            bench.user.create(CONFIG_MAP, {"metadata": {"name": name, "namespace": "hostile", "labels": labels}})

    bench.watch.start()
    await asyncio.sleep(10)
    monkeypatch.setattr(bench.server, "request", request)
    create(*(f"first-{number}" for number in range(25)))
    for turn in range(60):
        create(*(f"new-{turn}-{number}" for number in range(12)))
        await asyncio.sleep(15)
        for _, name in sorted(bench.lanes[0][0].cache._kept[CONFIG_MAP])[:12]:
            bench.user.delete(CONFIG_MAP, "hostile", name)
        await asyncio.sleep(15)
        await bench.watch.readmit()
    assert {path for _, path in lists} == {CONFIG_MAP.path("hostile")}
    assert 3 <= len(lists) <= 6
    assert lists[0][0] < 60, "the first one is not late"
    await bench.watch.stop()
