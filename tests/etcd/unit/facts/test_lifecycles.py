"""Tables of legal transitions, and states that follow from the observed world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from operators.etcd.facts.assessment import Assessment
from operators.etcd.facts.lifecycles import (
    LIFECYCLES,
    MEMBER,
    RESTORE,
    MemberEvent,
    MemberState,
    RestoreEvent,
    RestoreState,
)
from operators.etcd.objects.names import KEPT
from operators.etcd.steps import member_changes
from shared.kubernetes.kinds import Obj
from shared.status.lifecycle import IllegalTransition
from shared.status.reasons import Reason
from tests.etcd.unit.backup.states import ended, failed, leaving
from tests.etcd.unit.steps.test_restore import OTHER, RESTORED, SEALED, new, restore_pod, world
from tests.etcd.unit.world import ABSENT, AWAITED, DOWN, LEARNER, VOTER, At, assess, cluster, seen

M, E = MemberState, MemberEvent

LEGAL = {
    M.VACANT: {E.ADD},
    M.ADDED: {E.START, E.REMOVE},
    M.CATCHING_UP: {E.CATCH_UP, E.LOSE_DATA, E.REMOVE},
    M.CAUGHT_UP: {E.PROMOTE, E.FALL_BEHIND, E.LOSE_DATA, E.REMOVE},
    M.VOTER: {E.ELECT, E.LOSE_DATA, E.REMOVE, E.RECOVER},
    M.LEADER: {E.HAND_OVER, E.LOSE_DATA},
    M.LOST: {E.RETURN, E.HAND_OVER, E.REMOVE},
    M.REMOVED: {E.DELETE, E.CLEAR},
    M.KEPT: {E.RELEASE},
}
LOST = replace(DOWN, disk="another")
FORMER = replace(ABSENT, disk="disk-1")

AT_1 = {
    M.VACANT: ABSENT,
    M.ADDED: AWAITED,
    M.CATCHING_UP: replace(LEARNER, applied=899),
    M.CAUGHT_UP: replace(LEARNER, applied=900),
    M.VOTER: VOTER,
    M.LOST: LOST,
    M.REMOVED: FORMER,
    M.KEPT: FORMER,
}


def observed(state: MemberState) -> Assessment:
    """Return facts about a cluster whose member demo-1 is in `state`."""
    resource = cluster()
    at = VOTER if state is M.LEADER else AT_1[state]
    found = seen(resource, VOTER, at, VOTER, leader=1 if state is M.LEADER else 0)
    if state is M.KEPT:
        volume = found.instances[1].volume
        assert volume is not None
        volume["metadata"]["annotations"] = {KEPT: "token"}
    return assess(resource, found)


@pytest.mark.parametrize("event", MemberEvent)
@pytest.mark.parametrize("state", MemberState)
def test_member_lifecycle_allows_only_legal_transitions(state: MemberState, event: MemberEvent) -> None:
    assert MEMBER.allows(state, event) == (event in LEGAL[state])


@pytest.mark.parametrize("state", MemberState)
def test_member_state_follows_from_the_observed_world(state: MemberState) -> None:
    assert observed(state).member_states[1] is state


@pytest.mark.parametrize("spot", [replace(ABSENT, disk="new", pod=True), ABSENT])
def test_pod_that_waits_to_be_added_is_not_of_a_former_member(spot: At) -> None:
    resource = cluster()
    found = seen(resource, VOTER, spot, VOTER)
    assert assess(resource, found).member_states[1] is M.VACANT


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", [E.ADD, E.PROMOTE, E.REMOVE, E.DELETE, E.HAND_OVER])
def test_illegal_member_change_is_never_sent(state: MemberState, event: MemberEvent) -> None:
    facts = observed(state)
    instance = facts.instances[1]
    calls: dict[MemberEvent, Callable[[], Any]] = {
        E.ADD: lambda: member_changes.add(assess(facts.resource, facts), 1),
        E.PROMOTE: lambda: member_changes.promote(assess(facts.resource, facts), instance),
        E.REMOVE: lambda: member_changes.remove(assess(facts.resource, facts), instance),
        E.DELETE: lambda: member_changes.delete_remains(assess(facts.resource, facts), instance),
        E.HAND_OVER: lambda: member_changes.hand_over(
            assess(facts.resource, facts), instance, Reason("Scaling"), "scaling down"
        ),
    }
    if event in LEGAL[state]:
        assert calls[event]()
        return
    with pytest.raises(IllegalTransition, match="legal: "):
        calls[event]()


SEAL_1: Obj = restore_pod(**ended(SEALED))


@pytest.mark.parametrize(
    ("state", "status", "pod", "more"),
    [
        (RestoreState.REQUESTED, {}, None, {"snapshot": None}),
        (RestoreState.FOUND, {}, None, {}),
        (RestoreState.FOUND, {}, restore_pod(OTHER), {}),
        (RestoreState.FOUND, {}, leaving(SEAL_1), {}),
        (RestoreState.RUNNING, {}, restore_pod(), {}),
        (RestoreState.FAILED, {}, restore_pod(**failed("StoreUnreachable")), {}),
        (RestoreState.SEALED, {}, SEAL_1, {}),
        (RestoreState.RECORDED, {"restore": RESTORED}, None, {}),
        (RestoreState.STARTED, {"clusterID": "00000000000000c1"}, None, {}),
    ],
)
def test_restore_state_follows_from_the_observed_world(
    state: RestoreState, status: Obj, pod: Obj | None, more: Any
) -> None:
    resource = new(**status)
    assert assess(resource, world(pod, **more)).restore_state is state


@pytest.mark.parametrize(
    ("lifecycle", "states", "events"), [(MEMBER, MemberState, MemberEvent), (RESTORE, RestoreState, RestoreEvent)]
)
def test_every_state_is_reachable_and_every_event_is_used(lifecycle: Any, states: Any, events: Any) -> None:
    reached, happening = {lifecycle.initial}, set()
    for _ in lifecycle.transitions:
        for state in list(reached):
            reached |= set(lifecycle.transitions[state].values())
            happening |= set(lifecycle.transitions[state])
    assert reached == set(lifecycle.transitions) == set(states)
    assert happening == set(events)
    assert lifecycle in LIFECYCLES


def test_started_restore_has_no_further_transition() -> None:
    assert RESTORE.transitions[RestoreState.STARTED] == {}
