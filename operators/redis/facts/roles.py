"""Facts about roles: which nodes are to be primaries, and which replicas they are to have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from operators.redis.facts.moves import MoveFacts
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import choose_primaries


@dataclass(frozen=True)
class RoleFacts(MoveFacts):
    """The desired primaries, and the desired primary of each replica."""

    @cached_property
    def primaries(self) -> tuple[str, ...]:
        """Ids of the desired primaries: as many as the spec defines, if enough nodes are suitable.

        Staying nodes that own slots or have a pending assignment; staying replicas of primaries that are removed;
        and empty nodes for those that are still missing. An unreachable primary still counts.
        """
        view, there = self.view, self.members
        stay = {instance.recorded.node_id for instance in self.staying if instance.recorded} | there.keys()
        owners = {node.id: view.slots_of(node.id) for node in view.primaries}
        for move in self.pending_assignments:  # without its pending slots, a new primary might not stay one
            if move.target in stay and view.nodes[move.target].is_primary:
                owners[move.target] = view.slots_of(move.target) | move.slots
        leaving = owners.keys() - stay
        candidates = [
            node_id
            for node_id in (*there, *sorted(stay & owners.keys() - there.keys()))
            if node_id in owners or view.nodes[node_id].primary in leaving or there[node_id].is_blank
        ]
        current = {node_id: view.nodes[node_id].primary for node_id in candidates}
        return choose_primaries(candidates, self.resource.primaries, self.locations, owners, current)

    @cached_property
    def _heads(self) -> Mapping[str, str]:
        """Future primary by the id of each present one: the same node, or a replica that takes over."""
        return {self.view.nodes[primary].primary or primary: primary for primary in self.primaries}

    @cached_property
    def pairs(self) -> Mapping[str, str]:
        """Id of the desired primary of each replica: evenly distributed, with the fewest changes.

        A new replica gets a primary on another host, in another zone. A replica that has a primary changes it only for
        an even distribution; `improvement` considers its location. An unreachable node that may come back keeps its
        primary: a restart is no reason for a full sync.
        """
        view, leading = self.view, self.primaries
        away = [
            node.id
            for node in view.members
            if not node.answers and node.is_replica and not self.lost(node.id) and not self.is_scaled_away(node.id)
        ]
        following = [
            node_id for node_id in (*self.members, *away) if node_id not in leading and not view.slots_of(node_id)
        ]
        current = {
            node_id: self._heads.get(primary, primary)
            for node_id in following
            if (primary := view.nodes[node_id].primary)
        }
        return pair(leading, following, self.locations, current, keep=True)

    @cached_property
    def changed_pairs(self) -> Mapping[str, str]:
        """Pairs that still have to be configured, of reachable replicas and primaries.

        A server replicates no replica: one that is to take over from its primary does so first (`scaling.hand_over`).
        """
        view = self.view
        return {
            node_id: primary
            for node_id, primary in self.pairs.items()
            if node_id in self.reachable
            and view.nodes[primary].answers
            and view.nodes[primary].is_primary
            and self._heads.get(view.nodes[node_id].primary, view.nodes[node_id].primary) != primary
        }
