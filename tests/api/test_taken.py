"""An object of somebody else that has the name we need is left as it is, and a condition says whose it is."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Kind, Obj
from shared.testing.api_server.kinds import CONFIG_MAP
from tests.api.support.running import Operator
from tests.api.support.world import EVERYTHING, MEMCACHED, OWNED, World, masked

LABELS = {
    "app.kubernetes.io/name": "memcached",
    "app.kubernetes.io/instance": "cache",
    "app.kubernetes.io/managed-by": "memcached-operator",
}
POD_LABELS = {"app": "theirs"}
CONTAINERS = [{"name": "theirs", "image": "theirs:1"}]
SPECS = {
    DEPLOYMENT: {
        "replicas": 0,
        "selector": {"matchLabels": POD_LABELS},
        "template": {"metadata": {"labels": POD_LABELS}, "spec": {"containers": CONTAINERS}},
    },
    STATEFUL_SET: {
        "replicas": 0,
        "serviceName": "theirs",
        "selector": {"matchLabels": POD_LABELS},
        "template": {"metadata": {"labels": POD_LABELS}, "spec": {"containers": CONTAINERS}},
    },
    SERVICE: {"selector": POD_LABELS, "ports": [{"port": 80}]},
    DISRUPTION_BUDGET: {"maxUnavailable": 2, "selector": {"matchLabels": POD_LABELS}},
    AUTOSCALER: {"maxReplicas": 2, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "theirs"}},
}

ASKING: dict[Kind, Obj] = {
    STATEFUL_SET: {"workload": "StatefulSet"},
    DISRUPTION_BUDGET: {"podDisruptionBudget": {}},
    AUTOSCALER: {"autoscaling": {"maxReplicas": 3}},
}
"""The spec that asks for an object that not every Memcached has."""


def put_in_the_way(world: World, kind: Kind, **metadata: object) -> Obj:
    return world.person.create(kind, {"metadata": world.metadata() | metadata, "spec": SPECS[kind]})


def of_a_controller(world: World) -> Obj:
    """Metadata of an object whose controller is another object."""
    owner = world.person.create(CONFIG_MAP, {"metadata": world.metadata("somebody")})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "somebody", "uid": owner["metadata"]["uid"]}
    return {"ownerReferences": [reference | {"controller": True}]}


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["their labels", "our labels"])
@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
def test_an_object_with_another_controller_is_left_alone(
    world: World, operator: Operator, kind: Kind, labels: dict[str, str]
) -> None:
    theirs = put_in_the_way(world, kind, labels=labels, **of_a_controller(world))
    world.create(**ASKING.get(kind, {}))
    world.workloads = None  # a Deployment's controller would write its status
    world.eventually(lambda: world.reason() == "NotOurs")
    stalled = world.condition(of="Stalled")
    assert stalled["status"] == "True"
    assert f"{kind} cache belongs to ConfigMap somebody" in stalled["message"]
    assert world.get(kind) == theirs
    assert world.eventually(lambda: world.events(reason="NotOurs"))[0]["type"] == "Warning"


@pytest.mark.parametrize("kind", EVERYTHING, ids=str)
def test_an_object_of_a_person_is_left_alone_until_it_is_removed(world: World, operator: Operator, kind: Kind) -> None:
    workloads, world.workloads = world.workloads, None
    theirs = put_in_the_way(world, kind)
    world.create(**ASKING.get(kind, {}))
    world.eventually(lambda: world.reason() == "NotOurs")
    assert f"{kind} cache exists and was not created by this operator" in world.condition()["message"]
    assert world.get(kind) == theirs
    world.delete(kind)
    world.change(size=2)  # what is in the way is not watched: a change, or a minute, lets it be looked at again
    world.workloads = workloads
    world.eventually(world.is_ready)
    assert world.condition(of="Stalled")["status"] == "False"


@pytest.mark.parametrize("labels", [{}, LABELS], ids=["their labels", "our labels"])
@pytest.mark.parametrize("kind", ASKING, ids=str)
def test_an_object_of_anothers_that_is_not_asked_for_is_not_deleted(
    world: World, operator: Operator, kind: Kind, labels: dict[str, str]
) -> None:
    world.create()
    world.eventually(world.is_ready)
    theirs = put_in_the_way(world, kind, labels=labels, **of_a_controller(world))
    world.workloads = None
    world.change(size=2)
    world.eventually(lambda: world.get(DEPLOYMENT)["spec"]["replicas"] == 2)
    operator.restart()
    world.change(size=3)
    world.eventually(lambda: world.get(DEPLOYMENT)["spec"]["replicas"] == 3)
    assert world.get(kind) == theirs


def test_an_orphan_with_our_labels_is_adopted(world: World, operator: Operator) -> None:
    """As it comes back from a backup that kept no owners."""
    world.create()
    world.eventually(world.is_ready)
    before = masked(world.get(SERVICE))
    operator.stop()
    world.delete(MEMCACHED)  # nobody collects garbage here
    for kind in OWNED:
        world.edit(kind, {"metadata": {"ownerReferences": None}})
    service = world.get(SERVICE)
    operator.start()
    resource = world.create(size=2)
    world.eventually(world.is_ready)
    for kind in OWNED:
        assert [owner["uid"] for owner in world.get(kind)["metadata"]["ownerReferences"]] == [
            resource["metadata"]["uid"]
        ]
    after = world.get(SERVICE)
    assert after["metadata"]["uid"] == service["metadata"]["uid"]
    assert masked(after) == before


def test_objects_of_an_earlier_resource_of_the_name_are_not_taken(world: World, operator: Operator) -> None:
    """They wait for the garbage collector: to write to them would be lost work."""
    world.create()
    world.eventually(world.is_ready)
    before = world.get(SERVICE)
    world.delete(MEMCACHED)
    world.create(size=2)
    world.eventually(lambda: world.reason() == "NotOurs")
    assert world.get(SERVICE) == before
    for kind in OWNED:
        world.delete(kind)
    world.eventually(world.is_ready)
