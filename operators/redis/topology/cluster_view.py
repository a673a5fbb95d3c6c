"""The cluster as all reachable nodes see it, and what follows from it. Pure.

Facts are properties, computed once, so that steps read as sentences. None of them is a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from operators.redis.client.responses import NodeReport
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology import view_conflicts
from operators.redis.topology.merged_view import MergedView, Seen
from operators.redis.topology.view_conflicts import Disagreement

__all__ = ["ClusterView", "Disagreement", "OpenSlot", "Seen"]


@dataclass(frozen=True, slots=True)
class OpenSlot:
    """A slot on its way from one node to another, on either end or on both.

    Attributes:
        source: id of the node that it leaves.
        target: id of the node that it goes to.
        owner: id of the node that owns it; empty if nobody does.
        at_source: whether the source says that it migrates: it redirects who asks for keys that it has not (ASK).
        at_target: whether the target says that it imports: it answers who was redirected.
    """

    slot: int
    source: str
    target: str
    owner: str
    at_source: bool
    at_target: bool


@dataclass(frozen=True)
class ClusterView(MergedView):
    """The cluster as all reachable nodes see it."""

    @classmethod
    def of(cls, report: Mapping[str, NodeReport], names: Mapping[str, str] | None = None) -> ClusterView:
        """Of what nodes said, by their ids, and what people call them."""
        return cls(dict(report), dict(names or {}))

    def without(self, ids: Iterable[str]) -> ClusterView:
        """The same as if these nodes said nothing, and nobody spoke of them: those that are about to go."""
        excluded = frozenset(ids)
        if not excluded:
            return self
        kept = {
            node_id: replace(report, nodes=tuple(node for node in report.nodes if node.id not in excluded))
            for node_id, report in self.report.items()
            if node_id not in excluded
        }
        return ClusterView(kept, self.names)

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Who says what of whom, though it is not so, or cannot be known; see `disagreement`."""
        return tuple(view_conflicts.all_of(self))

    @cached_property
    def settled(self) -> str:
        """Empty if all who answer agree, and are enough to speak for the cluster; else who disagrees with whom."""
        return view_conflicts.summary(self.disagreements)

    @cached_property
    def outside(self) -> tuple[Seen, ...]:
        """Nodes that answer and are not of the cluster: new ones, as a rule."""
        return tuple(seen for seen in self.nodes.values() if seen.answers and seen.id not in self.cluster)

    def unknown_nodes(self, known: Iterable[str]) -> tuple[Seen, ...]:
        """Members of the cluster that are none of these."""
        known = frozenset(known)
        return tuple(seen for seen in self.members if seen.id not in known)

    @cached_property
    def empty_primaries(self) -> tuple[Seen, ...]:
        """Members that answer, and are masters without slots: they have no vote."""
        return tuple(seen for seen in self.reachable_nodes if seen.is_primary and seen.id not in self.owned)

    @cached_property
    def _replicas(self) -> Mapping[str, tuple[Seen, ...]]:
        found: dict[str, list[Seen]] = {}
        for seen in self.members:
            found.setdefault(seen.primary, []).append(seen)
        return {primary: tuple(replicas) for primary, replicas in found.items()}

    def replicas_of(self, primary: str) -> tuple[Seen, ...]:
        """Members that replicate this node, whether they answer or not."""
        return self._replicas.get(primary, ())

    def failover_candidates(self, primary: str) -> tuple[Seen, ...]:
        """Replicas that may take a node's place, the one that has most of its data first.

        While the master answers, those that follow it; afterwards, all that answer.
        """
        alive = primary in self.report
        fit = [
            seen
            for seen in self.replicas_of(primary)
            if seen.report and not seen.report.loading and not seen.report.syncing and (seen.synced or not alive)
        ]
        return tuple(sorted(fit, key=lambda seen: (-seen.report.offset if seen.report else 0, seen.id)))

    @cached_property
    def failing(self) -> tuple[Seen, ...]:
        """Members that a majority of masters has found not to answer, as most who know them say."""
        return tuple(seen for seen in self.members if seen.failing)

    @cached_property
    def unserved(self) -> Slots:
        """Slots that nobody serves: without an owner, or owned by one who has failed."""
        return self.uncovered | Slots.union(self.owned[seen.id] for seen in self.failing if seen.id in self.owned)

    @cached_property
    def awaiting_election(self) -> tuple[Seen, ...]:
        """Failed masters with slots that a replica is about to follow: forget one, and its slots have no owner.

        Source: Redis Cluster specification, "Replica election and promotion": a replica asks for votes only while its
        master is marked as failed and owns slots.
        """
        return tuple(
            seen
            for seen in self.primaries
            if seen.failing and any(not replica.lost for replica in self.replicas_of(seen.id))
        )

    @property
    def can_elect(self) -> bool:
        """Whether, as far as the operator sees, enough masters are there to vote."""
        return len(self.voters) >= self.majority

    @cached_property
    def refusing(self) -> tuple[Seen, ...]:
        """Members that answer, and say that they take no commands (cluster_state:fail)."""
        return tuple(seen for seen in self.reachable_nodes if seen.report and not seen.report.state_ok)

    def other_copies(self, node_id: str) -> tuple[Seen, ...]:
        """Who else surely has the data of a node: its master, if it answers, and that one's replicas that follow it.

        Without the master nobody can be sure how much its replicas have: then none counts.
        """
        seen = self.nodes.get(node_id)
        if seen is None:
            return ()
        primary = self.nodes.get(seen.primary) if seen.is_replica else seen
        if primary is None or primary.report is None or primary.report.loading:
            return ()
        return tuple(
            other
            for other in (primary, *self.replicas_of(primary.id))
            if other.id != node_id and (other is primary or other.synced)
        )

    def holds_only_copy(self, node_id: str) -> bool:
        """Whether data may be lost with a node: it has or had some, and nobody else surely has the same."""
        seen = self.nodes.get(node_id)
        if seen is None:
            return False
        holds = bool(self.slots_of(node_id)) or seen.is_replica or (seen.report is not None and seen.report.keys > 0)
        return holds and not self.other_copies(node_id)

    @cached_property
    def open(self) -> tuple[OpenSlot, ...]:
        """Slots on their way, by number; each end tells of itself alone, and remembers it through restarts.

        Source: Redis Cluster specification, "Cluster live reconfiguration".
        """
        ends: dict[tuple[int, str, str], set[str]] = {}
        for seen in self.reachable_nodes:
            for slot, target in seen.line.migrating.items():
                ends.setdefault((slot, seen.id, target), set()).add("source")
            for slot, source in seen.line.importing.items():
                ends.setdefault((slot, source, seen.id), set()).add("target")
        return tuple(
            OpenSlot(slot, source, target, self.owners.get(slot, ""), "source" in ends_seen, "target" in ends_seen)
            for (slot, source, target), ends_seen in sorted(ends.items())
        )

    def missing(self, of: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """By the ids of these nodes, the ids of members that answer and do not know them; left out if all do.

        Who knows of no address counts as one who does not know.
        """
        return {
            node_id: unaware
            for node_id in of
            if (
                unaware := tuple(
                    seen.id for seen in self.reachable_nodes if seen.id != node_id and not self._met(seen, node_id)
                )
            )
        }

    def misplaced(self, at: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
        """By the ids of these nodes, the ids of members that look for them elsewhere than at these addresses."""
        return {
            node_id: mistaken
            for node_id, address in at.items()
            if (
                mistaken := tuple(
                    seen.id for seen in self.reachable_nodes if self._looks_elsewhere(seen, node_id, address)
                )
            )
        }

    def _met(self, by: Seen, node_id: str) -> bool:
        node = by.report.node(node_id) if by.report else None
        return node is not None and not node.noaddr and not node.handshake

    def _looks_elsewhere(self, by: Seen, node_id: str, address: str) -> bool:
        node = by.report.node(node_id) if by.report else None
        return by.id != node_id and node is not None and not node.noaddr and node.address != address

    @cached_property
    def being_met(self) -> frozenset[tuple[str, str]]:
        """Ids of members, and the addresses at which they try to meet somebody; they give up after the node timeout."""
        return frozenset(
            (seen.id, node.address)
            for seen in self.reachable_nodes
            if seen.report
            for node in seen.report.nodes
            if node.handshake
        )
