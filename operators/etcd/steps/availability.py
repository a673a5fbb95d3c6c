"""Steps that wait until every member serves, and the phase of a cluster. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.backup.pods import NO_IMAGE
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.corruption import differed, suspected
from operators.etcd.membership.quorum import member_names
from operators.etcd.reasons import ETCD_UNREACHABLE, MEMBER_FAILING, NO_AGENT_IMAGE, RECOVERING
from operators.etcd.state.empty_directory import AWAITING_PROOF
from operators.etcd.state.observed import Instance
from operators.etcd.steps.backup_schedule import failing
from operators.etcd.steps.data_loss import loss
from operators.etcd.steps.former_data import size_note
from operators.etcd.steps.intervals import MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.rolling_update import outdated
from operators.etcd.steps.version_change import hold
from shared.kubernetes import accessors
from shared.kubernetes.pods import STUCK
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Step
from shared.status.conditions import AVAILABLE
from shared.status.messages import grouped
from shared.status.phases import CREATING, DEGRADED, FAILED, PAUSED, RESTORING, RUNNING, SCALING, UPDATING
from shared.status.reasons import IMAGE_PULL_FAILED, WAKING_UP, Reason
from shared.status.verdict import Progress, Verdict
from shared.steps.rolling_update import RETURN_TIMEOUT

POLL_SECONDS = 30.0
"""Interval at which a complete cluster is observed: no watch reports its leader and sizes; `alarm_probe` alarms."""

MAX_WITHOUT_SPARE = 2
"""Most voters of which none can be missing for a quorum."""

BUSY_SECONDS = 5.0
"""Interval at which an incomplete cluster is observed, if no step sets a time."""


def await_etcd(seen: Assessment) -> Step:
    """Change nothing while no member answers although the kubelet reports some as ready.

    The readiness probe needs a quorum, so these members are healthy: only the operator is cut off.
    """
    ready = [instance for instance in seen.instances if instance.ready]
    if seen.members is not None or not seen.resource.recorded_cluster_id or seen.answering or not ready:
        return PASS
    ready_names = ", ".join(instance.name for instance in ready)
    error = next((instance.error for instance in ready if instance.error), "")
    why = f": {error.rstrip('.')}" if error else ""
    message = (
        f"{ready_names}: ready according to the kubelet, but no member answers the operator{why}. The operator "
        "changes nothing until a member answers. Check whether a NetworkPolicy blocks connections from the "
        "operator's pods to port 2379 of the members."
    )
    return Step.wait(ETCD_UNREACHABLE, message, warning=True, requeue=POLL_SECONDS)


def await_planned_restart(seen: Assessment) -> Step:
    """Report an update that restarts one of at most two voters as an update: without that voter, there is no quorum.

    After RETURN_TIMEOUT without service, and if a pod has a problem, the lost quorum is reported.
    """
    found = loss(seen)
    if found is None or found.lost or len(found.voters) > MAX_WITHOUT_SPARE or _movement(seen) != UPDATING:
        return PASS
    instances = [seen.instance_named(voter.name) for voter in found.voters]
    restarting = [voter.name for voter, each in zip(found.voters, instances, strict=True) if not (each and each.runs)]
    if len(restarting) > 1 or any(each and each.pod and each.pod.problem for each in instances):
        return PASS
    available = accessors.condition(seen.resource.obj, AVAILABLE)
    since = datetime.fromisoformat(available["lastTransitionTime"]) if available.get("status") == "False" else seen.now
    if seen.now - since > RETURN_TIMEOUT:
        return PASS
    name = next(iter(restarting), found.voters[0].name if len(found.voters) == 1 else "A member")
    needed = "It is the only voter" if len(found.voters) == 1 else "Both voters are needed for a quorum"
    message = f"{name} restarts with the changed template. {needed}: clients are not served until it is ready."
    return Step.progressing(UPDATING, message, poll=MEMBERSHIP_POLL_SECONDS)


def await_members(seen: Assessment) -> Step:
    """Wait until every member is a healthy, current voter, and no surplus member is left."""
    if complete(seen):
        return PASS
    parts = [f"{_count(seen)}.", *_members_down(seen)]
    failing = [instance for instance in seen.instances if instance.pod and instance.pod.is_failing(seen.now)]
    if seen.members is None:
        parts += grouped({each.name: each.pod.hindrance for each in failing if each.pod}, seen.resource.spec.size)
    unready = [instance.name for instance in seen.healthy_voters if not instance.ready]
    if unready:
        parts.append(f"{', '.join(unready)}: not ready for clients yet.")
    current = _movement(seen)
    degraded = bool(failing) or current == DEGRADED
    lacks_image = any(instance.pod and instance.pod.lacks_image for instance in failing)
    reason = IMAGE_PULL_FAILED if lacks_image else MEMBER_FAILING if failing else current
    message = " ".join(part for part in parts if part)
    return Step.progressing(
        reason, message, warning=degraded, poll=BUSY_SECONDS if degraded else MEMBERSHIP_POLL_SECONDS
    )


def require_backup_destination(seen: Assessment) -> Step:
    """Report a complete cluster as not ready while something is missing without which no scheduled snapshot works."""
    problem = _backup_problem(seen)
    if problem is None or not complete(seen):
        return PASS
    return Step.progressing(problem.reason, problem.message, warning=True, poll=POLL_SECONDS)


def _backup_problem(seen: Assessment) -> SecretProblem | None:
    """Return what scheduled snapshots lack: the image that takes them, or the Secret or claim of their destination."""
    if seen.resource.spec.backup is not None and not seen.settings.agent_image:
        return SecretProblem(NO_AGENT_IMAGE, f"spec.backup: {NO_IMAGE}")
    return seen.backup.destination_problem


def complete(seen: Assessment) -> bool:
    """Whether the cluster is what the spec requests."""
    members = [instance for instance in seen.instances if instance.member]
    return (
        seen.members is not None
        and [instance.number for instance in members] == list(range(seen.resource.spec.size))
        and len(seen.healthy_voters) == len(seen.members) == seen.resource.spec.size
        and all(instance.ready and not outdated(seen, instance) for instance in members)
    )


def may_stop(seen: Assessment) -> bool:
    """Whether all members may stop although some are missing, and no change of members or version is in progress.

    A quorum of logs has every acknowledged write, and every member keeps its volume. So any quorum that returns has it.
    But a member whose data differs must not vote: if all start at once, it may find no peer to compare itself with.
    """
    members = [instance for instance in seen.instances if instance.member]
    return (
        len(members) == len(seen.voters) == seen.resource.spec.size
        and len(seen.healthy_voters) >= seen.quorum
        and not (seen.unknown_members or seen.alarms or seen.downgrade_target or suspected(seen))
        and all(each.ready and not outdated(seen, each) for each in seen.healthy_voters)
        and not any(each.volume is None or seen.lost(each) or differed(each) for each in members)
        and not any(each.volume_leaving for each in seen.instances)
    )


def _count(seen: Assessment) -> str:
    return f"{len(seen.healthy_voters)} of {seen.resource.spec.size} members are healthy"


def summary(seen: Assessment) -> str:
    """Return the message of a complete cluster."""
    return " ".join(f"{_count(seen)}. {failing(seen)} {size_note(seen)}".split())


def phase(seen: Assessment, verdict: Verdict) -> str:
    """Return the phase of the cluster."""
    lacking = _backup_problem(seen)
    if lacking and verdict.reason == lacking.reason and verdict.progress is Progress.PROGRESSING:
        return RUNNING  # only its snapshots are missing
    settled = {Progress.DONE: RUNNING, Progress.PAUSED: PAUSED, Progress.BLOCKED: FAILED}
    if verdict.reason == RECOVERING:
        return RECOVERING
    return settled.get(verdict.progress) or _movement(seen)


def _movement(seen: Assessment) -> Reason:
    """Return the phase of a cluster that is not complete.

    The phase of a running change is kept until the change is over; members that are missing without one are a loss.
    """
    resource = seen.resource
    before = resource.phase
    if before == RECOVERING or any(instance.kept_by for instance in seen.instances):
        return RECOVERING
    if before in ("", CREATING, RESTORING):
        return CREATING if resource.spec.restore is None or resource.recorded_cluster_id else RESTORING
    if before == UPDATING or any(outdated(seen, instance) for instance in seen.instances) or hold(seen):
        return UPDATING
    resized = seen.members is not None and len(seen.members) != resource.spec.size
    if before == SCALING or (resized and (resource.changed or before in (FAILED, PAUSED, WAKING_UP))):
        return SCALING
    return DEGRADED


def _members_down(seen: Assessment) -> list[str]:
    """Describe the members that are down, each with the known cause."""
    down = [(member, seen.instance_of(member)) for member in seen.down]
    known = {instance.name: _why_down(instance) for _, instance in down if instance}
    without = [member_names(seen, (member,)) for member, instance in down if instance is None]
    return [*grouped(known, seen.resource.spec.size), *without]


def _why_down(instance: Instance) -> str:
    """Return why a member is down, as a predicate."""
    if instance.pod is None:
        return instance.hidden or "does not exist"
    if instance.pod.leaving:
        return f"is terminating. {STUCK}"
    if instance.empty is not None:
        return f"may have lost its data: {instance.empty}. {AWAITING_PROOF}"
    if instance.pod.hindrance:
        return instance.pod.hindrance
    if instance.status is None:
        return f"does not answer: {instance.error}" if instance.error else "is starting"
    return "has no leader" if instance.status.leader == 0 else "is catching up with the leader"
