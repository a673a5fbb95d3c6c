"""Distinguishes open slots that the operator opened from all others, by the moves that the status records. Pure.

A mark on a server (importing, migrating) does not show which client set it. Redis sets importing marks by itself: a
primary that starts with keys of slots that another node owns marks them. Its keys are then an older copy, with keys
that have been deleted since. Moving such a slot would bring them back. redis-cli and other clients open slots as well.
So a slot is finished only if the status recorded, right before its first command, that the operator opens it
(migration/journal.py). The recorded ends are its present ends, or the primaries that these took over from.

Even a recorded move has not begun before its source is migrating: until then the operator has moved no key. A source
that was promoted is the exception, because Redis does not replicate the mark (Valkey does since 8.0).

If the status was lost, nothing is recorded, and no open slot is finished.

Sources: verifyClusterConfigWithData in cluster.c of Redis 7.0, in cluster_legacy.c of Valkey 8.0; Redis Cluster
specification, "Cluster live reconfiguration".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import RecordedMove
from operators.redis.topology.cluster_view import ClusterView, Seen

Key = TypeVar("Key")

Ends = tuple[str, str]
"""Ids of a source and a target."""


@dataclass(slots=True)
class Provenance:
    """All open slots, by what happens to them next; slots by the ids of source and target, or of one node.

    Attributes:
        onward: begun by the operator: the rest of their keys moves.
        promoted: slots of `onward` whose first source a replica replaced.
        reopened: slots of `onward` that a failover closed at one end.
        arrived: begun by the operator, and owned by their target, or their target is lost: they are closed.
        waiting: begun by the operator, and an end is unreachable.
        unexplained: importing at one node that is no target of a recorded move: they are closed there.
        left: migrating at one node alone, outside the record: closed if the other node has no keys of them.
        elsewhere: begun by another client: not changed.
        foreign: keys that a reachable primary holds without owning their slot: their slots.
    """

    onward: dict[Ends, Slots] = field(default_factory=dict)
    promoted: Slots = field(default_factory=Slots)
    reopened: dict[Ends, Slots] = field(default_factory=dict)
    arrived: dict[Ends, Slots] = field(default_factory=dict)
    waiting: dict[Ends, Slots] = field(default_factory=dict)
    unexplained: dict[str, Slots] = field(default_factory=dict)
    left: dict[Ends, Slots] = field(default_factory=dict)
    elsewhere: dict[Ends, Slots] = field(default_factory=dict)
    foreign: dict[str, Slots] = field(default_factory=dict)

    @property
    def own(self) -> Slots:
        """Open slots that the operator opened."""
        return Slots.union([*self.onward.values(), *self.arrived.values(), *self.waiting.values()])

    @property
    def others(self) -> Slots:
        """Open slots that another client opened."""
        return Slots.union([*self.left.values(), *self.elsewhere.values()])


def judge(
    view: ClusterView,
    moves: Iterable[RecordedMove],
    took_over: Callable[[str, str], bool],
    is_lost: Callable[[str], bool],
) -> Provenance:
    """Sort all open slots by their provenance.

    Args:
        moves: recorded slots, with their present ends.
        took_over: whether the first node took over from the second one.
        is_lost: whether a node is lost, or unknown to all.
    """
    marked = _Marks.of(view)
    judging = _Judging(view, marked, took_over, is_lost)
    recorded: dict[int, RecordedMove] = {}
    for move in moves:
        recorded |= dict.fromkeys(move.slots & marked.slots, move)
    for slot in marked.slots:
        judging.judge(slot, recorded.get(slot))
    for node in view.reachable_nodes:
        if node.report and node.is_primary:
            judging.note_foreign(node, Slots.of(*node.report.strays))
    return judging.found


@dataclass(frozen=True, slots=True)
class _Marks:
    """Marks of the reachable primaries: by slot, the other end by the id of the node. Replicas of Valkey copy them."""

    importing: Mapping[int, dict[str, str]]
    migrating: Mapping[int, dict[str, str]]
    slots: Slots

    @classmethod
    def of(cls, view: ClusterView) -> _Marks:
        importing: dict[int, dict[str, str]] = {}
        migrating: dict[int, dict[str, str]] = {}
        for node in view.reachable_nodes:
            if node.is_primary:
                for slot, source in node.line.importing.items():
                    importing.setdefault(slot, {})[node.id] = source
                for slot, target in node.line.migrating.items():
                    migrating.setdefault(slot, {})[node.id] = target
        return cls(importing, migrating, Slots.of(*importing, *migrating))


@dataclass(slots=True)
class _Judging:
    view: ClusterView
    marks: _Marks
    took_over: Callable[[str, str], bool]
    is_lost: Callable[[str], bool]
    found: Provenance = field(default_factory=Provenance)

    def judge(self, slot: int, move: RecordedMove | None) -> None:
        """Sort one open slot: its marks of the recorded move, then all others."""
        importing, migrating = dict(self.marks.importing.get(slot, {})), dict(self.marks.migrating.get(slot, {}))
        owner = self.view.owners.get(slot, "")
        if move and owner in (move.source, move.target) and self._is_own(slot, move, owner):
            importing.pop(move.target, None)
            migrating.pop(move.source, None)
        for target, source in importing.items():
            givers = [node_id for node_id, other in migrating.items() if other == target]
            self._sort_importing(slot, owner, givers[0] if givers else "", source, target)
        for source, target in migrating.items():
            if target not in importing:
                _add(self.found.left, (source, target), slot)

    def _is_own(self, slot: int, move: RecordedMove, owner: str) -> bool:
        """Sort the marks of a recorded move; return whether the operator set them."""
        found, ends = self.found, (move.source, move.target)
        importing, migrating = self.marks.importing.get(slot, {}), self.marks.migrating.get(slot, {})
        to = migrating.get(move.source, "")
        if not to and move.target not in importing:
            return False
        if owner == move.target:
            _add(found.arrived, ends, slot)
            return True
        if to and to != move.target and not self.took_over(move.target, to):
            return False
        if not to and not move.promoted and self._strays(move.target, slot):
            return False  # no key was moved yet: these are of unknown origin
        if not self._answers(owner) or not (self._answers(move.target) or self.is_lost(move.target)):
            _add(found.waiting, ends, slot)
        elif self.is_lost(move.target):
            _add(found.arrived, ends, slot)
        else:
            _add(found.onward, ends, slot)
            if move.promoted:
                found.promoted |= Slots.of(slot)
            if (to or move.promoted) and (to != move.target or importing.get(move.target) != owner):
                _add(found.reopened, ends, slot)
        return True

    def _sort_importing(self, slot: int, owner: str, giver: str, source: str, target: str) -> None:
        """Sort an importing mark that is not of a recorded move."""
        found, keys = self.found, self._strays(target, slot)
        if giver and giver == owner:
            _add(found.elsewhere, (giver, target), slot)
        elif owner and self._answers(owner):
            # A node that deletes such keys when it starts has not set the mark itself, and its keys would be deleted.
            report = self.view.nodes[target].report
            if keys and not (report and report.features.marks_stray_keys):
                _add(found.elsewhere, (source, target), slot)
            else:
                _add(found.unexplained, target, slot)

    def note_foreign(self, node: Seen, slots: Slots) -> None:
        """Note slots of which a node holds keys, except those that are moving to it."""
        moving = [
            those
            for group in (self.found.onward, self.found.waiting, self.found.elsewhere)
            for (_, target), those in group.items()
            if target == node.id
        ]
        # Keys of a slot without an owner may be the current ones (steps/unowned_slots.py).
        if left := slots - Slots.union(moving) - self.view.slots_of(node.id) - self.view.uncovered:
            self.found.foreign[node.id] = left

    def _answers(self, node_id: str) -> bool:
        node = self.view.nodes.get(node_id)
        return node is not None and node.answers and node.is_primary

    def _strays(self, node_id: str, slot: int) -> int:
        node = self.view.nodes.get(node_id)
        return node.report.strays.get(slot, 0) if node and node.report else 0


def _add(group: dict[Key, Slots], key: Key, slot: int) -> None:
    group[key] = group.get(key, Slots()) | Slots.of(slot)
