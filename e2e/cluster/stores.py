"""Stores of imported images, which nodes start from.

containerd hashes and unpacks each image that it imports, which takes seconds of CPU time per image and node. A store is
what containerd keeps after it imported a set of images. It is made once, and each node gets a copy: layers and blobs,
which containerd adds and removes but never changes, are linked, and its databases are copied.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import binaries
from e2e.cluster.machine import processes
from e2e.cluster.machine.commands import run
from e2e.cluster.paths import CACHE

KEPT = 3
"""Stores that stay in the cache: of the samples, of all versions, and one of another clone."""

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
                root.mkdir(mode=0o711)
                with _containerd(root) as address:
                    for archive in archives:
                        run("ctr", "--address", address, "--namespace", "k8s.io", "images", "import", archive)
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


def _prune(directory: Path) -> None:
    stores = sorted(directory.glob("[0-9a-f]*"), key=lambda store: store.stat().st_mtime)
    for store in stores[:-KEPT]:
        shutil.rmtree(store)
