"""Stores of imported images: their names, and the copies that nodes start from."""

import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tools.local import stores
from tools.local.machine import commands

LAYER = "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/bin/redis-server"
DATABASES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a directory with the files that containerd has after an import."""
    made = tmp_path / "store"
    for name in (LAYER, *DATABASES):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("of the store")
    return made


def test_store_is_the_same_for_archives_in_another_order_only() -> None:
    first, second, other = Path("a-123.tar"), Path("b-456.tar"), Path("b-457.tar")
    assert stores.path([first, second]) == stores.path([second, first])
    assert len({stores.path([first, second]), stores.path([first, other]), stores.path([first])}) == 3


def test_copy_shares_layers_but_no_database(store: Path, tmp_path: Path) -> None:
    node = tmp_path / "node/var/lib/containerd"
    stores.copy(store, node)
    assert (node / LAYER).samefile(store / LAYER)
    for name in DATABASES:
        (node / name).write_text("of the node")
        assert (store / name).read_text() == "of the store"


def test_removal_of_a_node_keeps_the_store(store: Path, tmp_path: Path) -> None:
    node = tmp_path / "containerd"
    stores.copy(store, node)
    (node / LAYER).unlink()
    assert (store / LAYER).read_text() == "of the store"


class Containerd:
    """Imports archives into a store: a file for each image, with the name of its archive as its content."""

    root: Path
    imported: list[str]

    @contextmanager
    def started(self, root: Path) -> Iterator[Path]:
        self.root, self.imported = root, []
        yield root / "socket"

    def run(self, *command: str | Path) -> str:
        """Execute a command of ctr, or cp."""
        if command[0] == "cp":
            return commands.run(*command)
        verb, *arguments = command[command.index("images") + 1 :]
        if verb == "import":
            archive = Path(arguments[0])
            self.imported.append(archive.name)
            image = self.root / f"{archive.name.partition('-')[0]}.image"
            image.unlink(missing_ok=True)  # it may be linked to another store
            image.write_text(archive.name)
        if verb == "rm":
            for name in arguments[1:]:
                (self.root / f"{name}.image").unlink()
        return "\n".join(sorted(each.stem for each in self.root.glob("*.image")))


def archive(directory: Path, name: str) -> Path:
    """Return an archive IMAGE-HASH.tar with an image."""
    made, image = directory / name, {"Config": "sha.json", "RepoTags": [name.partition("-")[0]]}
    manifest = json.dumps([image]).encode()
    with tarfile.open(made, "w") as content:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(manifest)
        content.addfile(entry, io.BytesIO(manifest))
    return made


def test_store_imports_only_what_the_most_similar_one_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    containerd = Containerd()
    monkeypatch.setattr(stores, "CACHE", tmp_path)
    monkeypatch.setattr(stores, "run", containerd.run)
    monkeypatch.setattr(stores, "_containerd", containerd.started)

    def contents(*names: str) -> tuple[list[str], set[str]]:
        store = stores.make([archive(tmp_path, name) for name in names])
        return containerd.imported, {image.read_text() for image in store.glob("*.image")}

    assert contents("redis-1.tar", "etcd-1.tar") == (["redis-1.tar", "etcd-1.tar"], {"redis-1.tar", "etcd-1.tar"})
    assert contents("valkey-1.tar") == (["valkey-1.tar"], {"valkey-1.tar"})
    assert contents("redis-2.tar", "etcd-1.tar") == (["redis-2.tar"], {"redis-2.tar", "etcd-1.tar"})
    assert contents("etcd-1.tar") == ([], {"etcd-1.tar"})  # the image of Redis is removed


def test_oldest_stores_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "CACHE", tmp_path)
    made = [stores.path([Path(f"{number}.tar")]) for number in range(stores.KEPT + 2)]
    for age, store in enumerate(reversed(made)):
        store.mkdir(parents=True)
        os.utime(store, (1_000_000 - age, 1_000_000 - age))
    assert stores.make([Path("0.tar")]) == made[0]
    assert set((tmp_path / "stores").glob("[0-9a-f]*")) == {made[0], *made[-stores.KEPT + 1 :]}
