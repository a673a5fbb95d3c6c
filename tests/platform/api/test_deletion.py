"""Deletion of a resource removes its objects through owner references alone, and none is recreated."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD, SERVICE, STATEFUL_SET
from simulator.api_server.kinds import NAMESPACE
from tests.platform.api.conftest import install
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, OWNED, World
from tools.local.controlplane import ControlPlane


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run a control plane with Kubernetes' controllers, including the garbage collector."""
    with ControlPlane.alone(tmp_path_factory.mktemp("controllers")) as plane:
        install(plane)
        plane.start_controllers()
        yield plane


@pytest.fixture
def alive(world: World, operator: Operator) -> World:
    """Return a world with a resource and its objects. Without a kubelet, the pods never become ready."""
    world.workloads = None
    world.create()
    world.eventually(lambda: world.find(SERVICE) and world.listed(POD) and world.reason() == "Creating")
    return world


def everything_is_deleted(world: World) -> bool:
    return not any(world.listed(kind) for kind in (MEMCACHED, *OWNED, POD))


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleting_a_resource_deletes_its_objects(alive: World, operator: Operator, policy: str) -> None:
    operator.wire.sent.clear()
    alive.delete(MEMCACHED, propagationPolicy=policy)
    alive.eventually(lambda: everything_is_deleted(alive), 40)
    time.sleep(1)
    assert everything_is_deleted(alive)
    assert sum(operator.wire.created.values()) == 0


def test_recreated_resource_adopts_orphaned_objects(alive: World) -> None:
    uids = [alive.get(kind)["metadata"]["uid"] for kind in OWNED]
    alive.delete(MEMCACHED, propagationPolicy="Orphan")
    alive.eventually(lambda: not alive.listed(MEMCACHED), 40)
    assert [alive.get(kind)["metadata"]["uid"] for kind in OWNED] == uids
    resource = alive.create(size=2)
    alive.eventually(lambda: alive.get(STATEFUL_SET)["spec"]["replicas"] == 2)
    assert [alive.get(kind)["metadata"]["uid"] for kind in OWNED] == uids
    for kind in OWNED:
        (owner,) = alive.get(kind)["metadata"]["ownerReferences"]
        assert owner["uid"] == resource["metadata"]["uid"]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_resource_recreated_during_deletion_gets_new_objects(alive: World, policy: str) -> None:
    alive.delete(MEMCACHED, propagationPolicy=policy)
    alive.eventually(lambda: alive.find(MEMCACHED) is None, 40)
    resource = alive.create(size=1)

    def converged() -> bool:
        found = [alive.find(kind) for kind in OWNED]
        owners = [obj["metadata"]["ownerReferences"][0]["uid"] for obj in found if obj]
        return owners == 2 * [resource["metadata"]["uid"]]

    alive.eventually(converged, 90)
    alive.eventually(lambda: alive.reason() == "Creating", 90)


def test_namespace_with_a_resource_is_deleted_within_a_minute(alive: World, operator: Operator) -> None:
    alive.user_client.delete(NAMESPACE, None, alive.namespace)

    def is_deleted() -> bool:
        try:
            alive.user_client.get(NAMESPACE, None, alive.namespace)
        except NotFound:
            return True
        return False

    alive.eventually(is_deleted, 60)
