"""Changes that need a restart: outdated pods, the order in which they are recreated, and what blocks them. Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.evidence import GOOD
from operators.etcd.membership.quorum import Quorum, removal_refusal, restart_refusal
from operators.etcd.objects import bootstrap
from operators.etcd.objects.pod import TEMPLATE
from operators.etcd.reasons import JOINING, UPGRADE_BLOCKED
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps.intervals import BLOCKED_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.member_changes import hand_over, remove
from operators.etcd.steps.quorum_recovery import recover_quorum
from operators.etcd.steps.version_change import may_start
from shared.kubernetes.pods import STUCK, is_outdated
from shared.runtime.plan import PASS, Evict, Step
from shared.status.phases import UPDATING
from shared.status.reasons import VOLUMES_TERMINATING
from shared.status.verdict import Progress
from shared.steps import rolling_update
from shared.steps.rolling_update import RollingUpdate, is_returning, may_evict, restart, stop


def outdated(seen: Observed, instance: Instance) -> bool:
    """Whether a pod differs from the current template of the StatefulSet."""
    return is_outdated(instance.pod_obj, seen.stateful_set, TEMPLATE)


def has_other_bootstrap(seen: Observed, instance: Instance) -> bool:
    """Whether the bootstrap annotations of a pod differ from those of the StatefulSet's template."""
    if seen.stateful_set is None or instance.pod_obj is None:
        return False
    return bootstrap.of(instance.pod_obj) != bootstrap.of(seen.stateful_set["spec"]["template"])


def restart_unstarted_learner(seen: Assessment) -> Step:
    """Recreate the pod of a learner that cannot start with its bootstrap flags.

    Such a pod was created before its member was added, before the list of members changed, or from an older template. A
    learner that has not started has neither a vote nor data.
    """
    instance = seen.instance_of(seen.learner) if seen.learner else None
    if instance is None or instance.member is None or instance.pod_obj is None or instance.status is not None:
        return PASS
    unfit = outdated(seen, instance) or (not instance.member.name and has_other_bootstrap(seen, instance))
    if not unfit:
        return PASS
    if instance.pod and instance.pod.leaving:
        return Step.wait(
            JOINING, f"{instance.name} is joining: its former pod is terminating. {_stuck(instance)}".strip()
        )
    return Step.wait(
        JOINING,
        f"{instance.name} is joining: recreating its pod, so that etcd starts as the new member.",
        restart(instance),
    )


def restart_broken(seen: Assessment) -> Step:
    """Without a list of members, recreate an outdated pod in which etcd does not run: nothing depends on it.

    This repairs a change that broke the whole cluster, or its only member. It does not apply if the data would be
    deleted with the pod, or if the member may not be able to read its log with the version of the template.
    """
    if seen.members is not None or (
        seen.resource.spec.storage.medium == "Memory" and seen.resource.recorded_cluster_id
    ):
        return PASS
    broken = rolling_update.broken(seen.instances, partial(outdated, seen))
    broken = [instance for instance in broken if may_start(seen, instance) is GOOD]
    for instance in sorted(broken, key=lambda instance: instance.volume_leaving):
        state = f"{instance.name} does not run, and its pod is outdated"
        if instance.volume is None or not instance.volume_leaving:
            return Step.wait(UPDATING, f"{state}: recreating it.", restart(instance))
        claim, why = instance.volume["metadata"]["name"], instance.pod.hindrance if instance.pod else ""
        message = (
            f"{state}. It is not recreated: PersistentVolumeClaim {claim} is being deleted, and ends with the pod. If "
            "no other member has its data, set the reclaim policy of its volume to Retain, delete the pod, and bind "
            f"the volume to the new claim. {f'The pod {why}.' if why else ''}"
        ).rstrip()
        quorum = recover_quorum(seen)  # more urgent; if it stops the chain, it replaces this report
        if quorum.progress is Progress.PROGRESSING:
            return replace(quorum, message=f"{quorum.message} {message}")
        return Step.progressing(VOLUMES_TERMINATING, message, warning=True, requeue=BLOCKED_POLL_SECONDS)
    return PASS


def roll_outdated_pods(seen: Assessment) -> Step:
    """Recreate outdated pods one at a time: broken ones first, then followers, the leader last."""
    stale = [instance for instance in seen.instances if instance.member and outdated(seen, instance)]
    if not stale:
        return PASS
    evicts = may_evict(seen.resource.spec.pod_disruption_budget, seen.resource.spec.size) and not _awaits_update(seen)
    roll = RollingUpdate(
        seen.instances, partial(outdated, seen), stale, UPDATING, UPGRADE_BLOCKED, BLOCKED_POLL_SECONDS, evicts
    )
    if leaving := [instance for instance in seen.instances if instance.pod and instance.pod.leaving]:
        return roll.wait(f"{leaving[0].name} is terminating. {_stuck(leaving[0])}".strip())
    return roll.next(
        rank=lambda instance: (instance.runs, seen.healthy(instance), instance is seen.leader, instance.number),
        gates=(
            partial(_keep_readable, seen, roll),  # a log that the version of the template reads
            partial(_await_unready_voter, seen, roll),  # healthy again, but not ready for clients yet
            partial(_leave_and_rejoin, seen, roll),  # a member whose data is deleted with its pod
            partial(_keep_quorum, seen, roll),  # while every other voter is healthy
            partial(_hand_over_leadership, seen, roll),
        ),
    )


def _awaits_update(seen: Assessment) -> bool:
    """Whether the budget allows no eviction before a member is added, which may have to wait for the update.

    The pod of a missing member is not ready, so that the budget counts it as disrupted. As it allows no drain either, a
    deletion stops no second pod.
    """
    members = {instance.number for instance in seen.instances if instance.member}
    allowed = ((seen.disruption_budget or {}).get("status") or {}).get("disruptionsAllowed")
    return allowed == 0 and not members.issuperset(range(seen.layout.replicas))


def _await_unready_voter(seen: Observed, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    for other in seen.healthy_voters if instance.runs else ():
        if other is not instance and not other.ready:
            return roll.wait(f"{other.name} is healthy again, but not ready for clients yet.")
    return None


def _keep_readable(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    """Block the restart of a member that may not be able to read its log with the version of the template."""
    finding = may_start(seen, instance)
    return None if finding is GOOD else roll.block(instance, f"{instance.name} {finding.why}.")


def _keep_quorum(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    why = restart_refusal(seen, instance)
    if not why:
        return None
    down = [seen.instance_of(member) for member in seen.down]
    if down and all(other and not outdated(seen, other) and is_returning(other, seen.now) for other in down):
        names = ", ".join(other.name for other in down if other)
        return roll.wait(f"{names} was recreated and is starting.", requeue=MEMBERSHIP_POLL_SECONDS)
    return roll.block(instance, f"{why}.", with_problem=True)


def _hand_over_leadership(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    if instance is not seen.leader or not [other for other in seen.healthy_voters if other is not instance]:
        return None
    return hand_over(seen, instance, UPDATING, f"{roll.progress}; {instance.name} is the leader and is recreated last")


def _leave_and_rejoin(seen: Assessment, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    """With data that ends with the pod, a member leaves together with its pod, and joins again with the new one.

    The pod is evicted first: the budget then protects the other members, whose data a drain would delete with their
    pods. If the operator stops in between, `replace_lost_member` removes the member. With two voters that would lose
    the quorum, so the member is removed first, and `delete_removed_members` deletes its pod.
    """
    ends = seen.why_data_ends(instance)
    if not ends:
        return None
    assert instance.member is not None
    present = {other.number for other in seen.instances if other.member}
    if not present.issuperset(range(seen.resource.spec.size)):
        return PASS
    if why := removal_refusal(seen, instance.member):
        if len(seen.voters) == 1:
            why += f", and its data would be deleted with its pod ({ends}). Set spec.size to 3"
        return roll.block(instance, f"{why}.", with_problem=True)
    if instance is seen.leader:
        return hand_over(
            seen, instance, UPDATING, f"{roll.progress}; {instance.name} is the leader and is recreated last"
        )
    message = (
        f"{roll.progress}; removing {instance.name}, because its data is deleted with its pod. It joins again with a "
        "new pod."
    )
    keeps_quorum = Quorum.of(seen).while_restarting(healthy=instance.member not in seen.down).spare >= 0
    stopping = stop(instance, evicts=roll.evicts)
    first = (stopping,) if isinstance(stopping, Evict) and keeps_quorum else ()
    return Step.wait(UPDATING, message, *first, remove(seen, instance))


def _stuck(instance: Instance) -> str:
    """Return advice for a pod whose deletion takes longer than its grace period."""
    if instance.pod_obj is None or instance.runs:
        return ""
    return STUCK if instance.status is None and not instance.ready else ""
