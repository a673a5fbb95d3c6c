"""Nodes that lost their nodes.conf, but not their data. Pure.

Such a node starts with a new id and knows no other node. It claims each slot that it has keys of, with config epoch 0
(verifyClusterConfigWithData in src/cluster_legacy.c). That it has the data of a recorded node follows from its volume:
the status records which node was on it. If it met the others like that, the claim of the former node, which they know,
would win by its epoch: the slots would stay unserved, or the node would even delete its keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from operators.redis.api.status import RecordedNode
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed


@dataclass(frozen=True, slots=True)
class DetachedNode:
    """A reachable node that lost its nodes.conf, and has the data of a recorded node.

    Attributes:
        slots: slots whose keys it has: those of the primary that it was or replicated.
        owner: id of that primary, whose claim to the slots members may still know.
        successor: id of the reachable primary that owns these slots now, and has newer data; empty if there is none.
    """

    instance: Instance
    slots: Slots
    owner: str
    successor: str = ""

    @property
    def former(self) -> str:
        """Id that it had before."""
        return self.instance.recorded.node_id if self.instance.recorded else ""

    @property
    def may_be_outdated(self) -> bool:
        """Whether it may lack any number of writes: it was a replica, and was not connected since it started."""
        return not self.successor and self.former != self.owner

    @property
    def beyond(self) -> Slots:
        """Slots whose keys it has, although the recorded node did not own them."""
        report = self.instance.report
        return report.me.slots - self.slots if report else Slots()

    @property
    def claims_slots(self) -> bool:
        """Whether it claims exactly its slots, with an epoch of its own, so that it can meet the others."""
        report = self.instance.report
        return report is not None and report.me.slots == self.slots and report.me.epoch > 0


def detached_nodes(seen: Observed) -> tuple[DetachedNode, ...]:
    """Return the detached nodes; of several with the data of one primary, only one may take its slots."""
    found = sorted(_all(seen), key=lambda node: (_rank(node), node.instance.number))
    taken = set[str]()
    chosen = []
    for node in found:
        if node.successor or node.owner not in taken:
            chosen.append(node)
        if not node.successor:
            taken.add(node.owner)
    return tuple(sorted(chosen, key=lambda node: node.instance.number))


def _rank(node: DetachedNode) -> tuple[bool, int]:
    """Return the order of preference: the former primary itself, then the replica with the most keys."""
    known, report = node.instance.recorded, node.instance.report
    return (known is None or known.node_id != node.owner), -(report.keys if report else 0)


def _all(seen: Observed) -> Iterator[DetachedNode]:
    for instance in seen.instances:
        known = instance.recorded
        if known is not None and _is_alone_on_its_volume(instance, known):
            yield from _with_data_of(seen, instance, known)


def _is_alone_on_its_volume(instance: Instance, known: RecordedNode) -> bool:
    report = instance.report
    if report is None or report.id == known.node_id or not report.keys or report.me.primary or instance.leaving:
        return False
    others = [node for node in report.nodes if not node.is_me and not node.handshake]
    return not others and bool(instance.disk) and instance.disk == known.disk


def _with_data_of(seen: Observed, instance: Instance, known: RecordedNode) -> Iterator[DetachedNode]:
    """Yield the node with the slots whose keys it has, if it is known which."""
    view, sources = seen.view, {known.node_id, known.copy_of} - {""}
    claimed = instance.report.me.slots if instance.report else Slots()
    for primary in view.primaries:
        slots = view.slots_of(primary.id)
        record = seen.recorded.get(primary.id)
        copied = record.recorded.copy_of if record and record.recorded else ""
        if primary.id == instance.id or not sources & {primary.id, copied}:
            continue
        if primary.answers:
            if not claimed or claimed - slots or primary.report is None or not primary.report.keys:
                return  # it may have keys that nothing else has
            yield DetachedNode(instance, slots, primary.id, successor=primary.id)
            return
        if primary.id in sources and seen.lost(primary.id):
            yield DetachedNode(instance, slots, primary.id)
            return
    owners = {owner for slot in known.slots if (owner := view.owners.get(slot))} - {instance.id}
    if known.slots and not owners and known.node_id not in view.nodes:
        yield DetachedNode(instance, known.slots, known.node_id)  # no member is left that knows the former node
