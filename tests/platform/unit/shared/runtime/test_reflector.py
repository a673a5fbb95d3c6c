"""A collection stays in sync regardless of faults of its watch, as with client-go."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from shared.kubernetes import client
from shared.kubernetes.client import Kube, Request, Response
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, Key, Kind, Obj
from shared.kubernetes.streams import Event
from shared.observability import metrics
from shared.runtime.cache import Cache
from shared.runtime.reflector import LOSS_REPORTED_SECONDS, CachedContent, Content, Reflector
from simulator.api_server.streams import WatchServer
from simulator.faults import requests
from tests.harness import Actor, ApiServer
from tests.platform.unit.shared.kubernetes.test_streams import VALUES, Lines, content_of, line_of
from tests.support.virtual_time import in_virtual_time

OWNER = Key("default", "owner")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def key_of(_: Kind, obj: Obj) -> Key:
    return OWNER


class Bench:
    """A reflector of ConfigMaps in one namespace, on an in-memory API server, with a clock that only sleeps move."""

    def __init__(self, namespace: str = "default") -> None:
        self.server = ApiServer()
        self.streams = WatchServer(self.server)
        self.user: Actor = self.server.actor("kubectl")
        self.reported: list[Key] = []
        self.cache = Cache([CONFIG_MAP], key_of=key_of, changed=self.reported.append)
        self.now = 0.0
        self.slept: list[float] = []
        self.changes: list[bool] = []
        kube = Kube(self.server, manager="op")
        self.reflector = Reflector(
            self.streams,
            CachedContent(kube, CONFIG_MAP, namespace, "", [self.cache]),
            CONFIG_MAP,
            namespace,
            changed=self.changes.append,
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def write(self, name: str, **data: str) -> Obj:
        metadata = {"name": name, "namespace": "default"}
        return self.user.apply(
            CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, force=True
        )

    @property
    def content(self) -> dict[str, Any]:
        return {obj["metadata"]["name"]: obj.get("data") for obj in self.cache.all(CONFIG_MAP)}

    @property
    def truth(self) -> dict[str, Any]:
        return {obj["metadata"]["name"]: obj.get("data") for _, obj in self.server.objects(CONFIG_MAP)}

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(500):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("it did not become true")

    async def synced(self) -> None:
        await self.until(lambda: self.reflector.loss is None and self.content == self.truth)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    async with running(Bench()) as bench:
        bench.write("a", key="1")
        bench.write("b", key="1")
        await bench.synced()
        yield bench


@contextlib.asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[Bench]:
    task = asyncio.create_task(bench.reflector.run())
    try:
        yield bench
        assert not task.done(), "a reflector never ends"
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_long_list_is_stored_in_several_turns_of_the_event_loop() -> None:
    """Otherwise a page of large objects delays the renewal of the Lease."""
    bench = Bench()
    for number in range(300):
        bench.write(f"c-{number:03}")
    sizes = []
    async with running(bench):
        while bench.reflector.loss is not None:
            sizes.append(len(bench.cache.keys(CONFIG_MAP)) and len(bench.content))
            await asyncio.sleep(0)
    assert len(bench.content) == 300
    assert max(after - before for before, after in pairwise(sizes)) < 100


async def test_events_enter_the_cache(bench: Bench) -> None:
    bench.write("a", key="2")
    bench.write("c")
    bench.user.delete(CONFIG_MAP, "default", "b")
    await bench.synced()
    assert (bench.slept, len(bench.streams.opened)) == ([], 1)


MISSED: dict[str, Callable[[Bench], None]] = {
    "410": lambda bench: bench.streams.error(410),
    "500": lambda bench: bench.streams.error(500),
    "504": lambda bench: bench.streams.error(504),
    "without a code": lambda bench: bench.streams.line(b'{"type": "ERROR", "object": {"kind": "Status"}}'),
    "cut": lambda bench: bench.streams.cut(),
    "no JSON": lambda bench: bench.streams.line(b"<html>502 Bad Gateway</html>"),
    "no object": lambda bench: bench.streams.line(b'{"type": "ADDED"}'),
    "unknown type": lambda bench: bench.streams.line(b'{"type": "GUESSED", "object": {"metadata": {"name": "a"}}}'),
    "no version": lambda bench: bench.streams.line(b'{"type": "ADDED", "object": {"metadata": {"name": "a"}}}'),
    "older version": lambda bench: bench.streams.line(
        json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}).encode()
    ),
}


@pytest.mark.parametrize("fault", MISSED)
async def test_every_fault_of_a_watch_leads_to_a_relist(bench: Bench, fault: str) -> None:
    bench.streams.is_silent = True
    bench.write("a", key="missed")
    bench.user.delete(CONFIG_MAP, "default", "b")
    bench.streams.is_silent = False
    assert bench.content != bench.truth
    MISSED[fault](bench)
    await bench.until(lambda: bench.reflector.loss is not None)
    await bench.synced()
    assert len(bench.slept) == 1, "it backs off first"
    bench.write("c")
    await bench.synced()


async def test_object_that_cannot_be_stored_is_a_loss_and_not_a_gap(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.cache, "_key_of", lambda *_: 1 / 0)
    bench.write("c")
    await bench.until(lambda: len(bench.slept) > 3)
    assert bench.reflector.loss is not None
    monkeypatch.setattr(bench.cache, "_key_of", key_of)
    await bench.synced()


@pytest.mark.parametrize("code", [403, 404, 500])
async def test_refused_list_is_retried_for_ever_with_growing_delays(bench: Bench, code: int) -> None:
    bench.server.faults.answer(code, when=requests("GET", "/configmaps"), times=None)
    bench.streams.cut()
    await bench.until(lambda: len(bench.slept) == 12)
    assert all(later > earlier / 2 for earlier, later in zip(bench.slept, bench.slept[1:], strict=False))
    assert 0.8 <= bench.slept[0] <= 1.6
    assert 30 <= bench.slept[-1] <= 60
    assert bench.reflector.loss is not None
    assert f"injected fault: {code}" in str(bench.reflector.loss)
    assert bench.content == bench.truth, "what was known is kept"
    bench.server.faults.clear()
    await bench.synced()


async def test_watch_that_is_refused_is_a_loss_although_the_list_succeeds() -> None:
    bench = Bench()
    bench.server.faults.answer(403, when=requests("GET", "/configmaps"), skip=1, times=3)
    async with running(bench):
        await bench.until(lambda: len(bench.slept) == 1)
        assert bench.reflector.loss is not None
        await bench.synced()


async def test_retry_after_is_respected(bench: Bench) -> None:
    bench.server.faults.answer(429, when=requests("GET", "/configmaps"), retry_after=77)
    bench.streams.cut()
    await bench.until(lambda: bench.slept[-1:] == [77])


async def test_delays_begin_again_after_a_calm_time(bench: Bench) -> None:
    for _ in range(4):
        bench.streams.cut()
        await bench.until(lambda: bench.reflector.loss is not None)
        await bench.synced()
    assert bench.slept[-1] >= 6.4
    bench.now += 200
    bench.streams.cut()
    await bench.until(lambda: bench.reflector.loss is not None)
    await bench.synced()
    assert bench.slept[-1] <= 1.6


async def test_restored_control_plane_is_followed(bench: Bench) -> None:
    backup = bench.server.fork(lambda: NOW)
    for number in range(20):
        bench.write("a", key=str(number))
    bench.write("later")
    await bench.synced()
    bench.server.restore(backup)
    bench.streams.cut()
    await bench.until(lambda: bench.reflector.loss is not None)
    await bench.synced()
    assert set(bench.content) == {"a", "b"}
    bench.write("a", key="after")
    bench.write("later")
    await bench.synced()


async def test_restore_without_an_error_is_recovered_by_a_refresh(bench: Bench) -> None:
    """The watch stays open and sends nothing: its version is in the future of the restored server."""
    backup = bench.server.fork(lambda: NOW)
    for number in range(20):
        bench.write("a", key=str(number))
    await bench.synced()
    bench.server.restore(backup)
    bench.now += 300
    bench.streams.end()
    await bench.until(lambda: len(bench.streams.opened) == 2)
    bench.write("a", key="after")
    await asyncio.sleep(0.01)
    assert bench.content != bench.truth
    await bench.reflector.refresh()
    await bench.synced()
    assert bench.slept == []


async def test_refresh_does_not_cut_the_watch(bench: Bench) -> None:
    bench.streams.is_silent = True
    bench.write("a", key="missed")
    bench.user.delete(CONFIG_MAP, "default", "b")
    bench.streams.is_silent = False
    bench.server.seconds = lambda _: 0.05
    refreshing = asyncio.create_task(bench.reflector.refresh())
    await asyncio.sleep(0.02)
    bench.write("c")
    await bench.until(lambda: "c" in bench.content)
    await refreshing
    assert bench.content == bench.truth
    assert (len(bench.streams.opened), bench.slept) == (1, []), "the watch was not cut"


async def test_refresh_that_fails_loses_nothing(bench: Bench) -> None:
    bench.server.faults.answer(503, when=requests("GET", "/configmaps"))
    await bench.reflector.refresh()
    assert (bench.reflector.loss, len(bench.streams.opened)) == (None, 1)


async def test_refresh_ends_when_its_watch_breaks(bench: Bench) -> None:
    """The pages of the refresh are older than those of the load that follows, and would overwrite them."""
    bench.server.seconds = lambda _: 0.05
    refreshing = asyncio.create_task(bench.reflector.refresh())
    await asyncio.sleep(0.02)
    bench.streams.cut()
    await bench.until(lambda: bench.reflector.loss is not None)
    bench.server.seconds = lambda _: 0.0
    await asyncio.wait_for(refreshing, 1)
    await bench.synced()


async def test_collection_is_loaded_at_once_when_the_server_is_back(bench: Bench) -> None:
    """A watch without an answer, a load that hangs and a delay end; the next error has the first delay again."""
    for breaks in (True, False):
        bench.streams.is_silent = not breaks
        if breaks:
            bench.streams.cut()
        bench.write("a", key=f"after {breaks}")
        bench.server.seconds = lambda _: 3600.0
        await asyncio.sleep(0.01)
        bench.server.seconds, bench.streams.is_silent = lambda _: 0.0, False
        bench.now += LOSS_REPORTED_SECONDS
        bench.reflector.restart()
        assert bench.reflector.loss is not None
        assert bench.reflector.loss.seconds == 0, "nothing is reported in statuses"
        await bench.synced()
    bench.streams.cut()
    await bench.until(lambda: bench.reflector.loss is not None)
    await bench.synced()
    assert 0.8 <= bench.slept[-1] <= 1.6


async def test_watch_that_ends_in_good_order_continues_without_a_list(bench: Bench) -> None:
    lists = value(metrics.WATCH_LISTS)
    bench.write("c")
    await bench.synced()
    bench.now += 300
    bench.streams.end()
    bench.write("d")
    await bench.synced()
    assert len(bench.streams.opened) == 2
    assert value(metrics.WATCH_LISTS) == lists


class Noted(Content):
    """A collection of which the loads and the events are noted."""

    accept = "application/json"

    def __init__(self) -> None:
        self.loads = 0
        self.names: list[str] = []
        self.taken = asyncio.Event()

    async def load(self, namespace: str | None = None) -> int:
        self.loads += 1
        return 1

    def take(self, event: Event) -> None:
        self.names.append(event.obj["metadata"]["name"])
        self.taken.set()


@in_virtual_time
async def test_many_large_objects_are_no_loss_when_the_watch_ends_in_good_order() -> None:
    """One tenant would have stopped the observation of all whenever the API server ended a watch."""
    lines = Lines(iter([line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 102)]), seconds=9, stays=300)
    content, changes = Noted(), list[bool]()
    reflector = Reflector(lines, content, CONFIG_MAP, None, changed=lambda _: changes.append(reflector.loss is None))
    task = asyncio.create_task(reflector.run())
    await asyncio.sleep(1_000)
    task.cancel()
    assert sorted(content.names) == sorted(f"large-{at}" for at in range(2, 102))
    assert content.loads == 1
    assert all(changes)


@in_virtual_time
async def test_list_replaces_the_large_objects_that_were_not_read() -> None:
    lines = Lines(iter([line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 12)]), stays=30)
    lines._error, lines._seconds = Unavailable("broken"), 9
    content = Noted()
    task = asyncio.create_task(Reflector(lines, content, CONFIG_MAP, None).run())
    await asyncio.sleep(35)
    assert content.loads == 2
    lines._error = None
    await asyncio.sleep(300)
    task.cancel()
    assert len(content.names) == 3


async def test_large_event_does_not_stay_in_memory() -> None:
    """Each operator has ten watches, and the next event of each may come after hours."""

    class Paused(Lines):
        async def _lines(self) -> AsyncIterator[bytes]:
            yield line_of("a", "large", 2, values=50_000)
            await asyncio.sleep(60)

        async def _object(self, path: str) -> AsyncIterator[bytes]:
            yield content_of(line_of("a", "large", 2, values=50_000))

    content = Noted()
    task = asyncio.create_task(Reflector(Paused([]), content, CONFIG_MAP, None).run())
    await asyncio.sleep(0)
    tracemalloc.start()
    try:
        await asyncio.wait_for(content.taken.wait(), 10)
        await asyncio.sleep(0.1)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        task.cancel()
    assert most > 1_000_000
    assert kept < 150_000


async def test_watch_that_ends_at_once_is_an_error(bench: Bench) -> None:
    bench.streams.end()
    await bench.until(lambda: len(bench.slept) == 1)
    await bench.synced()


async def test_expired_version_leads_to_a_relist(bench: Bench) -> None:
    bench.write("c")
    await bench.synced()
    bench.now += 300
    bench.streams.compacted = bench.server.version + 1
    bench.streams.end()
    await bench.until(lambda: bench.reflector.loss is not None)
    bench.streams.compacted = 0
    await bench.synced()


async def test_bookmark_moves_the_version_of_an_idle_collection(bench: Bench) -> None:
    for number in range(9):
        bench.user.create(SECRET, {"metadata": {"name": f"s-{number}", "namespace": "default"}})
    bench.streams.bookmark()
    await asyncio.sleep(0.01)
    bench.now += 300
    bench.streams.compacted = bench.server.version
    bench.streams.end()
    bench.write("c")
    await bench.synced()
    assert bench.slept == []


async def test_page_token_that_expires_leads_to_a_new_list(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def change() -> None:
        bench.user.delete(CONFIG_MAP, "default", "b")
        bench.server.compact()

    monkeypatch.setattr(client, "FIRST_PAGE_ITEMS", 1)
    between_pages(bench, monkeypatch, change)
    bench.streams.cut()
    await bench.until(lambda: len(bench.slept) == 2)
    await bench.synced()


async def test_changes_between_pages_are_neither_missed_nor_undone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "cdefg":
        bench.write(name, key="1")
    await bench.synced()

    def recreate() -> None:
        bench.user.delete(CONFIG_MAP, "default", "a")
        bench.write("a", key="2")

    monkeypatch.setattr(client, "FIRST_PAGE_ITEMS", 2)
    monkeypatch.setattr(client, "MAX_PAGE_ITEMS", 2)
    delete, write = partial(bench.user.delete, CONFIG_MAP, "default"), bench.write
    changes = (lambda: (delete("b"), delete("f")), lambda: (write("ab"), write("g", key="2")), recreate)
    left = between_pages(bench, monkeypatch, *changes)
    await bench.reflector.refresh()
    assert not left
    await bench.synced()
    assert set(bench.content) == set("acdeg") | {"ab"}


def between_pages(bench: Bench, monkeypatch: pytest.MonkeyPatch, *changes: Callable[[], object]) -> list[object]:
    """Make one change after each page of the next list; return those that are left."""
    request = bench.server.request
    left: list[Any] = list(changes)

    async def answer(sent: Request) -> Response:
        answered = await request(sent)
        if left and "limit" in sent.query:
            left.pop(0)()
        return answered

    monkeypatch.setattr(bench.server, "request", answer)
    return left


async def test_loss_is_reported_when_it_lasts_and_when_it_ends(bench: Bench) -> None:
    assert True not in bench.changes
    bench.streams.cut()
    await bench.until(lambda: bench.reflector.loss is not None)
    await bench.synced()
    assert True not in bench.changes, "a short loss is not reported"
    bench.server.faults.answer(403, when=requests("GET", "/configmaps"), times=None)
    bench.streams.cut()
    await bench.until(lambda: bench.now > 300)
    assert bench.changes.count(True) == 1
    assert bench.reflector.loss is not None
    assert bench.reflector.loss.seconds > LOSS_REPORTED_SECONDS
    bench.server.faults.clear()
    await bench.synced()
    assert bench.changes.count(True) == 2


def value(metric: Any, *labels: str) -> float:
    return float(metric.labels("ConfigMap", "default", *labels)._value.get())


async def test_metrics_show_lists_errors_and_losses(bench: Bench) -> None:
    lists, errors = value(metrics.WATCH_LISTS), value(metrics.WATCH_ERRORS, "410")
    assert value(metrics.WATCH_SYNCED) == 1
    bench.streams.error(410)
    await bench.until(lambda: bench.reflector.loss is not None)
    assert value(metrics.WATCH_SYNCED) == 0
    await bench.synced()
    assert value(metrics.WATCH_SYNCED) == 1
    assert (value(metrics.WATCH_LISTS) - lists, value(metrics.WATCH_ERRORS, "410") - errors) == (1, 1)
    assert value(metrics.WATCH_LAST_EVENT) > 1e9


async def test_collection_is_lost_when_its_reflector_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as by the cancellation of a connection that it waits for."""
    bench = Bench("ended")
    task = asyncio.create_task(bench.reflector.run())
    synced = metrics.WATCH_SYNCED.labels("ConfigMap", "ended")._value
    for _ in range(20):
        await asyncio.sleep(0)
    assert synced.get() == 1
    assert bench.reflector.loss is None

    async def cancelled() -> int:
        waiter: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiter.cancel()
        return await waiter

    monkeypatch.setattr(bench.reflector._content, "load", cancelled)
    bench.reflector.restart()
    await asyncio.wait({task})
    assert task.cancelled()
    assert synced.get() == 0
    assert bench.reflector.loss is not None
