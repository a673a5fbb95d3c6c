"""Merges the reports of all reachable nodes: the known nodes and the owners of the slots. Pure.

Each node has its own table, kept up to date by gossip, and any of them may be outdated. So a reachable node's report
about itself counts; for unreachable nodes, the report of most others; and of all claims to a slot the one with the
highest config epoch, as the nodes themselves resolve it.

Source: Redis Cluster specification, "Configuration epoch", "Hash slots configuration propagation", "Failure detection".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count

from operators.redis.client.responses import Node, NodeReport
from operators.redis.slots.hash_slots import Slots

MAX_COMPARISONS = 8
"""Maximum number of different tables to compare all others with; the rest is read line by line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of some nodes about a node: equal entries of several reporters are one.

    Attributes:
        node: content of the entry.
        reporters: ids of the reachable nodes that report it.
    """

    node: Node
    reporters: frozenset[str]


@dataclass(frozen=True)
class Seen:
    """A node: its own report, and the entries of other nodes about it.

    Attributes:
        id: node id.
        name: name for messages.
        report: report of the node; None if it is unreachable.
        others: entries of other nodes about it.
        primary_at: of a replica: address and port of its primary, as that node reports itself; empty if it is
            unreachable. What other nodes report is no proof: it may be outdated.
        linked_to: of a replica: id of the reachable node at the address of its link; empty if there is none.
    """

    id: str
    name: str
    report: NodeReport | None = None
    others: tuple[Entry, ...] = ()
    primary_at: str = ""
    linked_to: str = ""

    @cached_property
    def line(self) -> Node:
        """Entry of the node about itself; if it is unreachable the most common entry, and among equals the latest
        epoch.
        """
        if self.report is not None:
            return self.report.me
        alike: Counter[tuple[str, Slots]] = Counter()
        for entry in self.others:
            alike[entry.node.primary, entry.node.slots] += len(entry.reporters)
        return max(
            (entry.node for entry in self.others),
            key=lambda node: (alike[node.primary, node.slots], node.epoch, node.slots.mask, node.primary, node.address),
        )

    @cached_property
    def reporters(self) -> frozenset[str]:
        """Ids of other nodes that know this one."""
        return self.reported_by(lambda _: True)

    def is_known_to(self, node_id: str) -> bool:
        """Return whether a reachable node knows this one; it knows itself."""
        return node_id in self.reporters or (node_id == self.id and self.report is not None)

    def reported_by(self, fits: Callable[[Node], bool]) -> frozenset[str]:
        """Return the ids of other nodes whose entry fits a condition."""
        found = [entry.reporters for entry in self.others if fits(entry.node)]
        return found[0] if len(found) == 1 else frozenset().union(*found)

    @property
    def answers(self) -> bool:
        """Whether the node is reachable."""
        return self.report is not None

    @property
    def is_primary(self) -> bool:
        return not self.primary

    @property
    def is_replica(self) -> bool:
        return bool(self.primary)

    @property
    def primary(self) -> str:
        """Id of the primary that the node replicates; empty for a primary."""
        return self.line.primary

    @property
    def address(self) -> str:
        """Address in its own entry, or the last address that others know; empty if unknown."""
        return self.line.address or next((entry.node.address for entry in self.others if entry.node.address), "")

    @property
    def epoch(self) -> int:
        """Config epoch of the node; of a replica, that of its primary."""
        return self.line.epoch

    @property
    def failing(self) -> bool:
        """Whether the cluster agreed that the node has failed (`fail`); a suspicion (`fail?`) does not count.

        The flag spreads by a message to all nodes (specification, "Failure detection"), but a node that was cut off
        may keep an old flag: so most of the nodes that know it must report it.
        """
        return 2 * len(self.reported_by(lambda node: node.failing)) > len(self.reporters)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that most of the nodes that know it report for it: `fail`, `noaddr`."""
        noaddr = 2 * len(self.reported_by(lambda node: node.noaddr)) > len(self.reporters)
        return (*(("fail",) if self.failing else ()), *(("noaddr",) if noaddr else ()))

    @property
    def lost(self) -> bool:
        """Whether the node is agreed to have failed, or most nodes have no address for it.

        A node whose address was reused by another node (`noaddr`) is no longer contacted, and so never found failing.
        """
        return 2 * len(self.reported_by(lambda node: node.failing or node.noaddr)) > len(self.reporters)

    @property
    def connected(self) -> bool:
        """Whether the node is a replica that completed its sync with the server that it is connected to.

        Servers do not check which node that is.
        """
        report = self.report
        return report is not None and self.is_replica and report.link_up and not report.syncing and not report.loading

    @property
    def synced(self) -> bool:
        """Whether the node is a replica that completed its sync and is connected to its primary; it may lag."""
        return self.connected and self.report is not None and self.report.replicates == self.primary_at

    @property
    def astray(self) -> bool:
        """Whether the link of a replica certainly leads to another node than its primary.

        Either its primary reports another address, or another node reports the address of the link.
        Gossip changes the address of a primary without moving the link (clusterProcessGossipSection in
        src/cluster_legacy.c of redis 7.4). A foreign server that got the address is copied like the primary.
        """
        if self.report is None or not self.is_replica:
            return False
        if self.primary_at:
            return self.report.replicates != self.primary_at
        return self.linked_to not in ("", self.primary)

    @property
    def may_have_other_data(self) -> bool:
        """Whether other data may have replaced that of the replica: a full sync runs, or it is connected elsewhere.

        A full sync empties the replica before it has all data (repl-diskless-load, emptyData in replication.c).
        """
        return self.report is not None and (self.report.syncing or (self.astray and self.report.link_up))


@dataclass(frozen=True)
class MergedView:
    """The merged reports of all reachable nodes.

    Attributes:
        reports: reports by node id.
        names: names of the nodes for messages, by id.
        excluded: ids of nodes to ignore, as if they did not exist.
        recorded: ids that the status records for the cluster; empty if it records none.
    """

    report: Mapping[str, NodeReport]
    names: Mapping[str, str] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()
    recorded: frozenset[str] = frozenset()

    @cached_property
    def nodes(self) -> Mapping[str, Seen]:
        """All nodes that are reachable or known to a reachable one, by id.

        Nodes in a handshake are omitted, because their ids are provisional.
        """
        entries = _merged(self.report)
        return {
            node_id: Seen(
                node_id,
                self._name(node_id, entries[node_id]),
                self.report.get(node_id),
                entries[node_id],
                self._primary_at(node_id),
                self._linked_to(node_id),
            )
            for node_id in sorted(entries)
            if node_id not in self.excluded
        }

    def _primary_at(self, node_id: str) -> str:
        report = self.report.get(node_id)
        primary = self.report.get(report.me.primary) if report else None
        return primary.me.location if primary else ""

    def _linked_to(self, node_id: str) -> str:
        report = self.report.get(node_id)
        return self._at.get(report.replicates, "") if report else ""

    @cached_property
    def _at(self) -> Mapping[str, str]:
        """Ids of the reachable nodes, by the address and port that each reports itself."""
        return {report.me.location: node_id for node_id, report in self.report.items()}

    def _name(self, node_id: str, entries: Iterable[Entry]) -> str:
        if name := self.names.get(node_id):
            return name
        own = self.report.get(node_id)
        known = [*([own.me] if own else ()), *(entry.node for entry in entries)]
        if host := next((node.host for node in known if node.host), ""):
            return host.partition(".")[0]
        address = next((node.address for node in known if node.address), "an unknown address")
        return f"node {node_id[:8]} at {address}"

    def name(self, node_id: str) -> str:
        """Return the name of a node for messages."""
        seen = self.nodes.get(node_id)
        return seen.name if seen else self._name(node_id, ())

    @cached_property
    def components(self) -> tuple[frozenset[str], ...]:
        """Groups of nodes that know each other, directly or through others; first the cluster.

        That is the one with the most slots of those with a recorded node: a node with an old nodes.conf, or with that
        of another cluster, may know owners of all slots. A new node, which knows no other node, is a group of its own.
        """
        group: dict[str, set[str]] = {node_id: {node_id} for node_id in self.nodes}
        for seen in self.nodes.values():
            for reporter in seen.reporters - group[seen.id]:
                small, large = sorted((group[seen.id], group[reporter]), key=len)
                if small is not large:
                    large |= small
                    group.update(dict.fromkeys(small, large))
        found = {id(members): members for members in group.values()}.values()

        def order(members: set[str]) -> tuple[bool, int, int, str]:
            slots = Slots.union(slots for _, node_id, slots in self._claims if node_id in members)
            return (not members & self.recorded, -len(slots), -len(members), min(members))

        return tuple(frozenset(members) for members in sorted(found, key=order))

    @cached_property
    def cluster(self) -> frozenset[str]:
        """Ids of the members of the cluster: see `components`."""
        return self.components[0] if self.components else frozenset()

    @cached_property
    def members(self) -> tuple[Seen, ...]:
        """Members of the cluster."""
        return tuple(seen for seen in self.nodes.values() if seen.id in self.cluster)

    @cached_property
    def reachable_nodes(self) -> tuple[Seen, ...]:
        """Reachable members, whose reports count."""
        return tuple(seen for seen in self.members if seen.answers)

    @cached_property
    def _claims(self) -> tuple[tuple[int, str, Slots], ...]:
        """Claims to slots by epoch, the winning claim first.

        Of two primaries with the same epoch, the one with the smaller id will take a higher one (specification,
        "Configuration epoch conflict resolution"): so its claim wins.
        """
        found = {
            (node.epoch, seen.id, node.slots)
            for seen in self.nodes.values()
            for node in ([seen.line] if seen.answers else [entry.node for entry in seen.others])
            if node.slots and not node.primary
        }
        return tuple(sorted(found, key=lambda claim: (-claim[0], claim[1], claim[2].mask)))

    @cached_property
    def owned(self) -> Mapping[str, Slots]:
        """Slots of each primary that owns any."""
        owned: dict[str, Slots] = {}
        covered = Slots()
        for _, node_id, slots in self._claims:
            if node_id in self.cluster and (own := slots - covered):
                owned[node_id] = owned.get(node_id, Slots()) | own
                covered |= own
        return owned

    def slots_of(self, node_id: str) -> Slots:
        """Return the slots that a node owns."""
        return self.owned.get(node_id, Slots())

    @cached_property
    def owners(self) -> Mapping[int, str]:
        """Id of the owner of each slot; slots without an owner are omitted."""
        return {slot: node_id for node_id, slots in self.owned.items() for slot in slots}

    @cached_property
    def uncovered(self) -> Slots:
        """Slots without an owner, not even a failed one."""
        return Slots.all() - Slots.union(self.owned.values())

    def disputes(self) -> Iterator[tuple[Seen, Seen, Slots]]:
        """Yield reachable nodes that claim the same slots: the winner, the other one, and the slots.

        The one with the higher config epoch will keep them.
        """
        claims = [(self.nodes[node_id], slots) for _, node_id, slots in self._claims if node_id in self.cluster]
        reachable = [(seen, slots) for seen, slots in claims if seen.answers]
        if sum(len(slots) for _, slots in reachable) == len(Slots.union(slots for _, slots in reachable)):
            return
        for number, (seen, slots) in enumerate(reachable):
            for other, others in reachable[number + 1 :]:
                if both := slots & others:
                    yield seen, other, both

    @cached_property
    def primaries(self) -> tuple[Seen, ...]:
        """Primaries that own slots, by their lowest slot; failed ones included."""
        return tuple(
            self.nodes[node_id] for node_id in sorted(self.owned, key=lambda each: self.owned[each].ranges[0][0])
        )

    @property
    def majority(self) -> int:
        """Number of primaries that must agree on a failure or an election: only primaries with slots have a vote.

        Source: Redis Cluster specification, "Replica election and promotion".
        """
        return len(self.primaries) // 2 + 1

    @cached_property
    def voters(self) -> tuple[Seen, ...]:
        """Primaries with slots that are reachable, and not failed for the others."""
        return tuple(seen for seen in self.primaries if seen.answers and not seen.failing)


def _merged(reports: Mapping[str, NodeReport]) -> Mapping[str, tuple[Entry, ...]]:
    """Return what other nodes report about each node, equal entries merged; nodes in a handshake are omitted.

    In a healthy cluster of n nodes, nearly all of the n² entries are alike, and equal lines are the same object
    (`responses.Entries`). So whole tables are compared, in C, and those that are alike are read once.
    """
    found: dict[int, tuple[Node, set[str]]] = {}
    tables = {reporter: reports[reporter].by_id for reporter in sorted(reports)}
    for turn in count():
        if not tables:
            break
        first = next(iter(tables))
        alike = _alike(first, tables) if turn < MAX_COMPARISONS else frozenset([first])
        for node in tables[first].values():
            reporters = found.setdefault(id(node), (node, set()))[1]
            reporters |= alike if node.id != first else {first}
        for reporter in alike - {first}:
            if about_first := tables[reporter].get(first):
                found.setdefault(id(about_first), (about_first, set()))[1].add(reporter)
        for reporter in alike:
            del tables[reporter]
    merged: dict[str, tuple[Entry, ...]] = dict.fromkeys(reports, ())
    for node, reporters in found.values():
        if (others := frozenset(reporters - {node.id})) and not node.handshake:
            merged[node.id] = (*merged.get(node.id, ()), Entry(node, others))
    return merged


def _alike(first: str, tables: Mapping[str, Mapping[str, Node]]) -> frozenset[str]:
    """Return the reporters with the same table as the first one, itself included.

    The entries about the two reporters do not count: each reports itself in another way than the others report it.
    """
    base: dict[str, Node | None] = {**tables[first], first: None}
    return frozenset(
        reporter
        for reporter, table in tables.items()
        if len(table) == len(base) and {**table, reporter: base.get(reporter), first: None} == base
    )
