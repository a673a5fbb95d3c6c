"""Reads the newest revision, and the version of the data, from a database file of etcd.

etcd keeps everything in one bbolt file, whose first two pages name the root of a tree of buckets. A few pages are
enough. The caller provides a function that reads a piece of the file, wherever it is stored.

Sources: https://pkg.go.dev/go.etcd.io/bbolt (bbolt's internal/common/{meta,page,bucket}.go), and etcd's
server/storage/schema/bucket.go and server/storage/mvcc/{revision,kvstore}.go.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

Read = Callable[[int, int], Awaitable[bytes]]
"""Reads a number of bytes from an offset; fewer only at the end of the file."""

_PAGE = struct.Struct("<QHHI")  # number, flags, count of elements, count of overflow pages
# Magic, version, page size, flags, root, sequence, freelist, pages, txid, checksum.
_META = struct.Struct("<IIIIQQQQQQ")
_BRANCH_ELEMENT = struct.Struct("<IIQ")  # offset of the key, length of the key, child page
_LEAF_ELEMENT = struct.Struct("<IIII")  # flags, offset of the key, length of the key, length of the value
_BUCKET = struct.Struct("<QQ")  # root page, 0 if inline; sequence

_MAGIC, _VERSION = 0xED0CDAED, 2
_BRANCH, _LEAF = 0x01, 0x02

_MAX_DEPTH = 64
_MAX_PAGE_BYTES = 256 << 20
"""Bound of a valid file: no page exceeds the size of one huge value."""


class NotADatabase(ValueError):
    """The file is not a complete bbolt file; the message describes the difference."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Contents of a database.

    Attributes:
        revision: revision of the newest change.
        version: version of etcd of the data, such as 3.6.0; empty if not recorded, as mostly before 3.5.
    """

    revision: int
    version: str


async def contents(read: Read) -> Contents:
    """Return the contents of a database.

    Raises:
        NotADatabase: the file is not a database of etcd.
    """
    try:
        root = await _root(read)
        keys, meta, cluster = [await root.bucket(name) for name in (b"key", b"meta", b"cluster")]
        if keys is None or meta is None:
            raise NotADatabase("it has no buckets key and meta, so it is not a database of etcd")
        # Compacted revisions count, too: the newest key may have been among them.
        revisions = [await keys.last(), await meta.get(b"scheduledCompactRev"), await meta.get(b"finishedCompactRev")]
        versions = [await meta.get(b"storageVersion"), await cluster.get(b"clusterVersion") if cluster else None]
        return Contents(
            revision=max([1, *(int.from_bytes(found[:8], "big") for found in revisions if found)]),
            version=max((found.decode() for found in versions if found), key=_by_number, default=""),
        )
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise NotADatabase(f"it is truncated or damaged: {error}") from None


class _Tree:
    """A bucket: a tree of pages with ordered keys.

    Args:
        root: content of the root page.
    """

    def __init__(self, read: Read, page_size: int, root: bytes) -> None:
        self._read = read
        self._page_size = page_size
        self._root = root

    async def get(self, key: bytes) -> bytes | None:
        """Return the value of a key; None if the key does not exist."""
        page = self._root
        for _ in range(_MAX_DEPTH):
            if _is_leaf(page):
                return next((value for found, value in _leaves(page) if found == key), None)
            below = [number for found, number in _branches(page) if found <= key]
            if not below:
                return None
            page = await _page(self._read, self._page_size, below[-1])
        raise NotADatabase(f"its tree has more than {_MAX_DEPTH} levels")

    async def last(self) -> bytes | None:
        """Return the greatest key; None if there is none."""
        page = self._root
        for _ in range(_MAX_DEPTH):
            if _is_leaf(page):
                return max((found for found, _ in _leaves(page)), default=None)
            page = await _page(self._read, self._page_size, [number for _, number in _branches(page)][-1])
        raise NotADatabase(f"its tree has more than {_MAX_DEPTH} levels")

    async def bucket(self, name: bytes) -> _Tree | None:
        """Return a bucket inside this one; None if it does not exist."""
        value = await self.get(name)
        if value is None:
            return None
        number, _ = _BUCKET.unpack_from(value)
        inline = value[_BUCKET.size :]
        page = await _page(self._read, self._page_size, number) if number else inline
        return _Tree(self._read, self._page_size, page)


async def _root(read: Read) -> _Tree:
    """Return the tree of the newer valid meta page: commits write the two pages alternately."""
    first = await read(0, _PAGE.size + _META.size)
    if len(first) < _PAGE.size + _META.size:
        raise NotADatabase("it is empty or truncated")
    page_size = _META.unpack_from(first, _PAGE.size)[2]
    found = [first]
    if 1024 <= page_size <= 65536:
        found.append(await read(page_size, _PAGE.size + _META.size))
    whole = [meta for meta in map(_meta, found) if meta is not None]
    if not whole:
        raise NotADatabase("it does not start with the header of a bbolt file")
    _, page_size, root = max(whole)
    return _Tree(read, page_size, await _page(read, page_size, root))


def _meta(page: bytes) -> tuple[int, int, int] | None:
    """Return transaction, page size and root of a meta page; None if the page is invalid."""
    if len(page) < _PAGE.size + _META.size:
        return None
    magic, version, page_size, _, root, _, _, _, transaction, checksum = _META.unpack_from(page, _PAGE.size)
    summed = page[_PAGE.size : _PAGE.size + _META.size - 8]
    sound = (magic, version, checksum) == (_MAGIC, _VERSION, _fnv(summed))
    return (transaction, page_size, root) if sound else None


def _fnv(text: bytes) -> int:
    """Return the 64-bit FNV-1a hash."""
    found = 0xCBF29CE484222325
    for byte in text:
        found = (found ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


async def _page(read: Read, page_size: int, number: int) -> bytes:
    page = await read(number * page_size, page_size)
    its_number, _, _, further = _PAGE.unpack_from(page)
    size = (further + 1) * page_size
    if its_number != number or size > _MAX_PAGE_BYTES:
        raise NotADatabase(f"page {number} is not at its position")
    if further:
        page = await read(number * page_size, size)
    if len(page) < size:
        raise NotADatabase(f"page {number} is beyond the end of the file")
    return page


def _is_leaf(page: bytes) -> bool:
    _, flags, _, _ = _PAGE.unpack_from(page)
    if flags not in (_BRANCH, _LEAF):
        raise NotADatabase(f"a page of its tree has flags {flags:#x}")
    return bool(flags == _LEAF)


def _branches(page: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield each key with the number of the page that starts at it."""
    for number in range(_PAGE.unpack_from(page)[2]):
        at = _PAGE.size + number * _BRANCH_ELEMENT.size
        start, length, below = _BRANCH_ELEMENT.unpack_from(page, at)
        yield page[at + start : at + start + length], below


def _leaves(page: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield each key and its value."""
    for number in range(_PAGE.unpack_from(page)[2]):
        at = _PAGE.size + number * _LEAF_ELEMENT.size
        _, start, length, size = _LEAF_ELEMENT.unpack_from(page, at)
        key = at + start
        yield page[key : key + length], page[key + length : key + length + size]


def _by_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
