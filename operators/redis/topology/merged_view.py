"""Puts together what the nodes say of themselves and of each other: who is there, and who owns what. Pure.

No node knows the cluster; each has a table of its own, kept by gossip, and any of them may be old. So a node's own word
on itself counts, where it answers; of those that do not answer, what most others say; and of all claims to a slot the
one with the highest configuration epoch, which is how nodes settle it among themselves.

Source: Redis Cluster specification, "Configuration epoch", "Hash slots configuration propagation", "Failure detection".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from operators.redis.client.responses import Node, NodeReport
from operators.redis.slots.hash_slots import Slots


@dataclass(frozen=True)
class Seen:
    """A node: what it says of itself, and what others say of it.

    Attributes:
        name: what people call it.
        said: None if it did not answer.
        told: by the id of each node that answers and knows it; its own line included.
    """

    id: str
    name: str
    report: NodeReport | None = None
    entries: Mapping[str, Node] = field(default_factory=dict)

    @cached_property
    def line(self) -> Node:
        """What it says of itself; if it does not answer, what most others say, and of as many the latest epoch."""
        if self.report is not None:
            return self.report.me
        alike = Counter((node.primary, node.slots) for node in self.entries.values())
        return max(
            self.entries.values(),
            key=lambda node: (alike[node.primary, node.slots], node.epoch, node.slots.mask, node.primary, node.address),
        )

    @property
    def answers(self) -> bool:
        """Whether it answers the operator."""
        return self.report is not None

    @property
    def is_primary(self) -> bool:
        return not self.primary

    @property
    def is_replica(self) -> bool:
        return bool(self.primary)

    @property
    def primary(self) -> str:
        """Id of the node that it replicates; empty for a master."""
        return self.line.primary

    @property
    def address(self) -> str:
        """By its own word, or where others last met it; empty if nobody knows."""
        return self.line.address or next((node.address for node in self.entries.values() if node.address), "")

    @property
    def epoch(self) -> int:
        """Of its configuration; of a replica, its master's."""
        return self.line.epoch

    @cached_property
    def others(self) -> Mapping[str, Node]:
        """What the others say of it."""
        return {reporter: node for reporter, node in self.entries.items() if reporter != self.id}

    @property
    def failing(self) -> bool:
        """Whether the cluster has agreed that it does not answer (`fail`); one node's suspicion (`fail?`) is none.

        The flag spreads by a message to all (specification, "Failure detection"), but a node that was cut off may have
        kept an old one: so most of those who know it must say so.
        """
        return 2 * sum(node.failing for node in self.others.values()) > len(self.others)

    @property
    def lost(self) -> bool:
        """Whether it is agreed to have failed, or most know of no address at which it could be met again.

        A node whose address another node took over (`noaddr`) is asked by nobody any more, and so never found failing.
        """
        gone = sum(node.failing or node.noaddr for node in self.others.values())
        return 2 * gone > len(self.others)

    @property
    def synced(self) -> bool:
        """Whether it is a replica that has got everything, and follows its master; not whether it lags."""
        report = self.report
        return report is not None and self.is_replica and report.link_up and not report.syncing and not report.loading


@dataclass(frozen=True)
class MergedView:
    """What all who answered say.

    Attributes:
        said: by node id.
        names: what people call the nodes, by id; pods' names.
    """

    report: Mapping[str, NodeReport]
    names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> Mapping[str, Seen]:
        """Everybody who answers or is known to somebody, by id.

        Not those being met: their ids are made up until they answer.
        """
        entries: dict[str, dict[str, Node]] = {node_id: {} for node_id in self.report}
        for reporter in sorted(self.report):
            for node in self.report[reporter].nodes:
                if not node.handshake:
                    entries.setdefault(node.id, {})[reporter] = node
        return {
            node_id: Seen(node_id, self._name(node_id, entries[node_id]), self.report.get(node_id), entries[node_id])
            for node_id in sorted(entries)
        }

    def _name(self, node_id: str, entries: Mapping[str, Node]) -> str:
        if name := self.names.get(node_id):
            return name
        if host := next((node.host for node in entries.values() if node.host), ""):
            return host.partition(".")[0]
        address = next((node.address for node in entries.values() if node.address), "an unknown address")
        return f"node {node_id[:8]} at {address}"

    def name(self, node_id: str) -> str:
        """What people call a node."""
        seen = self.nodes.get(node_id)
        return seen.name if seen else self._name(node_id, {})

    @cached_property
    def components(self) -> tuple[frozenset[str], ...]:
        """Nodes that know of each other, directly or through others; first those that own most slots: the cluster.

        One that knows nobody and is known to nobody, as a new one, is alone.
        """
        group: dict[str, set[str]] = {node_id: {node_id} for node_id in self.nodes}
        for seen in self.nodes.values():
            for reporter in seen.entries:
                one, other = group[seen.id], group[reporter]
                if one is not other:
                    one |= other
                    group.update(dict.fromkeys(other, one))
        found = {id(members): members for members in group.values()}.values()

        def order(members: set[str]) -> tuple[int, int, str]:
            slots = Slots.union(slots for _, node_id, slots in self._claims if node_id in members)
            return (-len(slots), -len(members), min(members))

        return tuple(frozenset(members) for members in sorted(found, key=order))

    @cached_property
    def cluster(self) -> frozenset[str]:
        """Ids of those that are the cluster: see `components`."""
        return self.components[0] if self.components else frozenset()

    @cached_property
    def members(self) -> tuple[Seen, ...]:
        """Those of `cluster`."""
        return tuple(seen for seen in self.nodes.values() if seen.id in self.cluster)

    @cached_property
    def reachable_nodes(self) -> tuple[Seen, ...]:
        """Members that answer: whose word on the others counts."""
        return tuple(seen for seen in self.members if seen.answers)

    @cached_property
    def _claims(self) -> tuple[tuple[int, str, Slots], ...]:
        """Who owns which slots at what epoch, the claim that holds first.

        Where two masters have the same epoch, the one with the smaller id will take a higher one (specification,
        "Configuration epoch conflict resolution"): so its claim will hold.
        """
        found = {
            (node.epoch, seen.id, node.slots)
            for seen in self.nodes.values()
            for node in ([seen.line] if seen.answers else seen.entries.values())
            if node.slots and not node.primary
        }
        return tuple(sorted(found, key=lambda claim: (-claim[0], claim[1], claim[2].mask)))

    @cached_property
    def owned(self) -> Mapping[str, Slots]:
        """The slots of each master that has any."""
        owned: dict[str, Slots] = {}
        covered = Slots()
        for _, node_id, slots in self._claims:
            if node_id in self.cluster and (held := slots - covered):
                owned[node_id] = owned.get(node_id, Slots()) | held
                covered |= held
        return owned

    def slots_of(self, node_id: str) -> Slots:
        """Those that a node owns."""
        return self.owned.get(node_id, Slots())

    @cached_property
    def owners(self) -> Mapping[int, str]:
        """Id of the node that owns a slot; slots without an owner are left out."""
        return {slot: node_id for node_id, slots in self.owned.items() for slot in slots}

    @cached_property
    def uncovered(self) -> Slots:
        """Slots that nobody owns, not even one who has failed."""
        return Slots.all() - Slots.union(self.owned.values())

    @cached_property
    def contested(self) -> Slots:
        """Slots that more than one node calls its own; whoever has the higher configuration epoch will keep them."""
        return Slots.union(slots for _, _, slots in self.disputes())

    def disputes(self) -> Iterator[tuple[Seen, Seen, Slots]]:
        """Pairs of nodes that answer and claim the same slots: whose claim holds, whose does not, and which slots."""
        claims = [(self.nodes[node_id], slots) for _, node_id, slots in self._claims if node_id in self.cluster]
        speaking = [(seen, slots) for seen, slots in claims if seen.answers]
        for number, (seen, slots) in enumerate(speaking):
            for other, others in speaking[number + 1 :]:
                if both := slots & others:
                    yield seen, other, both

    @cached_property
    def primaries(self) -> tuple[Seen, ...]:
        """Masters that own slots, by their lowest slot; also those that have failed."""
        return tuple(
            self.nodes[node_id] for node_id in sorted(self.owned, key=lambda each: self.owned[each].ranges[0][0])
        )

    @property
    def majority(self) -> int:
        """How many masters must agree that one has failed, or who is to follow it: only those with slots have a vote.

        Source: Redis Cluster specification, "Replica election and promotion".
        """
        return len(self.primaries) // 2 + 1

    @cached_property
    def voters(self) -> tuple[Seen, ...]:
        """Masters with slots that answer, and have not failed for the others."""
        return tuple(seen for seen in self.primaries if seen.answers and not seen.failing)
