"""One instance of a RedisCluster: its pod, its volume, and the report of its server. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache

from operators.redis.api.engine_versions import Version
from operators.redis.api.node_entries import REPLICA_ROLE
from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import RecordedNode
from operators.redis.client.responses import NodeReport
from operators.redis.client.server import Endpoint
from operators.redis.objects.names import CONTAINER, host
from operators.redis.slots.placement import Location
from shared.kubernetes.accessors import is_terminating
from shared.steps.instance import Instance as PodInstance

LINGER = timedelta(seconds=5)
"""Time that a node without slots keeps running after its last slot moved, so that clients still get MOVED redirects."""


@dataclass(frozen=True)
class Instance(PodInstance):
    """One instance of the cluster, by its number: a pod, its volume, and its node.

    If all pods share a volume (spec.pod[0].volumes), `disk` is the name of its claim or of the Kubernetes node.

    Attributes:
        report: report of the server; None if it is unreachable, or if another node answers at the pod's former address.
        denied: whether the server rejected all passwords of the operator.
        distrusts: whether the server and the operator do not know the certificate authority of each other.
        recorded: node that the status records for this instance; None if it records none.
        deleted_seconds: time since this process of the operator first observed that the pod is deleted; None if it is
            not. The time of the deletion itself is that of another clock.
        zone: zone of the Kubernetes node that the pod runs on; empty if it has none, None if it could not be read.
    """

    container = CONTAINER

    report: NodeReport | None = None
    denied: bool = False
    distrusts: bool = False
    recorded: RecordedNode | None = None
    deleted_seconds: float | None = None
    zone: str | None = ""

    @property
    def id(self) -> str:
        """Id of the reachable node; empty if there is none."""
        return self.report.id if self.report else ""

    @property
    def is_out_of_reach(self) -> bool:
        """Whether only the operator cannot reach the node, as far as the kubelet reports."""
        return self.ready and self.report is None

    def is_draining(self, now: datetime) -> bool:
        """Return whether clients may still use an old slot map, although the node no longer owns slots."""
        known, report = self.recorded, self.report
        if not self.ready or report is None or known is None or known.node_id != report.id:
            return False
        moved = bool(known.slots) or (known.role == REPLICA_ROLE) != bool(report.me.primary)
        return moved or known.since is None or now < known.since + LINGER

    @property
    def leaving(self) -> bool:
        """Whether the pod is being deleted; a finalizer may keep a pod that has ended."""
        return is_terminating(self.pod_obj)

    @property
    def host(self) -> str:
        """Name of the Kubernetes node that the pod runs on; empty until it is scheduled."""
        return str(((self.pod_obj or {}).get("spec") or {}).get("nodeName") or "")

    @property
    def location(self) -> Location:
        """Where the node runs; while its pod is missing or not scheduled, where it last ran: it keeps its location."""
        last = Location(self.recorded.host, self.recorded.zone) if self.recorded else Location()
        if not self.host or (self.zone is None and self.host == last.host):
            return last
        return Location(self.host, self.zone or "")

    @property
    def as_recorded(self) -> tuple[str, str] | None:
        """Node id and volume that the status records; None if it records none."""
        return (self.recorded.node_id, self.recorded.disk) if self.recorded else None

    @property
    def is_blank(self) -> bool:
        """Whether the node is reachable and empty: no key, no slot, no primary."""
        report = self.report
        return report is not None and not report.keys and not report.me.slots and not report.me.primary

    @property
    def trims(self) -> str:
        """Predicate about a server that still deletes keys of slots that moved away; empty if it does not.

        Until it has, nothing shows whether the node is empty, or has keys that no other node has.
        """
        report = self.report
        if report is None or not report.trimming or report.me.slots or report.me.primary:
            return ""
        return f"still deletes {report.trimming} keys of slots that moved away"

    @property
    def why_away(self) -> str:
        """Why no node is reachable here, as a predicate without a period."""
        if self.pod is None:
            return self.hidden or "does not exist"
        if self.pod.hindrance:
            return self.pod.hindrance
        if self.leaving:
            return "is being deleted"
        if self.error and self.ready:
            return f"is unreachable: {self.error.rstrip('.')}"
        return "is starting"


def understands(resource: RedisCluster, instance: Instance) -> bool:
    """Return whether a server can apply the settings: it is reachable and runs the series of the spec.

    Other servers read them when their pods are recreated.
    """
    if instance.report is None or instance.leaving:
        return False
    series = _series(instance.report.version)
    return (instance.report.engine, series) == (resource.engine.name, resource.engine.version.series)


@lru_cache
def _series(version: str) -> tuple[int, int]:
    return Version.parse(version).series


def endpoint(resource: RedisCluster, instance: Instance) -> Endpoint:
    """Return the endpoint of an instance whose pod has an address."""
    return Endpoint(
        instance.name, instance.pod.address if instance.pod else "", host(resource, instance.name), id=instance.id
    )
