"""The operator restores edited and deleted objects, and keeps fields of other owners."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import DEPLOYMENT, POD, SERVICE, STATEFUL_SET, Kind, Obj
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, OWNED, World, masked

CONTAINER = {"name": "memcached"}
OTHER_IMAGE = {"template": {"spec": {"containers": [CONTAINER | {"image": "memcached:1.5.0"}]}}}
OTHER_ARGS = {"template": {"spec": {"containers": [CONTAINER | {"image": "memcached:1.6.38", "args": ["-m", "1"]}]}}}

EDITS: list[tuple[str, Kind, Obj, str]] = [
    ("replicas", DEPLOYMENT, {"spec": {"replicas": 5}}, "spec.replicas"),
    ("image", DEPLOYMENT, {"spec": OTHER_IMAGE}, "image"),
    ("arguments", DEPLOYMENT, {"spec": OTHER_ARGS}, "args"),
    ("strategy", DEPLOYMENT, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": "50%"}}}}, "maxSurge"),
    ("history", DEPLOYMENT, {"spec": {"revisionHistoryLimit": None}}, "revisionHistoryLimit"),
    ("label", DEPLOYMENT, {"metadata": {"labels": {"app.kubernetes.io/part-of": "mine"}}}, "part-of"),
    ("label removed", DEPLOYMENT, {"metadata": {"labels": {"app.kubernetes.io/component": None}}}, "component"),
    ("owner removed", DEPLOYMENT, {"metadata": {"ownerReferences": None}}, "ownerReferences"),
    ("replicas of a StatefulSet", STATEFUL_SET, {"spec": {"replicas": 5}}, "spec.replicas"),
    ("image in a StatefulSet", STATEFUL_SET, {"spec": OTHER_IMAGE}, "image"),
    ("strategy of a StatefulSet", STATEFUL_SET, {"spec": {"updateStrategy": {"type": "OnDelete"}}}, "updateStrategy"),
    ("history of a StatefulSet", STATEFUL_SET, {"spec": {"revisionHistoryLimit": None}}, "revisionHistoryLimit"),
    ("owner of a StatefulSet removed", STATEFUL_SET, {"metadata": {"ownerReferences": None}}, "ownerReferences"),
    ("label of the operator removed", SERVICE, {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}, ""),
    ("selector removed", SERVICE, {"spec": {"selector": None}}, "spec.selector"),
    ("selector", SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}, "spec.selector"),
    ("port", SERVICE, {"spec": {"ports": [{"name": "mine", "port": 11211, "targetPort": 80}]}}, "spec.ports"),
    ("ports removed", SERVICE, {"spec": {"ports": None}}, "spec.ports"),
    (
        "target port",
        SERVICE,
        {"spec": {"ports": [{"name": "memcached", "port": 11211, "targetPort": 1}]}},
        "spec.ports",
    ),
]


def healthy(world: World, **spec: str) -> World:
    """Return the world with one healthy resource."""
    world.create(size=2, **spec)
    world.eventually(world.is_ready)
    return world


@pytest.fixture
def settled(world: World, operator: Operator) -> World:
    return healthy(world)


@pytest.mark.parametrize(("kind", "patch", "field"), [edit[1:] for edit in EDITS], ids=[edit[0] for edit in EDITS])
def test_edited_field_is_restored_and_named_in_an_event(
    world: World, operator: Operator, kind: Kind, patch: Obj, field: str
) -> None:
    settled = healthy(world, **({"workload": "Deployment"} if kind == DEPLOYMENT else {}))
    before = masked(settled.get(kind))
    settled.edit(kind, patch)
    settled.eventually(lambda: masked(settled.get(kind)) == before and settled.is_ready())
    if field:
        (restored_event,) = settled.eventually(lambda: settled.events(reason="Restored"))
        assert field in restored_event["message"]
        assert f"{kind} cache" in restored_event["message"]


@pytest.mark.parametrize("kind", OWNED, ids=str)
def test_deleted_object_is_recreated(settled: World, kind: Kind) -> None:
    before = settled.get(kind)
    settled.delete(kind)
    settled.eventually(lambda: settled.find(kind) and settled.is_ready())
    after = settled.get(kind)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert masked(after) == masked(before)


def test_deleted_pod_is_reported_and_replaced(settled: World) -> None:
    workloads, settled.workloads = settled.workloads, None
    lost = settled.listed(POD)[0]["metadata"]["name"]
    settled.delete(POD, lost, gracePeriodSeconds=0)
    settled.eventually(lambda: settled.reason() == "Degraded")
    assert lost not in settled.get(MEMCACHED)["status"]["nodes"]
    settled.workloads = workloads
    settled.eventually(lambda: settled.is_ready() and len(settled.get(MEMCACHED)["status"]["nodes"]) == 2)


@pytest.mark.parametrize("kind", OWNED, ids=str)
def test_fields_of_other_managers_survive(settled: World, kind: Kind) -> None:
    foreign = {"metadata": {"annotations": {"example.com/note": "mine"}, "labels": {"team": "shop"}}}
    spec = {"minReadySeconds": 1} if kind == STATEFUL_SET else {"sessionAffinity": "ClientIP"}
    settled.edit(kind, {**foreign, "spec": spec})
    settled.change(size=3, containerPort=11311)
    settled.eventually(lambda: settled.is_ready() and len(settled.listed(POD)) == 3)
    settled.eventually(lambda: settled.get(SERVICE)["spec"]["ports"][0]["port"] == 11311)
    obj = settled.get(kind)
    assert obj["metadata"]["annotations"]["example.com/note"] == "mine"
    assert obj["metadata"]["labels"]["team"] == "shop"
    assert spec.items() <= obj["spec"].items()


def test_foreign_service_port_is_kept_next_to_the_operators_port(settled: World) -> None:
    """Entries of a keyed list have separate owners, so the operator does not remove a foreign entry."""
    settled.edit(SERVICE, {"spec": {"ports": [{"name": "mine", "port": 80}]}})
    settled.eventually(lambda: len(settled.get(SERVICE)["spec"]["ports"]) == 2)
    assert {port["name"] for port in settled.get(SERVICE)["spec"]["ports"]} == {"mine", "memcached"}


def test_edit_during_downtime_is_reverted(settled: World, operator: Operator) -> None:
    before = settled.snapshot()
    operator.stop()
    settled.edit(STATEFUL_SET, {"spec": {"replicas": 7}})
    settled.delete(SERVICE)
    operator.start()
    settled.eventually(lambda: settled.find(SERVICE) and settled.is_ready() and settled.snapshot() == before)
