"""Stores of imported images: their names, and the copies that nodes start from."""

import os
from pathlib import Path

import pytest

from e2e.cluster import stores

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


def test_oldest_stores_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "CACHE", tmp_path)
    made = [stores.path([Path(f"{number}.tar")]) for number in range(stores.KEPT + 2)]
    for age, store in enumerate(reversed(made)):
        store.mkdir(parents=True)
        os.utime(store, (1_000_000 - age, 1_000_000 - age))
    assert stores.make([Path("0.tar")]) == made[0]
    assert set((tmp_path / "stores").glob("[0-9a-f]*")) == {made[0], *made[-stores.KEPT + 1 :]}
