"""Metrics of an EtcdCluster, from the status that a plan reports, and of an EtcdBackup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.client.server import Alarm
from operators.etcd.report.metrics import (
    ALARMS,
    BACKUP_COMPLETED,
    DATABASE,
    HAS_LEADER,
    MEMBERS,
    RECOVERY_WAITING,
    SNAPSHOT_DUE,
    SNAPSHOT_SUCCESS,
    STATES,
    backup_states,
    cluster_states,
)
from shared.kubernetes.kinds import Obj
from shared.status.resource_metrics import DESIRED, PAUSED, READY, State
from shared.status.resource_metrics import STATES as COMMON
from tests.etcd.unit.world import DOWN, LEARNER, VOTER, At, cluster, member_id, plan, seen

Samples = dict[tuple[State, tuple[str, ...]], float | None]


def samples(status: Obj, **spec: Any) -> Samples:
    obj = {"spec": {"size": 3, **spec}, "status": status}
    return {(state, labels): value for state, value, labels in cluster_states(obj)}


def samples_of(*at: At, **world: Any) -> Samples:
    resource = cluster()
    return samples(plan(resource, seen(resource, *at, **world)).status)


def test_metrics_of_a_ready_cluster() -> None:
    assert samples_of(VOTER, VOTER, VOTER) == {
        (DESIRED, ()): 3,
        (READY, ()): 3,
        (PAUSED, ()): False,
        (MEMBERS, ("voter",)): 3,
        (MEMBERS, ("learner",)): 0,
        (HAS_LEADER, ()): True,
        (ALARMS, ("CORRUPT",)): 0,
        (ALARMS, ("NOSPACE",)): 0,
        (DATABASE, ()): 4096,
        (RECOVERY_WAITING, ()): False,
        (SNAPSHOT_SUCCESS, ()): None,
        (SNAPSHOT_DUE, ()): None,
    }


def test_learner_is_not_counted_as_voter() -> None:
    found = samples_of(VOTER, VOTER, LEARNER)
    assert (found[MEMBERS, ("voter",)], found[MEMBERS, ("learner",)]) == (2, 1)


def test_unreachable_member_is_counted_but_not_ready() -> None:
    found = samples_of(VOTER, VOTER, DOWN)
    assert (found[MEMBERS, ("voter",)], found[READY, ()], found[HAS_LEADER, ()]) == (3, 2, True)


def test_no_leader_is_reported_without_a_quorum() -> None:
    assert samples_of(VOTER, DOWN, DOWN, leader=None, known=False)[HAS_LEADER, ()] is False


def test_alarms_are_counted_by_type() -> None:
    resource = cluster()
    raised = (Alarm(member_id(0), "NOSPACE"), Alarm(member_id(1), "NOSPACE"))
    world = replace(seen(resource, VOTER, VOTER, VOTER), alarms=raised)
    found = samples(plan(resource, world).status)
    assert (found[ALARMS, ("NOSPACE",)], found[ALARMS, ("CORRUPT",)]) == (2, 0)


def test_recovery_that_waits_for_confirmation_is_reported() -> None:
    assert samples({"recovery": {"token": "t"}})[RECOVERY_WAITING, ()] is True
    assert samples({"recovery": {"token": "t"}}, recovery={"confirm": "t"})[RECOVERY_WAITING, ()] is False


def test_new_cluster_has_desired_but_no_ready_members() -> None:
    found = samples({})
    assert (found[DESIRED, ()], found[READY, ()], found[MEMBERS, ("voter",)], found[DATABASE, ()]) == (3, 0, 0, None)
    assert samples({}, paused=True)[PAUSED, ()] is True


def test_backup_schedule_reports_last_and_next_time() -> None:
    found = samples({"backup": {"lastTime": "2026-01-01T00:00:00Z", "nextTime": "2026-01-01T06:00:00Z"}})
    assert (found[SNAPSHOT_SUCCESS, ()], found[SNAPSHOT_DUE, ()]) == (1767225600, 1767247200)


@pytest.mark.parametrize(
    ("status", "completed"),
    [
        ({"phase": "Complete", "completedAt": "2026-01-01T00:00:00Z", "current": True}, 1767225600),
        ({"phase": "Complete", "completedAt": "2026-01-01T00:00:00Z", "current": False}, None),
        ({"phase": "Complete", "completedAt": "2026-01-01T00:00:00Z"}, 1767225600),  # of an earlier version
        ({"phase": "Failed", "completedAt": "2026-01-01T00:00:00Z"}, None),
        ({"phase": "Running"}, None),
        ({}, None),
    ],
)
def test_completion_time_is_reported_only_for_a_current_snapshot(status: Obj, completed: float | None) -> None:
    obj = {"spec": {"clusterName": "orders"}, "status": status}
    assert list(backup_states(obj)) == [BACKUP_COMPLETED(completed, "orders")]


def test_every_state_is_listed() -> None:
    assert {state for state, _ in samples_of(VOTER)} - set(COMMON) | {BACKUP_COMPLETED} == set(STATES)


def test_leader_is_unknown_while_only_the_operator_cannot_reach_the_members() -> None:
    cut_off = replace(DOWN, ready=True, runs=True)
    assert samples_of(cut_off, cut_off, cut_off, known=False)[HAS_LEADER, ()] is None
    assert samples_of(DOWN, DOWN, DOWN, known=False)[HAS_LEADER, ()] == 0, "the kubelet reports no member as ready"
    assert samples_of(cut_off, VOTER, VOTER, leader=0)[HAS_LEADER, ()] == 1, "the other members name the leader"
