"""What metrics tell of an EtcdCluster, by the status that a plan reports, and of an EtcdBackup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.client.server import Alarm
from operators.etcd.resource_metrics import (
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
from tests.unit.etcd.world import DOWN, LEARNER, VOTER, At, cluster, member_id, plan, seen

Told = dict[tuple[State, tuple[str, ...]], float | None]


def told(status: Obj, **spec: Any) -> Told:
    obj = {"spec": {"size": 3, **spec}, "status": status}
    return {(state, labels): value for state, value, labels in cluster_states(obj)}


def of(*at: At, **world: Any) -> Told:
    resource = cluster()
    return told(plan(resource, seen(resource, *at, **world)).status)


def test_a_cluster_as_wanted() -> None:
    assert of(VOTER, VOTER, VOTER) == {
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


def test_a_learner_is_no_voter() -> None:
    found = of(VOTER, VOTER, LEARNER)
    assert (found[MEMBERS, ("voter",)], found[MEMBERS, ("learner",)]) == (2, 1)


def test_a_member_that_is_away_is_still_a_member_and_not_ready() -> None:
    found = of(VOTER, VOTER, DOWN)
    assert (found[MEMBERS, ("voter",)], found[READY, ()], found[HAS_LEADER, ()]) == (3, 2, True)


def test_without_a_quorum_nobody_leads() -> None:
    assert of(VOTER, DOWN, DOWN, leader=None, known=False)[HAS_LEADER, ()] is False


def test_alarms_are_counted_by_kind() -> None:
    resource = cluster()
    raised = (Alarm(member_id(0), "NOSPACE"), Alarm(member_id(1), "NOSPACE"))
    world = replace(seen(resource, VOTER, VOTER, VOTER), alarms=raised)
    found = told(plan(resource, world).status)
    assert (found[ALARMS, ("NOSPACE",)], found[ALARMS, ("CORRUPT",)]) == (2, 0)


def test_a_quorum_that_is_lost_for_good_waits_for_a_person() -> None:
    assert told({"recovery": {"token": "t"}})[RECOVERY_WAITING, ()] is True


def test_a_new_cluster_has_none_of_what_it_wants() -> None:
    found = told({})
    assert (found[DESIRED, ()], found[READY, ()], found[MEMBERS, ("voter",)], found[DATABASE, ()]) == (3, 0, 0, None)
    assert told({}, paused=True)[PAUSED, ()] is True


def test_snapshots_by_the_clock_tell_when_they_were_and_are_due() -> None:
    found = told({"backup": {"lastTime": "2026-01-01T00:00:00Z", "nextTime": "2026-01-01T06:00:00Z"}})
    assert (found[SNAPSHOT_SUCCESS, ()], found[SNAPSHOT_DUE, ()]) == (1767225600, 1767247200)


@pytest.mark.parametrize(
    ("status", "completed"),
    [
        ({"phase": "Complete", "completedAt": "2026-01-01T00:00:00Z"}, 1767225600),
        ({"phase": "Failed", "completedAt": "2026-01-01T00:00:00Z"}, None),
        ({"phase": "Running"}, None),
        ({}, None),
    ],
)
def test_a_snapshot_is_told_of_once_it_is_complete(status: Obj, completed: float | None) -> None:
    obj = {"spec": {"clusterName": "orders"}, "status": status}
    assert list(backup_states(obj)) == [BACKUP_COMPLETED(completed, "orders")]


def test_every_state_is_listed() -> None:
    assert {state for state, _ in of(VOTER)} - set(COMMON) | {BACKUP_COMPLETED} == set(STATES)
