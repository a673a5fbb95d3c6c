"""What an EtcdCluster owns, as a real API server takes it: once, unchanged by a second apply, and restricted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from operators.etcd import resources
from shared.fields import difference
from shared.kube import DISRUPTION_BUDGET, POD, SECRET, SERVICE, STATEFUL_SET, Conflict, Invalid, Obj
from shared.testing.served import NAMESPACE
from tests.api.world import World
from tests.unit.etcd.test_golden import CASES, GOLDEN
from tests.unit.etcd.vault import PEER, Vault
from tests.unit.etcd.world import cluster

OPERATOR = "etcd-operator"
KINDS = {kind.name: kind for kind in (SERVICE, DISRUPTION_BUDGET, STATEFUL_SET)}


@pytest.fixture(scope="module")
def world(plane: ControlPlane) -> Iterator[World]:
    made = World(plane)
    pods = {"pod-security.kubernetes.io/enforce": "restricted"}
    made.person.merge(NAMESPACE, None, made.namespace, {"metadata": {"labels": pods}})
    yield made
    made.close()


def objects(world: World, case: str) -> list[Obj]:
    found = [obj for obj in yaml.safe_load_all((GOLDEN / case / "objects.yaml").read_text()) if obj["kind"] in KINDS]
    for obj in found:
        obj["metadata"]["namespace"] = world.namespace
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_second_apply_changes_nothing_and_is_not_made(world: World, case: str) -> None:
    operator = world.actor(OPERATOR)
    for obj in objects(world, case):
        kind = KINDS[obj["kind"]]
        applied = operator.apply(kind, obj)
        assert difference(obj, applied, OPERATOR) == []
        again = operator.apply(kind, obj)
        assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]


@pytest.mark.parametrize("case", CASES)
def test_members_run_where_only_restricted_pods_may(world: World, case: str) -> None:
    *_, stateful_set = objects(world, case)
    template = copy.deepcopy(stateful_set["spec"]["template"])
    if not any(volume["name"] == "data" for volume in template["spec"].get("volumes", ())):
        template["spec"].setdefault("volumes", []).append({"name": "data", "emptyDir": {}})
    template["spec"].pop("priorityClassName", None)  # a class that nobody made here
    metadata = template["metadata"] | {"name": f"{case}-pod", "namespace": world.namespace}
    world.person.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def test_what_a_stateful_set_cannot_change_is_not_asked_of_it(world: World) -> None:
    operator = world.actor(OPERATOR)

    def wanted(size: str, existing: Obj | None = None) -> Obj:
        resource = cluster(storage={"size": size})
        resource.obj["metadata"]["namespace"] = world.namespace
        resource.obj["metadata"]["name"] = "growing"
        *_, golden = objects(world, "plain")
        pod = golden["spec"]["template"]
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return resources.stateful_set(resource, resources.owner(resource, OPERATOR), pod, 3, existing)

    made = operator.apply(STATEFUL_SET, wanted("1Gi"))
    with pytest.raises(Invalid):
        operator.apply(STATEFUL_SET, wanted("2Gi"))
    larger = wanted("2Gi", made)
    assert difference(larger, made, OPERATOR) == []
    operator.apply(STATEFUL_SET, larger)


def test_secrets_are_taken_and_replaced_only_as_they_were_seen(world: World) -> None:
    resource, operator = cluster(tls={"mode": "self"}), world.actor(OPERATOR)
    resource.obj["metadata"]["namespace"] = world.namespace
    vault = Vault(resource)
    vault.settle()

    def body(**metadata: Any) -> Obj:
        found = vault.found[PEER]
        assert found is not None
        bare = {key: found["metadata"][key] for key in ("name", "namespace", "labels", "ownerReferences")}
        return {**found, "metadata": bare | metadata}

    made = operator.apply(SECRET, body(resourceVersion="1"))
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(resourceVersion="1"))
    seen = {key: made["metadata"][key] for key in ("uid", "resourceVersion")}
    vault.found[PEER] = None
    vault.settle()
    replaced = operator.apply(SECRET, body(**seen))
    assert replaced["data"] != made["data"]
    with pytest.raises(Conflict):
        operator.apply(SECRET, body(**seen))
