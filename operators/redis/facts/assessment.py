"""Facts that follow from the spec and the observed cluster, computed once for each reconcile. Pure.

Several steps share these facts. None of them is a decision. The desired cluster follows from the spec and from the
present nodes, so a crash at any moment, and any change of the spec, only leaves another difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from operators.redis.facts.roles import RoleFacts
from operators.redis.objects.pod import TEMPLATE
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.improvement import Failover, Repair, next_change
from operators.redis.slots.slot_planner import CannotAssign, CannotMove, Move, assigned, balanced, drained, moved
from operators.redis.state.instance import Instance
from shared.kubernetes.pods import is_outdated


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The remaining moves of slots.

    Attributes:
        moves: all moves until every slot has its planned owner; empty if they cannot be planned.
        assignments: the moves that spec.updateStrategy (AssignReceive) defines; recorded in the status before the first
            slot moves.
        refusal: why the moves cannot be planned; None if they can.
    """

    moves: tuple[Move, ...] = ()
    assignments: tuple[Move, ...] = ()
    refusal: CannotAssign | CannotMove | None = None


@dataclass(frozen=True)
class Assessment(RoleFacts):
    """The view of a reconcile: the observed cluster, and the facts that follow from it and from the spec."""

    @cached_property
    def is_at_rest(self) -> bool:
        """Whether every node has its final role and is in sync, and nothing else is changing.

        Otherwise the placement stays: a pod that is being restarted or rescheduled keeps its location, and a rolling
        update or a migration fails over and moves on its own.
        """
        view, resource = self.view, self.resource
        if not resource.formed or self.awaited or self.unsynced or view.settled or view.open:
            return False
        if len(self.instances) != len(self.staying) or len(view.primaries) != len(self.primaries):
            return False
        if self.slot_plan.moves or self.slot_plan.refusal is not None:
            return False
        return all(self._is_settled(instance) for instance in self.staying)

    def _is_settled(self, instance: Instance) -> bool:
        node = self.view.nodes[instance.id]
        rolls = self.resource.spec.rolls and is_outdated(instance.pod_obj, self.stateful_set, TEMPLATE)
        has_role = bool(self.view.slots_of(node.id)) or node.synced
        return has_role and instance.ready and not instance.leaving and instance.zone is not None and not rolls

    @cached_property
    def improvement(self) -> Failover | Repair | None:
        """The next change to a better placement; None if there is none, or while the cluster is not at rest."""
        return next_change(self.shards, self.locations) if self.is_at_rest else None

    @cached_property
    def refused_slots(self) -> Mapping[str, Slots]:
        """Slots that must not move to a node now, by its id.

        It holds keys of them without owning them; another client migrates them; or they have begun to move elsewhere.
        """
        others, begun = self.provenance.others, Slots.union(move.slots for move in self.begun_moves)
        coming: dict[str, Slots] = {}
        for move in self.begun_moves:
            coming[move.target] = coming.get(move.target, Slots()) | move.slots
        return {
            node_id: others | self.foreign.get(node_id, Slots()) | (begun - coming.get(node_id, Slots()))
            for node_id in self.primaries
        }

    @cached_property
    def slot_plan(self) -> SlotPlan:
        """The remaining moves until every slot has its planned owner."""
        owned = self.view.owned
        try:
            if self.resource.spec.update_strategy.type == "AutoReceive":
                return SlotPlan(balanced(owned, self.primaries, self.refused_slots))
            assignments = self._assignments()
        except (CannotAssign, CannotMove) as refusal:
            return SlotPlan(assignments=self.pending_assignments, refusal=refusal)
        try:
            left = drained(moved(owned, assignments), self.primaries, self.refused_slots)
            return SlotPlan((*self._permitted(assignments), *left), assignments)
        except CannotMove as refusal:
            return SlotPlan(assignments=assignments, refusal=refusal)

    def _permitted(self, moves: Iterable[Move]) -> tuple[Move, ...]:
        """Return moves without refused slots."""
        left = (
            Move(move.source, move.target, move.slots - self.refused_slots.get(move.target, Slots())) for move in moves
        )
        return tuple(move for move in left if move.slots)

    def _assignments(self) -> tuple[Move, ...]:
        """Return the manual assignments that new primaries still have to receive: recorded and new ones.

        A completed assignment is dropped, so that slots that a primary gives away later are not moved back.

        Raises:
            CannotAssign: the spec cannot be followed exactly.
        """
        before = self.pending_assignments
        if self.awaited:  # an awaited node may be a better primary, and a node with an assignment stays one
            return before
        owned = moved(self.view.owned, before)
        new = [node_id for node_id in self.primaries if not owned.get(node_id, Slots())]
        return (
            *before,
            *(assigned(owned, self.resource.spec.update_strategy.strategies, new, self.refused_slots) if new else ()),
        )
