"""Evidence of what remains of a cluster without a quorum: which members lost their data, and which has the most. Pure.

Only evidence counts. A member's data is lost if its pod has another volume than the one on which it was last healthy,
or if etcd itself found its data directory empty, at two starts (`empty_directory`). The second is weaker evidence,
because the disk may not be mounted: a recovery keeps such a volume. A member that is merely unreachable, or was found
empty at one start, may return with all its data. About a voter outside of the cluster's pods, there is no evidence:
only a user knows whether it is lost.

The member with the most data is the one that has applied the most entries of the log. A majority had agreed on every
entry that any member has applied, so a member that applied more has everything that the others have. The term does not
count: members that run for election without success may raise it.

The end of the log does not count either. etcdutl creates the new cluster from the database, which has only what was
applied: a member with a longer log and an older database would lose more. So the operator waits until every survivor
has applied all entries that it knows a majority agreed on. Entries beyond that may have been acknowledged, too: they
stay on the survivors' volumes, which are kept.

Measured with 3.6.8: without a quorum, a running member still answers requests for its status, its list of members
(linearizable false), its hash and a snapshot. A member that was restarted serves no clients, but its metrics report how
far its data goes. The same holds with authentication, because logging in needs a quorum.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.volume_record import records
from operators.etcd.objects import names
from operators.etcd.state.observed import Instance, number_of_member
from shared.steps.confirmed_recovery import current


@dataclass(frozen=True, slots=True)
class Voter:
    """A voting member, as known before the quorum was lost."""

    name: str
    id: int


@dataclass(frozen=True, slots=True)
class QuorumLoss:
    """State of a cluster whose quorum may be lost.

    Attributes:
        voters: all voters.
        lost: voters whose data is lost, by evidence.
        found_empty: names of those that started with an empty directory on their recorded volume, which may have data.
        unreachable: voters of pods that may have their data, but do not answer.
        outside: voters that are known to be of no pod or volume of this cluster.
        survivor: the instance with the most data; None if no member answers.
        others: names of other members that have data.
        applying: names of survivors that have yet to apply entries on which a majority agreed.
    """

    cluster_id: int
    voters: tuple[Voter, ...]
    lost: tuple[Voter, ...]
    unreachable: tuple[Voter, ...]
    survivor: Instance | None
    others: tuple[str, ...] = ()
    applying: tuple[str, ...] = ()
    found_empty: tuple[str, ...] = ()
    outside: tuple[Voter, ...] = ()

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of members whose volumes a recovery keeps."""
        return (*self.others, *self.found_empty)

    @property
    def needed(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_permanent(self) -> bool:
        """Whether the voters that may have their data are no majority; without those outside once all others answer."""
        given_up = len(self.lost) + (0 if self.unreachable else len(self.outside))
        return len(self.voters) - given_up < self.needed

    @property
    def identity(self) -> str:
        """The loss and its survivor, by ids that are never reused; empty until that can be decided."""
        if not self.is_permanent or self.unreachable or self.survivor is None or self.applying:
            return ""
        _, revision = progress(self.survivor)
        survivor = f"{self.survivor.name} {_member_id(self.survivor):016x} at revision {revision}"
        return f"{self.cluster_id:016x} lost {','.join(self.lost_ids)} continues with {survivor}"

    @property
    def lost_ids(self) -> list[str]:
        """Ids of the voters that a recovery gives up, as 16 hexadecimal digits each."""
        return sorted(f"{voter.id:016x}" for voter in (*self.lost, *self.outside))


def loss(seen: Assessment) -> QuorumLoss | None:
    """Return the state of a cluster without a quorum; None if a quorum answers, or before the cluster was created."""
    resource = seen.resource
    if seen.members is not None or not resource.recorded_cluster_id:
        return None
    voters = known_voters(seen)
    if not voters:
        return None
    lost = tuple(voter for voter in voters if _is_lost(seen, voter))
    outside = tuple(voter for voter in voters if _is_outside(seen, voter))
    disks = {voter.name: _own_disk(resource, voter) for voter in lost}
    reachable = {each.name: each for each in seen.instances if each.name not in disks and _is_reachable(seen, each)}
    # A learner counts, too: it may be all that is left.
    survivor = max(reachable.values(), key=lambda instance: (*progress(instance), -instance.number), default=None)
    statuses = ((each.name, each.status) for each in reachable.values() if each.status)
    return QuorumLoss(
        resource.recorded_cluster_id,
        voters,
        lost,
        tuple(voter for voter in voters if voter not in (*lost, *outside) and voter.name not in reachable),
        survivor,
        others=tuple(name for name, instance in reachable.items() if instance is not survivor),
        applying=tuple(name for name, status in statuses if status.raft_applied < status.raft_index),
        found_empty=tuple(each.name for each in seen.instances if each.disk == disks.get(each.name)),
        outside=outside,
    )


def known_voters(seen: Assessment) -> tuple[Voter, ...]:
    """Return the voters as a survivor, or else the record, has them; named by their id if they are of no known pod."""
    resource = seen.resource
    recorded = {each.id: each.name for each in resource.recorded_members if each.id}
    numbers = ((member.id, number_of_member(resource, member)) for member in seen.remembered)
    listed = {voter_id: names.member_name(resource, number) for voter_id, number in numbers if number is not None}
    known = pods_of_members(seen) | recorded | listed
    found = [member.id for member in seen.remembered if not member.learner]
    if not found:
        learners = {each["name"] for each in resource.reported.get("members") or () if each.get("role") == "learner"}
        outside = (*(resource.reported.get("outsideVoters") or ()), *(current(resource, seen.now).get("lost") or ()))
        ids = {int(each, 16) for each in outside} | recorded.keys()
        found = [voter_id for voter_id in ids if recorded.get(voter_id) not in learners]
    return tuple(sorted((Voter(known.get(each, f"{each:016x}"), each) for each in found), key=lambda each: each.name))


def pods_of_members(seen: Assessment) -> dict[int, str]:
    """Return the names of the pods by the id of their member: as it reports, or else as its volume claim records."""
    recorded = {record.name: int(record.member_id or "0", 16) for record in records(seen)}
    return {_member_id(each) or recorded.get(each.name, 0): each.name for each in seen.instances}


def _is_outside(seen: Assessment, voter: Voter) -> bool:
    """Whether a voter is of no pod: one whose claim counts as another owner's is none, but its name stays a pod's."""
    own = {f"{_member_id(each):016x}" for each in seen.instances} | {record.member_id for record in records(seen)}
    return names.number_of(seen.resource, voter.name) is None and f"{voter.id:016x}" not in own


def _is_lost(seen: Assessment, voter: Voter) -> bool:
    """Whether a voter's data is lost: its pod has another volume than recorded, or etcd found the volume empty.

    A pod that is ready is counter-evidence, because its readiness probe needs a quorum.
    """
    instance = seen.instance_named(voter.name)
    if instance is None or has_returned(seen, voter):
        return False
    own = _own_disk(seen.resource, voter)
    return instance.proves_loss or bool(own and instance.disk and instance.disk != own)


def _own_disk(resource: EtcdCluster, voter: Voter) -> str:
    """Return the UID of the recorded volume of a voter; empty without one."""
    return next((recorded.volume for recorded in resource.recorded_members if recorded.id == voter.id), "")


def _is_reachable(seen: Assessment, instance: Instance) -> bool:
    """Whether the member is part of this cluster and reports how far its data goes."""
    if instance.status is not None:
        return instance.status.cluster_id == seen.resource.recorded_cluster_id
    known = {member.id for member in seen.remembered} | {recorded.id for recorded in seen.resource.recorded_members}
    return instance.progress is not None and instance.progress.member_id in known


def has_returned(seen: Assessment, voter: Voter) -> bool:
    """Whether a voter answers with its data, or its pod is ready, which needs a quorum."""
    instance = seen.instance_named(voter.name)
    return instance is not None and (instance.ready or _is_reachable(seen, instance))


def progress(instance: Instance) -> tuple[int, int]:
    """Return the log entry up to which a member has applied changes, and its newest revision."""
    if instance.status is not None:
        return instance.status.raft_applied, instance.status.revision
    return (instance.progress.applied, instance.progress.revision) if instance.progress else (0, 0)


def _member_id(instance: Instance) -> int:
    reported = instance.status or instance.progress
    return reported.member_id if reported else 0
