"""Replacing the member whose data differs from the others' (membership/corruption.py tells which). Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.client.commands import Disarm
from operators.etcd.client.server import CORRUPT, Member
from operators.etcd.membership import quorum
from operators.etcd.membership.corruption import agreed_hash, contradictory, differs, ended_over_peers, suspected
from operators.etcd.observe import Observed
from operators.etcd.reasons import CORRUPT_MEMBER_HELD, CORRUPTION_UNCLEAR, REPLACING_CORRUPT_MEMBER
from operators.etcd.steps import member_changes
from shared.runtime.plan import PASS, Step, announced
from shared.status.verdict import Progress

RETRY_SECONDS = 10.0
"""Time until hashes are requested again where they do not decide."""


def replace_corrupt_member(resource: EtcdCluster, seen: Assessment, _now: datetime) -> Step:
    """The one member whose data differs from what a majority of voters agrees on is removed, and joins again empty.

    Removed like any other (`quorum.removal_refusal`), and only if the voters that agree are a quorum of those that
    remain. Its pod and volume follow, and it comes back as a learner. The alarm goes when all voters agree.
    """
    if not suspected(seen) or seen.members is None:
        return PASS
    agreed = agreed_hash(seen)
    if agreed is None:
        return _unclear(seen)
    agreeing = {member.id for member in seen.voters if seen.hashes.get(member.id) == agreed}
    corrupt = [member for member in seen.members if differs(seen, member, agreed)]
    if corrupt:
        return _replace(resource, seen, corrupt, len(agreeing))
    if not seen.is_corrupt:
        return PASS
    uncompared = tuple(member for member in seen.voters if member.id not in agreeing)
    if uncompared:
        names = quorum.member_names(seen, uncompared)
        message = f"The alarm CORRUPT holds. All members that could be compared agree; {names} could not yet."
        return Step((), Progress.PROGRESSING, CORRUPTION_UNCLEAR, message, warning=True, requeue=RETRY_SECONDS)
    calls = [Disarm(seen.endpoints, seen.secrets.access, alarm) for alarm in seen.alarms if alarm.kind == CORRUPT]
    message = f"All {len(seen.voters)} voters hold the same data: the alarm CORRUPT is disarmed."
    return Step.wait(REPLACING_CORRUPT_MEMBER, message, *calls)


def _replace(resource: EtcdCluster, seen: Assessment, corrupt: list[Member], agreeing: int) -> Step:
    """Remove one of them: one that does not even run first, and a leader only after it handed over."""
    member = min(corrupt, key=lambda member: (member not in seen.down, member.id))
    instance = seen.instance_of(member)
    name = quorum.member_names(seen, (member,))
    others = len(seen.voters) - (not member.learner)
    found = f"The data of {name} differs from what {agreeing} of {len(seen.voters)} voters agree on"
    refusal = quorum.removal_refusal(seen, member)
    if not refusal and agreeing < others // 2 + 1:
        refusal = f"of the {others} voters that would remain, only {agreeing} agree"
    if refusal:
        message = f"{found}. It is not replaced yet: {refusal}."
        return Step((), Progress.WAITING, CORRUPT_MEMBER_HELD, message, warning=True, requeue=RETRY_SECONDS)
    if instance is not None and instance is seen.leader:
        return member_changes.hand_over(resource, seen, instance, REPLACING_CORRUPT_MEMBER, f"{found}, and it leads")
    assert instance is not None, "refuse_unknown_members waits for members that are not ours"
    call = member_changes.remove(resource, seen, instance)
    message = f"{found}: it is removed, and joins again with an empty disk."
    return announced(resource.obj, Step((call,), Progress.WAITING, REPLACING_CORRUPT_MEMBER, message, warning=True))


def _unclear(seen: Observed) -> Step:
    """Without a majority nobody can tell who is right.

    If some contradict each other, nothing is touched any more. If some could not be compared yet, others may mend that.
    """
    hashes = ", ".join(f"{quorum.member_names(seen, (member,))}: {_hash_text(seen, member)}" for member in seen.voters)
    found = (
        f"Members may hold different data, and no majority of the {len(seen.voters)} voters agrees on one ({hashes})."
    )
    if not contradictory(seen):
        message = f"{found} They are compared once more of them answer."
        return Step((), Progress.PROGRESSING, CORRUPTION_UNCLEAR, message, warning=True, requeue=RETRY_SECONDS)
    message = (
        f"{found} Nothing was changed. If members are down, bring them back, so that they can be compared; else look "
        "at each one's keys, and restore a snapshot of the right one into a new EtcdCluster."
    )
    return Step((), Progress.BLOCKED, CORRUPTION_UNCLEAR, message, warning=True, requeue=RETRY_SECONDS)


def _hash_text(seen: Observed, member: Member) -> str:
    found = seen.hashes.get(member.id)
    if found is not None:
        return f"hash {found.hash:08x} at revision {found.revision}, compacted at {found.compacted}"
    instance = seen.instance_of(member)
    return "ends, for peers differ from it" if instance and ended_over_peers(instance) else "no answer"
