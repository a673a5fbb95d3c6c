"""Stores of imported images, which nodes start from.

containerd hashes and unpacks each image that it imports, which takes seconds of CPU time per image and node. A store is
what containerd keeps after it imported a set of images. It is made once, and each node gets a copy: layers and blobs,
which containerd adds and removes but never changes, are linked, and its databases are copied. A store begins as a copy
of the most similar one, so that a change of the operators imports only their images.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.local import binaries
from tools.local.archives import contents
from tools.local.machine import processes
from tools.local.machine.commands import run
from tools.local.paths import CACHE

KEPT = 3
"""Stores that stay in the cache: of the samples, of all versions, and one of another clone."""

_ARCHIVES = "archives.txt"
"""File of a store with the names of its archives."""

_CONFIG = """\
version = 2
root = "{root}"
state = "{state}/state"
disabled_plugins = [
    "io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{state}/socket"
"""


def path(archives: Sequence[Path]) -> Path:
    """Return where the store of these archives is once it is made; the name of an archive contains a hash of it."""
    names = "\n".join(sorted(archive.name for archive in archives))
    return CACHE / "stores" / hashlib.sha256(names.encode()).hexdigest()[:12]


def make(archives: Sequence[Path]) -> Path:
    """Return the store of image archives; make it if the cache lacks it.

    Raises:
        ClusterError: containerd does not start, or refuses an archive.
    """
    store = path(archives)
    with binaries.locked("stores"):
        if not store.exists():
            store.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=store.parent, prefix=".") as unfinished:
                root = Path(unfinished) / "root"
                _fill(root, archives)
                root.rename(store)
        os.utime(store)
        _prune(store.parent)
    return store


def copy(store: Path, target: Path) -> None:
    """Copy a store to the root of a containerd that does not run yet; files are linked within a file system."""
    target.parent.mkdir(parents=True, exist_ok=True)
    link = ["--link"] if store.stat().st_dev == target.parent.stat().st_dev else []
    run("cp", "--archive", *link, store, target)
    for database in target.glob("*/*.db"):
        database.unlink()
        shutil.copy2(store / database.relative_to(target), database)


def _fill(root: Path, archives: Sequence[Path]) -> None:
    """Make the store of image archives in a new directory."""
    names = {archive.name for archive in archives}
    similar = _most_similar(root.parent.parent, names)
    if similar:
        copy(similar, root)
    else:
        root.mkdir(mode=0o711)
    present = _archives_in(root)
    with _containerd(root) as address:

        def images(*command: str | Path) -> str:
            return run("ctr", "--address", address, "--namespace", "k8s.io", "images", *command)

        for archive in archives:
            if archive.name not in present:
                images("import", archive)
        needed = {tag for archive in archives for image in contents(archive) for tag in image.tags}
        if surplus := sorted(set(images("list", "--quiet").split()) - needed):
            images("rm", "--sync", *surplus)
    (root / _ARCHIVES).unlink(missing_ok=True)  # it is linked to the one of the similar store
    (root / _ARCHIVES).write_text("\n".join(sorted(names)))


def _most_similar(directory: Path, names: set[str]) -> Path | None:
    """Return the store that has most of these archives; None if no store has any."""
    similar = max(_stores(directory), key=lambda store: len(names & _archives_in(store)), default=None)
    return similar if similar and names & _archives_in(similar) else None


def _archives_in(store: Path) -> set[str]:
    found = store / _ARCHIVES
    return set(found.read_text().splitlines()) if found.exists() else set()


@contextmanager
def _containerd(root: Path) -> Iterator[Path]:
    """Run a containerd that only imports images, and yield the path of its socket."""
    with tempfile.TemporaryDirectory(prefix="platform-containerd-") as directory:
        config, address = Path(directory) / "config.toml", Path(directory) / "socket"
        config.write_text(_CONFIG.format(root=root, state=directory))
        command: list[str | Path] = ["containerd", "--config", config]
        log = CACHE / "stores" / "containerd.log"
        process = processes.start("containerd", command, log=log, dies_with_us=True)
        try:
            processes.wait_until(address.is_socket, "containerd's socket", needs=[process], timeout=30)
            yield address
        finally:
            processes.stop([process], grace=10)


def _stores(directory: Path) -> list[Path]:
    """Return the stores, the least recently used first."""
    stores = [each for each in directory.glob("[0-9a-f]*") if each.is_dir()]
    return sorted(stores, key=lambda store: store.stat().st_mtime)


def _prune(directory: Path) -> None:
    for store in _stores(directory)[:-KEPT]:
        shutil.rmtree(store)
