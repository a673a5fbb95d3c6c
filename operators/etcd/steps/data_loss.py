"""What is left of a cluster in which no quorum answers: whose data is gone, and who has most. Pure.

Only evidence counts. A member's data is gone if its place has another disk than the one that it was last seen healthy
on, or if etcd itself found its disk empty. A member that merely says nothing may come back with all it had.

Who has most is who has applied most of the log: what any member has applied, a majority had agreed on, and whoever
applied more has all that the others have. The term counts for nothing, for members that stand for election in vain may
raise it.

What was tried with 3.6.8: without a quorum, a member that runs on answers for its status, its list of members
(linearizable false), its hash and a snapshot; one that was started again serves no client, but its metrics tell how far
its data goes. So it is where users are asked for: without a quorum nobody is let in.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.objects import names
from operators.etcd.observe import Instance, Observed
from shared.steps.confirmed_recovery import recovery_token


@dataclass(frozen=True, slots=True)
class Voter:
    """A member with a vote, as it was known before the quorum was lost."""

    name: str
    id: int


@dataclass(frozen=True, slots=True)
class QuorumLoss:
    """What is left where a quorum may be lost.

    Attributes:
        voters: all there were.
        lost: those whose data is gone, by evidence.
        silent: those who may have theirs, and say nothing.
        survivor: the place of who has most; None if nobody says anything.
    """

    cluster_id: int
    voters: tuple[Voter, ...]
    lost: tuple[Voter, ...]
    unreachable: tuple[Voter, ...]
    survivor: Instance | None

    @property
    def needed(self) -> int:
        return len(self.voters) // 2 + 1

    @property
    def is_permanent(self) -> bool:
        """Whether those who may still have their data are no majority."""
        return len(self.voters) - len(self.lost) < self.needed

    @property
    def token(self) -> str:
        """What stands for going on with this survivor in spite of this loss; empty while that cannot be decided."""
        if not self.is_permanent or self.unreachable or self.survivor is None:
            return ""
        ids = ",".join(sorted(f"{voter.id:016x}" for voter in self.lost))
        member_id = _member_id(self.survivor)
        return recovery_token(f"{self.cluster_id:016x} lost {ids} goes on with {self.survivor.name} {member_id:016x}")


def loss(resource: EtcdCluster, seen: Observed) -> QuorumLoss | None:
    """What is left, where no quorum answers; None where one does, and before there was a cluster."""
    if seen.members is not None or not resource.recorded_cluster_id:
        return None
    voters = _voters(resource, seen)
    if not voters:
        return None
    lost = tuple(voter for voter in voters if _is_lost(resource, seen, voter))
    unreachable = tuple(
        voter for voter in voters if voter not in lost and not _is_reachable(resource, seen, voter.name)
    )
    lost_names = {voter.name for voter in lost}
    reachable = [
        instance
        for instance in seen.instances
        if instance.name not in lost_names and _is_reachable(resource, seen, instance.name)
    ]
    # A learner has what it has, too: it may be all that is left.
    survivor = max(reachable, key=lambda instance: (*progress(instance), -instance.number), default=None)
    return QuorumLoss(resource.recorded_cluster_id, voters, lost, unreachable, survivor)


def _voters(resource: EtcdCluster, seen: Observed) -> tuple[Voter, ...]:
    """Members with a vote: as a survivor remembers them, else as the status last told."""
    remembered = [
        Voter(names.member_name(resource, number), member.id)
        for member in seen.remembered
        if not member.learner and (number := _number(resource, member)) is not None
    ]
    if remembered:
        return tuple(sorted(remembered, key=lambda voter: voter.name))
    learners = {
        recorded["name"] for recorded in resource.reported.get("members") or () if recorded.get("role") == "learner"
    }
    return tuple(
        Voter(recorded.name, recorded.id)
        for recorded in resource.recorded_members
        if recorded.id and recorded.name not in learners
    )


def _number(resource: EtcdCluster, member: Member) -> int | None:
    found = (names.number_of(resource, url) for url in member.peer_urls)
    return next((number for number in found if number is not None), None)


def _is_lost(resource: EtcdCluster, seen: Observed, voter: Voter) -> bool:
    """Whether a voter's data is gone: the disk at its place is another than its own, or etcd found it empty.

    A pod that is ready speaks against it: its readiness probe asks for a quorum.
    """
    instance = seen.instance_named(voter.name)
    if instance is None or instance.ready or _is_reachable(resource, seen, voter.name):
        return False
    own = next((recorded.volume for recorded in resource.recorded_members if recorded.id == voter.id), "")
    return instance.empty_data_dir or bool(own and instance.disk and instance.disk != own)


def _is_reachable(resource: EtcdCluster, seen: Observed, name: str) -> bool:
    """Whether the member at a place is one of this cluster, and tells how far its data goes."""
    instance = seen.instance_named(name)
    if instance is None:
        return False
    if instance.status is not None:
        return instance.status.cluster_id == resource.recorded_cluster_id
    known = {member.id for member in seen.remembered} | {recorded.id for recorded in resource.recorded_members}
    return instance.progress is not None and instance.progress.member_id in known


def progress(instance: Instance) -> tuple[int, int]:
    """The entry of the log up to which a member has applied changes, and its newest revision."""
    if instance.status is not None:
        return instance.status.raft_applied, instance.status.revision
    return (instance.progress.applied, instance.progress.revision) if instance.progress else (0, 0)


def _member_id(instance: Instance) -> int:
    if instance.status is not None:
        return instance.status.member_id
    return instance.progress.member_id if instance.progress else 0
