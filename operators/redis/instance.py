"""One node's place in a RedisCluster: its pod, its volume, and what the server there reported. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import RecordedNode
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Endpoint
from operators.redis.objects.names import CONTAINER, host
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import Pod, container_status

LINGER = timedelta(seconds=5)
"""How long a node that gave away its slots keeps running, so that clients get MOVED instead of a refused connection."""


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
    report: NodeReport | None = None
    error: str = ""
    denied: bool = False
    disk: str = ""
    recorded: RecordedNode | None = None

    @property
    def id(self) -> str:
        """Id of the node that answers here; empty if none does."""
        return self.report.id if self.report else ""

    @property
    def ready(self) -> bool:
        """The kubelet's word, which needs no way from the operator to the pod."""
        return self.pod is not None and self.pod.ready

    @property
    def runs(self) -> bool:
        """Whether the server's process is there, as far as the kubelet last said; it may answer nobody all the same."""
        return self.ready or "running" in (container_status(self.pod_obj, CONTAINER).get("state") or {})

    def is_draining(self, now: datetime) -> bool:
        """Whether clients may not have heard yet that the node owns no slots any more: they come by an old map."""
        known, report = self.recorded, self.report
        if not self.ready or report is None or known is None or known.node_id != report.id:
            return False
        moved = bool(known.slots) or (known.type == "slave") != bool(report.me.primary)
        return moved or known.since is None or now < known.since + LINGER

    @property
    def leaving(self) -> bool:
        """Whether the pod's deletion was asked for; one that has ended may be kept by somebody's finalizer."""
        return self.pod_obj is not None and "deletionTimestamp" in self.pod_obj["metadata"]

    @property
    def host(self) -> str:
        """Name of the Kubernetes node that the pod runs on; empty until it is scheduled."""
        return str(((self.pod_obj or {}).get("spec") or {}).get("nodeName") or "")

    @property
    def as_recorded(self) -> tuple[str, str] | None:
        """The node id and the disk that the status names; None if it names none."""
        return (self.recorded.node_id, self.recorded.disk) if self.recorded else None

    @property
    def is_blank(self) -> bool:
        """Whether the node answers and holds nothing: no key, no slot, no primary."""
        report = self.report
        return report is not None and not report.keys and not report.me.slots and not report.me.primary

    @property
    def why_away(self) -> str:
        """Why no node answers here, as a sentence."""
        if self.pod is None:
            return f"{self.name} has no pod."
        if self.pod.trouble:
            return f"{self.name} does not start: {self.pod.trouble}"
        if self.leaving:
            return f"{self.name} is on the way out."
        if self.error and self.ready:
            return f"{self.name} does not answer: {self.error.rstrip('.')}."
        return f"{self.name} starts."


def endpoint(resource: RedisCluster, instance: Instance) -> Endpoint:
    """Where the operator asks the node at a place; its pod has an address."""
    return Endpoint(
        instance.name, instance.pod.address if instance.pod else "", host(resource, instance.name), id=instance.id
    )
