"""Facts that follow from the spec and the observed cluster, computed once for each reconcile. Pure.

Several steps share these facts. None of them is a decision. The desired cluster follows from the spec and from the
present nodes, so a crash at any moment, and any change of the spec, only leaves another difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from operators.redis.api.node_entries import recorded_entries
from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import Endpoint
from operators.redis.facts.detached import DetachedNode, detached_nodes
from operators.redis.facts.lifecycles import NodeState
from operators.redis.facts.slot_service import SlotService, slot_service
from operators.redis.objects.pod import TEMPLATE, is_started_afresh
from operators.redis.settings import Settings
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.improvement import Failover, Repair, next_change
from operators.redis.slots.pairing import pair
from operators.redis.slots.placement import Location, choose_primaries
from operators.redis.slots.slot_planner import (
    CannotAssign,
    CannotMove,
    Move,
    RecordedMove,
    assigned,
    balanced,
    drained,
    moved,
    remaining,
)
from operators.redis.state.instance import Instance, endpoint
from operators.redis.state.observed import Observed, outlives_pods
from operators.redis.topology import provenance
from operators.redis.topology.cluster_view import ClusterView
from operators.redis.topology.merged_view import Seen
from operators.redis.topology.provenance import Provenance
from shared.kubernetes import managed_fields
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import is_outdated
from shared.status.messages import grouped
from shared.steps.view import View


@dataclass(frozen=True, slots=True)
class SlotPlan:
    """The remaining moves of slots.

    Attributes:
        moves: all moves until every slot has its planned owner; empty if they cannot be planned.
            assignments: the moves that spec.updateStrategy (AssignReceive) defines; recorded in the status before
            the first
            slot moves.
        refusal: why the moves cannot be planned; None if they can.
    """

    moves: tuple[Move, ...] = ()
    assignments: tuple[Move, ...] = ()
    refusal: CannotAssign | CannotMove | None = None


@dataclass(frozen=True)
class Assessment(Observed, View[RedisCluster, Settings]):
    """The observed cluster, and the facts that follow from it and from the spec."""

    # Instances and nodes.

    @cached_property
    def entries(self) -> Mapping[str, Obj]:
        """Recorded entries of the nodes, as in status.nodes, by the name of the pod."""
        return {entry["name"]: entry for entry in (*recorded_entries(self.resource.reported), *self.restored)}

    @cached_property
    def staying(self) -> tuple[Instance, ...]:
        """Instances that the spec includes."""
        return tuple(instance for instance in self.instances if instance.number < self.resource.spec.replicas)

    @cached_property
    def members(self) -> Mapping[str, Instance]:
        """Staying instances whose node is reachable and a member of the cluster, by node id."""
        return {
            instance.id: instance for instance in self.staying if instance.report and instance.id in self.view.cluster
        }

    @cached_property
    def awaited(self) -> tuple[Instance, ...]:
        """Staying instances without a reachable member of the cluster."""
        return tuple(instance for instance in self.staying if instance.id not in self.members)

    @cached_property
    def detached(self) -> Mapping[str, DetachedNode]:
        """Reachable nodes that lost their nodes.conf, but not their data, by their new id."""
        return {node.instance.id: node for node in detached_nodes(self)} if self.resource.formed else {}

    @cached_property
    def has_formed(self) -> bool:
        """Whether the cluster exists; permanent once it is recorded in the status.

        Before that, it exists when every slot has an owner among the observed nodes, and all agree on that. So a
        resource whose
        status was lost recognizes its cluster.
        """
        view = self.view
        return self.resource.formed or (
            not view.uncovered and not view.settled and self.reachable.keys() >= set(view.owners.values())
        )

    @cached_property
    def refusing_writes(self) -> tuple[str, ...]:
        """Names of the primaries with slots that refuse all writes."""
        refusing = (instance for instance in self.instances if instance.report and instance.report.refuses_writes)
        return tuple(sorted(instance.name for instance in refusing if self.view.owned.get(instance.id)))

    def why_away(self, instances: Iterable[Instance]) -> str:
        """Return why no node is reachable at these instances, in one sentence for each reason."""
        return " ".join(grouped({each.name: each.why_away for each in instances}, self.resource.spec.replicas))

    @cached_property
    def decided_replicas(self) -> int:
        """Replicas of the StatefulSet by the operator's last decision.

        If another client changed the number (kubectl scale), or without a StatefulSet, no instance was removed by a
        decision: instances with a volume or a recorded node count.
        """
        made = self.stateful_set
        count = int(made["spec"]["replicas"]) if made else 0
        if made and managed_fields.is_applied(made, "spec", "replicas"):
            return count
        return max([count, *(each.number + 1 for each in self.instances if each.volume or each.recorded)])

    def is_scaled_away(self, node_id: str) -> bool:
        """Return whether the instance of a node was scaled away and its pod was deleted."""
        instance = self.instance_of(node_id)
        if instance is None or instance.pod_obj is not None or self.stateful_set is None:
            return False
        return instance.number >= max(self.resource.spec.replicas, self.decided_replicas)

    def is_elsewhere(self, node_id: str) -> bool:
        """Return whether the data of a node stayed on another Kubernetes node than its pod runs on.

        For the pod it is lost (`lost`), but it may come back: with the pod, or with that Kubernetes node.
        """
        instance, volumes = self.recorded.get(node_id), self.resource.spec.template.volumes
        if volumes is None or volumes.type != "hostPath" or node_id in self.reachable:
            return False
        if instance is None or instance.recorded is None:
            return False
        return bool(instance.disk and instance.recorded.disk and instance.disk != instance.recorded.disk)

    @cached_property
    def lost_primaries(self) -> tuple[Seen, ...]:
        """The primaries whose data is lost (`lost`). A new node never learns their slots."""
        return tuple(primary for primary in self.view.primaries if self.lost(primary.id))

    def found_empty(self, instance: Instance) -> bool:
        """Return whether a node found nothing on the volume that has the data of the recorded one.

        The disk may not be mounted. Without persistence, each process starts like that.
        """
        known = instance.recorded
        if known is None or not outlives_pods(self.resource) or is_started_afresh(instance.pod_obj):
            return False
        if instance.id in ("", known.node_id) or instance.id in self.detached:
            return False
        return instance.disk == known.disk

    def may_return(self, node_id: str) -> bool:
        """Return whether the data of a node may come back, although it is lost for its pod (`lost`)."""
        instance = self.recorded.get(node_id)
        return self.is_elsewhere(node_id) or (instance is not None and self.found_empty(instance))

    def missed_takeover(self, node_id: str) -> bool:
        """Return whether the others report an unreachable node as a replica of the primary that it took over from.

        They were away while it did. That primary serves its older keys, and nodes know no newer claim.
        """
        node = self.view.nodes.get(node_id)
        if node is None or node.answers or not self.has_data_of(node_id, node_id):
            return False
        return node.is_replica and self.has_older_data_of(node.primary, node_id)

    def has_newer_data(self, node_id: str) -> bool:
        """Return whether the data of a node is on another Kubernetes node, and newer than what its primary serves."""
        return self.is_elsewhere(node_id) and self.missed_takeover(node_id)

    def last_owned(self, node_id: str) -> Slots:
        """Return the slots without an owner that an unreachable node owned last, by the status.

        A node that joined after the loss of their owner knows that owner, but never learns of its slots.
        """
        instance = self.recorded.get(node_id)
        if instance is None or instance.recorded is None or node_id in self.reachable:
            return Slots()
        return instance.recorded.slots & self.view.uncovered

    def is_forgotten(self, node_id: str) -> bool:
        """Return whether no member knows a node. That needs a majority of primaries, once there are any."""
        return node_id not in self.view.nodes and (not self.resource.formed or self.view.can_elect)

    def is_needed(self, node_id: str) -> bool:
        """Return whether keys may be lost with a node: it may hold the only copy, or an older one of a lost primary."""
        if any(self.has_older_data_of(node_id, primary.id) for primary in self.lost_primaries):
            return True
        if self.missed_takeover(node_id):
            return True
        node = self.view.nodes.get(node_id)
        if node is None or (node.is_replica and not self.view.slots_of(node.primary)):
            return False
        return self.view.holds_only_copy(node_id)

    def node_to_record(self, instance: Instance) -> tuple[str, str] | None:
        """Return the node id and the volume to record for an instance; None if there is none.

        A former node stays recorded until no member knows it any more, because only that record proves its loss, and
        until a detached node has its slots, because only that record proves whose data that node has.
        """
        known = instance.as_recorded
        if instance.report is None:
            vacant = (
                instance.pod_obj is None and instance.volume is None and instance.number >= self.resource.spec.replicas
            )
            return None if vacant and known and self.is_forgotten(known[0]) else known
        if instance.id in self.detached:
            return known
        if known is None or known[0] == instance.id or self.is_forgotten(known[0]):
            return instance.id, instance.disk
        return known

    @cached_property
    def agreement(self) -> ClusterView:
        """The view without nodes that were scaled away, which members remove one by one, and without unknown ones.

        Nodes with slots are never left out: all must agree on them.
        """
        unknown = {node.id for node in self.unknown_nodes}
        return self.view.without(
            node.id
            for node in self.view.members
            if not self.view.slots_of(node.id)
            and not node.answers
            and (node.id in unknown or self.is_scaled_away(node.id))
        )

    @cached_property
    def unsynced(self) -> tuple[str, ...]:
        """Names of replicas that are not in sync with a primary that owns slots.

        A replica of a node without slots copies no needed data, and may never be in sync, because the primary may
        not exist.
        """
        view = self.view
        return tuple(
            node.name
            for node in view.members
            if view.slots_of(node.primary) and not node.synced and not self.lost(node.id)
        )

    def at(self, node_id: str) -> Endpoint:
        """Return the endpoint of a reachable node."""
        return endpoint(self.resource, self.reachable[node_id])

    @cached_property
    def primary_endpoints(self) -> Mapping[str, Endpoint]:
        """Endpoints of the reachable primaries, by node id."""
        return {node.id: self.at(node.id) for node in self.view.reachable_nodes if node.is_primary}

    def node_state(self, node_id: str) -> NodeState:
        """Return the observed state of a node; lifecycles.py has the legal transitions."""
        view, node = self.view, self.view.nodes.get(node_id)
        if node is None:
            return NodeState.FORGOTTEN
        if node_id in self.detached:
            return NodeState.DETACHED
        if view.slots_of(node_id) or self.last_owned(node_id):
            return NodeState.LOST_PRIMARY if self.lost(node_id) else NodeState.PRIMARY
        may_return = self.may_return(node_id)
        never_returns = (self.lost(node_id) and not may_return) or (
            (may_return or self.is_scaled_away(node_id)) and not self.is_needed(node_id)
        )
        if never_returns and not node.answers and not view.replicas_of(node_id):
            return NodeState.REMOVED
        if node.is_replica:
            return NodeState.REPLICA
        if node.report is not None and node.report.keys:
            return NodeState.STRANDED
        return NodeState.EMPTY if node_id in view.cluster else NodeState.NEW

    # Primaries and replicas.

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

    @cached_property
    def locations(self) -> Mapping[str, Location]:
        """Where nodes run, or last ran, by node id."""
        return {node_id: instance.location for node_id, instance in (*self.recorded.items(), *self.reachable.items())}

    @cached_property
    def shards(self) -> Mapping[str, tuple[str, ...]]:
        """Ids of the replicas of each primary that owns slots."""
        return {
            primary.id: tuple(replica.id for replica in self.view.replicas_of(primary.id))
            for primary in self.view.primaries
        }

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

    # Slots.

    @cached_property
    def service(self) -> SlotService:
        """The owners of the slots, and the slots without a primary that is known to serve."""
        return slot_service(self)

    @cached_property
    def recorded_moves(self) -> tuple[RecordedMove, ...]:
        """The moves that the status records, with the primaries that have taken over from their ends."""
        recorded = self.resource.recorded_moves
        return tuple(map(self._present, self._adopted if recorded is None else recorded))

    def _present(self, move: RecordedMove) -> RecordedMove:
        source, target = self.successor(move.source) or move.source, self.successor(move.target) or move.target
        return replace(move, source=source, target=target, promoted=move.promoted or source != move.source)

    @property
    def _adopted(self) -> tuple[RecordedMove, ...]:
        """Open slots between pods that an earlier operator, which recorded no moves, reported as migrating."""
        before = self.resource.reported.get("migration") or {}
        givers, takers = (frozenset(before.get(end, "").split(",")) - {""} for end in ("from", "to"))
        return tuple(
            RecordedMove(slot.source, slot.target, Slots.of(slot.slot))
            for slot in self.view.open
            if self.name_of(slot.source) in givers and self.name_of(slot.target) in takers
        )

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
    def pending_assignments(self) -> tuple[Move, ...]:
        """Remaining moves of the recorded assignments; the successor of a failed primary receives its slots."""
        if self.resource.spec.update_strategy.type == "AutoReceive":
            return ()
        known = [(move, self.successor(move.target)) for move in self.resource.recorded_assigned]
        return remaining(
            [Move(move.source, candidate, move.slots) for move, candidate in known if candidate], self.view.owned
        )

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
