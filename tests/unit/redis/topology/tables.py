"""Clusters, and what each node says of them, for tests of the pure rooms: states as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from operators.redis.client.responses import Node, NodeReport
from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.topology.cluster_view import ClusterView, Seen


def node_id(number: int) -> str:
    return f"{number:040x}"


def name(node: str) -> str:
    return f"demo-{int(node, 16)}"


def address(node: str) -> str:
    return f"10.0.0.{int(node, 16)}"


@dataclass(frozen=True)
class Role:
    """What a node is: a master with an epoch and slots, or a replica of one."""

    epoch: int = 0
    slots: Slots = field(default=Slots())
    primary: str = ""


Truth = Mapping[str, Role]


def cluster(primaries: int = 3, replicas: int = 3) -> dict[str, Role]:
    """demo-0, demo-1… are masters with as many slots each, epochs from 1 on; then come their replicas in turn."""
    truth: dict[str, Role] = {}
    for number in range(primaries):
        slots = Slots.of(range(SLOTS * number // primaries, SLOTS * (number + 1) // primaries))
        truth[node_id(number)] = Role(number + 1, slots)
    for number in range(replicas):
        truth[node_id(primaries + number)] = Role(primary=node_id(number % primaries))
    return truth


def failed_over(truth: Truth, replica: str) -> dict[str, Role]:
    """A replica has taken its master's place: with its slots, and a higher epoch than all."""
    former = truth[replica].primary
    after = dict(truth)
    after[replica] = Role(1 + max(role.epoch for role in truth.values()), truth[former].slots)
    for node, role in truth.items():
        if node == former or (role.primary == former and node != replica):
            after[node] = Role(primary=replica)
    return after


def slots_moved(truth: Truth, source: str, target: str, slots: Slots) -> dict[str, Role]:
    """SETSLOT … NODE was said: the target takes a higher epoch than all, unless it has the highest already."""
    highest = max(role.epoch for role in truth.values())
    taken = truth[target]
    epoch = taken.epoch if taken.epoch == highest else highest + 1
    return {
        **truth,
        source: replace(truth[source], slots=truth[source].slots - slots),
        target: replace(taken, slots=taken.slots | slots, epoch=epoch),
    }


def line(truth: Truth, node: str, *flags: str) -> Node:
    """What CLUSTER NODES says of a node."""
    role = truth[node]
    return Node(
        id=node,
        address=address(node),
        port=6379,
        flags=frozenset({"slave" if role.primary else "master", *flags}),
        primary=role.primary,
        epoch=truth[role.primary].epoch if role.primary in truth else role.epoch,
        slots=role.slots,
    )


def said(truth: Truth, node: str, *, failed: Iterable[str] = (), suspected: Iterable[str] = ()) -> NodeReport:
    """All that a node says."""
    flags = {node: ("myself",)} | dict.fromkeys(failed, ("fail",)) | dict.fromkeys(suspected, ("fail?",))
    return NodeReport(node, nodes=tuple(line(truth, other, *flags.get(other, ())) for other in truth))


def all_said(truth: Truth, *, failed: Iterable[str] = (), unreachable: Iterable[str] = ()) -> dict[str, NodeReport]:
    """What everybody says but those who have failed or do not answer."""
    failed = tuple(failed)
    return {node: said(truth, node, failed=failed) for node in truth if node not in {*failed, *unreachable}}


def changed(spoken: NodeReport, node: str, **fields: object) -> NodeReport:
    """The same, but for what is said of one node."""
    return replace(
        spoken,
        nodes=tuple(replace(each, **fields) if each.id == node else each for each in spoken.nodes),  # type: ignore[arg-type]
    )


def flagged(spoken: NodeReport, node: str, *flags: str) -> NodeReport:
    """The same, with these flags on one node."""
    known = spoken.node(node)
    assert known is not None
    return changed(spoken, node, flags=known.flags | frozenset(flags))


def unaware(spoken: NodeReport, *nodes: str) -> NodeReport:
    """The same, by one who does not know these nodes."""
    return replace(spoken, nodes=tuple(each for each in spoken.nodes if each.id not in nodes))


def view(spoken: Mapping[str, NodeReport]) -> ClusterView:
    return ClusterView.of(spoken, {node_id(number): name(node_id(number)) for number in range(20)})


M0, M1, M2, R0, R1, R2, NEW = map(node_id, range(7))
"""Three masters and a replica of each; and one more."""

SIX = cluster()
THIRDS = {node: role.slots for node, role in SIX.items() if role.slots}


def ids(nodes: Iterable[Seen]) -> list[str]:
    return [seen.id for seen in nodes]
