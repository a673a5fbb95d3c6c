"""A control plane that is restored from a backup: the API server answers with an older state and lower versions."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET
from tests.platform.api.conftest import install
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane.alone(tmp_path / "api") as plane:
        install(plane)
        yield plane


def test_operator_follows_a_control_plane_restored_from_a_backup(alone: ControlPlane, tmp_path: Path) -> None:
    """Objects created after the backup are missing, deleted ones exist again, and later changes are applied."""
    world = World(alone)
    operator = Operator(alone.kubeconfig, world.namespace)
    operator.start()
    try:
        for name in ("cache", "deleted"):
            world.create(name)
            world.eventually(lambda name=name: world.is_ready(name))  # type: ignore[misc]
        backup = tmp_path / "backup"

        def save(data: Path) -> None:
            shutil.copytree(data, backup)

        def restore(data: Path) -> None:
            shutil.rmtree(data)
            shutil.copytree(backup, data)

        alone.change_data(save)
        world.reconnect()
        world.change(size=2)
        world.create("later")
        world.remove(MEMCACHED, "deleted")
        world.eventually(lambda: world.is_ready("later") and world.is_ready(), 60)
        newest = int(world.get(MEMCACHED, "later")["metadata"]["resourceVersion"])

        alone.change_data(restore)
        world.reconnect()
        with pytest.raises(NotFound):
            world.get(MEMCACHED, "later")
        restored = world.get(MEMCACHED)
        assert int(restored["metadata"]["resourceVersion"]) < newest
        assert restored["spec"]["size"] == 1

        world.delete(SERVICE)
        world.change("deleted", size=2)
        world.eventually(
            lambda: world.find(SERVICE) and world.get(STATEFUL_SET, "deleted")["spec"]["replicas"] == 2, 60
        )
        world.change(size=3)
        world.eventually(lambda: world.get(STATEFUL_SET)["spec"]["replicas"] == 3, 60)
    finally:
        operator.stop()
        world.close()
