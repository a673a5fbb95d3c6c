"""Each state that blocks a step, with each repair: a repair stops only for what it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from operators.redis.client.responses import Node
from operators.redis.state.observed import ConfigTemplate, Observed
from shared.kubernetes.kinds import POD
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import Plan
from shared.status.reasons import Reason
from tests.redis.unit.test_plan import with_foreign_volume
from tests.redis.unit.world import ABSENT, NEW_RECORDED, At, formed, node_id, of, plan, replica, world

NODES = tuple(formed(4))
"""Primaries 0 to 3, and their replicas 4 to 7. Repairs concern the first two shards, and obstacles the last one."""


def without_data(at: At) -> At:
    return replace(at, up=False, failed=True, pod=False, disk="another")


FORGOTTEN = replace(ABSENT, recorded=0, disk="another")
"""A node that lost its data, and that all members have forgotten."""


def _unchanged(found: Observed) -> Observed:
    return found


def _with_unknown_member(found: Observed) -> Observed:
    unknown = Node("f" * 40, "10.9.9.9", 6379, frozenset({"master", "fail"}), linked=False)
    reports = {one.number: one.report for one in found.instances if one.report}
    instances = [
        replace(one, report=replace(report, nodes=(*report.nodes, unknown)))
        if (report := reports.get(one.number))
        else one
        for one in found.instances
    ]
    return replace(found, instances=tuple(instances))


@dataclass(frozen=True)
class Obstacle:
    """State that blocks some step.

    Attributes:
        reason: reason of the Ready condition, without a repair.
        at: other states of nodes, by number.
        observed: other changes of the observed state.
    """

    reason: str
    at: Mapping[int, At] = field(default_factory=dict)
    observed: Callable[[Observed], Observed] = _unchanged
    spec: Mapping[str, Any] = field(default_factory=dict)


MISSING = ConfigTemplate(problem=SecretProblem(Reason("ConfigMapMissing"), "There is no ConfigMap c."))
OBSTACLES = {
    "invalid spec": Obstacle("InvalidSpec", spec={"replicasPerMaster": 3}),
    "paused": Obstacle("Paused", spec={"pause": True}),
    "missing ConfigMap": Obstacle(
        "ConfigMapMissing", observed=lambda found: replace(found, config=MISSING), spec={"pod": [{"configmap": "c"}]}
    ),
    "unsupported version": Obstacle("VersionRefused", spec={"version": "6.2.14"}),
    "foreign volume": Obstacle(
        "ForeignData", {8: replace(NEW_RECORDED, keys=5)}, lambda found: with_foreign_volume(found, 8)
    ),
    "unknown member": Obstacle("UnknownMember", observed=_with_unknown_member),
    "new node with keys": Obstacle("NodeNotEmpty", {8: replace(NEW_RECORDED, keys=5)}),
    "member with keys of others": Obstacle("NodeNotEmpty", {8: At(epoch=9, keys=5)}),
    "member that deletes moved keys": Obstacle("Pairing", {8: At(epoch=9, keys=5, trimming=5)}),
    "unreachable replica": Obstacle("Degraded", {7: replica(3, up=False, failed=True)}),
    "lost shard": Obstacle("SlotsLost", {3: without_data(NODES[3]), 7: FORGOTTEN}),
    "unreachable shard": Obstacle(
        "SlotsUnserved", {3: without_data(NODES[3]), 7: replace(without_data(NODES[7]), disk=None)}
    ),
}

MOVED = replace(NODES[4], address="10.9.0.1", stale_address="10.0.0.5")


def _labelled(made: Plan) -> list[str]:
    return [each.obj["metadata"]["name"] for each in of(made.actions, "Patch") if each.kind == POD]


REPAIRS: Mapping[str, tuple[Mapping[int, At], Callable[[Plan], bool]]] = {
    "meet a node at its new address": (
        {4: MOVED},
        lambda made: node_id(4) in {call.id for call in of(made.actions, "Meet")},
    ),
    "replace a primary that lost its data": (
        {0: without_data(NODES[0]), 4: replace(NODES[4], synced=False)},
        lambda made: [call.id for call in of(made.actions, "FailOver")] == [node_id(4)],
    ),
    "connect a replica to its primary": (
        {4: replace(NODES[4], link="10.8.8.8:6379")},
        lambda made: [call.id for call in of(made.actions, "Relink")] == [node_id(4)],
    ),
    "forget a replica that lost its data": (
        {5: without_data(NODES[5])},
        lambda made: node_id(5) in {call.id for call in of(made.actions, "Forget")},
    ),
    "let an empty node replicate": (
        {5: At(epoch=0)},
        lambda made: [call.id for call in of(made.actions, "Replicate")] == [node_id(5)],
    ),
    "label a pod that serves": (
        {5: replace(NODES[5], labels={"app": "redis"})},
        lambda made: "demo-5" in _labelled(made),
    ),
}

EXCEPTIONS: Mapping[str, set[str]] = {
    "lost shard": {"let an empty node replicate"},  # it may take the lost slots instead
    "unreachable shard": {"let an empty node replicate"},
}
"""Repairs that wait for an obstacle."""


def planned(obstacle: Obstacle, changed: Mapping[int, At]) -> Plan:
    at = {**dict(enumerate(NODES)), **obstacle.at, **changed}
    resource, found = world(*(at[number] for number in sorted(at)), **obstacle.spec)
    return plan(resource, obstacle.observed(found))


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_obstacle_is_reported(obstacle: str) -> None:
    assert planned(OBSTACLES[obstacle], {}).verdict.reason == OBSTACLES[obstacle].reason


@pytest.mark.parametrize("repair", REPAIRS)
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_repair_does_not_wait_for_what_it_does_not_depend_on(obstacle: str, repair: str) -> None:
    changed, is_planned = REPAIRS[repair]
    assert is_planned(planned(OBSTACLES[obstacle], changed)) is (repair not in EXCEPTIONS.get(obstacle, set()))
