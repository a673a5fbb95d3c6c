"""After a quorum was lost for good: what is said, and how a cluster goes on with what a survivor has. Pure.

Members that are away come back by themselves, with all that they had: their pods may all be gone, and nothing is lost.
A quorum is lost for good only where so many *volumes* are gone that the rest is no majority. Then nobody can tell
whether something that a client was told to be written is on none of the volumes that are left. So it is never mended
without a person who allows just this:

1. `QuorumLost` says which members are lost, and which survivor has most; status.recovery.token stands for exactly
   that: another loss, or another survivor, has another token.
2. spec.recovery.confirm = the token allows it. Up to here a quorum that comes back ends it all.
3. All members stop, in good order, so that everything is in their files (the StatefulSet has 0 replicas).
4. A pod makes a new cluster of the survivor's database on its own volume: one rename, before which nothing was changed.
   The former data directory stays beside it, as data.before-TOKEN.
5. The survivor starts as the only member of that cluster, whose id follows from the token, and is recorded.
6. The others, whose volumes go, join it one by one, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.pods import TOKEN, recovery_pod_name
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import successor
from operators.etcd.observe import Observed
from operators.etcd.reasons import DATA_LOST, NO_QUORUM, QUORUM_LOST, RECOVERING, RECOVERY_FAILED
from operators.etcd.steps.data_loss import QuorumLoss, Voter, loss, progress
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Delete, Step
from shared.steps.confirmed_recovery import Proposal, confirms, recorded

POLL_SECONDS, RETRY_SECONDS = 5.0, 30.0
"""Time until members are observed again: while they may come back, and while a person must act or a pod failed."""

PodBuilder = Callable[[EtcdCluster, int, str], Obj]
"""The pod that makes a new cluster of the database at a place (its number), for a recovery (its token)."""


def report(resource: EtcdCluster, seen: Observed) -> Obj | None:
    """status.recovery: what can be done about the loss, or is being done; None if there is nothing to do.

    What was told stays while it is carried out, and until the id of the cluster that it made is recorded.
    """
    record = recorded(resource)
    if record and seen.cluster_id and seen.cluster_id == successor(resource):
        return None
    if record and (executing(resource, seen) or _made(resource, seen)):
        return record
    found = loss(resource, seen)
    if found is None or found.survivor is None or not found.token or resource.spec.storage.medium == "Memory":
        return None
    _, revision = progress(found.survivor)
    proposal = {"token": found.token, "survivor": found.survivor.name, "message": _consequences(found)}
    return proposal | ({"revision": revision} if revision else {})


def executing(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether members must not run now: a person has allowed a recovery, and the new cluster is not made yet.

    It begins only while the loss is as it was told. Once members have been stopped nobody can tell that any more: what
    the status says counts then. Taking the confirmation back ends it, until the new cluster is made.
    """
    record = recorded(resource)
    if not record or not confirms(resource, record["token"]) or seen.members is not None:
        return False
    if _made(resource, seen):
        return False
    found = loss(resource, seen)
    return _stopped(seen) or (found is not None and found.token == record["token"])


def replicas(resource: EtcdCluster, seen: Observed) -> int | None:
    """How many replicas the StatefulSet must have for a recovery; None if that is not for it to say."""
    if seen.members is not None:
        return None
    if executing(resource, seen):
        return 0
    record = recorded(resource)
    if record and _made(resource, seen):
        return 1 + (names.number_of(resource, record["survivor"]) or 0)
    if not _stopped(seen):
        return None
    if recovery_pod_name(resource) in seen.job_pods:
        return 0  # it may hold the volume yet
    # The confirmation was taken back: all that were there start again.
    return 1 + max((names.number_of(resource, member.name) or 0 for member in resource.recorded_members), default=0)


def recover_quorum(build: PodBuilder, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """A quorum that is away is waited for; one that is lost for good is recovered if a person allows just that.

    Args:
        build: makes the pod that does it.
    """
    if executing(resource, seen):
        return _execute(build, resource, seen, now)
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    if record and _made(resource, seen):
        message = f"The new cluster is made of the data of {record['survivor']}, which starts as its only member."
        return Step.progressing(RECOVERING, message, requeue=POLL_SECONDS)
    if pod is not None:
        message = f"The pod {recovery_pod_name(resource)} is not needed any more: it goes."
        return Step.wait(RECOVERING, message, *_delete(pod), requeue=POLL_SECONDS)
    found = loss(resource, seen)
    if found is None:
        return PASS
    return _judge(resource, seen, found) if found.is_permanent else _wait_for_members(seen, found)


def _execute(build: PodBuilder, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Stop all, then make the new cluster of what the survivor has."""
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    survivor, token = record["survivor"], record["token"]
    number = names.number_of(resource, survivor)
    running = [instance.name for instance in seen.instances if instance.pod_obj is not None]
    if not _stopped(seen) or survivor in running or number is None:
        message = f"Recovery {token} is allowed: {', '.join(running)} stop, so that all they know is on their disks."
        return Step.wait(RECOVERING, message, requeue=POLL_SECONDS)
    message = f"Recovery {token}: a new cluster is made of the data of {survivor}."
    if pod is None:
        return Step.wait(RECOVERING, message, Apply(POD, build(resource, number, token)))
    if token_of(pod) != token:
        return Step.wait(
            RECOVERING, f"{message} The pod of a former one goes first.", *_delete(pod), requeue=POLL_SECONDS
        )
    if (pod.get("status") or {}).get("phase") == "Failed":
        message = f"{message} It failed: {_termination_message(pod)} Nothing was changed; it is tried again."
        actions = _delete(pod) if _ended_for(pod, now) >= RETRY_SECONDS else ()
        return Step.wait(RECOVERY_FAILED, message, *actions, warning=True, requeue=POLL_SECONDS)
    trouble = Pod.of(pod).trouble
    message = f"{message} Its pod does not start: {trouble}" if trouble else message
    return Step.wait(RECOVERING, message, warning=bool(trouble), requeue=POLL_SECONDS)


def _judge(resource: EtcdCluster, seen: Observed, found: QuorumLoss) -> Step:
    """What is said of a quorum that is lost for good, until a person allows what can be done."""
    loss_text = f"{_names(found.lost)} of the {len(found.voters)} voters lost their data: a quorum is lost for good."
    if found.survivor is None and not found.unreachable:
        return Step.blocked(
            DATA_LOST,
            f"{loss_text} No other member has any, so there is nothing to go on with. Nothing was changed. Delete this "
            "resource and create it anew, with spec.restore to begin with a backup, without it to begin empty.",
        )
    if found.unreachable:
        message = (
            f"{loss_text} {_unreachable(seen, found)}: whether one of them has more than the others cannot be told. Bring them "
            "back; or, if their data is gone, too, delete their volume claims, which says so. Nothing was changed."
        )
        return Step.progressing(QUORUM_LOST, message, warning=True, requeue=POLL_SECONDS)
    assert found.survivor is not None
    if resource.spec.storage.medium == "Memory":
        return Step.blocked(
            QUORUM_LOST,
            f"{loss_text} {found.survivor.name} has its data in memory, and would lose it if it stopped: take an EtcdBackup "
            "of it now, and restore that into a new EtcdCluster.",
        )
    caution = "First make sure that no lost member still runs somewhere, such as on a node that is cut off."
    recording = "What is to be done is written down first."
    proposal = Proposal(QUORUM_LOST, loss_text, _consequences(found), caution, recording, found.token)
    return proposal.decide(resource, requeue=RETRY_SECONDS)


def _wait_for_members(seen: Observed, found: QuorumLoss) -> Step:
    """A quorum that is away, and may come back by itself: who is missing."""
    lost = f" {_names(found.lost)} lost their data." if found.lost else ""
    message = (
        f"No quorum: {found.needed} of {len(found.voters)} voters must agree. {_unreachable(seen, found)}.{lost} Nothing is "
        "lost for good: what is written is on the others' volumes."
    )
    return Step.progressing(NO_QUORUM, message, warning=True, requeue=POLL_SECONDS)


def _consequences(found: QuorumLoss) -> str:
    assert found.survivor is not None
    applied, revision = progress(found.survivor)
    others = len(found.voters) - len(found.lost) - 1
    more = f", the most of the {others + 1} that are left" if others > 0 else ""
    return (
        f"The cluster can go on with what {found.survivor.name} has{more}: revision {revision or 'unknown'}, entry "
        f"{applied} of the log. What only the lost ones had is lost, and all other members begin anew from it."
    )


def _stopped(seen: Observed) -> bool:
    return seen.stateful_set is not None and seen.stateful_set["spec"].get("replicas") == 0


def _made(resource: EtcdCluster, seen: Observed) -> bool:
    """Whether the new cluster is made: its pod has ended well, or somebody answers as that cluster."""
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    if any(instance.status and instance.status.cluster_id == successor(resource) for instance in seen.instances):
        return True
    ended_well = pod is not None and (pod.get("status") or {}).get("phase") == "Succeeded"
    return ended_well and token_of(pod or {}) == record.get("token")


def token_of(pod: Obj) -> str:
    """Which recovery a pod is for."""
    return annotation(pod, TOKEN)


def _delete(pod: Obj) -> tuple[Delete, ...]:
    return () if pod["metadata"].get("deletionTimestamp") else (Delete(POD, pod),)


def _ends(pod: Obj) -> list[Obj]:
    reported = pod.get("status") or {}
    containers = [*(reported.get("initContainerStatuses") or ()), *(reported.get("containerStatuses") or ())]
    ends = [(container.get("state") or {}).get("terminated") for container in containers]
    return [end for end in ends if end and end.get("exitCode")]


def _termination_message(pod: Obj) -> str:
    words = [str(end.get("message") or end.get("reason") or "") for end in _ends(pod)]
    return (words or [str((pod.get("status") or {}).get("message") or "")])[-1].strip() or "it did not say why."


def _ended_for(pod: Obj, now: datetime) -> float:
    """Seconds since a pod failed; since it was made, where the kubelet did not say (evicted)."""
    times = [end["finishedAt"] for end in _ends(pod) if end.get("finishedAt")]
    since = max(times, default=pod["metadata"].get("creationTimestamp"))
    return (now - datetime.fromisoformat(since)).total_seconds() if since else RETRY_SECONDS


def _names(voters: tuple[Voter, ...]) -> str:
    return ", ".join(voter.name for voter in voters)


def _unreachable(seen: Observed, found: QuorumLoss) -> str:
    """Who is away, each with the reason."""
    descriptions = []
    for voter in found.unreachable:
        instance = seen.instance_named(voter.name)
        pod = instance.pod if instance else None
        why = (
            "it has no pod"
            if pod is None
            else pod.trouble or (instance.error if instance else "") or "it does not answer"
        )
        descriptions.append(f"{voter.name} is away ({why})")
    return ", ".join(descriptions) or "All others answer"
