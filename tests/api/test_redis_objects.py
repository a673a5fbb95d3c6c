"""What a RedisCluster owns, as a real API server takes it: once, unchanged by a second apply, and restricted."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from operators.redis import resources
from shared.fields import difference
from shared.kube import CONFIG_MAP, DISRUPTION_BUDGET, POD, SERVICE, STATEFUL_SET, Invalid, KubeError, Obj
from shared.testing.served import NAMESPACE
from tests.api.world import World
from tests.unit.redis.test_golden import CASES, GOLDEN
from tests.unit.redis.world import cluster

OPERATOR = "redis-operator"
KINDS = {kind.name: kind for kind in (SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, STATEFUL_SET)}


@pytest.fixture
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


def start(world: World, case: str) -> None:
    """Make a pod of a golden template."""
    *_, stateful_set = objects(world, case)
    template = copy.deepcopy(stateful_set["spec"]["template"])
    if not any(volume["name"] == "data" for volume in template["spec"].get("volumes", ())):
        template["spec"].setdefault("volumes", []).append({"name": "data", "emptyDir": {}})
    template["spec"].pop("priorityClassName", None)  # a class that nobody made here
    metadata = template["metadata"] | {"name": f"{case}-pod", "namespace": world.namespace}
    world.person.create(POD, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


@pytest.mark.parametrize("case", sorted({*CASES} - {"on-directories-of-nodes"}))
def test_nodes_run_where_only_restricted_pods_may(world: World, case: str) -> None:
    start(world, case)


def test_directories_of_hosts_need_a_namespace_that_lets_them_be(world: World) -> None:
    with pytest.raises(KubeError, match=r"restricted volume types.*hostPath"):
        start(world, "on-directories-of-nodes")


def test_what_a_stateful_set_cannot_change_is_not_asked_of_it(world: World) -> None:
    operator = world.actor(OPERATOR)

    def wanted(size: str, existing: Obj | None = None) -> Obj:
        resource = cluster(replicas=6, storage={"size": size})
        resource.obj["metadata"]["namespace"] = world.namespace
        resource.obj["metadata"]["name"] = "growing"
        *_, golden = objects(world, "plain")
        pod = golden["spec"]["template"]
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return resources.stateful_set(resource, resources.owner(resource, OPERATOR), pod, 6, existing)

    made = operator.apply(STATEFUL_SET, wanted("1Gi"))
    with pytest.raises(Invalid):
        operator.apply(STATEFUL_SET, wanted("2Gi"))
    larger = wanted("2Gi", made)
    assert difference(larger, made, OPERATOR) == []
    operator.apply(STATEFUL_SET, larger)
