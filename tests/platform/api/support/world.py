"""One namespace of a real API server with all its clients."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from operators.etcd.api import backup as etcd_backup
from operators.etcd.api import resource as etcd
from operators.memcached.api.resource import API
from operators.redis.api import resource as redis
from shared.api.applied_spec import APPLIED_SPEC
from shared.kubernetes import accessors, managed_fields
from shared.kubernetes.errors import KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import (
    AUTOSCALER,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    NETWORK_POLICY,
    POD,
    REPLICA_SET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.kubernetes.secret_provenance import RECORD
from shared.status import conditions
from simulator.api_server.kinds import NAMESPACE
from simulator.kubelet.kubelet import Processes
from tests.harness import Actor, Workloads
from tests.memcached.unit.world import UNPAUSED
from tests.platform.api.support.live import CachedServer, LiveServer
from tools.local.controlplane import ControlPlane

MEMCACHED = API.kind
ETCD_CLUSTER, ETCD_BACKUP = etcd.API.kind, etcd_backup.API.kind
REDIS_CLUSTER = redis.API.kind
OWNED = (STATEFUL_SET, SERVICE)
"""Kinds that every Memcached owns, also with minimal settings."""

EVERYTHING = (DEPLOYMENT, STATEFUL_SET, SERVICE, DISRUPTION_BUDGET, AUTOSCALER)
"""All kinds with its name that a Memcached may own. It owns either a Deployment or a StatefulSet."""

_numbers = itertools.count(1)


class World:
    """A namespace, a user with kubectl, and Kubernetes' controllers (simulated by `Workloads`).

    Args:
        kinds: kinds that are observed and garbage collected.
        processes: processes that run in pods.
        nodes: number of nodes over which pods are spread.
        live: interface of the server.

    Attributes:
        user_client: client of the user.
        workloads: Deployment controller and kubelet, which act whenever the test waits.
        server: API server of all clients.
    """

    def __init__(
        self,
        plane: ControlPlane,
        *,
        created: int = 0,
        kinds: tuple[Kind, ...] = (MEMCACHED, *EVERYTHING, NETWORK_POLICY, REPLICA_SET, POD),
        processes: Processes | None = None,
        nodes: int = 1,
        live: type[LiveServer] = LiveServer,
    ) -> None:
        self.namespace = f"test-{next(_numbers)}"
        self._live = live(plane, self.namespace, kinds)
        self.server = self._live.as_server
        self.user_client = self._live.actor("person")
        self.workloads: Workloads | None = Workloads(self.server, processes=processes, created=created, nodes=nodes)
        self.user_client.create(NAMESPACE, {"metadata": {"name": self.namespace}})

    def refresh(self) -> None:
        """Let the clients observe what others have written."""
        if isinstance(self._live, CachedServer):
            self._live.forget()

    def actor(self, name: str) -> Actor:
        """Return another client with a field manager of that name."""
        return self._live.actor(name)

    def reconnect(self) -> None:
        """Use a new connection from now on, because the API server was restarted."""
        self._live.close()

    def close(self) -> None:
        """Delete all resources: without controllers, Kubernetes does not empty the namespace."""
        for kind in (MEMCACHED, ETCD_CLUSTER, ETCD_BACKUP, REDIS_CLUSTER, DEPLOYMENT, STATEFUL_SET, REPLICA_SET, POD):
            for obj in self._list(kind):
                self.remove(kind, obj["metadata"]["name"])
        self._live.close()

    def _list(self, kind: Kind) -> list[Obj]:
        """List resources; after a change of their CRD the API server rejects requests for a moment."""
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.user_client.list(kind, self.namespace)
            except Unavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def create(self, name: str = "cache", **spec: Any) -> Obj:
        """Create a Memcached, by default with one server, and without a pause between replaced servers."""
        body = {"apiVersion": MEMCACHED.api_version, "kind": MEMCACHED.name, "metadata": self.metadata(name)}
        return self.user_client.create(MEMCACHED, {**body, "spec": {"size": 1, **UNPAUSED, **spec}})

    def metadata(self, name: str = "cache") -> Obj:
        return {"name": name, "namespace": self.namespace}

    def change(self, name: str = "cache", **spec: Any) -> Obj:
        return self.user_client.merge(MEMCACHED, self.namespace, name, {"spec": spec})

    def get(self, kind: Kind, name: str = "cache") -> Obj:
        return self.user_client.get(kind, self.namespace, name)

    def find(self, kind: Kind, name: str = "cache") -> Obj | None:
        try:
            return self.get(kind, name)
        except NotFound:
            return None

    def edit(self, kind: Kind, patch: Obj, name: str = "cache") -> Obj:
        return self.user_client.merge(kind, self.namespace, name, patch)

    def delete(self, kind: Kind, name: str = "cache", **options: Any) -> None:
        self.user_client.delete(kind, self.namespace, name, **options)

    def remove(self, kind: Kind, name: str) -> None:
        """Delete an object regardless of its finalizers."""
        try:
            self.edit(kind, {"metadata": {"finalizers": None}}, name)
            self.delete(kind, name, gracePeriodSeconds=0)
        except NotFound:
            pass

    def listed(self, kind: Kind) -> list[Obj]:
        return self.user_client.list(kind, self.namespace)

    def condition(self, name: str = "cache", *, of: str = conditions.READY) -> Obj:
        return accessors.condition(self.find(MEMCACHED, name) or {}, of)

    def reason(self, name: str = "cache") -> str:
        """Return the reason of the Ready condition; empty without the condition."""
        return str(self.condition(name).get("reason", ""))

    def is_ready(self, name: str = "cache") -> bool:
        """Whether the resource is ready and its status is up to date."""
        obj = self.find(MEMCACHED, name) or {"metadata": {}}
        current = (obj.get("status") or {}).get("observedGeneration") == obj["metadata"].get("generation")
        return current and accessors.is_true(obj, conditions.READY)

    def events(self, name: str = "cache", reason: str = "") -> list[Obj]:
        """Return the events of a resource, in order."""
        of_resource = [event for event in self.listed(EVENT) if event["involvedObject"]["name"] == name]
        return sorted(
            (event for event in of_resource if reason in ("", event["reason"])),
            key=lambda event: int(event["metadata"]["resourceVersion"]),
        )

    def eventually(self, check: Callable[[], Any], seconds: float = 20.0) -> Any:
        """Wait until the check returns a true value, while Kubernetes' controllers act; return that value."""
        deadline = time.monotonic() + seconds
        while True:
            self.settle()
            found = check()
            if found:
                return found
            statuses = self._statuses()
            assert time.monotonic() < deadline, f"the condition did not become true in time; resources: {statuses}"
            time.sleep(0.05)

    def settle(self) -> None:
        """Let Kubernetes' controllers settle. A conflict with another writer ends this attempt early."""
        if self.workloads is None:
            return
        try:
            self.workloads.settle()
            self._collect_garbage()
        except KubeError:
            pass

    def snapshot(self) -> list[Obj]:
        """Return the resources and their owned objects, without fields that differ from run to run."""
        kinds = (MEMCACHED, *EVERYTHING, NETWORK_POLICY)
        return [masked(obj) for kind in kinds for obj in self.listed(kind)]

    def _collect_garbage(self) -> None:
        """Delete ReplicaSets and pods without an existing owner, as the garbage collector does."""
        for kind in (REPLICA_SET, POD):
            owners = (DEPLOYMENT, STATEFUL_SET, REPLICA_SET)
            alive = {owner["metadata"]["uid"] for each in owners for owner in self.listed(each)}
            for obj in self.listed(kind):
                if obj["metadata"]["ownerReferences"][0]["uid"] not in alive:
                    self.remove(kind, obj["metadata"]["name"])

    def _statuses(self) -> list[Any]:
        return [(obj["metadata"]["name"], obj.get("status")) for obj in self.listed(MEMCACHED)]


_VARYING = frozenset(
    {"uid", "resourceVersion", "generation", "observedGeneration", "creationTimestamp", "lastTransitionTime", "time"}
    | {"namespace", "nodes", "servers", "managedFields", "clusterIP", "clusterIPs"}
    | {"currentRevision", "updateRevision", managed_fields.APPLIED}
)


def masked(value: Any) -> Any:
    """An object, or a part of one, without what differs from run to run and from one life to the next."""
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, dict):
        kept = {key: masked(part) for key, part in value.items() if key not in _VARYING}
        if isinstance(uids := kept.get(RECORD), dict):  # of a status: UIDs of Secrets by name
            kept[RECORD] = sorted(uids)
        if APPLIED_SPEC in kept:
            kept[APPLIED_SPEC] = masked(json.loads(kept[APPLIED_SPEC]))
        return kept
    return value
