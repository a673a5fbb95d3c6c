"""Large events of one namespace delay no others, and what a watch delivers at last is what the server sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterable
from itertools import repeat

import pytest
from hypothesis import given, strategies

from shared.kubernetes import streams
from shared.kubernetes.client import Request
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, Key, Obj
from shared.kubernetes.streams import ADDED, DELETED, LARGE_LINE_BYTES, MODIFIED, Event, Streams, open_watch
from shared.runtime.cache import Cache
from tests.support.virtual_time import in_virtual_time

VALUES = 20_000


def line_of(namespace: str, name: str, version: int, *, values: int = 1, kind: str = MODIFIED) -> bytes:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": ["x"] * values}}
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode()


class Lines(Streams):
    """A watch that delivers lines at once, and then ends or fails.

    Attributes:
        read: number of lines that were read.
    """

    def __init__(self, lines: Iterable[bytes], *, error: Exception | None = None) -> None:
        self._all = lines
        self._error = error
        self.read = 0

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in self._all:
            self.read += 1
            yield line
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error


async def events_of(lines: Streams) -> AsyncIterator[Event]:
    async with open_watch(lines, CONFIG_MAP, None, since=1, seconds=60) as events:
        async for event in events:
            yield event


async def test_stream_of_large_events_of_one_object_delays_no_other_namespace() -> None:
    """Only its last state counts, as in a queue of keys."""
    large = [line_of("a", "large", at, values=VALUES) for at in range(2, 202)]
    found = [event async for event in events_of(Lines([*large, line_of("b", "small", 300)]))]
    names = [event.obj["metadata"]["name"] for event in found]
    assert names.count("large") <= names.index("small") + 1 <= 3
    assert found[-1].obj["metadata"]["resourceVersion"] == "201"


@in_virtual_time
async def test_large_events_take_a_fifth_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = iter(range(1_000))
    monkeypatch.setattr(time, "thread_time", lambda: next(cpu) / 10)
    lines = Lines(line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 12))
    async for _ in events_of(lines):
        pass
    assert asyncio.get_running_loop().time() == pytest.approx(0.4 * 9)


async def test_large_events_take_turns_by_namespace() -> None:
    of_many = [line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 22)]
    found = [event async for event in events_of(Lines([*of_many, line_of("b", "large", 50, values=VALUES)]))]
    namespaces = [event.obj["metadata"]["namespace"] for event in found]
    assert len(namespaces) == 21
    assert namespaces.index("b") <= 3


@in_virtual_time
async def test_large_events_that_wait_take_little_memory() -> None:
    size = 1024 * 1024
    lines = Lines(line_of("a", f"large-{at}", at, values=size // 4) for at in range(2, 34))
    delivered = 0
    async for _ in events_of(lines):
        delivered += 1
        assert lines.read - delivered <= streams.MAX_WAITING_BYTES / size + 2
    assert delivered == 32


async def test_broken_watch_is_not_drained_first() -> None:
    lines = Lines(repeat(line_of("a", "large", 2, values=VALUES), 3), error=Unavailable("broken"))
    with pytest.raises(Unavailable, match="broken"):
        async for _ in events_of(lines):
            pass


@given(
    history=strategies.lists(
        strategies.tuples(strategies.sampled_from("ab"), strategies.sampled_from("xyz"), strategies.integers(0, 2)),
        max_size=30,
    )
)
def test_cache_has_at_last_what_the_server_has(history: list[tuple[str, str, int]]) -> None:
    """Small events overtake large ones; the versions of the objects order them."""
    lines, truth = list[bytes](), dict[Key, int]()
    for version, (namespace, name, form) in enumerate(history, 2):
        key = Key(namespace, name)
        if form == 2 and key in truth:
            del truth[key]
            lines.append(line_of(namespace, name, version, kind=DELETED, values=version % 2 * LARGE_LINE_BYTES))
        else:
            kind = MODIFIED if key in truth else ADDED
            truth[key] = version
            lines.append(line_of(namespace, name, version, kind=kind, values=form % 2 * LARGE_LINE_BYTES))

    def key_of(_: object, obj: Obj) -> Key:
        return Key(obj["metadata"]["namespace"], obj["metadata"]["name"])

    async def run() -> dict[Key, int]:
        cache = Cache([CONFIG_MAP], key_of=key_of, changed=lambda _: None)
        version = 0
        async for event in events_of(Lines(lines)):
            assert event.version >= version
            version = event.version
            (cache.on_deleted if event.type == DELETED else cache.on_changed)(CONFIG_MAP, event.obj)
        return {key_of(None, obj): int(obj["metadata"]["resourceVersion"]) for obj in cache.all(CONFIG_MAP)}

    assert asyncio.run(run()) == truth
