"""Store of snapshots as files of a mounted volume."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from operators.etcd.backup.store import AccessDenied, Draft, SnapshotMissing, StoreFull, StoreRefused

log = logging.getLogger(__name__)

ABANDONED_SECONDS = 600.0
"""Time since the last write to a draft after which it may be deleted, unless it is locked."""

_DRAFT = re.compile(r"\.[-a-z0-9]+\.db(\.json)?(\.[0-9a-f]{16})?\.partial")
"""Name of a draft; those of earlier versions had no token."""


class Volume:
    """A SnapshotStore in a directory of a mounted volume.

    Args:
        root: directory where the volume is mounted.
        path: directory in the volume; created if missing.
    """

    def __init__(self, root: Path, path: str = "") -> None:
        self._root = root
        self._directory = root / path

    def __str__(self) -> str:
        return f"volume at {self._directory}"

    @asynccontextmanager
    async def draft(self, name: str) -> AsyncIterator[Draft]:
        file = _File(self._inside(name))
        try:
            await asyncio.to_thread(file.begin)
            yield file
        finally:
            await asyncio.to_thread(file.end)

    async def read(self, name: str, offset: int, size: int) -> bytes:
        return await asyncio.to_thread(read_piece, self._inside(name), offset, size)

    async def names(self, directory: str) -> list[str]:
        path = self._inside(directory)
        with _translated_errors(path):
            try:
                found = sorted(entry.name for entry in os.scandir(path) if entry.is_file())
            except FileNotFoundError:
                return []
        return [f"{directory}/{name}" for name in found if not name.startswith(".")]

    async def remove(self, name: str) -> None:
        path = self._inside(name)
        with _translated_errors(path):
            await asyncio.to_thread(path.unlink, missing_ok=True)

    def _inside(self, name: str) -> Path:
        """Return the path of a name; reject one that leads out of the volume by dots or links."""
        path = self._directory / name
        with _translated_errors(path):
            if not path.resolve().is_relative_to(self._root.resolve()):
                raise AccessDenied(f"{name!r} leads out of the volume. Name a file inside it.")
        return path


class _File:
    """A draft next to its final path: a rename within a directory is atomic.

    Its name has a token, because the process of an attempt that the API server no longer has may still write its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._partial = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
        self._descriptor = -1

    def begin(self) -> None:
        with _translated_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                _delete_abandoned(self._path)
            self._descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        with contextlib.suppress(OSError):  # a file system may have no locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    async def write(self, block: bytes) -> None:
        await asyncio.to_thread(self._write, block)

    async def keep(self) -> None:
        await asyncio.to_thread(self._keep)

    def end(self) -> None:
        """Delete everything that was not kept."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        with contextlib.suppress(OSError):
            self._partial.unlink()

    def _write(self, block: bytes) -> None:
        rest = memoryview(block)
        with _translated_errors(self._path):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def _keep(self) -> None:
        with _translated_errors(self._path):
            os.fsync(self._descriptor)
            self._partial.rename(self._path)
            sync_directory(self._path.parent)


def _delete_abandoned(path: Path) -> None:
    """Delete the drafts of killed attempts next to a file: those of the file, and others not written for a while.

    The volume's own clock decides. A locked draft is being written, but some file systems show locks on one node only.
    Those of the file do not count as locked: the process of a former attempt must not replace the file of this one.
    """
    os.utime(path.parent)
    now = path.parent.stat().st_mtime
    for found in filter(lambda each: _DRAFT.fullmatch(each.name), path.parent.iterdir()):
        is_earlier, known = found.name.startswith(f".{path.name}."), found.lstat()
        if stat.S_ISREG(known.st_mode) and (is_earlier or now - known.st_mtime >= ABANDONED_SECONDS):
            with contextlib.suppress(OSError), found.open("r+b") as file:
                if not is_earlier:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found.unlink()
                log.info("%s: deleted, of an attempt that was killed.", found)


def read_piece(path: Path, offset: int, size: int) -> bytes:
    """Return a piece of a file.

    Raises:
        StoreError: the file cannot be read.
    """
    with _translated_errors(path), path.open("rb", buffering=0) as file:
        file.seek(offset)
        return file.read(size)


def sync_directory(path: Path) -> None:
    """Make renames in a directory survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translated_errors(path: Path) -> Iterator[None]:
    """Translate errors of the operating system to StoreError."""
    try:
        yield
    except FileNotFoundError:
        raise SnapshotMissing(f"File {path} does not exist. Name an existing one.") from None
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                raise StoreFull(
                    f"{path}: the volume has no space left. Enlarge the volume, or delete files that are not needed."
                ) from None
            case errno.EACCES | errno.EPERM | errno.EROFS:
                raise AccessDenied(
                    f"{path}: {error.strerror}. Allow group {os.getgid()} to write to the volume (fsGroup), and "
                    "mount it writable."
                ) from None
            case _:
                raise StoreRefused(f"{path}: {error.strerror or error}.") from None
