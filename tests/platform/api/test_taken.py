"""Foreign objects with a name that the operator needs stay unchanged, and a condition names their owner."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import EVERYTHING, MEMCACHED, World, masked

pytestmark = pytest.mark.nightly

LEFT = ((STATEFUL_SET, "cache"), (SERVICE, "cache"), (NETWORK_POLICY, "cache-network"), (SECRET, "cache-connection"))
"""Owned objects of a Memcached with minimal settings, which the operator leaves to the garbage collector."""

LABELS = {
    "app.kubernetes.io/name": "memcached",
    "app.kubernetes.io/instance": "cache",
    "app.kubernetes.io/managed-by": "memcached-operator",
}
POD_LABELS = {"app": "other"}
CONTAINERS = [{"name": "other", "image": "other:1"}]
SPECS = {
    DEPLOYMENT: {
        "replicas": 0,
        "selector": {"matchLabels": POD_LABELS},
        "template": {"metadata": {"labels": POD_LABELS}, "spec": {"containers": CONTAINERS}},
    },
    STATEFUL_SET: {
        "replicas": 0,
        "serviceName": "other",
        "selector": {"matchLabels": POD_LABELS},
        "template": {"metadata": {"labels": POD_LABELS}, "spec": {"containers": CONTAINERS}},
    },
    SERVICE: {"selector": POD_LABELS, "ports": [{"port": 80}]},
    DISRUPTION_BUDGET: {"maxUnavailable": 2, "selector": {"matchLabels": POD_LABELS}},
    AUTOSCALER: {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}},
}

SPECS_REQUIRING: dict[Kind, Obj] = {
    DEPLOYMENT: {"workload": "Deployment"},
    DISRUPTION_BUDGET: {"podDisruptionBudget": {}},
    AUTOSCALER: {"autoscaling": {"maxReplicas": 3}},
}
"""Specs that require objects which not every Memcached has."""


def create_conflicting_object(world: World, kind: Kind, **metadata: object) -> Obj:
    return world.user_client.create(kind, {"metadata": world.metadata() | metadata, "spec": SPECS[kind]})


def controlled_by_another_object(world: World) -> Obj:
    """Metadata of an object that another object controls."""
    owner = world.user_client.create(CONFIG_MAP, {"metadata": world.metadata("other-owner")})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other-owner", "uid": owner["metadata"]["uid"]}
    return {"ownerReferences": [reference | {"controller": True}]}


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["foreign labels", "operator labels"])
@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
def test_object_with_another_controller_is_not_changed(
    world: World, operator: Operator, kind: Kind, labels: dict[str, str]
) -> None:
    foreign = create_conflicting_object(world, kind, labels=labels, **controlled_by_another_object(world))
    world.create(**SPECS_REQUIRING.get(kind, {}))
    world.workloads = None  # the controllers of workloads would write the status
    world.eventually(lambda: world.reason() == "ForeignObject")
    stalled = world.condition(of="Stalled")
    assert stalled["status"] == "True"
    assert f"{kind} cache belongs to ConfigMap other-owner" in stalled["message"]
    assert world.get(kind) == foreign
    assert world.eventually(lambda: world.events(reason="ForeignObject"))[0]["type"] == "Warning"


@pytest.mark.commit
@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
def test_object_of_a_user_is_not_changed_and_blocks_until_deleted(world: World, operator: Operator, kind: Kind) -> None:
    workloads, world.workloads = world.workloads, None
    foreign = create_conflicting_object(world, kind)
    world.create(**SPECS_REQUIRING.get(kind, {}))
    world.eventually(lambda: world.reason() == "ForeignObject")
    assert f"{kind} cache exists and was not created by this operator" in world.condition()["message"]
    assert world.get(kind) == foreign
    world.delete(kind)
    world.change(size=2)  # conflicting objects are not watched; a change triggers the next reconcile
    world.workloads = workloads
    world.eventually(world.is_ready)
    assert world.condition(of="Stalled")["status"] == "False"


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["foreign labels", "operator labels"])
@pytest.mark.parametrize("kind", SPECS_REQUIRING, ids=str)
def test_foreign_object_that_the_spec_does_not_require_is_not_deleted(
    world: World, operator: Operator, kind: Kind, labels: dict[str, str]
) -> None:
    world.create()
    world.eventually(world.is_ready)
    foreign = create_conflicting_object(world, kind, labels=labels, **controlled_by_another_object(world))
    world.workloads = None
    world.change(size=2)
    world.eventually(lambda: world.get(STATEFUL_SET)["spec"]["replicas"] == 2)
    operator.restart()
    world.change(size=3)
    world.eventually(lambda: world.get(STATEFUL_SET)["spec"]["replicas"] == 3)
    assert world.get(kind) == foreign


@pytest.mark.commit
def test_orphan_with_the_operator_labels_is_adopted(world: World, operator: Operator) -> None:
    """Covers objects that a backup restored without owner references."""
    world.create()
    world.eventually(world.is_ready)
    before = masked(world.get(SERVICE))
    operator.stop()
    world.delete(MEMCACHED)  # no garbage collector runs here
    for kind, name in LEFT:
        world.edit(kind, {"metadata": {"ownerReferences": None}}, name)
    service = world.get(SERVICE)
    operator.start()
    resource = world.create(size=2)
    world.eventually(world.is_ready)
    for kind, name in LEFT:
        owners = world.get(kind, name)["metadata"]["ownerReferences"]
        assert [owner["uid"] for owner in owners] == [resource["metadata"]["uid"]]
    after = world.get(SERVICE)
    assert after["metadata"]["uid"] == service["metadata"]["uid"]
    assert masked(after) == before


def test_objects_of_a_deleted_resource_of_the_same_name_are_not_adopted(world: World, operator: Operator) -> None:
    """Objects of the deleted resource await garbage collection; writes to them would be lost."""
    world.create()
    world.eventually(world.is_ready)
    before = world.get(SERVICE)
    world.delete(MEMCACHED)
    world.create(size=2)
    world.eventually(lambda: world.reason() == "ForeignObject", seconds=90)  # it waits 30 s for the garbage collector
    assert world.get(SERVICE) == before
    for kind, name in LEFT:
        world.delete(kind, name)
    world.eventually(world.is_ready, seconds=90)  # it looks once a minute
