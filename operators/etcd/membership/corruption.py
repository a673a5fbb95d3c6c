"""Whether the data of a member differs from the others', and which member is corrupt. Pure.

Members apply the same log, so their data is identical to the bit; a difference comes from a disk, a crash or a defect.
etcd detects it in three ways, none of which identifies the corrupt member reliably:

- At its start, a member compares itself with its peers, and exits if one differs ("found data inconsistency with
  peers"). It may be the corrupt one, or the correct one among corrupt ones.
- After compactions, the leader compares hashes (from 3.5 on), and raises CORRUPT for the minority, or for member 0 if
  there is no majority.
- Periodically (--corrupt-check-time), the leader raises CORRUPT for the first follower that differs from itself, even
  if the leader is corrupt.

So if etcd reports a difference, the operator requests a hash of all keys at one revision from every voter, and the
majority decides. Measured with 3.6: a voter with one bit of one value changed offline differs in its hash, and no other
voter does; if it leads, the periodic check names another member. With the alarm raised, reads and changes of members
continue, while puts, deletions, leases and compaction are rejected. A check compares only data up to the last
compaction; without compaction, nothing is compared.

Source: server/etcdserver/corrupt.go of 3.4 to 3.7.
"""

from __future__ import annotations

from collections import Counter

from operators.etcd.client.server import CORRUPT, HashKV, Member
from operators.etcd.objects.pod import ended_inconsistent
from operators.etcd.state.observed import Instance, Observed


def suspected(seen: Observed) -> bool:
    """Whether etcd reports differing data: only then are hashes requested, which read all keys."""
    if seen.is_corrupt:
        return True
    errors = (error for instance in seen.answering if instance.status for error in instance.status.errors)
    return any(CORRUPT in error for error in errors) or any(ended_over_peers(instance) for instance in seen.instances)


def agreed_hash(seen: Observed) -> HashKV | None:
    """Return the hash that a majority of all voters has, whether all answered or not; None without a majority."""
    found = Counter(seen.hashes[member.id] for member in seen.voters if member.id in seen.hashes)
    most = found.most_common(1)
    return most[0][0] if most and most[0][1] >= seen.quorum else None


def differs(seen: Observed, member: Member, agreed: HashKV) -> bool:
    """Whether a member's data differs from that of the majority.

    Hashes are comparable only at the same revision and compaction. A voter that exited because of its peers' data
    cannot be queried: the agreement of the others decides. A learner cannot be queried either: the alarm that names it
    decides.
    """
    if member.learner:
        return any(alarm.kind == CORRUPT and alarm.member_id == member.id for alarm in seen.alarms)
    hash_kv = seen.hashes.get(member.id)
    if hash_kv is None:
        instance = seen.instance_of(member)
        return instance is not None and instance.status is None and ended_over_peers(instance)
    return hash_kv != agreed and (hash_kv.revision, hash_kv.compacted) == (agreed.revision, agreed.compacted)


def contradictory(seen: Observed) -> bool:
    """Whether two members have different hashes for the same revision and compaction."""
    found = set(seen.hashes.values())
    return len({(hash_kv.revision, hash_kv.compacted) for hash_kv in found}) < len(found)


def ended_over_peers(instance: Instance) -> bool:
    """Whether the member does not start because its data differs from its peers'; a process that runs may be right."""
    return instance.member is not None and not instance.runs and differed(instance)


def differed(instance: Instance) -> bool:
    """Whether etcd ended because its data differs from its peers', in a pod that is not ready since."""
    return not instance.ready and ended_inconsistent(instance.pod_obj)
