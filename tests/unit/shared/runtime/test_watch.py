"""Objects of a watch stream enter the cache, everything else goes to kopf; `tests/api` tests a real stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import POD, Key, Kind, Obj
from shared.runtime.cache import Cache
from shared.runtime.watch import Entered

OWNER = Key("default", "owner")


def line(kind: str, name: str = "", version: int = 0) -> bytes:
    obj: Obj = {"kind": "Pod", "metadata": {"name": name, "namespace": "default", "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


BOOKMARK = line("BOOKMARK", version=4)
DELETED = json.dumps({"type": "ERROR", "object": {"code": 410}}).encode() + b"\n"
BORN = [line("ADDED", "a", 1), line("ADDED", "b", 2)]
STREAM = [*BORN, line("MODIFIED", "a", 3), BOOKMARK, line("DELETED", "b", 5), DELETED]


class Content:
    """A body that arrives in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece

    def exception(self) -> str:
        return "of the content"


def cut(text: bytes, at: list[int]) -> list[bytes]:
    positions = [0, *sorted(at), len(text)]
    return [text[start:end] for start, end in pairwise(positions)]


@given(st.lists(st.integers(0, sum(map(len, STREAM))), max_size=12))
async def test_objects_enter_the_cache_wherever_the_stream_is_split(at: list[int]) -> None:
    reported: list[Key] = []
    cache = Cache([POD], key_of=lambda *_: OWNER, changed=reported.append)
    content: Any = Content(cut(b"".join(STREAM), at))
    read = b"".join([chunk async for chunk in Entered(content, (cache,), POD).iter_chunked(1024)])
    assert read == BOOKMARK + DELETED
    assert [obj["metadata"]["resourceVersion"] for obj in cache.owned(POD, OWNER)] == ["3"]
    assert reported == [OWNER] * 4


async def test_cache_takes_only_its_own_objects_of_a_shared_kind() -> None:
    reported: list[str] = []

    def of(mine: str) -> Cache:
        def key_of(_: Kind, obj: Obj) -> Key | None:
            return OWNER if obj["metadata"]["name"] == mine else None

        return Cache([POD], key_of=key_of, changed=lambda _: reported.append(mine))

    caches = [of("a"), of("b")]
    content: Any = Content(STREAM)
    read = b"".join([chunk async for chunk in Entered(content, caches, POD).iter_chunked(1024)])
    assert read == BOOKMARK + DELETED
    assert [[obj["metadata"]["name"] for obj in cache.owned(POD, OWNER)] for cache in caches] == [["a"], []]
    assert reported == ["a", "b", "a", "b"]


async def test_truncated_line_is_ignored() -> None:
    cache = Cache([POD], key_of=lambda *_: OWNER, changed=lambda _: None)
    content: Any = Content([BORN[0] + BORN[1][:-1]])
    assert [chunk async for chunk in Entered(content, (cache,), POD).iter_chunked(1024)] == []
    assert [obj["metadata"]["name"] for obj in cache.owned(POD, OWNER)] == ["a"]


def test_other_attributes_are_those_of_the_content() -> None:
    content: Any = Content([])
    assert Entered(content, (), POD).exception() == "of the content"
