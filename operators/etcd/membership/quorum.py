"""Whether a step on the members keeps a quorum: the arithmetic of every dangerous step, in one place. Pure.

Raft commits what a majority of voters has (Ongaro's thesis, §3.6), and changes of membership one at a time keep any two
majorities overlapping (§4.1). So a cluster of n voters needs n // 2 + 1 of them, and a step is judged by what would be
left while it lasts and after it. etcd has checks of its own (`--strict-reconfig-check`), which are weaker: they know
nothing of a pod that is about to be restarted, and count a member that lags as one that is there.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.client.server import Member
from operators.etcd.observe import Instance, Observed


@dataclass(frozen=True, slots=True)
class Quorum:
    """Voters, and how many of them take part."""

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
        """How many more may fail; negative if nothing can be agreed on."""
        return self.healthy - self.needed

    def without(self, *, healthy: bool) -> Quorum:
        """After a voter, healthy or not, was removed."""
        return Quorum(self.voters - 1, self.healthy - healthy)

    def while_restarting(self, *, healthy: bool) -> Quorum:
        """While a voter, healthy or not, restarts."""
        return Quorum(self.voters, self.healthy - healthy)

    def __str__(self) -> str:
        return f"{self.healthy} of {self.voters} voters are healthy, and {self.needed} must agree"


def member_names(seen: Observed, members: tuple[Member, ...]) -> str:
    """Members as people know them."""
    found = []
    for member in members:
        instance = seen.instance_of(member)
        found.append(instance.name if instance else f"{member.name or 'a member'} at {', '.join(member.peer_urls)}")
    return ", ".join(found)


def removal_refusal(seen: Observed, member: Member) -> str:
    """Why a member must not be removed now; empty if it may.

    A learner may always go, for it counts for nothing. A voter that is down may go while the others are a quorum: that
    can only lower what is needed. A healthy voter may go only if all others are healthy: with one of them down, each
    removal eats up what the cluster could still bear, and the one that is down may be the next that is needed. One
    that does not answer us and yet is ready, says the kubelet, counts as healthy here: it is we who are cut off. And a
    leader must be reached to hand over before.
    """
    if seen.members is None:
        return "no quorum of members answers"
    if member.learner:
        return ""
    instance = seen.instance_of(member)
    if seen.leader_id == member.id and instance is not seen.leader:
        return "it leads, and cannot be reached to hand over"
    healthy = member not in seen.down or (instance is not None and instance.ready)
    left = Quorum.of(seen).without(healthy=member not in seen.down)
    if left.voters == 0:
        return "it is the only voter"
    others = tuple(other for other in seen.down if other.id != member.id)
    if others and (healthy or left.spare < 0):
        return f"{member_names(seen, others)} is down: afterwards only {left}"
    return f"afterwards {left}" if left.spare < 0 else ""


def restart_refusal(seen: Observed, instance: Instance) -> str:
    """Why a pod must not be restarted now; empty if it may.

    One in which etcd does not even run can only win. Any other goes only while every other voter is healthy, even one
    that does not answer the operator, for it may still answer the others. Then a quorum remains while it is away, but
    of one or two voters, which nobody can restart without a pause.
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
        return f"{member_names(seen, others)} is down: meanwhile only {left}"
    return ""


def addition_refusal(seen: Observed) -> str:
    """Why no learner must be added now; empty if one may.

    A learner changes no majority. But it is to become a voter, and etcd itself (from 3.5.21 and 3.6.0 on) takes none
    while a voter is not connected.
    """
    if seen.members is None:
        return "no quorum of members answers"
    if seen.learner is not None:
        return f"{member_names(seen, (seen.learner,))} is still a learner, and etcd takes one at a time"
    if seen.down:
        return f"{member_names(seen, seen.down)} is down"
    if seen.is_full:
        return "the space quota is used up: delete keys, or raise spec.quotaBackendBytes"
    return ""
