"""What there is of a RedisCluster, as one frozen value, and what follows from it; observer.py gathers it. Pure.

A node is known by its id, which it keeps on its disk, and a place by its pod's name. Which node was on which disk at
which place, the resource's status records: so a node that lost its data is told from one that is merely away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import RecordedNode
from operators.redis.client.responses import NodeReport
from operators.redis.objects.resources import CONTAINER
from operators.redis.security.secrets import Secrets
from operators.redis.topology.cluster_view import ClusterView, Seen
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod, container_status
from shared.pki.secret_checks import SecretProblem

LINGER = timedelta(seconds=5)
"""How long a node that gave away its slots goes on running, so that clients are told MOVED and do not meet silence."""


@dataclass(frozen=True)
class Instance:
    """One place in the cluster, by its number: a pod, its volume, and the node that lives there.

    Attributes:
        number: the StatefulSet's ordinal; the pod is named CLUSTER-NUMBER.
        pod: None where there is none (those that have ended count as none).
        pod_obj: the same as the API server shows it; also one that has ended.
        volume: its PersistentVolumeClaim; None where there is none, and without spec.storage.
        said: what the server there said of itself and of the cluster; None where it did not answer, or where somebody
            else answered at the address that the pod once had.
        error: why it did not answer; empty if it did, or was not asked.
        denied: whether it answered, and let the operator in with no password that it knows.
        disk: what holds the data now: the UID of its volume, or without spec.storage of its pod; where all share one
            (spec.pod[0].volumes), the name of that, or of the node of Kubernetes. Empty if there is none.
        recorded: the node that the status names for this place; None if it names none.
    """

    number: int
    name: str
    pod: Pod | None = None
    pod_obj: Obj | None = None
    volume: Obj | None = None
    said: NodeReport | None = None
    error: str = ""
    denied: bool = False
    disk: str = ""
    recorded: RecordedNode | None = None

    @property
    def id(self) -> str:
        """Id of the node that answers here; empty if none does."""
        return self.said.id if self.said else ""

    @property
    def ready(self) -> bool:
        """The kubelet's word, which needs no way from the operator to the pod."""
        return self.pod is not None and self.pod.ready

    @property
    def runs(self) -> bool:
        """Whether the server's process is there, as far as the kubelet last said; it may answer nobody all the same."""
        return self.ready or "running" in (container_status(self.pod_obj, CONTAINER).get("state") or {})

    def is_asked(self, now: datetime) -> bool:
        """Whether clients may not have heard yet that the node owns no slots any more: they come by an old map."""
        known, said = self.recorded, self.said
        if not self.ready or said is None or known is None or known.node_id != said.id:
            return False
        moved = bool(known.slots) or (known.type == "slave") != bool(said.me.master)
        return moved or known.since is None or now < known.since + LINGER

    @property
    def leaving(self) -> bool:
        """Whether the pod's deletion was asked for; one that has ended may be kept by somebody's finalizer."""
        return self.pod_obj is not None and "deletionTimestamp" in self.pod_obj["metadata"]

    @property
    def host(self) -> str:
        """Name of the Kubernetes node that the pod runs on; empty until it is scheduled."""
        return str(((self.pod_obj or {}).get("spec") or {}).get("nodeName") or "")


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
    places: tuple[Instance, ...] = ()
    secrets: Secrets = field(default_factory=Secrets)
    config: ConfigTemplate = field(default_factory=ConfigTemplate)
    config_map: Obj | None = None
    disruption_budget: Obj | None = None
    former: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def reachable(self) -> Mapping[str, Instance]:
        """Places whose server answered, by the id of its node."""
        return {place.said.id: place for place in self.places if place.said}

    @cached_property
    def recorded(self) -> Mapping[str, Instance]:
        """Places by the id of the node that the status names for them."""
        return {place.recorded.node_id: place for place in self.places if place.recorded}

    @cached_property
    def view(self) -> ClusterView:
        """The cluster as all who answered see it, put together."""
        former = {node_id: f"a former {name}" for node_id, name in self.former.items()}
        former |= {node_id: f"the former {place.name}" for node_id, place in self.recorded.items() if place.said}
        names = {node_id: place.name for node_id, place in (*self.recorded.items(), *self.reachable.items())}
        return ClusterView.of(
            {place.said.id: place.said for place in self.places if place.said},
            names | {node_id: name for node_id, name in former.items() if node_id not in self.reachable},
        )

    @cached_property
    def unknown_nodes(self) -> tuple[Seen, ...]:
        """Members that are of no pod of this cluster, and never were."""
        return self.view.unknown_nodes({*self.reachable, *self.recorded, *self.former})

    def place_of(self, node_id: str) -> Instance | None:
        """Where a node lives: where it answers, else where it is recorded; None for one that is of no place of ours."""
        return self.reachable.get(node_id) or self.recorded.get(node_id)

    def name_of(self, node_id: str) -> str:
        """What people call a node: its pod's name, if it has one."""
        return self.view.name(node_id)

    def named(self, name: str) -> Instance | None:
        """The place whose pod bears this name, if there is anything there."""
        return next((place for place in self.places if place.name == name), None)

    def has_data_of(self, node_id: str, master: str) -> bool:
        """Whether a node once had all of a master's data, or was itself the one that this master took over from.

        A replica that has just been given its master says that it is one, and has nothing yet, or another's data.
        """
        copy_of = {
            known: place.recorded.copy_of for known, place in self.recorded.items() if place.recorded is not None
        }
        return copy_of.get(node_id) == master or copy_of.get(master) == node_id

    def lost(self, node_id: str) -> bool:
        """Whether all that a node had written is gone, by evidence; then it never comes back.

        At its place is another disk than the one that it was last seen on, or another node. One that merely does not
        answer is not lost, and one that answers is not, wherever its data came from.
        """
        if node_id in self.reachable:
            return False
        place = self.recorded.get(node_id)
        if place is None or place.recorded is None:
            return node_id in self.former
        return place.said is not None or bool(place.disk and place.recorded.disk and place.disk != place.recorded.disk)


def outlives_pods(resource: RedisCluster) -> bool:
    """Whether what a node has written is there again for the next pod at its place."""
    return resource.has_storage or resource.spec.template.volumes is not None
