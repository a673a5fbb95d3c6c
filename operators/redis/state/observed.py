"""The observed RedisCluster as one frozen value, and the facts that follow from it; observe.py fills it. Pure.

A node is identified by its id, which it keeps on its volume, and an instance by the name of its pod. The status
records which node was on which volume: this distinguishes a node that lost its data from an unreachable one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from operators.redis.api.directives import NODE_TIMEOUT_MS
from operators.redis.api.resource import RedisCluster
from operators.redis.client.responses import NodeReport
from operators.redis.objects import config_map
from operators.redis.objects.names import APPLIED_PERSISTENCE
from operators.redis.objects.pod import is_started_afresh
from operators.redis.objects.redis_conf import CONFIG_KEY, PERSISTENCE, Kept, joined, present
from operators.redis.security.secrets import Secrets
from operators.redis.state.instance import Instance
from operators.redis.topology.cluster_view import ClusterView, Seen
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem
from shared.steps.adoption import Adoptable
from shared.steps.connection import ConnectionSecret


@dataclass(frozen=True)
class ConfigTemplate:
    """The user's redis.conf from a ConfigMap, which the operator's configuration overrides.

    Attributes:
        text: content; empty if the spec names no ConfigMap.
        problem: why the content is invalid; None if it is valid.
    """

    text: str = ""
    problem: SecretProblem | None = None


@dataclass(frozen=True)
class Observed:
    """The observed RedisCluster.

    Attributes:
        stateful_set: StatefulSet; None if there is none.
        instances: instances that have a pod, a volume or a recorded node, or should have one, by number.
        secrets: content of the Secrets.
        config: the user's redis.conf.
        config_map: ConfigMap of the operator, which nodes read when they start.
        disruption_budget: PodDisruptionBudget.
        network_policy: NetworkPolicy.
        former: pod names of nodes that were removed permanently, by node id.
        adoptable: volumes of a deleted resource of this name.
        connection: the Secret for clients; None if it was not read.
        user_connections: the same of each user of the spec, and of removed ones, by name of the Secret.
        restored: entries of nodes as in status.nodes, from the records on the volume claims; empty unless the status of
            a created cluster has lost all of them.
    """

    stateful_set: Obj | None = None
    instances: tuple[Instance, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    config: ConfigTemplate = field(default_factory=ConfigTemplate)
    config_map: Obj | None = None
    disruption_budget: Obj | None = None
    network_policy: Obj | None = None
    former: Mapping[str, str] = field(default_factory=dict)
    adoptable: Adoptable = field(default_factory=Adoptable)
    connection: ConnectionSecret | None = None
    user_connections: Mapping[str, ConnectionSecret] = field(default_factory=dict)
    restored: tuple[Obj, ...] = ()

    @cached_property
    def reachable(self) -> Mapping[str, Instance]:
        """Instances whose server is reachable, by the id of the node."""
        return {instance.report.id: instance for instance in self.instances if instance.report}

    @cached_property
    def recorded(self) -> Mapping[str, Instance]:
        """Instances by the id of the node that the status records."""
        return {instance.recorded.node_id: instance for instance in self.instances if instance.recorded}

    @cached_property
    def applied_config(self) -> Obj | None:
        """The ConfigMap if it has what the operator applied last; None if another client changed or deleted it."""
        found = self.config_map
        return found if found and managed_fields.is_applied(found, "data", CONFIG_KEY) else None

    @cached_property
    def persistence_lines(self) -> str:
        """Lines of persistence in the file that the operator applied last; empty if that is unknown.

        The StatefulSet, which is written after the file, counts only once another client changed or deleted that. The
        volume claims count if neither of them does.
        """
        found, made = self.applied_config, self.stateful_set
        if found:
            return config_map.persistence(found["data"])
        if made and managed_fields.is_applied(made, "metadata", "annotations", APPLIED_PERSISTENCE):
            return annotation(made, APPLIED_PERSISTENCE)
        return config_map.recorded_persistence(each.volume for each in self.instances)

    @cached_property
    def persistence(self) -> Kept:
        """Directives of persistence in the file that the operator applied last; none if that is unknown."""
        lines = present({"data": {CONFIG_KEY: self.persistence_lines}})
        return {name: lines[name] for name in PERSISTENCE if name in lines}

    @property
    def starts_with_log(self) -> bool:
        """Whether servers load an append-only file when they start; false while that is unknown."""
        return joined(self.persistence.get("appendonly", [["no"]])).lower() == "yes"

    @cached_property
    def starts_afresh(self) -> bool:
        """Whether each process of a pod that is created now is a new node, which ignores the data on its volume."""
        return is_started_afresh(self.stateful_set["spec"]["template"] if self.stateful_set else None)

    @cached_property
    def view(self) -> ClusterView:
        """The cluster view, merged from all reachable nodes."""
        former = {node_id: f"a former {name}" for node_id, name in self.former.items()}
        former |= {
            node_id: f"the former {instance.name}" for node_id, instance in self.recorded.items() if instance.report
        }
        names = {node_id: instance.name for node_id, instance in (*self.recorded.items(), *self.reachable.items())}
        return ClusterView.of(
            {instance.report.id: instance.report for instance in self.instances if instance.report},
            names | {node_id: name for node_id, name in former.items() if node_id not in self.reachable},
            self.recorded,
        )

    @cached_property
    def own_ids(self) -> frozenset[str]:
        """Ids of the nodes of all present and former pods of this cluster."""
        return frozenset({*self.reachable, *self.recorded, *self.former})

    @cached_property
    def unknown_nodes(self) -> tuple[Seen, ...]:
        """Members that belong to no present or former pod of this cluster."""
        return self.view.unknown_nodes(self.own_ids)

    def instance_of(self, node_id: str) -> Instance | None:
        """Return the instance of a node: where it is reachable, else where it is recorded; None if it has none."""
        return self.reachable.get(node_id) or self.recorded.get(node_id)

    def name_of(self, node_id: str) -> str:
        """Return the name of a node for messages: the name of its pod, if it has one."""
        return self.view.name(node_id)

    def named(self, name: str) -> Instance | None:
        """Return the instance of a pod name, if there is one."""
        return next((instance for instance in self.instances if instance.name == name), None)

    def copy_of(self, node_id: str) -> str:
        """Return the recorded primary whose data a node has, or had when it took over from it; empty without record."""
        instance = self.recorded.get(node_id)
        return instance.recorded.copy_of if instance and instance.recorded else ""

    def has_data_of(self, node_id: str, primary: str) -> bool:
        """Return whether a node has had all data of a primary, by the record.

        A replica that was just configured reports its primary, but has no data yet, or that of another primary. And a
        node that was a primary meanwhile has its own data.
        """
        instance = self.recorded.get(node_id)
        return instance is not None and instance.recorded is not None and instance.recorded.data_of == primary

    def has_older_data_of(self, node_id: str, primary: str) -> bool:
        """Return whether a node has the data that a primary began with when it took over, without any later write.

        That is the node that it took over from, or a replica of that one; unless that node took over from it again.
        """
        former = self.copy_of(primary)
        if not former or primary in (node_id, former) or self.copy_of(node_id) == primary:
            return False
        return self.has_data_of(node_id, former)

    def may_replace(self, node_id: str, primary: str) -> bool:
        """Return whether a node may serve the slots of a lost primary without a user's consent.

        It has had all data of the primary, and has not lost it.

        A replica without any key that had some when it was last in sync was emptied: by a sync that broke off, or by
        hand.
        """
        instance, recorded = self.instance_of(node_id), self.recorded.get(node_id)
        report, known = instance and instance.report, recorded and recorded.recorded
        is_emptied = report and not report.keys and known and known.copy_has_keys
        return not is_emptied and self.has_data_of(node_id, primary)

    def may_be_outdated(self, node_id: str, primary: str, now: datetime) -> bool:
        """Return whether a replica may lack any number of writes of its lost primary.

        It was never connected since it started, and nothing shows what the primary wrote while it did not run. Or the
        primary may have served clients for long after the replica lost the connection. Redis elects no such replica
        either, unless that is forced (clusterHandleSlaveFailover in cluster.c). A server that hung notices only when it
        resumes that it lost the connection; the record shows since when it was not in sync.
        """
        instance = self.reachable.get(node_id)
        if instance is None or instance.report is None:
            return True
        known = instance.recorded
        away = (now - known.out_of_sync_since).total_seconds() if known and known.out_of_sync_since else 0.0
        served = self._last_served(primary, now)
        return max(instance.report.unlinked_seconds, away) > served + max_lag_seconds(instance.report)

    def _last_served(self, primary: str, now: datetime) -> float:
        """Return how many seconds ago a lost primary may have served clients last; 0 if that is unknown.

        A primary serves them as long as it reaches a majority of the primaries. So it is known if each majority has a
        reachable node that reports its last answer, and was a primary then: a node that started since cannot report it,
        and instead of one that was elected since, its own primary may have been of that majority.
        """
        reports = [each.report for each in self.reachable.values() if each.report]
        answered = {report.id: report.answered[primary] for report in reports if primary in report.answered}
        voted = {
            node_id
            for node_id, instance in self.recorded.items()
            if instance.recorded
            and node_id in answered
            and instance.recorded.was_primary(now - timedelta(seconds=answered[node_id]))
        }
        unknown = {voter.id for voter in self.view.primaries} - voted  # itself included
        return min(answered.values(), default=0.0) if len(unknown) < self.view.majority else 0.0

    def lost(self, node_id: str) -> bool:
        """Return whether all data of a node is lost, by evidence; then it never comes back.

        Its instance has another volume than the last recorded one, or another node. A node that is merely
        unreachable is not lost, nor is a reachable one, regardless of the origin of its data.
        """
        if node_id in self.reachable:
            return False
        instance = self.recorded.get(node_id)
        if instance is None or instance.recorded is None:
            return node_id in self.former
        return instance.report is not None or bool(
            instance.disk and instance.recorded.disk and instance.disk != instance.recorded.disk
        )


def outlives_pods(resource: RedisCluster, *instances: Instance) -> bool:
    """Return whether the next pod of an instance has its data; of these instances, also that their claims stay."""
    if any(is_terminating(each.volume) for each in instances):  # a claim ends with its pod
        return False
    return resource.has_storage or resource.spec.template.volumes is not None


def max_lag_seconds(replica: NodeReport) -> float:
    """Return for how long a primary may outlive the link to a replica that replaces it: a minute by default.

    Redis elects one until then, by default: repl-ping-replica-period (10 s) plus cluster-replica-validity-factor (10)
    times the node timeout of the replica (clusterHandleSlaveFailover in cluster.c).
    """
    timeout = replica.settings.get("cluster-node-timeout", "")
    return 10 + 10 * (int(timeout) if timeout.isdecimal() else NODE_TIMEOUT_MS) / 1000
