"""A member whose data differs from the others': which one it is, and how it is replaced. Pure.

Members apply the same log, so what they hold is the same to the bit; where it is not, a disk, a crash or a defect
changed it. etcd notices in three ways, of which none can be taken at its word:

- at start, a member compares itself with its peers, and ends if one differs ("found data inconsistency with peers"): it
  is the wrong one, or the one that is right among the wrong;
- after compactions, the leader compares hashes (from 3.5 on), and raises CORRUPT for the minority, or for member 0 if
  there is no majority;
- by the clock (--corrupt-check-time), the leader raises CORRUPT for the first follower that differs from itself, even
  if it is the leader that is wrong.

So whenever etcd complains, all voters are asked for a hash of their keys at one revision, and the majority decides.
Tried with 3.6: a voter with one bit of one value changed offline differs in its hash, and in it alone; if it leads, the
check by the clock names another. With the alarm raised, reads and changes of members go on, while puts, deletions,
leases and compaction are refused. After a compaction, only what was there up to that revision is compared: without
any, nothing is.

Source: server/etcdserver/corrupt.go of 3.4 to 3.7.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import Disarm, Remove
from operators.etcd.client.server import CORRUPT, HashKV, Member
from operators.etcd.membership import quorum
from operators.etcd.observe import Instance, Observed, endpoints
from operators.etcd.steps.leadership import hand_over
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Step, announced
from shared.status.verdict import Progress

INCONSISTENT = "found data inconsistency with peers"
"""What etcd ends with where its data differs from a peer's, as it starts."""

REASON, UNCLEAR = "ReplacingCorruptMember", "CorruptionUnclear"

AGAIN = 10.0
"""Seconds until hashes are asked for again where they do not tell enough."""


def suspected(seen: Observed) -> bool:
    """Whether etcd complains of differing data: only then are members asked for hashes, which reads all their keys."""
    if seen.is_corrupt:
        return True
    errors = (error for place in seen.answering if place.status for error in place.status.errors)
    return any(CORRUPT in error for error in errors) or any(_ended(place) for place in seen.places)


def replace_corrupt_member(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """The one member whose data differs from what a majority of voters agrees on is removed, and joins again empty.

    Removed like any other (`quorum.removal_refusal`), and only if the voters that agree are a quorum of those that
    remain. Its pod and volume follow, and it comes back as a learner. The alarm goes when all voters agree.
    """
    if not suspected(seen) or seen.members is None:
        return PASS
    agreed = _majority(seen)
    if agreed is None:
        return _unclear(seen)
    agreeing = {member.id for member in seen.voters if seen.hashes.get(member.id) == agreed}
    corrupt = [member for member in seen.members if _differs(seen, member, agreed)]
    if corrupt:
        return _replace(resource, seen, corrupt, len(agreeing))
    if not seen.is_corrupt:
        return PASS
    silent = tuple(member for member in seen.voters if member.id not in agreeing)
    if silent:
        them = quorum.member_names(seen, silent)
        message = f"The alarm CORRUPT holds. All members that could be compared agree; {them} could not yet."
        return Step((), Progress.PROGRESSING, UNCLEAR, message, warning=True, requeue=AGAIN)
    calls = [
        Disarm(endpoints(resource, seen), seen.secrets.access, alarm) for alarm in seen.alarms if alarm.kind == CORRUPT
    ]
    message = f"All {len(seen.voters)} voters hold the same data: the alarm CORRUPT is disarmed."
    return Step.wait(REASON, message, *calls)


def _replace(resource: EtcdCluster, seen: Observed, corrupt: list[Member], agreeing: int) -> Step:
    """Remove one of them: one that does not even run first, and a leader only after it handed over."""
    member = min(corrupt, key=lambda member: (member not in seen.down, member.id))
    place = seen.place_of(member)
    name = quorum.member_names(seen, (member,))
    others = len(seen.voters) - (not member.learner)
    found = f"The data of {name} differs from what {agreeing} of {len(seen.voters)} voters agree on"
    refusal = quorum.removal_refusal(seen, member)
    if not refusal and agreeing < others // 2 + 1:
        refusal = f"of the {others} voters that would remain, only {agreeing} agree"
    if refusal:
        message = f"{found}. It is not replaced yet: {refusal}."
        return Step((), Progress.WAITING, "CorruptMemberHeld", message, warning=True, requeue=AGAIN)
    if place is not None and place is seen.leader:
        return hand_over(resource, seen, place, REASON, f"{found}, and it leads")
    call = Remove(endpoints(resource, seen), seen.secrets.access, member)
    message = f"{found}: it is removed, and joins again with an empty disk."
    return announced(resource.obj, Step((call,), Progress.WAITING, REASON, message, warning=True))


def _unclear(seen: Observed) -> Step:
    """Without a majority nobody can tell who is right.

    If some contradict each other, nothing is touched any more. If some could not be compared yet, others may mend that.
    """
    said = ", ".join(f"{quorum.member_names(seen, (member,))}: {_said(seen, member)}" for member in seen.voters)
    found = f"Members may hold different data, and no majority of the {len(seen.voters)} voters agrees on one ({said})."
    if not _contradictory(seen):
        message = f"{found} They are compared once more of them answer."
        return Step((), Progress.PROGRESSING, UNCLEAR, message, warning=True, requeue=AGAIN)
    message = (
        f"{found} Nothing was changed. If members are down, bring them back, so that they can be compared; else look "
        "at each one's keys, and restore a snapshot of the right one into a new EtcdCluster."
    )
    return Step((), Progress.BLOCKED, UNCLEAR, message, warning=True, requeue=AGAIN)


def _contradictory(seen: Observed) -> bool:
    """Whether two members have another hash of the same."""
    found = set(seen.hashes.values())
    return len({(said.revision, said.compacted) for said in found}) < len(found)


def _said(seen: Observed, member: Member) -> str:
    found = seen.hashes.get(member.id)
    if found is not None:
        return f"hash {found.hash:08x} at revision {found.revision}, compacted at {found.compacted}"
    place = seen.place_of(member)
    return "ends, for peers differ from it" if place and _ended(place) else "no answer"


def _majority(seen: Observed) -> HashKV | None:
    """What a majority of all voters, whether they answered or not, has."""
    found = Counter(seen.hashes[member.id] for member in seen.voters if member.id in seen.hashes)
    most = found.most_common(1)
    return most[0][0] if most and most[0][1] >= seen.quorum else None


def _differs(seen: Observed, member: Member, agreed: HashKV) -> bool:
    """Whether a member's data is not what the majority has.

    Hashes tell so only at one revision with one compaction behind it. A voter that ended over its peers' data cannot be
    asked: that they agree tells. A learner cannot be asked either: the alarm that names it tells.
    """
    if member.learner:
        return any(alarm.kind == CORRUPT and alarm.member_id == member.id for alarm in seen.alarms)
    said = seen.hashes.get(member.id)
    if said is None:
        place = seen.place_of(member)
        return place is not None and place.status is None and _ended(place)
    return said != agreed and (said.revision, said.compacted) == (agreed.revision, agreed.compacted)


def _ended(place: Instance) -> bool:
    """Whether the member there does not start, for its data differs from its peers'."""
    if place.member is None or place.pod_obj is None or place.ready:
        return False
    return any(INCONSISTENT in words for words in _last_words(place.pod_obj))


def _last_words(pod: Obj) -> list[str]:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [
        (container.get(state) or {}).get("terminated") for container in containers for state in ("state", "lastState")
    ]
    return [end.get("message") or "" for end in ends if end]
