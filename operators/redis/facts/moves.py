"""Facts about slots that move: recorded moves, their origin, and what has begun. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from operators.redis.facts.nodes import NodeFacts
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedMove, remaining
from operators.redis.topology import provenance
from operators.redis.topology.provenance import Provenance


@dataclass(frozen=True)
class MoveFacts(NodeFacts):
    """The moves of slots that are recorded, or that others began."""

    def successor(self, node_id: str) -> str:
        """Return the id of the primary that a node is, or that replaced it; empty if there is none.

        A primary that was replaced and starts again takes itself for a primary, until another one with its slots
        contacts it.
        """
        view = self.view
        node = view.nodes.get(node_id)
        answers = node is not None and node.answers
        if node is not None and answers and (node.primary or view.slots_of(node_id)):
            return node.primary or node_id
        for known, instance in self.recorded.items():
            replica = view.nodes.get(known)
            if (
                known != node_id
                and instance.recorded
                and instance.recorded.primary == node_id
                and replica
                and replica.answers
                and replica.is_primary
                and (view.slots_of(known) or not answers)
            ):
                return known
        return node_id if answers or (node is not None and not self.lost(node_id)) else ""

    @cached_property
    def recorded_moves(self) -> tuple[RecordedMove, ...]:
        """The moves that the status records, with the primaries that have taken over from their ends."""
        return tuple(map(self._present, self.resource.recorded_moves))

    def _present(self, move: RecordedMove) -> RecordedMove:
        source, target = self.successor(move.source) or move.source, self.successor(move.target) or move.target
        return replace(move, source=source, target=target, promoted=move.promoted or source != move.source)

    @cached_property
    def provenance(self) -> Provenance:
        """The open slots, by the client that opened them."""
        return provenance.judge(
            self.view, self.recorded_moves, self.took_over, lambda node_id: not self.successor(node_id)
        )

    def took_over(self, node_id: str, former: str) -> bool:
        """Return whether a primary took over from another node, which replicates it or last was its primary."""
        known = self.view.nodes.get(former)
        replicates = known is not None and known.primary == node_id
        return replicates or self.successor(former) == node_id or self.copy_of(node_id) == former

    @property
    def acknowledges_moves(self) -> bool:
        """Whether slots move only to primaries with a replica, and each batch waits until a replica has it."""
        spec = self.resource.spec
        return spec.update_strategy.wait_for_replicas and spec.replicas_per_master > 0

    @cached_property
    def foreign(self) -> Mapping[str, Slots]:
        """Slots of which a primary holds keys without owning them, by node id; an unreachable one as last recorded."""
        away = {
            node_id: slots
            for node_id, slots in self.resource.recorded_foreign.items()
            if node_id in self.view.nodes and node_id not in self.reachable and not self.lost(node_id)
        }
        kept = {node_id: slots & self.view.uncovered for node_id, slots in self.resource.recorded_foreign.items()}
        found = self.provenance.foreign
        return away | {
            node_id: slots
            for node_id in {*found, *(kept.keys() & self.reachable.keys())}
            if (slots := found.get(node_id, Slots()) | kept.get(node_id, Slots()))
        }

    @cached_property
    def begun_moves(self) -> tuple[RecordedMove, ...]:
        """Recorded moves, as far as their slots are open, or may be.

        An unreachable owner may be migrating; and a promoted one does not know which slots its predecessor opened, so
        that an unreachable target may have keys of any of them.
        """
        view, found = self.view, []
        away = Slots.union(slots for node_id, slots in view.owned.items() if not view.nodes[node_id].answers)
        away |= view.uncovered
        for move in self.recorded_moves:
            begun = self.provenance.own | self.provenance.others | away
            if move.promoted and move.target not in self.reachable and self.successor(move.target):
                begun |= view.slots_of(move.source)
            if (part := move.within(begun)).slots:
                found.append(part)
        return tuple(found)

    @cached_property
    def pending_assignments(self) -> tuple[Move, ...]:
        """Remaining moves of the recorded assignments; the successor of a failed primary receives its slots."""
        if self.resource.spec.update_strategy.type == "AutoReceive":
            return ()
        known = [(move, self.successor(move.target)) for move in self.resource.recorded_assigned]
        return remaining(
            [Move(move.source, candidate, move.slots) for move, candidate in known if candidate], self.view.owned
        )
