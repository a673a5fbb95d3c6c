"""What there is of a RedisCluster, as one frozen value, and what follows from it; observer.py gathers it. Pure.

A node is known by its id, which it keeps on its disk, and a place by its pod's name. Which node was on which disk at
which place, the resource's status records: so a node that lost its data is told from one that is merely away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from operators.redis.api.resource import RedisCluster
from operators.redis.instance import Instance
from operators.redis.security.secrets import Secrets
from operators.redis.topology.cluster_view import ClusterView, Seen
from shared.kubernetes.kinds import Obj
from shared.pki.secret_checks import SecretProblem


@dataclass(frozen=True)
class ConfigTemplate:
    """The redis.conf that a ConfigMap of the user's holds, over which the operator's own is laid.

    Attributes:
        text: empty where the spec names none.
        problem: why it does not serve; None if it does.
    """

    text: str = ""
    problem: SecretProblem | None = None


@dataclass(frozen=True)
class Observed:
    """What there is of a RedisCluster.

    Attributes:
        stateful_set: the StatefulSet; None if there is none.
        places: every place that has a pod, a volume or a recorded node, or should have one, by number.
        secrets: what the Secrets that count hold.
        config: the user's redis.conf.
        config_map: ours, as nodes read it at their start.
        disruption_budget: its PodDisruptionBudget.
        former: names of the pods that nodes were in that are gone for good, by the nodes' ids.
    """

    stateful_set: Obj | None = None
    instances: tuple[Instance, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    config: ConfigTemplate = field(default_factory=ConfigTemplate)
    config_map: Obj | None = None
    disruption_budget: Obj | None = None
    former: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def reachable(self) -> Mapping[str, Instance]:
        """Places whose server answered, by the id of its node."""
        return {instance.report.id: instance for instance in self.instances if instance.report}

    @cached_property
    def recorded(self) -> Mapping[str, Instance]:
        """Places by the id of the node that the status names for them."""
        return {instance.recorded.node_id: instance for instance in self.instances if instance.recorded}

    @cached_property
    def view(self) -> ClusterView:
        """The cluster as all who answered see it, put together."""
        former = {node_id: f"a former {name}" for node_id, name in self.former.items()}
        former |= {
            node_id: f"the former {instance.name}" for node_id, instance in self.recorded.items() if instance.report
        }
        names = {node_id: instance.name for node_id, instance in (*self.recorded.items(), *self.reachable.items())}
        return ClusterView.of(
            {instance.report.id: instance.report for instance in self.instances if instance.report},
            names | {node_id: name for node_id, name in former.items() if node_id not in self.reachable},
        )

    @cached_property
    def unknown_nodes(self) -> tuple[Seen, ...]:
        """Members that are of no pod of this cluster, and never were."""
        return self.view.unknown_nodes({*self.reachable, *self.recorded, *self.former})

    def instance_of(self, node_id: str) -> Instance | None:
        """Where a node lives: where it answers, else where it is recorded; None for one that is of no place of ours."""
        return self.reachable.get(node_id) or self.recorded.get(node_id)

    def name_of(self, node_id: str) -> str:
        """What people call a node: its pod's name, if it has one."""
        return self.view.name(node_id)

    def named(self, name: str) -> Instance | None:
        """The place whose pod bears this name, if there is anything there."""
        return next((instance for instance in self.instances if instance.name == name), None)

    def has_data_of(self, node_id: str, primary: str) -> bool:
        """Whether a node once had all of a master's data, or was itself the one that this master took over from.

        A replica that has just been given its master says that it is one, and has nothing yet, or another's data.
        """
        copy_of = {
            known: instance.recorded.copy_of
            for known, instance in self.recorded.items()
            if instance.recorded is not None
        }
        return copy_of.get(node_id) == primary or copy_of.get(primary) == node_id

    def lost(self, node_id: str) -> bool:
        """Whether all that a node had written is gone, by evidence; then it never comes back.

        At its place is another disk than the one that it was last seen on, or another node. One that merely does not
        answer is not lost, and one that answers is not, wherever its data came from.
        """
        if node_id in self.reachable:
            return False
        instance = self.recorded.get(node_id)
        if instance is None or instance.recorded is None:
            return node_id in self.former
        return instance.report is not None or bool(
            instance.disk and instance.recorded.disk and instance.disk != instance.recorded.disk
        )


def outlives_pods(resource: RedisCluster) -> bool:
    """Whether what a node has written is there again for the next pod at its place."""
    return resource.has_storage or resource.spec.template.volumes is not None
