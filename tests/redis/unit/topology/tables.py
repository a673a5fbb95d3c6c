"""Clusters and the CLUSTER NODES tables of their nodes, as data, for tests of the cluster view."""

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
    """Role of a node: a primary with an epoch and slots, or a replica of a primary."""

    epoch: int = 0
    slots: Slots = field(default=Slots())
    primary: str = ""


Truth = Mapping[str, Role]


def cluster(primaries: int = 3, replicas: int = 3) -> dict[str, Role]:
    """demo-0, demo-1… are primaries with equal shares and epochs from 1; their replicas follow in the same order."""
    truth: dict[str, Role] = {}
    for number in range(primaries):
        slots = Slots.of(range(SLOTS * number // primaries, SLOTS * (number + 1) // primaries))
        truth[node_id(number)] = Role(number + 1, slots)
    for number in range(replicas):
        truth[node_id(primaries + number)] = Role(primary=node_id(number % primaries))
    return truth


def failed_over(truth: Truth, replica: str) -> dict[str, Role]:
    """A replica has been promoted: it owns the slots of its primary, with the highest epoch."""
    former = truth[replica].primary
    after = dict(truth)
    after[replica] = Role(1 + max(role.epoch for role in truth.values()), truth[former].slots)
    for node, role in truth.items():
        if node == former or (role.primary == former and node != replica):
            after[node] = Role(primary=replica)
    return after


def slots_moved(truth: Truth, source: str, target: str, slots: Slots) -> dict[str, Role]:
    """The state after SETSLOT … NODE: the target takes a new highest epoch, unless it already has the highest."""
    highest = max(role.epoch for role in truth.values())
    taken = truth[target]
    epoch = taken.epoch if taken.epoch == highest else highest + 1
    return {
        **truth,
        source: replace(truth[source], slots=truth[source].slots - slots),
        target: replace(taken, slots=taken.slots | slots, epoch=epoch),
    }


def line(truth: Truth, node: str, *flags: str) -> Node:
    """Line of a node in CLUSTER NODES."""
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


def report_of(truth: Truth, node: str, *, failed: Iterable[str] = (), suspected: Iterable[str] = ()) -> NodeReport:
    """Report of a node."""
    failed = frozenset(failed)
    flags = {node: ("myself",)} | dict.fromkeys(failed, ("fail",)) | dict.fromkeys(suspected, ("fail?",))
    primary = truth[node].primary
    return NodeReport(
        node,
        nodes=tuple(line(truth, other, *flags.get(other, ())) for other in truth),
        replicates=f"{address(primary)}:6379" if primary else "",
        link_up=primary not in failed,
    )


def all_reports(truth: Truth, *, failed: Iterable[str] = (), unreachable: Iterable[str] = ()) -> dict[str, NodeReport]:
    """Reports of all nodes, except failed and unreachable ones."""
    failed = tuple(failed)
    return {node: report_of(truth, node, failed=failed) for node in truth if node not in {*failed, *unreachable}}


def changed(report: NodeReport, node: str, **fields: object) -> NodeReport:
    """The report with changes to the line of one node."""
    return replace(
        report,
        nodes=tuple(replace(each, **fields) if each.id == node else each for each in report.nodes),  # type: ignore[arg-type]
    )


def flagged(report: NodeReport, node: str, *flags: str) -> NodeReport:
    """The report with more flags on the line of one node."""
    known = report.node(node)
    assert known is not None
    return changed(report, node, flags=known.flags | frozenset(flags))


def unaware(report: NodeReport, *nodes: str) -> NodeReport:
    """The report without the lines of these nodes."""
    return replace(report, nodes=tuple(each for each in report.nodes if each.id not in nodes))


def view(reports: Mapping[str, NodeReport]) -> ClusterView:
    return ClusterView.of(reports, {node_id(number): name(node_id(number)) for number in range(20)})


P0, P1, P2, R0, R1, R2, NEW = map(node_id, range(7))
"""Ids of three primaries, a replica of each, and one more node."""

SIX = cluster()
THIRDS = {node: role.slots for node, role in SIX.items() if role.slots}


def ids(nodes: Iterable[Seen]) -> list[str]:
    return [seen.id for seen in nodes]
