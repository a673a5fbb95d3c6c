"""Recovery from a permanently lost quorum: what is reported, and how a survivor's data becomes a new cluster. Pure.

Unreachable members return with all their data: even if all pods are deleted, nothing is lost. A quorum is lost
permanently only if so many *volumes* are lost that the remaining ones are no majority. Then it is impossible to know
whether an acknowledged write is on any remaining volume. So the operator recovers the cluster only if a user confirms
exactly that:

1. `QuorumLost` reports which members are lost, and which survivor has the most data. status.recovery.token identifies
   exactly this case and this occurrence of it (`shared.steps.confirmed_recovery`): another loss, another survivor, or
   the same loss at a later time has another token.
2. spec.recovery.confirm = the token confirms it. Until members are stopped, a quorum that returns ends the loss, and
   the consent with it. The recovery ends it as well.
3. All members stop in order, so that everything is in their files (the StatefulSet has 0 replicas).
4. The volumes of all survivors are marked with the token, and recorded volumes that etcd found empty, which may not be
   mounted. Their data is kept until a user releases it.
5. A pod creates a new cluster from the survivor's database on the survivor's own volume. One rename completes it; until
   then nothing is changed. The former data directory is kept next to it as data.before-TOKEN.
6. The survivor starts as the only member of that cluster. Its id follows from the token, and is recorded.
7. Members that lost their data join one by one as usual. Those on kept volumes join after the release
   (former_data.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup.outcome import ended_for, outcome, removal
from operators.etcd.backup.pods import TOKEN, recovery_pod, recovery_pod_name, started
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.layout import begun
from operators.etcd.membership.volume_record import lost_records
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import successor, successor_of
from operators.etcd.objects.names import CLUSTER_ID, KEPT, SET_ASIDE
from operators.etcd.reasons import DATA_LOST, NO_QUORUM, QUORUM_LOST, RECOVERING, RECOVERY_FAILED
from operators.etcd.state import recovery_marks
from operators.etcd.state.empty_directory import AWAITING_PROOF
from operators.etcd.state.observed import Observed
from operators.etcd.state.recovery_marks import marks, tokens
from operators.etcd.steps.data_loss import QuorumLoss, has_returned, loss, progress
from operators.etcd.steps.guards import stray
from operators.etcd.steps.version_change import permitted
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import PASS, Apply, Patch, Step
from shared.status.reasons import FOREIGN_OBJECT
from shared.steps.confirmed_recovery import UNKNOWN, Proposal, confirms, current, is_in_force, occurrence, recorded

POLL_SECONDS, RETRY_SECONDS = 5.0, 30.0
"""Time until members are observed again: while they may return, and while a user must act or a pod failed."""


def report(seen: Assessment) -> Obj | None:
    """Return status.recovery: what can be done about the loss, or is being done; None if there is nothing to do.

    The record is kept while the recovery is executed, and until the id of the new cluster is recorded: in the status,
    or if the status was lost, on the volume of the survivor. While it is unknown whether the loss has ended, it is kept
    for as long as it counts as the same loss.
    """
    resource = seen.resource
    record = recorded(resource) or _marked(seen)
    if record and seen.cluster_id and seen.cluster_id == successor_of(resource, record):
        return None
    if record and (executing(seen) or _made(seen) or _begun(seen, record)):
        # Stopping members may take longer than an unobserved loss counts as the same.
        return record | (occurrence(resource, "", seen.now, continues=True) if current(resource, seen.now) else {})
    found = loss(seen)
    if found is None or resource.spec.storage.medium == "Memory":
        return None
    return _offer(resource, found, seen.now) or _unknown(seen, found)


def _offer(resource: EtcdCluster, found: QuorumLoss, now: datetime) -> Obj | None:
    """Return the recovery that is possible: the recorded one for as long as the loss lasts; None if it is unclear.

    Another revision of the survivor shows that a quorum returned, even if the operator did not observe it.
    """
    if not found.identity or found.survivor is None or found.survivor.volume_leaving:  # which it would not survive
        return None
    record, survivor = current(resource, now), found.survivor.name
    _, revision = progress(found.survivor)
    same = (survivor, found.lost_ids, revision or None)
    continues = (record.get("survivor"), record.get("lost"), record.get("revision")) == same
    proposal: Obj = {"survivor": survivor, "lost": found.lost_ids, "message": _consequences(found)}
    proposal |= ({"revision": revision} if revision else {}) | ({"kept": [*found.kept]} if found.kept else {})
    return proposal | occurrence(resource, found.identity, now, continues=continues)


def _unknown(seen: Assessment, found: QuorumLoss) -> Obj | None:
    """Return the recorded recovery while it is unknown whether its loss has ended; None if it has.

    A confirmed one ends, too: once a person stops the members, to mount disks, it would look as if it had begun.
    """
    record = current(seen.resource, seen.now)
    if record and is_in_force(seen.resource, record["token"]):
        return None
    lost = [voter for voter in found.voters if f"{voter.id:016x}" in (record.get("lost") or ())]
    if not lost or any(has_returned(seen, voter) for voter in lost):
        return None
    return record | {"message": UNKNOWN}


def executing(seen: Assessment) -> bool:
    """Whether members must not run now: a recovery is confirmed, and the new cluster is not created yet.

    The recovery starts only while the loss is the one that was reported. Once members are stopped, the loss can no
    longer be observed, and the status counts: while it is current, or if the survivor's volume is marked, which
    happens only after members were stopped for this recovery. Until the new cluster is created, removing the
    confirmation cancels the recovery.
    """
    resource = seen.resource
    record = recorded(resource)
    if not record or not is_in_force(resource, record["token"]) or seen.members is not None or _made(seen):
        return False
    if _stopped(seen):
        return bool(current(resource, seen.now)) or _is_marked(seen, record)
    found = loss(seen)
    offered = _offer(resource, found, seen.now) if found is not None else None
    return offered is not None and offered["token"] == record["token"]


def replicas(seen: Assessment) -> int | None:
    """Return the replicas that the StatefulSet must have for a recovery; None if no recovery determines them."""
    resource = seen.resource
    if seen.members is not None:
        return None
    if executing(seen):
        return 0
    record = recorded(resource)
    if record and _made(seen):
        return 1 + (names.number_of(resource, record["survivor"]) or 0)
    if not _stopped(seen):
        return None
    if recovery_pod_name(resource) in seen.job_pods:
        return 0  # it may still have the volume mounted
    # The confirmation was removed: all recorded members start again.
    return 1 + max((names.number_of(resource, member.name) or 0 for member in resource.recorded_members), default=0)


def recover_quorum(seen: Assessment) -> Step:
    """Wait for an unreachable quorum; recover a permanently lost one if a user confirms it."""
    resource = seen.resource
    if executing(seen):
        return _execute(seen)
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    if record and _made(seen):
        message = f"The new cluster is created from the data of {record['survivor']}, which starts as its only member."
        return Step.progressing(RECOVERING, message, requeue=POLL_SECONDS)
    if pod is not None:
        message = f"Deleting Pod {recovery_pod_name(resource)}, which is no longer needed."
        return Step.wait(RECOVERING, message, *removal(pod), requeue=POLL_SECONDS)
    found = loss(seen)
    if found is None:
        return _judge_unrecorded(seen)
    return _judge(seen, found) if found.is_permanent else _wait_for_members(seen, found)


def _execute(seen: Assessment) -> Step:
    """Stop all members, then create the new cluster from the survivor's data."""
    resource = seen.resource
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    survivor, token = record["survivor"], record["token"]
    number = names.number_of(resource, survivor)
    running = [instance.name for instance in seen.instances if instance.pod_obj is not None]
    # Any of them may have data. A lost member may be on a node that never reports the end of its pod.
    with_data = {survivor, *(record.get("kept") or ())}
    if not _stopped(seen) or with_data.intersection(running) or number is None:
        message = f"Recovery {token} is confirmed: stopping {', '.join(running)}, so that all data is in their files."
        return Step.wait(RECOVERING, message, requeue=POLL_SECONDS)
    if changes := _marks(seen, record):
        message = f"Recovery {token}: marking the volumes that are kept."
        return Step.wait(RECOVERING, message, *changes, requeue=0)
    message = f"Recovery {token}: creating a new cluster from the data of {survivor}."
    if pod is None:
        # etcdutl of the version that the member runs: that of the spec may write a format that it does not read.
        made = recovery_pod(seen.settings, permitted(seen).resource, number, token)
        return Step.wait(RECOVERING, message, Apply(POD, started(made, seen.now)))
    if annotation(pod, TOKEN) != token:
        return Step.wait(
            RECOVERING, f"{message} Deleting the pod of a former recovery first.", *removal(pod), requeue=POLL_SECONDS
        )
    if (pod.get("status") or {}).get("phase") == "Failed":
        message = f"{message} The pod failed: {_why_failed(pod)} Nothing was changed; the operator retries."
        actions = removal(pod) if ended_for(pod, seen.now) >= RETRY_SECONDS else ()
        return Step.wait(RECOVERY_FAILED, message, *actions, warning=True, requeue=POLL_SECONDS)
    problem = Pod.of(pod).hindrance
    message = f"{message} Its pod {problem}." if problem else message
    return Step.wait(RECOVERING, message, warning=bool(problem), requeue=POLL_SECONDS)


def _marks(seen: Assessment, record: Obj) -> list[Patch]:
    """Return the changes that mark the survivors' volume claims, and remove marks of withdrawn recoveries."""
    kept, found = record.get("kept") or (), []
    for instance in seen.instances:
        key = SET_ASIDE if instance.name == record["survivor"] else KEPT if instance.name in kept else ""
        if instance.volume:
            cluster_id = seen.resource.recorded_cluster_id
            found.append(recovery_marks.change(instance.volume, cluster_id, key=key, token=record["token"]))
    return [patch for patch in found if patch is not None]


def clear_marks(seen: Assessment) -> Step:
    """Remove the marks of recoveries that were not carried out: one was withdrawn, or the quorum returned before.

    That is known once a quorum of the marked cluster answers, and no member of the cluster that it would have become.
    """
    resource = seen.resource
    if seen.members is None or seen.cluster_id != resource.recorded_cluster_id:
        return PASS
    made = {
        successor_of(resource, {"survivor": instance.name, "token": token})
        for instance in seen.instances
        for token in tokens(instance.volume, SET_ASIDE)
    }
    running = {instance.status.cluster_id for instance in seen.instances if instance.status} - {seen.cluster_id}
    if recovery_pod_name(resource) in seen.job_pods or made & running:
        return PASS
    claims = (instance.volume for instance in seen.instances if instance.volume)
    found = [patch for claim in claims if (patch := recovery_marks.change(claim, seen.cluster_id)) is not None]
    if found and (pod := seen.stray_pods.get(recovery_pod_name(resource))) is not None:
        message = stray(pod, "The marks of a recovery stay on the volume claims until you delete it.")
        return Step.progressing(FOREIGN_OBJECT, message, warning=True, requeue=RETRY_SECONDS)
    return Step.do(*found)


def _judge(seen: Assessment, found: QuorumLoss) -> Step:
    """Report a permanently lost quorum until a user confirms the recovery."""
    resource = seen.resource
    loss_text = f"{_names(found)} of the {len(found.voters)} voters lost their data: the quorum is permanently lost."
    if outside := _outside(found):
        known = f"{_names(found)} lost their data. " if found.lost else ""
        loss_text = (
            f"No quorum: {found.needed} of {len(found.voters)} voters must agree. {known}{outside}: of no pod of this "
            "cluster. The quorum is permanently lost unless you bring them back."
        )
    if found.survivor is None and not found.unreachable:
        if found.found_empty and resource.spec.storage.medium == "Volume":
            return _found_empty(f"No pod has data: {_names(found)}.", found.found_empty)
        return Step.blocked(
            DATA_LOST,
            f"{loss_text} No other member has any data, so the cluster cannot be recovered. Nothing was changed. "
            f"{f'If {outside} still run, save their data first. ' if outside else ''}Delete this resource and create "
            "it again: with spec.restore to start from a backup, without it to start empty.",
        )
    if found.unreachable:
        message = (
            f"{loss_text} {_unreachable(seen, found)}: it is unknown which member has the most data. Bring the "
            "members back, or delete their volume claims if their data is lost as well. Nothing was changed."
        )
        return Step.progressing(QUORUM_LOST, message, warning=True, requeue=POLL_SECONDS)
    if found.applying:
        message = (
            f"{loss_text} {', '.join(found.applying)}: still applying the log, so that it is unknown which member has "
            "the most data. Nothing was changed."
        )
        return Step.progressing(QUORUM_LOST, message, warning=True, requeue=POLL_SECONDS)
    assert found.survivor is not None
    if why := seen.why_data_ends(found.survivor):
        remedy = "take an EtcdBackup of it now, and restore that into a new EtcdCluster."
        if resource.spec.auth is not None and resource.spec.auth.enabled:
            lacks = "with spec.auth, etcd provides no snapshot without a quorum"
            remedy = f"{lacks}. So restore the last EtcdBackup into a new EtcdCluster. Later writes are lost."
        message = f"{loss_text} {found.survivor.name} would lose its data if it stopped ({why}): {remedy}"
        return Step.blocked(QUORUM_LOST, message)
    caution = "First make sure that no lost member still runs, as on a disconnected node."
    if found.found_empty:
        empty = ", ".join(found.found_empty)
        caution = f"{empty} started with an empty directory: first check that the disk is mounted."
    if outside:  # with a quorum, they would continue the former cluster
        caution = f"First make sure that {outside} never start again. {caution}"
    recording = "Recording the confirmed recovery in status before it starts."
    offered = _offer(resource, found, seen.now)
    assert offered is not None, "all survivors answer, and none is applying entries"
    token, prior = offered["token"], offered.get("priorConfirm")
    applied, _ = progress(found.survivor)
    brief = (  # status.recovery.message has the rest
        f"The cluster can be recovered from the data of {found.survivor.name}, up to log entry {applied}; later writes "
        "are lost."
    )
    proposal = Proposal(QUORUM_LOST, loss_text, brief, caution, recording, token, prior)
    return proposal.decide(resource, requeue=RETRY_SECONDS)


def _judge_unrecorded(seen: Assessment) -> Step:
    """Report that all data is lost, if neither the status nor a volume records the cluster any more."""
    unknown = seen.members is None and not seen.resource.recorded_cluster_id and begun(seen.resource, seen)
    if not unknown or not seen.instances or not all(instance.proves_loss for instance in seen.instances):
        return PASS
    unrecorded = "Neither status nor a volume records the cluster any more."
    return _found_empty(unrecorded, [instance.name for instance in seen.instances])


def _found_empty(loss_text: str, names: Sequence[str]) -> Step:
    """Report that no member has data, while the disks of these may only not be mounted: nothing may be deleted yet."""
    return Step.blocked(
        DATA_LOST,
        f"{loss_text} {', '.join(names)} started with an empty directory: first check that the disk is mounted on its "
        "node. A member returns with its data then. Nothing was changed. If the disks are empty, start again from a "
        "backup: create an EtcdCluster with spec.restore.",
    )


def _wait_for_members(seen: Observed, found: QuorumLoss) -> Step:
    """Report the missing members of a quorum that may return without help."""
    lost = f" {_names(found)} lost their data." if found.lost else ""
    missing, voters = _unreachable(seen, found), len(found.voters)
    instances = (seen.instance_named(voter.name) for voter in found.unreachable)
    prospect = "Nothing is permanently lost: the volumes of the other members have all writes."
    if any(instance and instance.empty for instance in instances):
        prospect = AWAITING_PROOF
    elif found.outside:
        prospect = f"{_outside(found)}: of no pod of this cluster. Only you can bring these voters back."
    message = f"No quorum: {found.needed} of {voters} voters must agree. {missing}.{lost} {prospect}"
    return Step.progressing(NO_QUORUM, message, warning=True, requeue=POLL_SECONDS)


def _consequences(found: QuorumLoss) -> str:
    assert found.survivor is not None
    applied, revision = progress(found.survivor)
    count, others = 1 + len(found.others), ", ".join(found.others)
    more = f", the most recent data of the {count} remaining members" if others else ""
    kept = f" The volumes of {', '.join(found.kept)} are kept until you release them." if found.kept else ""
    kept += f" The voters {_outside(found)} are given up." if found.outside else ""
    return (
        f"The cluster can be recovered from the data of {found.survivor.name}{more}: revision "
        f"{revision or 'unknown'}, applied up to log entry {applied}. Writes that only the lost members had, or that "
        f"are in a log beyond that entry, are lost; the members that lost their data start again from this data.{kept}"
    )


def _marked(seen: Assessment) -> Obj:
    """Return the recovery with whose token the volumes are marked, if the status was lost; empty without one.

    Every other volume with data of the cluster is kept, marked or not.
    """
    with_data = {found.name: f"{found.cluster_id:016x}" for found in lost_records(seen.resource, seen)}
    for each in seen.instances:
        own = (mark.token for mark in marks(each.volume, SET_ASIDE) if mark.cluster == with_data.get(each.name))
        if token := next(own, ""):
            others = [other.name for other in seen.instances if other.name in with_data or other.kept_by == token]
            kept = [name for name in others if name != each.name]
            message = f"The status was lost: the volumes record the recovery from the data of {each.name}."
            return {"token": token, "survivor": each.name, "message": message} | ({"kept": kept} if kept else {})
    return {}


def _begun(seen: Assessment, record: Obj) -> bool:
    """Whether the survivor's volume is marked for this recovery, and does not record the new cluster yet."""
    instance = seen.instance_named(record["survivor"])
    if instance is None or seen.members is not None or not confirms(seen.resource, record["token"]):
        return False
    is_new = annotation(instance.volume, CLUSTER_ID) == f"{successor_of(seen.resource, record):016x}"
    return _is_marked(seen, record) and not is_new


def _is_marked(seen: Observed, record: Obj) -> bool:
    """Whether the survivor's volume has the token of this recovery."""
    instance = seen.instance_named(record["survivor"])
    return instance is not None and record["token"] in tokens(instance.volume, SET_ASIDE)


def _stopped(seen: Observed) -> bool:
    return seen.stateful_set is not None and seen.stateful_set["spec"].get("replicas") == 0


def _made(seen: Assessment) -> bool:
    """Whether the new cluster is created: its pod has succeeded, or a member reports the id of that cluster."""
    resource = seen.resource
    record, pod = recorded(resource), seen.job_pods.get(recovery_pod_name(resource))
    if any(instance.status and instance.status.cluster_id == successor(resource) for instance in seen.instances):
        return True
    ended_well = pod is not None and (pod.get("status") or {}).get("phase") == "Succeeded"
    return ended_well and annotation(pod, TOKEN) == record.get("token")


def _why_failed(pod: Obj) -> str:
    """Return why a pod failed, as a sentence."""
    result = outcome(pod)
    return (result.message.strip() if result else "") or "it left no message."


def _outside(found: QuorumLoss) -> str:
    return ", ".join(voter.name for voter in found.outside)


def _names(found: QuorumLoss) -> str:
    """Return the lost voters, each with the evidence."""
    moved = [voter.name for voter in found.lost if voter.name not in found.found_empty]
    kinds = {"another volume": moved, "empty directory": found.found_empty}
    return ", ".join(f"{', '.join(names)} ({kind})" for kind, names in kinds.items() if names)


def _unreachable(seen: Observed, found: QuorumLoss) -> str:
    """Describe the unreachable voters, each with the reason."""
    descriptions = []
    for voter in found.unreachable:
        instance = seen.instance_named(voter.name)
        pod = instance.pod if instance else None
        why = "no pod" if pod is None else pod.problem or (instance.error if instance else "") or "no answer"
        if instance and instance.empty:
            why = str(instance.empty)
        descriptions.append(f"{voter.name} is unreachable ({why})")
    return ", ".join(descriptions) or "All other voters answer"
