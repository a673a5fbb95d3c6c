"""Lifecycles of a member and of a restore: tables of legal transitions, and the observed state. Pure.

etcd's list of members is authoritative; the StatefulSet follows it (`membership.layout`). A change of members is one
step in etcd. If the operator stops after it, the rest follows from the observed state. A member is added as a learner,
starts, catches up, and is promoted. To leave, it hands over the leadership, is removed from the list, and then its pod
and its volume are deleted. Only then may its number be reused: etcd exits if a new member finds the data directory of a
former one.

The behaviour of etcd was measured with 3.6.8 on three servers, and read in the sources of 3.4 to 3.7:

- Bootstrap flags are ignored if the volume has data: a member restarts the same with `Closed` as with `New`.
- On an empty volume, `Closed`, and `Joining` of another number, end with `couldn't find local name`. They leave an
  empty member/snap/db behind, with which a later start with `Joining` succeeds.
- `Joining` with the other members under names that no pod has is accepted: etcd compares URLs. If one is missing in the
  list, etcd exits with `member count is unequal` or `no match found for existing member`.
- `New` on an empty volume at the same URL with the same token creates the same cluster id and member id again, at
  revision 1: nothing distinguishes it from the former cluster. Therefore `New` is never used again once an id is
  recorded.
- The process of a removed member exits (code 0), and does so again at each restart on its volume, under its new id as
  well.
- A voter that is down may be removed at once. Any addition fails with `unhealthy cluster` until all voters have been
  connected for 5 s (etcd's HealthInterval), and so right after every promotion and start.
"""

from __future__ import annotations

import enum

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods
from operators.etcd.backup.outcome import outcome
from operators.etcd.membership.layout import layout
from operators.etcd.objects.names import SET_ASIDE
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.state.recovery_marks import tokens
from shared.kubernetes.accessors import annotation, is_terminating
from shared.status.lifecycle import Lifecycle

CAUGHT_UP_SHARE = 0.9
"""Share of the leader's log that etcd requires of a learner for its promotion (readyPercentThreshold in server.go)."""


class MemberState(enum.Enum):
    """State of a member, by its number."""

    VACANT = "no member, and no remains of a former one"
    ADDED = "learner, not started yet"
    CATCHING_UP = "learner, catching up"
    CAUGHT_UP = "learner, caught up"
    VOTER = "voter"
    LEADER = "leader"
    LOST = "member that lost its data"
    REMOVED = "no member, but its pod or volume exists"
    KEPT = "no member, volume kept after a recovery"


class MemberEvent(enum.Enum):
    """Events of a member: executed by the operator, or observed."""

    ADD = "added"
    START = "started"
    CATCH_UP = "caught up"
    FALL_BEHIND = "fell behind"
    PROMOTE = "promoted"
    ELECT = "elected"
    HAND_OVER = "handed over"
    LOSE_DATA = "lost its data"
    RETURN = "healthy again"
    REMOVE = "removed"
    DELETE = "pod or volume deleted"
    CLEAR = "pod and volume deleted"
    RECOVER = "recovered without its data"
    RELEASE = "data released"


_M, _E = MemberState, MemberEvent

MEMBER: Lifecycle[MemberState, MemberEvent] = Lifecycle(
    "etcd member",
    _M.VACANT,
    {
        _M.VACANT: {_E.ADD: _M.ADDED},
        _M.ADDED: {_E.START: _M.CATCHING_UP, _E.REMOVE: _M.REMOVED},
        _M.CATCHING_UP: {_E.CATCH_UP: _M.CAUGHT_UP, _E.LOSE_DATA: _M.LOST, _E.REMOVE: _M.REMOVED},
        _M.CAUGHT_UP: {
            _E.PROMOTE: _M.VOTER,
            _E.FALL_BEHIND: _M.CATCHING_UP,
            _E.LOSE_DATA: _M.LOST,
            _E.REMOVE: _M.REMOVED,
        },
        _M.VOTER: {
            _E.ELECT: _M.LEADER,
            _E.LOSE_DATA: _M.LOST,
            _E.REMOVE: _M.REMOVED,
            _E.RECOVER: _M.KEPT,
        },
        _M.LEADER: {_E.HAND_OVER: _M.VOTER, _E.LOSE_DATA: _M.LOST},
        _M.LOST: {_E.RETURN: _M.VOTER, _E.HAND_OVER: _M.LOST, _E.REMOVE: _M.REMOVED},
        _M.REMOVED: {_E.DELETE: _M.REMOVED, _E.CLEAR: _M.VACANT},
        _M.KEPT: {_E.RELEASE: _M.REMOVED},
    },
)


def member_state(resource: EtcdCluster, seen: Observed, instance: Instance) -> MemberState:
    """Return the state of the member with a number.

    A pod whose own volume is new and whose member is not added yet does not count as a former member.
    """
    member = instance.member
    if member is None:
        if instance.kept_by:
            is_released = instance.kept_by == resource.released_recovery and not tokens(instance.volume, SET_ASIDE)
            return _M.REMOVED if is_released else _M.KEPT
        surplus = bool(instance.volume or instance.pod_obj) and instance.number >= layout(resource, seen).replicas
        return _M.REMOVED if surplus or instance.vacated or instance.volume_leaving else _M.VACANT
    if seen.lost(instance):
        return _M.LOST
    if not member.learner:
        return _M.LEADER if instance is seen.leader else _M.VOTER
    if not member.name:
        return _M.ADDED
    return _M.CAUGHT_UP if _has_caught_up(seen, instance) else _M.CATCHING_UP


def _has_caught_up(seen: Observed, instance: Instance) -> bool:
    leading = seen.leader.status if seen.leader else None
    if leading is None or instance.status is None or not seen.healthy(instance):
        return False
    return instance.status.raft_applied >= CAUGHT_UP_SHARE * leading.raft_index


class RestoreState(enum.Enum):
    """Progress of restoring a snapshot as the data of the cluster."""

    REQUESTED = "no snapshot found yet"
    FOUND = "snapshot found"
    RUNNING = "data being created on the seed's volume"
    FAILED = "data not created"
    SEALED = "data complete, by one rename"
    RECORDED = "recorded in the status"
    STARTED = "cluster started"


class RestoreEvent(enum.Enum):
    """Events of a restore."""

    FIND = "snapshot found"
    LOSE = "snapshot missing"
    START = "pod started"
    SEAL = "pod succeeded"
    FAIL = "pod failed"
    DISCARD = "pod deleted"
    RECORD = "recorded"
    BEGIN = "seed started"


_R, _V = RestoreState, RestoreEvent

RESTORE: Lifecycle[RestoreState, RestoreEvent] = Lifecycle(
    "etcd restore",
    _R.REQUESTED,
    {
        _R.REQUESTED: {_V.FIND: _R.FOUND},
        _R.FOUND: {_V.START: _R.RUNNING, _V.DISCARD: _R.FOUND, _V.LOSE: _R.REQUESTED},
        _R.RUNNING: {_V.SEAL: _R.SEALED, _V.FAIL: _R.FAILED, _V.DISCARD: _R.FOUND},
        _R.FAILED: {_V.DISCARD: _R.FOUND},
        _R.SEALED: {_V.RECORD: _R.RECORDED, _V.DISCARD: _R.FOUND},
        _R.RECORDED: {_V.BEGIN: _R.STARTED},
        _R.STARTED: {},
    },
)


def restore_state(resource: EtcdCluster, seen: Observed) -> RestoreState:
    """Return the state of a restore; a cluster that starts without one counts as started."""
    if resource.is_restored and not resource.recorded_cluster_id and seen.stateful_set is None:
        return _R.RECORDED
    if not resource.is_to_be_restored or seen.stateful_set is not None:
        return _R.STARTED
    snapshot, pod = seen.backup.snapshot, seen.job_pods.get(pods.restore_pod_name(resource))
    if snapshot is None:
        return _R.REQUESTED
    token = pods.restore_token(resource, snapshot.store, snapshot.file)
    if pod is None or annotation(pod, pods.TOKEN) != token or is_terminating(pod):
        return _R.FOUND
    result = outcome(pod)
    if result is None:
        return _R.RUNNING
    return _R.SEALED if result.succeeded else _R.FAILED


LIFECYCLES = (MEMBER, RESTORE)
