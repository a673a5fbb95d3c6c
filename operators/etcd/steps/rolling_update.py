"""Changes that need a restart: which pods are outdated, in what order they are recreated, and what holds them. Pure."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import Version, upgrade_refusal
from operators.etcd.membership.quorum import removal_refusal, restart_refusal
from operators.etcd.membership.raft_log import unreadable
from operators.etcd.objects import bootstrap
from operators.etcd.objects.names import CONTAINER
from operators.etcd.objects.pod import TEMPLATE
from operators.etcd.observe import Instance, Observed
from operators.etcd.reasons import JOINING, UPGRADE_HELD, UPGRADE_REFUSED
from operators.etcd.steps.intervals import HELD_BACK_POLL_SECONDS, MEMBERSHIP_POLL_SECONDS
from operators.etcd.steps.member_changes import hand_over, remove
from shared.kubernetes.pods import STUCK, is_outdated
from shared.runtime.plan import PASS, Step
from shared.status.phases import UPDATING
from shared.steps import rolling_update
from shared.steps.rolling_update import RollingUpdate, is_returning, restart, template_image


def outdated(seen: Observed, instance: Instance) -> bool:
    """Whether a pod runs otherwise than the StatefulSet now says."""
    return is_outdated(instance.pod_obj, seen.stateful_set, TEMPLATE)


def has_other_bootstrap(seen: Observed, instance: Instance) -> bool:
    """Whether a pod was made with another word on empty disks than the StatefulSet now has."""
    if seen.stateful_set is None or instance.pod_obj is None:
        return False
    return bootstrap.of(instance.pod_obj) != bootstrap.of(seen.stateful_set["spec"]["template"])


def restart_unstarted_learner(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A learner's pod that cannot start as it was made is made anew: it has no vote, and nothing is lost with it.

    Such is one that was made before its member was added, or before the list changed, and one of an older template.
    """
    instance = seen.instance_of(seen.learner) if seen.learner else None
    if instance is None or instance.member is None or instance.pod_obj is None or instance.status is not None:
        return PASS
    unfit = outdated(seen, instance) or (not instance.member.name and has_other_bootstrap(seen, instance))
    if not unfit:
        return PASS
    if instance.pod and instance.pod.leaving:
        return Step.wait(
            JOINING, f"{instance.name} joins: its former pod is on the way out. {_stuck(instance)}".strip()
        )
    return Step.wait(JOINING, f"{instance.name} joins: its pod is made anew, to start as a member.", restart(instance))


def versions(resource: EtcdCluster, seen: Observed) -> tuple[Version, ...]:
    """What members run: as they say themselves, or, where none does, as the status last told."""
    reported = [instance.status.version for instance in seen.instances if instance.status and instance.member]
    return tuple(map(Version.parse, reported or filter(None, [resource.reported.get("version")])))


def refusal(resource: EtcdCluster, seen: Observed) -> str:
    """Why members must not become what the spec says; empty if they may."""
    cluster = Version.parse(seen.cluster_version) if seen.cluster_version else None
    return upgrade_refusal(versions(resource, seen), cluster, resource.version)


def permitted(resource: EtcdCluster, seen: Observed) -> EtcdCluster:
    """The resource as members may run it: with the image that they have, where the spec's is refused, or must wait."""
    if not refusal(resource, seen) and not unreadable(resource, seen):
        return resource
    image = template_image(seen.stateful_set, CONTAINER) if seen.stateful_set is not None else None
    update = {"image": image, "version": str(min(versions(resource, seen)))}
    return EtcdCluster(resource.obj, resource.spec.model_copy(update=update))


def refuse_unsafe_upgrade(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A version that the data would not survive is not rolled out; what runs goes on."""
    if why := refusal(resource, seen):
        return Step.blocked(UPGRADE_REFUSED, f"{why} Nothing was changed.")
    if why := unreadable(resource, seen):  # what else the change is about goes on meanwhile: it may be what mends it
        return Step.progressing(UPGRADE_HELD, why, warning=True, requeue=HELD_BACK_POLL_SECONDS)
    return PASS


def restart_broken(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Where no list is known, recreate an outdated pod in which etcd does not even run: nothing depends on it.

    This repairs a change that broke a whole cluster, or the only member. Not where the data would go with the pod.
    """
    if seen.members is not None or (resource.spec.storage.medium == "Memory" and resource.recorded_cluster_id):
        return PASS
    for instance in rolling_update.broken(seen.instances, partial(outdated, seen)):
        message = f"{instance.name} does not run, and was made before the change: it is made anew."
        return Step.wait(UPDATING, message, restart(instance))
    return PASS


def roll_outdated_pods(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Recreate outdated pods one at a time: broken ones first, then followers, the leader last."""
    stale = [instance for instance in seen.instances if instance.member and outdated(seen, instance)]
    if not stale:
        return PASS
    roll = RollingUpdate(seen.instances, partial(outdated, seen), stale, UPDATING, UPGRADE_HELD, HELD_BACK_POLL_SECONDS)
    if leaving := [instance for instance in seen.instances if instance.pod and instance.pod.leaving]:
        return roll.wait(f"{leaving[0].name} is on the way out. {_stuck(leaving[0])}".strip())
    return roll.next(
        rank=lambda instance: (instance.runs, seen.healthy(instance), instance is seen.leader, instance.number),
        gates=(
            partial(_await_unready_voter, seen, roll),  # it takes part again, and is not ready for clients yet
            partial(_leave_and_rejoin, resource, seen, roll),  # a member whose data goes with its pod
            partial(_keep_quorum, seen, roll, now),  # while every other voter is healthy
            partial(_hand_over_leadership, resource, seen, roll),
        ),
    )


def _await_unready_voter(seen: Observed, roll: RollingUpdate[Instance], instance: Instance) -> Step | None:
    for other in seen.healthy_voters if instance.runs else ():
        if other is not instance and not other.ready:
            return roll.wait(f"{other.name} takes part again, and is not yet ready for clients.")
    return None


def _keep_quorum(seen: Observed, roll: RollingUpdate[Instance], now: datetime, instance: Instance) -> Step | None:
    why = restart_refusal(seen, instance)
    if not why:
        return None
    down = [seen.instance_of(member) for member in seen.down]
    if down and all(other and not outdated(seen, other) and is_returning(other, now) for other in down):
        names = ", ".join(other.name for other in down if other)
        return roll.wait(f"{names} is made anew, and comes back.", requeue=MEMBERSHIP_POLL_SECONDS)
    return roll.hold(instance, f"{why}.", with_trouble=True)


def _hand_over_leadership(
    resource: EtcdCluster, seen: Observed, roll: RollingUpdate[Instance], instance: Instance
) -> Step | None:
    if instance is not seen.leader or not [other for other in seen.healthy_voters if other is not instance]:
        return None
    return hand_over(resource, seen, instance, UPDATING, f"{roll.goal}; {instance.name} leads and is the last")


def _leave_and_rejoin(
    resource: EtcdCluster, seen: Observed, roll: RollingUpdate[Instance], instance: Instance
) -> Step | None:
    """Where the data goes with the pod, remove the member before; it joins again with the new pod; then the next."""
    if resource.spec.storage.medium != "Memory":
        return None
    assert instance.member is not None
    present = {other.number for other in seen.instances if other.member}
    if not present.issuperset(range(resource.spec.size)):
        return PASS
    if why := removal_refusal(seen, instance.member):
        if len(seen.voters) == 1:
            why += ", and its data would go with its pod (storage.medium is Memory). Let spec.size be 3"
        return roll.hold(instance, f"{why}.", with_trouble=True)
    if instance is seen.leader:
        return hand_over(resource, seen, instance, UPDATING, f"{roll.goal}; {instance.name} leads and is the last")
    message = f"{roll.goal}: {instance.name} leaves, for its data goes with its pod, and joins again with a new one."
    return Step.wait(UPDATING, message, remove(resource, seen, instance))


def _stuck(instance: Instance) -> str:
    """What to do where a pod's deletion takes longer than the pod was given."""
    if instance.pod_obj is None or instance.runs:
        return ""
    return STUCK if instance.status is None and not instance.ready else ""
