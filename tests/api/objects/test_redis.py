"""What a RedisCluster owns, as a real API server takes it: once, unchanged by a second apply, and restricted."""

from __future__ import annotations

import pytest

from operators.redis.objects import names, stateful_set
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import CONFIG_MAP, DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Obj
from tests.api.support.golden import Golden, keeps_its_volumes
from tests.api.support.world import World
from tests.unit.redis.objects.test_golden import CASES
from tests.unit.redis.objects.test_golden import GOLDEN as DIRECTORY
from tests.unit.redis.world import cluster

GOLDEN = Golden(DIRECTORY, "redis-operator", (SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, STATEFUL_SET))


@pytest.mark.parametrize("case", CASES)
def test_a_second_apply_changes_nothing_and_is_not_made(restricted: World, case: str) -> None:
    GOLDEN.is_applied_once(restricted, case)


@pytest.mark.parametrize("case", sorted({*CASES} - {"on-directories-of-nodes"}))
def test_nodes_run_where_only_restricted_pods_may(restricted: World, case: str) -> None:
    GOLDEN.start(restricted, case)


def test_directories_of_hosts_need_a_namespace_that_lets_them_be(restricted: World) -> None:
    with pytest.raises(KubeError, match=r"restricted volume types.*hostPath"):
        GOLDEN.start(restricted, "on-directories-of-nodes")


def test_what_a_stateful_set_cannot_change_is_not_asked_of_it(restricted: World) -> None:
    def wanted(size: str, existing: Obj | None) -> Obj:
        resource = cluster(replicas=6, storage={"size": size})
        resource.obj["metadata"]["namespace"] = restricted.namespace
        resource.obj["metadata"]["name"] = "growing"
        pod = GOLDEN.template(restricted, "plain")
        pod["metadata"]["labels"] |= {"app.kubernetes.io/instance": "growing"}
        return stateful_set.stateful_set(resource, names.owner(resource, GOLDEN.operator), pod, 6, existing)

    keeps_its_volumes(restricted.actor(GOLDEN.operator), wanted)
