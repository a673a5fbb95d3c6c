"""Primaries whose pods are being deleted: which replicas take over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from operators.redis.client.commands import FailOver
from operators.redis.steps.handover import hand_over_deleted
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress
from tests.redis.unit.world import NOW, At, assess, formed, world

P0, P1, P2, R0, R1, R2 = formed()
ENDING = replace(P0, leaving=True)


def step(
    *nodes: At, error: float = 0.0, shuts_down: bool = False, version: str = "8.0.2", engine: str = "redis"
) -> Step:
    """Return the step for a cluster whose leaving pods were deleted a second ago.

    Args:
        error: seconds by which the clock of the operator is ahead.
        shuts_down: whether their servers have got SIGTERM.
    """
    resource, seen = world(*nodes)
    instances = []
    for each in seen.instances:
        has_signal = shuts_down and each.leaving
        report = each.report and replace(each.report, engine=engine, version=version, shuts_down=has_signal)
        pod_obj = each.pod_obj
        if each.leaving and pod_obj is not None:
            at = (NOW + timedelta(seconds=299)).isoformat()
            metadata: Obj = {"deletionTimestamp": at, "deletionGracePeriodSeconds": 300}
            server = {"name": "redis", "lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
            pod_obj = {"metadata": pod_obj["metadata"] | metadata, "spec": {"containers": [server]}}
        instances.append(replace(each, report=report, pod_obj=pod_obj))
    now = NOW + timedelta(seconds=error)
    return hand_over_deleted(assess(resource, replace(seen, instances=tuple(instances)), now))


def successors(step: Step) -> list[str]:
    calls = [call for call in step.actions if isinstance(call, FailOver)]
    assert len(calls) == len(step.actions)
    assert {call.mode for call in calls} <= {""}, "coordinated: no write is lost"
    return [call.at.name for call in calls]


def test_replica_in_sync_takes_over_from_a_primary_whose_pod_is_deleted() -> None:
    found = step(ENDING, P1, P2, R0, R1, R2)
    assert successors(found) == ["demo-3"]
    assert (found.progress, found.reason) == (Progress.WAITING, "HandingOver")


def test_several_primaries_hand_over_at_once() -> None:
    assert successors(step(ENDING, replace(P1, leaving=True), P2, R0, R1, R2)) == ["demo-3", "demo-4"]


def test_nothing_is_handed_over_without_a_deletion_or_without_a_replica_that_has_all_data_and_stays() -> None:
    assert step(P0, P1, P2, R0, R1, R2) == PASS
    assert step(P0, P1, P2, replace(R0, leaving=True), R1, R2) == PASS
    assert step(ENDING, P1, P2, replace(R0, synced=False), R1, R2) == PASS
    assert step(ENDING, P1, P2, replace(R0, leaving=True), R1, R2) == PASS
    assert step(replace(ENDING, up=False), P1, P2, R0, R1, R2) == PASS


@pytest.mark.parametrize("error", [-30, 0, 30])
@pytest.mark.parametrize(
    ("engine", "version"), [("valkey", "9.1.0"), ("valkey", "8.1.4"), ("redis", "8.0.2")], ids=lambda given: given
)
def test_server_that_hands_over_at_sigterm_is_left_alone_once_it_has_got_the_signal(
    engine: str, version: str, error: float
) -> None:
    """The server reports the signal itself. The clocks of the operator and of the API server may differ."""
    nodes = (ENDING, P1, P2, R0, R1, R2)
    assert successors(step(*nodes, error=error, engine=engine, version=version)) == ["demo-3"]
    found = step(*nodes, error=error, shuts_down=True, engine=engine, version=version)
    if (engine, version) == ("valkey", "9.1.0"):
        assert found == PASS
    else:
        assert successors(found) == ["demo-3"]
