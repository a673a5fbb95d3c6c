"""The objects of a RedisCluster on a real API server: valid, idempotent, and restricted by Pod Security."""

from __future__ import annotations

import pytest

from operators.redis.objects import names, stateful_set
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, SERVICE, STATEFUL_SET, Obj
from tests.platform.api.support.golden import Golden, assert_claim_templates_are_kept
from tests.platform.api.support.world import World
from tests.redis.unit.objects.test_golden import CASES
from tests.redis.unit.objects.test_golden import GOLDEN as DIRECTORY
from tests.redis.unit.world import cluster

GOLDEN = Golden(DIRECTORY, "redis-operator", (SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, STATEFUL_SET))


@pytest.mark.parametrize("case", CASES)
def test_second_apply_is_a_no_op(restricted: World, case: str) -> None:
    GOLDEN.assert_second_apply_is_a_no_op(restricted, case)


@pytest.mark.parametrize("case", sorted({*CASES} - {"on-directories-of-nodes"}))
def test_restricted_namespace_admits_node_pods(restricted: World, case: str) -> None:
    GOLDEN.start(restricted, case)


def test_restricted_namespace_rejects_host_directories(restricted: World) -> None:
    with pytest.raises(KubeError, match=r"restricted volume types.*hostPath"):
        GOLDEN.start(restricted, "on-directories-of-nodes")


def test_immutable_claim_templates_are_kept(restricted: World) -> None:
    def desired(size: str, existing: Obj | None) -> Obj:
        resource = cluster(replicas=6, storage={"size": size})
        resource.obj["metadata"]["namespace"] = restricted.namespace
        resource.obj["metadata"]["name"] = "growing"
        pod = GOLDEN.template(restricted, "plain")
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return stateful_set.stateful_set(resource, names.owner(resource, GOLDEN.operator), pod, 6, existing)

    assert_claim_templates_are_kept(restricted.actor(GOLDEN.operator), desired)
