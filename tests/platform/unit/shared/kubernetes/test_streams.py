"""Large events of one namespace delay no others, and what a watch delivers at last is what the server sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from itertools import count, repeat

import pytest
from hypothesis import given, strategies

from shared.kubernetes.client import Request
from shared.kubernetes.errors import Forbidden, NotFound, Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, Key, Obj
from shared.kubernetes.streams import ADDED, DELETED, LARGE_LINE_BYTES, MODIFIED, Event, Streams, open_watch
from shared.runtime.cache import Cache
from tests.harness import cost
from tests.support.virtual_time import in_virtual_time

VALUES = 20_000


def line_of(namespace: str, name: str, version: int, *, values: int = 1, kind: str = MODIFIED) -> bytes:
    metadata = {"name": name, "namespace": namespace, "resourceVersion": str(version)}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"a": ["x"] * values}}
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode()


_NAMED = re.compile(rb'{"type":"(\w+)","object":(?=.{,200}"name":"([^"]+)","namespace":"([^"]+)")')


class Lines(Streams):
    """A watch that delivers lines at once, and then ends or fails; objects can be read as they were delivered last.

    Args:
        stays: time until the end, in seconds.
        answers: the first answers to reads by name.
        seconds: time that each read by name takes.

    Attributes:
        read: number of lines that were read.
        requested: paths of the objects that were read by name.
    """

    def __init__(
        self,
        lines: Iterable[bytes],
        *,
        error: Exception | None = None,
        stays: float = 0,
        answers: Iterable[bytes | Exception] = (),
        seconds: float = 0,
    ) -> None:
        self._all = lines
        self._error = error
        self._stays = stays
        self._answers = iter(answers)
        self._seconds = seconds
        self.read = 0
        self.requested: list[str] = []
        self._objects: dict[str, tuple[bytes, int] | None] = {}

    @contextlib.asynccontextmanager
    async def stream(self, request: Request, *, accept: str) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines() if "watch" in request.query else self._object(request.path)

    async def _object(self, path: str) -> AsyncIterator[bytes]:
        self.requested.append(path)
        await asyncio.sleep(self._seconds)
        if (answer := next(self._answers, None)) is not None:
            if isinstance(answer, Exception):
                raise answer
            yield answer
            return
        if (last := self._objects.get(path)) is None:
            raise NotFound(path)
        line, begin = last
        yield line[begin:-1]

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in self._all:
            self.read += 1
            self._note(line)
            yield line
            await asyncio.sleep(0)
        await asyncio.sleep(self._stays)
        if self._error is not None:
            raise self._error

    def _note(self, line: bytes) -> None:
        found = _NAMED.match(line)
        assert found is not None
        kind, name, namespace = (each.decode() for each in found.groups())
        self._objects[CONFIG_MAP.path(namespace, name)] = (line, found.end()) if kind != DELETED else None


class Chunk(Lines):
    """Lines of which the socket has all at once."""

    async def _lines(self) -> AsyncIterator[bytes]:
        for line in self._all:
            yield line


async def events_of(lines: Streams, waiting: dict[str, dict[str, Event]] | None = None) -> AsyncIterator[Event]:
    async with open_watch(lines, CONFIG_MAP, None, since=1, seconds=60, waiting=waiting) as events:
        async for event in events:
            yield event


@in_virtual_time
async def test_stream_of_large_events_of_one_object_delays_no_other_namespace() -> None:
    """Only its last state counts, as in a queue of keys."""
    large = [line_of("a", "large", at, values=VALUES) for at in range(2, 202)]
    found = [event async for event in events_of(Lines([*large, line_of("b", "small", 300)], stays=600))]
    names = [event.obj["metadata"]["name"] for event in found]
    assert names.count("large") <= names.index("small") + 1 <= 3
    assert found[-1].obj["metadata"]["resourceVersion"] == "201"


async def test_small_events_take_few_turns_of_the_event_loop() -> None:
    """A turn may take 50 ms while the operator has other work, and a collection has thousands of objects."""
    turns, loop = count(), asyncio.get_running_loop()

    def turn() -> None:
        next(turns)
        handles[:] = [loop.call_soon(turn)]

    handles = [loop.call_soon(turn)]
    found = [event async for event in events_of(Chunk(line_of("a", f"small-{at}", at) for at in range(2, 1002)))]
    handles[0].cancel()
    assert len(found) == 1000
    assert next(turns) < 200


@in_virtual_time
async def test_large_events_take_a_fifth_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = iter(range(1_000))
    monkeypatch.setattr(time, "thread_time", lambda: next(cpu) / 10)
    lines = Lines((line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 42)), stays=600)
    times = [asyncio.get_running_loop().time() async for _ in events_of(lines)]
    assert times[-1] == pytest.approx(0.4 * 39)


@in_virtual_time
async def test_large_events_of_all_watches_take_a_fifth_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator has ten watches."""
    cpu = iter(range(1_000))
    monkeypatch.setattr(time, "thread_time", lambda: next(cpu) / 10)

    async def follow() -> float:
        lines = Lines((line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 12)), stays=600)
        return [asyncio.get_running_loop().time() async for _ in events_of(lines)][-1]

    assert max(await asyncio.gather(*(follow() for _ in range(10)))) >= 0.4 * 90


@in_virtual_time
async def test_large_objects_that_were_not_read_when_the_watch_ends_are_read_by_the_next_one() -> None:
    """Until they were read, no watch would deliver the events of others."""
    lines = Lines(iter([line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 102)]), seconds=9, stays=30)
    waiting = dict[str, dict[str, Event]]()
    first = [event async for event in events_of(lines, waiting)]
    assert asyncio.get_running_loop().time() == pytest.approx(30, abs=1)
    assert len(first) == 3
    lines._stays = 1_000
    following = [event async for event in events_of(lines, waiting)]
    assert {event.obj["metadata"]["name"] for event in (*first, *following)} == {f"large-{at}" for at in range(2, 102)}
    assert waiting == {}


@in_virtual_time
async def test_read_of_a_large_object_delays_no_small_event() -> None:
    lines = Lines([line_of("a", "large", 2, values=VALUES), line_of("b", "small", 3)], seconds=9, stays=60)
    found = [(event.obj["metadata"]["name"], asyncio.get_running_loop().time()) async for event in events_of(lines)]
    assert [name for name, _ in found] == ["small", "large"]
    assert [at for _, at in found] == pytest.approx([0, 9], abs=1)


@in_virtual_time
async def test_large_object_that_cannot_be_read_delays_no_other_namespace() -> None:
    of_two = [line_of(namespace, "large", at, values=VALUES) for at, namespace in enumerate("ab", 2)]
    lines = Lines(of_two, answers=[Unavailable("Too Many Requests")], stays=60)
    found = [
        (event.obj["metadata"]["namespace"], asyncio.get_running_loop().time()) async for event in events_of(lines)
    ]
    assert [namespace for namespace, _ in found] == ["b", "a"]
    assert [at for _, at in found] == pytest.approx([0, 10], abs=1)


def content_of(line: bytes) -> bytes:
    return line[line.index(b'"object":') + len(b'"object":') : -1]


WRONG: dict[str, bytes | Exception] = {
    "nothing": b"",
    "no JSON": b"<html>",
    "an error with the status 200": b'{"kind":"Status","apiVersion":"v1","code":500}',
    "an object of another name": content_of(line_of("a", "other", 9)),
    "an object of another namespace": content_of(line_of("other", "large", 9)),
    "no permission": Forbidden("configmaps is forbidden", status=403),
    "credentials that expired": Forbidden("Unauthorized", status=401),
    "no answer": TimeoutError(),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_large_object_is_read_again_after_a_wrong_answer(wrong: str, caplog: pytest.LogCaptureFixture) -> None:
    @in_virtual_time
    async def run() -> None:
        of_two = [line_of("a", "large", 2, values=VALUES), line_of("b", "small", 3)]
        lines = Lines(of_two, answers=[WRONG[wrong]], stays=60)
        found = [(event.type, event.obj["metadata"]["name"]) async for event in events_of(lines)]
        assert found == [(MODIFIED, "small"), (MODIFIED, "large")]

    run()
    (message,) = caplog.messages
    assert message.startswith("ConfigMap a/large: not read after an event, and retried: ")
    assert not message.endswith(": ")


@in_virtual_time
async def test_large_object_that_cannot_be_read_waits_and_delays_no_small_event() -> None:
    of_two = [line_of("a", "large", 2, values=VALUES), line_of("b", "small", 3)]
    lines = Lines(of_two, answers=repeat(Unavailable("Too Many Requests"), 2), stays=600)
    found = [(event.obj["metadata"]["name"], asyncio.get_running_loop().time()) async for event in events_of(lines)]
    assert [name for name, _ in found] == ["small", "large"]
    assert found[0][1] < 1
    assert found[1][1] == pytest.approx(20, abs=1)


@in_virtual_time
async def test_many_large_objects_of_one_namespace_delay_no_small_event_of_another() -> None:
    """More than 2 MiB of them waited, so that nothing more was read."""
    of_many = [line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 62)]
    found = [event async for event in events_of(Lines([*of_many, line_of("b", "small", 62)], stays=600))]
    namespaces = [event.obj["metadata"]["namespace"] for event in found]
    assert len(namespaces) == 61
    assert namespaces.index("b") <= 3


@in_virtual_time
async def test_large_event_has_the_present_object() -> None:
    of_many = [line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 62)]
    deleted = line_of("a", "large-2", 62, kind=DELETED, values=VALUES)
    changed = line_of("a", "large-3", 63, values=2 * VALUES)
    lines = Lines([*of_many, deleted, changed, line_of("b", "small", 64)], stays=600)
    found = [event async for event in events_of(lines)]
    last = {event.obj["metadata"]["name"]: event for event in found}
    assert {CONFIG_MAP.path("a", f"large-{at}") for at in range(3, 62)} <= {*lines.requested}
    assert last["large-2"].type == DELETED
    assert len(last["large-3"].obj["data"]["a"]) == 2 * VALUES
    assert all(len(last[f"large-{at}"].obj["data"]["a"]) == VALUES for at in range(4, 62))
    assert sorted(event.version for event in found) == [event.version for event in found]


@in_virtual_time
async def test_large_events_take_turns_by_namespace() -> None:
    of_many = [line_of("a", f"large-{at}", at, values=VALUES) for at in range(2, 42)]
    found = [event async for event in events_of(Lines([*of_many, line_of("b", "large", 50, values=VALUES)], stays=600))]
    namespaces = [event.obj["metadata"]["namespace"] for event in found]
    assert len(namespaces) == 41
    assert namespaces.index("b") <= 3


async def test_large_events_that_wait_take_little_memory() -> None:
    """Only their names wait."""
    size = 1024 * 1024

    class Forgotten(Lines):
        """Objects that are deleted before they are read."""

        def _note(self, line: bytes) -> None:
            pass

    lines = Forgotten((line_of("a", f"large-{at}", at, values=size // 4) for at in range(2, 34)), stays=60)
    delivered = 0
    async with cost.bounded(seconds=1, size=16 * size):
        async for event in events_of(lines):
            assert event.type == DELETED
            delivered += 1
            if delivered == 32:
                break


async def test_large_event_of_another_kind_is_an_error() -> None:
    line = line_of("a", "large", 2, values=VALUES).replace(b'"ConfigMap"', b'"Pod"')
    with pytest.raises(Unavailable, match="unexpected event MODIFIED of Pod"):
        async for _ in events_of(Lines([line])):
            pass


async def test_broken_watch_is_not_drained_first() -> None:
    lines = Lines(repeat(line_of("a", "large", 2, values=VALUES), 3), error=Unavailable("broken"))
    with pytest.raises(Unavailable, match="broken"):
        async for _ in events_of(lines):
            pass


@given(
    end=strategies.integers(0, 30),
    history=strategies.lists(
        strategies.tuples(strategies.sampled_from("ab"), strategies.sampled_from("xyz"), strategies.integers(0, 2)),
        max_size=30,
    ),
)
def test_cache_has_at_last_what_the_server_has(end: int, history: list[tuple[str, str, int]]) -> None:
    """Small events overtake large ones, which are read by name later; the versions of the objects order them.

    The API server ends the watch in between.
    """
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

    @in_virtual_time
    async def run() -> dict[Key, int]:
        cache = Cache([CONFIG_MAP], key_of=key_of, changed=lambda _: None)
        served, waiting = Lines(lines[:end]), dict[str, dict[str, Event]]()
        for following, stays in (lines[end:], 600), ([], 0):
            version = 0
            async for event in events_of(served, waiting):
                assert event.version >= version
                version = event.version
                (cache.on_deleted if event.type == DELETED else cache.on_changed)(CONFIG_MAP, event.obj)
            served._all, served._stays = following, stays
        return {key_of(None, obj): int(obj["metadata"]["resourceVersion"]) for obj in cache.all(CONFIG_MAP)}

    assert run() == truth
