"""Facts about instances and nodes: which are members, whose data is lost, and what may return. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from operators.redis.api.node_entries import recorded_entries
from operators.redis.api.resource import RedisCluster
from operators.redis.api.spec import MAX_REPLICAS
from operators.redis.client.server import Endpoint
from operators.redis.facts.detached import DetachedNode, detached_nodes
from operators.redis.facts.lifecycles import NodeState
from operators.redis.facts.slot_service import SlotService, slot_service
from operators.redis.objects import redis_conf
from operators.redis.objects.config_map import TEMPLATE_KEY
from operators.redis.objects.pod import is_started_afresh
from operators.redis.settings import Settings
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.placement import Location
from operators.redis.state.instance import Instance, endpoint
from operators.redis.state.observed import Observed, outlives_pods
from operators.redis.topology.cluster_view import ClusterView
from operators.redis.topology.merged_view import Seen
from shared.kubernetes import managed_fields, ordinals
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.status.messages import grouped
from shared.steps.view import View

PENDING_LOG, UNREACHABLE = "the append-only file is not complete", "the server is unreachable"
"""Why keys may end with a pod, as far as is known."""


@dataclass(frozen=True)
class NodeFacts(Observed, View[RedisCluster, Settings]):
    """Which nodes the instances have, and what became of their data."""

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
        resource whose status was lost recognizes its cluster.
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
        count = ordinals.replicas(made, MAX_REPLICAS)
        if count and made and managed_fields.is_applied(made, "spec", "replicas"):
            return count  # 0 only while the cluster hibernates
        numbers = (each.number for each in self.instances if each.volume or each.recorded)
        return max([count, *(number + 1 for number in numbers if number < MAX_REPLICAS)])

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

        The disk may not be mounted. Without persistence, each process starts like that: while that is being switched
        off, also the first one, whose volume has the data.
        """
        known = instance.recorded
        if known is None or not outlives_pods(self.resource):
            return False
        if is_started_afresh(instance.pod_obj) and not redis_conf.writes_files(self.persistence):
            return False
        if instance.id in ("", known.node_id) or instance.id in self.detached:
            return False
        return instance.disk == known.disk

    @cached_property
    def config_problem(self) -> SecretProblem | None:
        """Why the user's redis.conf cannot be used; None if it can."""
        text = self.config.text
        return self.config.problem or (redis_conf.problem(self.resource, text) if text else None)

    @cached_property
    def template_text(self) -> str:
        """The user's redis.conf, or its last valid version if the current one is invalid or missing."""
        if self.config_problem is None:
            return self.config.text
        found = self.config_map
        is_own = found is not None and managed_fields.is_applied(found, "data", TEMPLATE_KEY)
        return str((found.get("data") or {}).get(TEMPLATE_KEY, "")) if found and is_own else ""

    @cached_property
    def awaits_log(self) -> bool:
        """Whether servers still start without the append-only file that the spec has: they load snapshots."""
        return redis_conf.appends(self.resource, self.template_text) and not redis_conf.writes_log(self.persistence)

    def why_keys_end(self, instance: Instance) -> str:
        """Return why keys end with the pod of an instance; empty if its process writes what the next pod reads.

        What an unreachable process writes is unknown. Without persistence, keys have ended with the last process.
        """
        report, afresh = instance.report, is_started_afresh(instance.pod_obj)
        if not outlives_pods(self.resource, instance):
            return "the claim is being deleted" if instance.volume else "no spec.storage"
        if not instance.runs:
            return "" if afresh or not self.starts_afresh else "the next pod ignores the files"
        if report is None:
            return UNREACHABLE
        reads_log = self.starts_with_log if self.persistence else redis_conf.appends(self.resource, self.template_text)
        name, off = ("appendonly", "no") if reads_log else ("save", "")
        if afresh or not self.is_persistent or report.settings.get(name, off) == off:
            return "the keys are only in memory"
        if reads_log and report.log_pending and not report.rewrite_failed:
            return PENDING_LOG
        if reads_log and (report.log_pending or report.refuses_writes):
            return "writing the append-only file failed: check the space on the volume, and the memory"
        if not reads_log and "nosave" in report.settings.get("shutdown-on-sigterm", ""):
            return "with shutdown-on-sigterm nosave, no snapshot is written"
        failed = not reads_log and report.save_failed
        return "the last snapshot failed: check the space on the volume, and run BGSAVE" if failed else ""

    @cached_property
    def is_persistent(self) -> bool:
        """Whether new pods use the data on disks; without persistence in the spec, processes stop writing it."""
        stays = redis_conf.persists(self.resource, self.template_text) and redis_conf.writes_files(self.persistence)
        return stays and outlives_pods(self.resource) and not self.starts_afresh

    @cached_property
    def only_in_pods(self) -> Mapping[str, Instance]:
        """Instances of the primaries whose keys end with their pods (`why_keys_end`), by node id."""
        found = ((node_id, self.instance_of(node_id)) for node_id in self.view.owned)
        return {node_id: instance for node_id, instance in found if instance and self.why_keys_end(instance)}

    @cached_property
    def lacks_copies(self) -> bool:
        """Whether an eviction may end the only copy of keys, so that the default budget permits none.

        Without replicas in the spec, a process may resume as the primary that it was, empty, and empty its replicas.
        Where pods use the data on disks, a file has keys while it is rewritten, or its server does not answer.
        """
        spec, copied = self.resource.spec, {node.primary for node in self.view.members if node.synced}
        in_files = (PENDING_LOG, UNREACHABLE) if self.is_persistent else ()
        alone = (each for node_id, each in self.only_in_pods.items() if node_id not in copied)
        is_unknown = self.resource.formed and not self.view.owned
        may_end = not self.is_persistent and (is_unknown or not spec.replicas_per_master)
        may_end |= any(self.why_keys_end(each) not in in_files for each in alone)
        return spec.pod_disruption_budget is None and may_end

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
    def service(self) -> SlotService:
        """The owners of the slots, and the slots without a primary that is known to serve."""
        return slot_service(self)
