"""What a database of etcd holds, read from its file: the newest revision, and the version that wrote it.

etcd keeps everything in one file of bbolt: pages of which the first two name the root of a tree of buckets. A few pages
are enough to tell, wherever the file is: whoever asks brings a way to read a piece of it.

Sources: https://pkg.go.dev/go.etcd.io/bbolt (bbolt's internal/common/{meta,page,bucket}.go), and etcd's
server/storage/schema/bucket.go and server/storage/mvcc/{revision,kvstore}.go.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

Read = Callable[[int, int], Awaitable[bytes]]
"""Reads so many bytes from an offset; fewer come only at the end."""

_PAGE = struct.Struct("<QHHI")  # its number, flags, how many elements, how many further pages it takes
_META = struct.Struct(
    "<IIIIQQQQQQ"
)  # magic, version, page size, flags, root, sequence, freelist, pages, txid, checksum
_BRANCH_ELEMENT = struct.Struct("<IIQ")  # where its key is from here, how long that is, the page below
_LEAF_ELEMENT = struct.Struct("<IIII")  # flags, where its key is from here, how long that is, and its value
_BUCKET = struct.Struct("<QQ")  # the page of its root, 0 where that follows at once; sequence

_MAGIC, _VERSION = 0xED0CDAED, 2
_BRANCH, _LEAF = 0x01, 0x02

_MAX_DEPTH = 64
_MAX_PAGE_BYTES = 256 << 20
"""Bounds of what a sound file has: a tree of 64 levels, and no single page of more than a huge value."""


class NotADatabase(ValueError):
    """It is no file of bbolt, or not a whole one; the text says in what it differs."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What stands in a database.

    Attributes:
        revision: of its newest change.
        version: of etcd that its data is of, such as 3.6.0; empty where it is not written, as mostly before 3.5.
    """

    revision: int
    version: str


async def contents(read: Read) -> Contents:
    """What a database holds.

    Raises:
        NotADatabase: it is none.
    """
    try:
        root = await _root(read)
        keys, meta, cluster = [await root.bucket(name) for name in (b"key", b"meta", b"cluster")]
        if keys is None or meta is None:
            raise NotADatabase("it has no buckets key and meta: it is not etcd's")
        # What was compacted away counts: the newest key may have been among it.
        revisions = [await keys.last(), await meta.get(b"scheduledCompactRev"), await meta.get(b"finishedCompactRev")]
        versions = [await meta.get(b"storageVersion"), await cluster.get(b"clusterVersion") if cluster else None]
        return Contents(
            revision=max([1, *(int.from_bytes(found[:8], "big") for found in revisions if found)]),
            version=max((found.decode() for found in versions if found), key=_by_number, default=""),
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotADatabase(f"it is cut off or damaged: {error}") from None


class _Tree:
    """A bucket: a tree of pages, whose keys are in order.

    Args:
        root: its first page.
    """

    def __init__(self, read: Read, page_size: int, root: bytes) -> None:
        self._read = read
        self._page_size = page_size
        self._root = root

    async def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if there is none."""
        page = self._root
        for _ in range(_MAX_DEPTH):
            if _is_leaf(page):
                return next((value for found, value in _leaves(page) if found == key), None)
            below = [number for found, number in _branches(page) if found <= key]
            if not below:
                return None
            page = await _page(self._read, self._page_size, below[-1])
        raise NotADatabase("its tree has no end")

    async def last(self) -> bytes | None:
        """The greatest key; None if there is none at all."""
        page = self._root
        for _ in range(_MAX_DEPTH):
            if _is_leaf(page):
                return max((found for found, _ in _leaves(page)), default=None)
            page = await _page(self._read, self._page_size, [number for _, number in _branches(page)][-1])
        raise NotADatabase("its tree has no end")

    async def bucket(self, name: bytes) -> _Tree | None:
        """A bucket in this one."""
        value = await self.get(name)
        if value is None:
            return None
        number, _ = _BUCKET.unpack_from(value)
        inline = value[_BUCKET.size :]
        page = await _page(self._read, self._page_size, number) if number else inline
        return _Tree(self._read, self._page_size, page)


async def _root(read: Read) -> _Tree:
    """The tree of the newer of both meta pages that are whole: a commit writes them in turn."""
    first = await read(0, _PAGE.size + _META.size)
    if len(first) < _PAGE.size + _META.size:
        raise NotADatabase("it is empty, or cut off at once")
    page_size = _META.unpack_from(first, _PAGE.size)[2]
    found = [first]
    if 1024 <= page_size <= 65536:
        found.append(await read(page_size, _PAGE.size + _META.size))
    whole = [meta for meta in map(_meta, found) if meta is not None]
    if not whole:
        raise NotADatabase("it does not begin as a file of bbolt does")
    _, page_size, root = max(whole)
    return _Tree(read, page_size, await _page(read, page_size, root))


def _meta(page: bytes) -> tuple[int, int, int] | None:
    """Transaction, page size and root of a meta page; None if it is not whole."""
    if len(page) < _PAGE.size + _META.size:
        return None
    magic, version, page_size, _, root, _, _, _, transaction, checksum = _META.unpack_from(page, _PAGE.size)
    summed = page[_PAGE.size : _PAGE.size + _META.size - 8]
    sound = (magic, version, checksum) == (_MAGIC, _VERSION, _fnv(summed))
    return (transaction, page_size, root) if sound else None


def _fnv(text: bytes) -> int:
    """FNV-1a of 64 bits."""
    found = 0xCBF29CE484222325
    for byte in text:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


async def _page(read: Read, page_size: int, number: int) -> bytes:
    page = await read(number * page_size, page_size)
    its_number, _, _, further = _PAGE.unpack_from(page)
    size = (further + 1) * page_size
    if its_number != number or size > _MAX_PAGE_BYTES:
        raise NotADatabase(f"page {number} is not where it should be")
    if further:
        page = await read(number * page_size, size)
    if len(page) < size:
        raise NotADatabase(f"page {number} lies beyond its end")
    return page


def _is_leaf(page: bytes) -> bool:
    _, flags, _, _ = _PAGE.unpack_from(page)
    if flags not in (_BRANCH, _LEAF):
        raise NotADatabase(f"a page of its tree has flags {flags:#x}")
    return bool(flags == _LEAF)


def _branches(page: bytes) -> Iterator[tuple[bytes, int]]:
    """Each key with the page of what is not below it."""
    for number in range(_PAGE.unpack_from(page)[2]):
        at = _PAGE.size + number * _BRANCH_ELEMENT.size
        start, length, below = _BRANCH_ELEMENT.unpack_from(page, at)
        yield page[at + start : at + start + length], below


def _leaves(page: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Each key and its value."""
    for number in range(_PAGE.unpack_from(page)[2]):
        at = _PAGE.size + number * _LEAF_ELEMENT.size
        _, start, length, size = _LEAF_ELEMENT.unpack_from(page, at)
        key = at + start
        yield page[key : key + length], page[key + length : key + length + size]


def _by_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
