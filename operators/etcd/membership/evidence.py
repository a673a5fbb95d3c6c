"""Evidence about members: what is known to be good, known to be bad, and unknown. Pure.

A step that can lose data or the quorum needs good evidence about every member that it depends on. A member that does
not answer is unknown, and unknown permits nothing: the step waits, and its message names the member.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.quorum import member_names
from operators.etcd.state.observed import Instance, Observed


class Evidence(enum.Enum):
    """Knowledge about a precondition of a step."""

    GOOD = "met"
    BAD = "not met"
    UNKNOWN = "not known to be met"


@dataclass(frozen=True, slots=True)
class Finding:
    """Evidence about one member.

    Attributes:
        why: clause that follows the name of the member, such as "does not answer"; empty if the evidence is good.
    """

    evidence: Evidence
    why: str = ""


GOOD = Finding(Evidence.GOOD)


def bad(why: str) -> Finding:
    """Return that the precondition is not met."""
    return Finding(Evidence.BAD, why)


def unknown(why: str = "does not answer the operator") -> Finding:
    """Return that it is not known whether the precondition is met."""
    return Finding(Evidence.UNKNOWN, why)


def objection(resource: EtcdCluster, seen: Observed, judge: Callable[[Instance], Finding]) -> str:
    """Return what speaks against a step that depends on every member; empty if the evidence about each one is good.

    Without a list of members, those that the status records count. A member without an instance is unknown.

    Args:
        judge: returns what is known about a member.
    """
    found = [(instance.name, judge(instance)) for instance in _members(resource, seen)]
    if seen.unknown_members:
        found.append((member_names(seen, seen.unknown_members), unknown("belongs to no pod of this cluster")))
    if not found:
        return "the members are not known"
    return _worst(found)


def _members(resource: EtcdCluster, seen: Observed) -> list[Instance]:
    """Return the instances of all members; one that is recorded but not observed has neither pod nor status."""
    if seen.members is not None:
        return [instance for instance in seen.instances if instance.member]
    observed = {instance.name: instance for instance in seen.instances}
    recorded = [member.name for member in resource.recorded_members if member.id]
    return [observed.get(name, Instance(-1, name)) for name in recorded]


def _worst(found: Iterable[tuple[str, Finding]]) -> str:
    """Return the findings that are not good, the bad ones first."""
    order = {Evidence.BAD: 0, Evidence.UNKNOWN: 1}
    against = sorted((each for each in found if each[1] is not GOOD), key=lambda each: order[each[1].evidence])
    return "; ".join(f"{name} {finding.why}" for name, finding in against)
