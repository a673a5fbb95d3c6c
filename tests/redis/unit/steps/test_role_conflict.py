"""A node that replicates a primary, although its own CLUSTER NODES calls it a primary without slots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.resource import RedisCluster
from operators.redis.state.observed import Observed
from tests.redis.unit.world import At, acts, address, formed, plan, world

P0, P1, P2, R0, R1, R2 = formed()
CONFUSED = At(keys=10, epoch=0)


def confused() -> tuple[RedisCluster, Observed]:
    resource, found = world(P0, P1, P2, CONFUSED, R1, R2)
    instances = list(found.instances)
    report = instances[3].report
    assert report
    instances[3] = replace(instances[3], report=replace(report, replicates=f"{address(0, P0)}:6379"))
    return resource, replace(found, instances=tuple(instances))


def test_node_with_a_copy_of_its_primary_is_recreated() -> None:
    """CLUSTER REPLICATE rejects a primary with keys; these keys are the primary's."""
    made = plan(*confused())
    assert acts(made.actions) == ["delete PersistentVolumeClaim data-demo-3", "delete Pod demo-3"]
    assert made.verdict.reason == "RoleConflict"
    assert "delete its volume claim" not in made.verdict.message


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"replicates": ""}, "NodeNotEmpty"),
        ({"replicates": "10.9.9.9:6379"}, "NodeNotEmpty"),
        ({"link_up": False}, "NodeNotEmpty"),
        ({"trimming": 10}, "Pairing"),
    ],
)
def test_node_whose_keys_may_be_its_own_is_kept(change: dict[str, Any], reason: str) -> None:
    resource, found = confused()
    instances = list(found.instances)
    report = instances[3].report
    assert report
    instances[3] = replace(instances[3], report=replace(report, **change))
    made = plan(resource, replace(found, instances=tuple(instances)))
    assert not [act for act in acts(made.actions) if act.startswith("delete")]
    assert made.verdict.reason == reason
