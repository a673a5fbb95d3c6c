"""The cluster view, merged from all reachable nodes, and the facts that follow from it. Pure.

Facts are properties, computed once. None of them is a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from operators.redis.client.responses import NodeReport
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology import view_conflicts
from operators.redis.topology.merged_view import MergedView, Seen
from operators.redis.topology.view_conflicts import Disagreement

__all__ = ["ClusterView", "Disagreement", "Seen"]


@dataclass(frozen=True)
class ClusterView(MergedView):
    """The cluster view, merged from all reachable nodes."""

    @classmethod
    def of(
        cls, report: Mapping[str, NodeReport], names: Mapping[str, str] | None = None, recorded: Iterable[str] = ()
    ) -> ClusterView:
        """Merge the reports of nodes, by node id.

        Args:
            names: names of nodes for messages, by node id.
            recorded: ids that the status records for the cluster.
        """
        return cls(dict(report), dict(names or {}), recorded=frozenset(recorded))

    def without(self, ids: Iterable[str]) -> ClusterView:
        """Return the view as if these nodes did not exist, which are about to be removed."""
        excluded = frozenset(ids)
        if not excluded:
            return self
        kept = {node_id: report for node_id, report in self.report.items() if node_id not in excluded}
        return ClusterView(kept, self.names, self.excluded | excluded, self.recorded)

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """All conflicts between the reports of nodes; see `view_conflicts`."""
        return tuple(view_conflicts.all_of(self))

    @cached_property
    def settled(self) -> str:
        """Description of the conflicts; empty if all reachable nodes agree and are a majority."""
        return view_conflicts.summary(self.disagreements)

    @cached_property
    def outside(self) -> tuple[Seen, ...]:
        """Reachable nodes that are not members of the cluster, such as new ones."""
        return tuple(seen for seen in self.nodes.values() if seen.answers and seen.id not in self.cluster)

    def unknown_nodes(self, known: Iterable[str]) -> tuple[Seen, ...]:
        """Return members whose ids are not among these."""
        known = frozenset(known)
        return tuple(seen for seen in self.members if seen.id not in known)

    @cached_property
    def _replicas(self) -> Mapping[str, tuple[Seen, ...]]:
        found: dict[str, list[Seen]] = {}
        for seen in self.members:
            found.setdefault(seen.primary, []).append(seen)
        return {primary: tuple(replicas) for primary, replicas in found.items()}

    def replicas_of(self, primary: str) -> tuple[Seen, ...]:
        """Return members that replicate a node, whether they are reachable or not."""
        return self._replicas.get(primary, ())

    def failover_candidates(self, primary: str) -> tuple[Seen, ...]:
        """Return replicas that may take over from a primary, the one with the most data first.

        While the primary is reachable, only replicas in sync. Afterwards, all reachable ones that are not connected: a
        server at the other end would be another one, or the primary is only out of the operator's reach.
        """
        alive = primary in self.report
        fit = [
            seen
            for seen in self.replicas_of(primary)
            if seen.report
            and not seen.report.loading
            and not seen.report.syncing
            and (seen.synced if alive else not seen.report.link_up)
        ]
        return tuple(sorted(fit, key=lambda seen: (-seen.report.offset if seen.report else 0, seen.id)))

    @cached_property
    def failing(self) -> tuple[Seen, ...]:
        """Members that a majority of primaries found failed, as most nodes that know them report."""
        return tuple(seen for seen in self.members if seen.failing)

    @cached_property
    def unserved(self) -> Slots:
        """Slots without an owner, or with a failed owner."""
        return self.uncovered | Slots.union(self.owned[seen.id] for seen in self.failing if seen.id in self.owned)

    @cached_property
    def awaiting_election(self) -> tuple[Seen, ...]:
        """Failed primaries with slots that a replica is about to replace: if they were forgotten, their slots had no
        owner.

        Source: Redis Cluster specification, "Replica election and promotion": a replica requests votes only while
        its primary is marked as failed and owns slots.
        """
        return tuple(
            seen
            for seen in self.primaries
            if seen.failing and any(not replica.lost for replica in self.replicas_of(seen.id))
        )

    @property
    def can_elect(self) -> bool:
        """Whether the operator sees enough voting primaries for an election."""
        return len(self.voters) >= self.majority

    @cached_property
    def refusing(self) -> tuple[Seen, ...]:
        """Reachable members that reject commands (cluster_state:fail)."""
        return tuple(seen for seen in self.reachable_nodes if seen.report and not seen.report.state_ok)

    def other_copies(self, node_id: str) -> tuple[Seen, ...]:
        """Return other nodes that certainly have the data of a node: its reachable primary, and that primary's synced
        replicas.

        Without the primary it is unknown how much its replicas have: then none counts.
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
        """Return whether a node may hold the only copy of data."""
        seen = self.nodes.get(node_id)
        if seen is None:
            return False
        holds = bool(self.slots_of(node_id)) or seen.is_replica or (seen.report is not None and seen.report.keys > 0)
        return holds and not self.other_copies(node_id)

    @cached_property
    def open(self) -> Slots:
        """Slots that are migrating or importing at a node; each reports only itself, and keeps that across restarts.

        Source: Redis Cluster specification, "Cluster live reconfiguration".
        """
        lines = [seen.line for seen in self.reachable_nodes]
        return Slots.of(*(slot for line in lines for slot in (*line.migrating, *line.importing)))

    def missing(self, of: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
        """Return, by node id, the ids of reachable members that do not know the node or its address."""
        found = {}
        for node_id in of:
            seen = self.nodes.get(node_id)
            aware = seen.reported_by(lambda node: not node.noaddr) if seen else frozenset()
            if unaware := self._reachable_ids - aware - {node_id}:
                found[node_id] = tuple(sorted(unaware))
        return found

    def misplaced(self, at: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
        """Return, by node id, the ids of reachable members that have another address or bus port for the node.

        Args:
            at: present addresses of reachable nodes.
        """
        found = {}
        for node_id, address in at.items():
            node = self.nodes.get(node_id)
            others, right = (node.others, (address, node.line.bus)) if node else ((), (address, 0))
            wrong = [each for each in others if not each.node.noaddr and (each.node.address, each.node.bus) != right]
            if mistaken := self._reachable_ids.intersection(frozenset().union(*(each.reporters for each in wrong))):
                found[node_id] = tuple(sorted(mistaken))
        return found

    @cached_property
    def _reachable_ids(self) -> frozenset[str]:
        return frozenset(seen.id for seen in self.reachable_nodes)

    @cached_property
    def being_met(self) -> frozenset[tuple[str, str]]:
        """Ids of members, and addresses that they are meeting (handshake); they give up after the node timeout."""
        return frozenset(
            (seen.id, node.address) for seen in self.reachable_nodes if seen.report for node in seen.report.handshakes
        )
