"""Whether a change of members keeps a quorum: the arithmetic of every dangerous step, in one module. Pure.

Raft commits what a majority of voters has (Ongaro's thesis, §3.6), and single changes of membership keep any two
majorities overlapping (§4.1). So a cluster of n voters needs n // 2 + 1 of them, and a step is judged by what remains
during and after it. etcd has its own checks (`--strict-reconfig-check`), which are weaker: they ignore pods that are
about to restart, and count a lagging member as healthy.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.client.server import Member
from operators.etcd.state.observed import Instance, Observed


@dataclass(frozen=True, slots=True)
class Quorum:
    """Number of voters, and how many of them are healthy."""

    voters: int
    healthy: int

    @classmethod
    def of(cls, seen: Observed) -> Quorum:
        return cls(len(seen.voters), len(seen.voters) - len(seen.down))

    @property
    def needed(self) -> int:
        return self.voters // 2 + 1

    @property
    def spare(self) -> int:
        """Number of voters that may still fail; negative without a quorum."""
        return self.healthy - self.needed

    def without(self, *, healthy: bool) -> Quorum:
        """Return the quorum after the removal of a voter, healthy or not."""
        return Quorum(self.voters - 1, self.healthy - healthy)

    def while_restarting(self, *, healthy: bool) -> Quorum:
        """Return the quorum while a voter, healthy or not, restarts."""
        return Quorum(self.voters, self.healthy - healthy)

    def __str__(self) -> str:
        return f"{self.healthy} of {self.voters} voters would be healthy, and {self.needed} must agree"


def member_names(seen: Observed, members: tuple[Member, ...]) -> str:
    """Return the names of members, separated by commas."""
    found = []
    for member in members:
        instance = seen.instance_of(member)
        found.append(instance.name if instance else f"{member.name or 'a member'} at {', '.join(member.peer_urls)}")
    return ", ".join(found)


def removal_refusal(seen: Observed, member: Member) -> str:
    """Return why a member must not be removed now; empty if it may.

    A learner may always be removed, because it does not vote. A voter that is down may be removed while the others are
    a quorum, because that can only lower the required number. A healthy voter may be removed only if all others are
    healthy. Otherwise each removal reduces the tolerance of the cluster, and the voter that is down may be needed next.
    A voter that does not answer the operator but is ready counts as healthy here, because the operator may be cut off.
    A leader must be reachable to hand over before.
    """
    if seen.members is None:
        return "no quorum of members answers"
    if member.learner:
        return ""
    instance = seen.instance_of(member)
    if seen.leader_id == member.id and instance is not seen.leader:
        return "it is the leader, and is unreachable for a handover"
    healthy = member not in seen.down or (instance is not None and instance.ready)
    left = Quorum.of(seen).without(healthy=member not in seen.down)
    if left.voters == 0:
        return "it is the only voter"
    others = tuple(other for other in seen.down if other.id != member.id)
    if others and (healthy or left.spare < 0):
        return f"{member_names(seen, others)} is down, so that afterwards only {left}"
    return f"afterwards {left}" if left.spare < 0 else ""


def restart_refusal(seen: Observed, instance: Instance) -> str:
    """Return why a pod must not be restarted now; empty if it may.

    A pod in which etcd does not run may always be restarted. Any other one may only while every other voter is healthy;
    a voter that the operator cannot reach counts as down although it may still answer its peers. Then a quorum remains
    during the restart. With one or two voters, a restart always interrupts service.
    """
    if not instance.runs:
        return ""
    if seen.members is None:
        return "no quorum of members answers"
    if instance.member is None or instance.member.learner:
        return ""
    others = tuple(other for other in seen.down if other.id != instance.member.id)
    if others:
        left = Quorum.of(seen).while_restarting(healthy=instance.member not in seen.down)
        return f"{member_names(seen, others)} is down, so that only {left} during the restart"
    return ""


def addition_refusal(seen: Observed) -> str:
    """Return why no learner must be added now; empty if one may.

    A learner changes no majority. But it becomes a voter later, and etcd itself (from 3.5.21 and 3.6.0 on) accepts none
    while a voter is not connected. During a downgrade, etcd lets no new member join (allowedVersionRange in
    server/etcdserver/cluster_util.go).
    """
    if seen.members is None:
        return "no quorum of members answers"
    if seen.learner is not None:
        return f"{member_names(seen, (seen.learner,))} is still a learner, and etcd allows one at a time"
    if seen.down:
        return f"{member_names(seen, seen.down)} is down"
    if seen.downgrade_target:
        return f"the cluster is being downgraded to {seen.downgrade_target}"
    if seen.is_full:
        return "the space quota is used up: delete keys, or raise spec.quotaBackendBytes"
    return ""
