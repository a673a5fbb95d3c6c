"""Replaces the member whose data differs from the data of the majority (membership/corruption.py). Pure."""

from __future__ import annotations

from operators.etcd.client.commands import Disarm
from operators.etcd.client.server import CORRUPT, Member
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership import quorum
from operators.etcd.membership.corruption import agreed_hash, contradictory, differs, ended_over_peers, suspected
from operators.etcd.reasons import CORRUPT_MEMBER_BLOCKED, CORRUPTION_UNCLEAR, REPLACING_CORRUPT_MEMBER
from operators.etcd.state.observed import Observed
from operators.etcd.steps import member_changes
from shared.runtime.plan import PASS, Step, announced
from shared.status.verdict import Progress

RETRY_SECONDS = 10.0
"""Time until hashes are requested again if they do not identify a corrupt member."""


def replace_corrupt_member(seen: Assessment) -> Step:
    """Remove the member whose data differs from what a majority of voters has; it joins again with an empty volume.

    The removal follows the rules for every member (`quorum.removal_refusal`). In addition, the voters that agree must
    be a quorum of the remaining ones. The pod and the volume are deleted afterwards, and the member returns as a
    learner. The alarm is disarmed when all voters agree.
    """
    if not suspected(seen) or seen.members is None:
        return PASS
    agreed = agreed_hash(seen)
    if agreed is None:
        return _unclear(seen)
    agreeing = {member.id for member in seen.voters if seen.hashes.get(member.id) == agreed}
    corrupt = [member for member in seen.members if differs(seen, member, agreed)]
    if corrupt:
        return _replace(seen, corrupt, len(agreeing))
    if not seen.is_corrupt:
        return PASS
    uncompared = tuple(member for member in seen.voters if member.id not in agreeing)
    if uncompared:
        names = quorum.member_names(seen, uncompared)
        message = (
            f"The CORRUPT alarm is raised. All members that could be compared agree; {names} could not be compared yet."
        )
        return Step((), Progress.PROGRESSING, CORRUPTION_UNCLEAR, message, warning=True, requeue=RETRY_SECONDS)
    calls = [Disarm(seen.endpoints, seen.secrets.access, alarm) for alarm in seen.alarms if alarm.kind == CORRUPT]
    message = f"All {len(seen.voters)} voters have the same data: disarming the CORRUPT alarm."
    return Step.wait(REPLACING_CORRUPT_MEMBER, message, *calls)


def _replace(seen: Assessment, corrupt: list[Member], agreeing: int) -> Step:
    """Remove one corrupt member: preferably one that is down; a leader only after it has handed over the leadership."""
    member = min(corrupt, key=lambda member: (member not in seen.down, member.id))
    instance = seen.instance_of(member)
    name = quorum.member_names(seen, (member,))
    others = len(seen.voters) - (not member.learner)
    found = f"The data of {name} differs from the data that {agreeing} of {len(seen.voters)} voters agree on"
    refusal = quorum.removal_refusal(seen, member)
    if not refusal and agreeing < others // 2 + 1:
        refusal = f"of the {others} voters that would remain, only {agreeing} agree"
    if refusal:
        message = f"{found}. The member is not replaced yet: {refusal}."
        return Step((), Progress.WAITING, CORRUPT_MEMBER_BLOCKED, message, warning=True, requeue=RETRY_SECONDS)
    if instance is not None and instance is seen.leader:
        return member_changes.hand_over(seen, instance, REPLACING_CORRUPT_MEMBER, f"{found}, and it is the leader")
    assert instance is not None, "refuse_unknown_members waits until there are no unknown members"
    call = member_changes.remove(seen, instance)
    message = f"{found}: removing the member; it joins again with an empty volume."
    return announced(seen.resource.obj, Step.wait(REPLACING_CORRUPT_MEMBER, message, call, warning=True))


def _unclear(seen: Observed) -> Step:
    """Report that no majority of voters agrees, so that the corrupt member cannot be identified.

    If members contradict each other, the operator changes nothing. If some could not be compared yet, later steps may
    bring them back.
    """
    hashes = ", ".join(f"{quorum.member_names(seen, (member,))}: {_hash_text(seen, member)}" for member in seen.voters)
    found = f"Members may have different data, and no majority of the {len(seen.voters)} voters agrees ({hashes})."
    if not contradictory(seen):
        message = f"{found} They are compared again when more members answer."
        return Step((), Progress.PROGRESSING, CORRUPTION_UNCLEAR, message, warning=True, requeue=RETRY_SECONDS)
    message = (
        f"{found} Nothing was changed. If members are down, bring them back so that they can be compared. "
        "Otherwise compare the keys of each member, and restore a snapshot of the correct one into a new "
        "EtcdCluster."
    )
    return Step.blocked(CORRUPTION_UNCLEAR, message, requeue=RETRY_SECONDS)


def _hash_text(seen: Observed, member: Member) -> str:
    found = seen.hashes.get(member.id)
    if found is not None:
        return f"hash {found.hash:08x} at revision {found.revision}, compacted at {found.compacted}"
    instance = seen.instance_of(member)
    return "exits because its data differs from its peers" if instance and ended_over_peers(instance) else "no answer"
