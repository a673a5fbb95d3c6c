"""What to do next about an EtcdCluster, and what to say of it. Pure.

The chain reads as the whole story; each step is in the room of its subject.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from functools import partial

from operators.etcd import status
from operators.etcd.api.resource import EtcdCluster, validate
from operators.etcd.assessment import Assessment
from operators.etcd.backup.pods import recovery_pod
from operators.etcd.membership.layout import layout
from operators.etcd.membership.raft_log import unreadable
from operators.etcd.objects import names, stateful_set
from operators.etcd.objects import pod as template
from operators.etcd.observe import Observed
from operators.etcd.settings import Settings
from operators.etcd.steps.backup_schedule import failing, schedule_backups
from operators.etcd.steps.corruption import replace_corrupt_member
from operators.etcd.steps.credentials import keep_auth, require_entry
from operators.etcd.steps.guards import refuse_foreign_volumes, refuse_strangers
from operators.etcd.steps.intervals import MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.maintenance import defragment, relieve_full_disk
from operators.etcd.steps.member_pods import admit_clients, close_begun
from operators.etcd.steps.promotion import promote_learner
from operators.etcd.steps.provisioning import (
    grow_volumes,
    keep_disruption_budget,
    keep_secrets,
    keep_services,
    quota,
    require_secrets,
)
from operators.etcd.steps.quorum_recovery import RECOVERING, executing, recover_quorum, replicas
from operators.etcd.steps.recording import record_cluster
from operators.etcd.steps.removal import drop_leavings, replace_lost_member
from operators.etcd.steps.restore import restore_data
from operators.etcd.steps.rolling_update import (
    outdated,
    permitted,
    refuse_unsafe_upgrade,
    restart_awaited,
    restart_broken,
    roll_outdated_pods,
    who_is_down,
)
from operators.etcd.steps.scaling import grow_by_one, shrink_by_one
from shared.kubernetes.kinds import STATEFUL_SET
from shared.runtime.plan import PASS, Apply, Plan, Step, StepOf, follow, refuse
from shared.status.deadlines import Deadline
from shared.status.verdict import Progress

CREATING, RESTORING, SCALING, UPDATING, DEGRADED = "Creating", "Restoring", "Scaling", "Updating", "Degraded"
RUNNING, PAUSED, FAILED = "Running", "Paused", "Failed"

POLL = 30.0
"""Seconds after which a cluster that is as wanted is looked at again: who leads, sizes and alarms, nobody tells us."""

BUSY = 5.0
"""The same for one that is not, where no step wished for anything else."""

UNREACHABLE = "EtcdUnreachable"


@dataclasses.dataclass(frozen=True, slots=True)
class Planner:
    """Plans with what the operator's options give."""

    settings: Settings

    def plan(self, resource: EtcdCluster, seen: Observed, now: datetime) -> Plan:
        """The chain's answer, with the status that tells it."""
        facts = Assessment.of(resource, seen)
        actions, verdict, requeue = follow(self._steps(), resource, facts, now)
        phase = _PHASES.get(verdict.progress) or _movement(resource, seen)
        if verdict.done:
            verdict = dataclasses.replace(verdict, message=f"{_count(resource, seen)}. {failing(seen)}".strip())
        elif verdict.progress is Progress.PAUSED:
            verdict = dataclasses.replace(verdict, ready=_complete(resource, seen))
        requeues = [requeue if requeue is not None else BUSY, POLL]
        if verdict.done or verdict.progress in (Progress.PAUSED, Progress.BLOCKED):
            requeues = [requeue if requeue is not None else POLL, POLL]
        if deadline := self._deadline(phase):
            verdict, left = deadline.judge(resource.obj, verdict, now)
            requeues += [left] if left is not None else []
        return Plan(actions, verdict, status.report(self.settings, resource, facts, now, phase), min(requeues))

    def _steps(self) -> tuple[StepOf[EtcdCluster, Assessment], ...]:
        settings = self.settings
        return (
            hold_while_paused,  # a person works on it: report, touch nothing
            refuse_contradictions,  # the same rules as at admission, for what came past it
            refuse_foreign_volumes,  # another cluster's data is neither taken nor deleted
            partial(keep_secrets, settings),  # certificates before pods, and new ones before the old ones end
            require_secrets,  # what members cannot start without; those that run stay as they are
            partial(keep_services, settings),  # names before pods: members find each other by them
            partial(keep_disruption_budget, settings),  # how many a drain may take at once
            partial(restore_data, settings),  # what it is to begin with, before it begins
            record_cluster,  # that it has begun, and where everybody's data is: before anything rests on it
            partial(schedule_backups, settings),  # by the clock, and whatever else is held or stalled
            self.keep_stateful_set,  # places for the members that there are, and what an empty disk may do
            close_begun,  # a pod that has begun may not do so twice
            restart_broken,  # what a change broke altogether, the next one mends
            require_entry,  # the operator's password is taken
            await_etcd,  # an operator that is cut off touches nothing
            partial(recover_quorum, partial(recovery_pod, settings)),  # waits; if lost for good, a person decides
            refuse_strangers,  # members that somebody else added are not ours to judge
            drop_leavings,  # whoever is no member any more: its pod, then its volume
            relieve_full_disk,  # NOSPACE: compact, defragment, disarm; a full cluster takes no other change
            replace_corrupt_member,  # whose data differs from the others'
            replace_lost_member,  # whose volume is gone: removed, and back as a learner
            keep_auth,  # users are asked for, or not, before the first client comes
            admit_clients,  # to every voter
            restart_awaited,  # a learner's pod that cannot start as it was made
            partial(promote_learner, patience=settings.create_timeout),  # caught up: a vote; never: out again
            refuse_unsafe_upgrade,  # a version that the data would not survive
            roll_outdated_pods,  # broken first, followers next, the leader last
            shrink_by_one,  # leadership away, the member out, then pod and volume
            grow_by_one,  # a learner first, then its pod
            grow_volumes,  # where the class allows
            defragment,  # by the clock
            await_members,  # every member a healthy, current voter, and as many as wanted
        )

    def keep_stateful_set(self, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
        """The StatefulSet has a place for each member, and lets nobody begin that must not.

        While an upgrade is refused it keeps the image that members have; so that healing goes on meanwhile.
        """
        own = names.owner(resource, self.settings.operator)
        wanted, follows = permitted(resource, seen), layout(resource, seen)
        image = wanted.image_reference(self.settings.image_repository)
        pod = template.pod(wanted, own, image, follows.start, seen.secrets, quota(wanted, seen))
        stopped = replicas(resource, seen)
        count = follows.replicas if stopped is None else stopped
        made = stateful_set.stateful_set(wanted, own, pod, count, seen.stateful_set)
        # An old wish could take members' pods away, or let an empty disk begin.
        return Step.do(Apply(STATEFUL_SET, made, unchanged=True))

    def _deadline(self, phase: str) -> Deadline | None:
        return {
            CREATING: Deadline("CreateTimeout", self.settings.create_timeout, "--create-timeout"),
            UPDATING: Deadline("UpgradeTimeout", self.settings.upgrade_timeout, "--upgrade-timeout"),
        }.get(phase)


def hold_while_paused(resource: EtcdCluster, _seen: Observed, _now: datetime) -> Step:
    """While spec.paused holds, nothing is changed."""
    if not resource.spec.paused:
        return PASS
    return Step.paused(PAUSED, "spec.paused is true: nothing is changed until it is false again.")


def refuse_contradictions(resource: EtcdCluster, _seen: Observed, _now: datetime) -> Step:
    """A spec that contradicts itself changes nothing; what runs goes on."""
    return refuse(validate(resource))


def await_etcd(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """While no member answers though the kubelet finds them ready, it is the way that is cut, not the cluster.

    Readiness asks for what a quorum agreed on; so they are well, and nothing must be done to them.
    """
    ready = [place for place in seen.places if place.ready]
    if seen.members is not None or not resource.recorded_cluster_id or seen.answering or not ready:
        return PASS
    ready_pods, error = (
        ", ".join(place.name for place in ready),
        next((place.error for place in ready if place.error), ""),
    )
    why = f": {error.rstrip('.')}" if error else ""
    message = (
        f"{ready_pods}: ready, says Kubernetes, and yet no member answers the operator{why}. "
        "Nothing is changed meanwhile. Look whether a NetworkPolicy lets the operator's pods reach port 2379 of theirs."
    )
    return Step((), Progress.WAITING, UNREACHABLE, message, warning=True, requeue=POLL)


def await_members(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Every member is there, a voter, healthy, current and ready, and none is left over."""
    if _complete(resource, seen):
        return PASS
    told = [f"{_count(resource, seen)}.", who_is_down(seen)]
    failing = [place for place in seen.places if place.pod and place.pod.trouble and not place.ready]
    if seen.members is None:
        told += [f"{place.name} does not start: {place.pod.trouble}" for place in failing if place.pod]
    unready = [place.name for place in seen.healthy_voters if not place.ready]
    if unready:
        told.append(f"{', '.join(unready)}: a member, and not yet ready for clients.")
    phase = _movement(resource, seen)
    troubled = bool(failing) or phase == DEGRADED
    message = " ".join(part for part in told if part)
    reason = "MemberFailing" if failing else phase
    return Step.progressing(reason, message, warning=troubled, requeue=BUSY if troubled else MEMBERSHIP_POLL_SECONDS)


def _complete(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether the cluster is what the spec asks for."""
    members = [place for place in seen.places if place.member]
    return (
        seen.members is not None
        and [place.number for place in members] == list(range(resource.spec.size))
        and len(seen.healthy_voters) == len(seen.members) == resource.spec.size
        and all(place.ready and not outdated(seen, place) for place in members)
    )


def _count(resource: EtcdCluster, seen: Observed) -> str:
    return f"{len(seen.healthy_voters)} of {resource.spec.size} members are healthy"


def _movement(resource: EtcdCluster, seen: Observed) -> str:
    """What a cluster that is not as wanted is doing.

    A movement keeps its name until it is over; members missing without one are a loss.
    """
    before = resource.phase
    if executing(resource, seen) or before == RECOVERING:
        return RECOVERING
    if before in ("", CREATING, RESTORING):
        return CREATING if resource.spec.restore is None or resource.recorded_cluster_id else RESTORING
    if before == UPDATING or any(outdated(seen, place) for place in seen.places) or unreadable(resource, seen):
        return UPDATING
    resized = seen.members is not None and len(seen.members) != resource.spec.size
    if before == SCALING or (resized and (resource.changed or before in (FAILED, PAUSED))):
        return SCALING
    return DEGRADED


_PHASES = {Progress.DONE: RUNNING, Progress.PAUSED: PAUSED, Progress.BLOCKED: FAILED}
