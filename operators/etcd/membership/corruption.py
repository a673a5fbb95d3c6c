"""Whether the data of a member differs from the others', and which one is wrong. Pure.

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

from operators.etcd.client.server import CORRUPT, HashKV, Member
from operators.etcd.observe import Instance, Observed
from shared.kubernetes.kinds import Obj

INCONSISTENT = "found data inconsistency with peers"
"""What etcd ends with where its data differs from a peer's, as it starts."""


def suspected(seen: Observed) -> bool:
    """Whether etcd complains of differing data: only then are members asked for hashes, which reads all their keys."""
    if seen.is_corrupt:
        return True
    errors = (error for instance in seen.answering if instance.status for error in instance.status.errors)
    return any(CORRUPT in error for error in errors) or any(ended_over_peers(instance) for instance in seen.instances)


def agreed_hash(seen: Observed) -> HashKV | None:
    """What a majority of all voters, whether they answered or not, has."""
    found = Counter(seen.hashes[member.id] for member in seen.voters if member.id in seen.hashes)
    most = found.most_common(1)
    return most[0][0] if most and most[0][1] >= seen.quorum else None


def differs(seen: Observed, member: Member, agreed: HashKV) -> bool:
    """Whether a member's data is not what the majority has.

    Hashes tell so only at one revision with one compaction behind it. A voter that ended over its peers' data cannot be
    asked: that they agree tells. A learner cannot be asked either: the alarm that names it tells.
    """
    if member.learner:
        return any(alarm.kind == CORRUPT and alarm.member_id == member.id for alarm in seen.alarms)
    hash_kv = seen.hashes.get(member.id)
    if hash_kv is None:
        instance = seen.instance_of(member)
        return instance is not None and instance.status is None and ended_over_peers(instance)
    return hash_kv != agreed and (hash_kv.revision, hash_kv.compacted) == (agreed.revision, agreed.compacted)


def contradictory(seen: Observed) -> bool:
    """Whether two members have another hash of the same."""
    found = set(seen.hashes.values())
    return len({(hash_kv.revision, hash_kv.compacted) for hash_kv in found}) < len(found)


def ended_over_peers(instance: Instance) -> bool:
    """Whether the member there does not start, for its data differs from its peers'."""
    if instance.member is None or instance.pod_obj is None or instance.ready:
        return False
    return any(INCONSISTENT in message for message in _termination_messages(instance.pod_obj))


def _termination_messages(pod: Obj) -> list[str]:
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    ends = [
        (container.get(state) or {}).get("terminated") for container in containers for state in ("state", "lastState")
    ]
    return [end.get("message") or "" for end in ends if end]
