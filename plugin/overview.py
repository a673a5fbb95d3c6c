"""The overview of a resource that `status` shows: one value, from the resource and its pods. Pure.

All words are those of the status, so that this, `kubectl describe`, events and alerts agree.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from plugin.databases import ETCD, MEMCACHED, REDIS, Database
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import INSTANCE
from shared.kubernetes.pod_problems import problem_of, restarts
from shared.status import conditions
from shared.status.reconciliation_pause import is_paused
from shared.steps.confirmed_recovery import awaits_confirmation

GOOD, BAD, UNKNOWN = "True", "False", "Unknown"
"""Whether a server serves clients, as in the API."""

NORMAL: Mapping[str, str] = {
    conditions.READY: "True",
    conditions.AVAILABLE: "True",
    conditions.OBSERVED: "True",
    conditions.RECONCILING: "False",
    conditions.STALLED: "False",
    conditions.DEGRADED: "False",
}
"""Status of each condition of a resource at rest. Others are only present while they are true."""


def for_cluster(message: str, target: Sequence[str]) -> str:
    """Return a message of an operator with its commands for the user's cluster: it does not know the user's flags.

    Args:
        target: flags for the cluster.
    """
    return re.sub(r"\bkubectl (?=[a-z])(?!platform)", lambda _: f"{shlex.join(['kubectl', *target])} ", message)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a resource.

    Attributes:
        seconds: seconds since its last transition; None if that is not reported.
        normal: whether it has the status of a resource at rest.
    """

    type: str
    status: str
    reason: str
    message: str
    seconds: float | None
    normal: bool


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of a server.

    Attributes:
        name: name of its claim.
        size: size of the volume; of a claim without one, the requested size.
        storage_class: name of the StorageClass; empty if there is none.
        phase: phase of the claim, such as Bound.
        used: bytes in use, with a unit; empty if that is not known.
    """

    name: str
    size: str
    storage_class: str
    phase: str
    used: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """A server of a resource.

    Attributes:
        name: name of its pod.
        group: group of the server, such as the slots of its shard; empty if there are no groups.
        role: role of the server, such as primary; empty if all servers are equal.
        status: whether it serves clients: `GOOD`, `BAD` or `UNKNOWN`.
        reason: state of the server, in one word.
        message: why it does not serve clients; empty if it does.
        host: Kubernetes node of its pod.
        details: further facts by name: zone, version, lag (of a replica or learner), database (size), restarts.
        volumes: volumes of its pod.
    """

    name: str
    group: str
    role: str
    status: str
    reason: str
    message: str = ""
    host: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """Facts about the servers of a resource that are not in its status.

    Attributes:
        pods: pods of the resource; None if they cannot be read.
        claims: volume claims of the resource.
        zones: zone of each Kubernetes node, by its name.
        used: bytes in use of each volume, by the name of its claim.
        unread: objects that cannot be read, as sentences.
    """

    pods: tuple[Obj, ...] | None = ()
    claims: tuple[Obj, ...] = ()
    zones: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """The first facts that a user needs of a resource.

    Attributes:
        kind: kind of the resource.
        namespace: namespace of the resource.
        name: name of the resource.
        phase: phase in the status; empty if there is none.
        version: version of the servers; empty if it is not reported.
        conditions: conditions, each with type, status, reason, message, seconds (since its last transition) and normal.
        servers: servers, each with name, group, role, status, reason, message, host, details and volumes.
        observed: whether the status describes the current spec.
        paused: whether a user paused the reconciliation.
        deleting: whether it is being deleted.
        decision: loss that waits for a confirmation: `token` and `message`; empty if there is none.
        progress: unfinished work, as sentences.
        unread: objects that the user may not read, as sentences.
    """

    kind: str
    namespace: str
    name: str
    phase: str
    version: str
    observed: bool
    paused: bool
    deleting: bool
    conditions: tuple[Condition, ...]
    progress: tuple[str, ...]
    servers: tuple[Server, ...]
    decision: Mapping[str, str]
    unread: tuple[str, ...] = ()

    def condition(self, name: str) -> Condition | None:
        return next((found for found in self.conditions if found.type == name), None)

    @property
    def ready(self) -> Condition:
        """The condition Ready; one that states that no operator has reported anything, if it is missing."""
        missing = "No operator has reported a status: `kubectl platform doctor` checks whether one runs."
        return self.condition(conditions.READY) or Condition(
            conditions.READY, UNKNOWN, "NoStatus", missing, None, False
        )

    @property
    def reference(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def overview(database: Database, resource: Obj, pods: Iterable[Obj], now: datetime) -> Overview:
    """Return the overview of a resource with these pods, without its volumes."""
    return complete(database, resource, Cluster(tuple(pods)), now)


def complete(database: Database, resource: Obj, cluster: Cluster, now: datetime) -> Overview:
    """Return the overview of a resource.

    Args:
        now: the present time.
    """
    status = accessors.status_of(resource)
    recovery = status["recovery"] if awaits_confirmation(resource) else {}
    return Overview(
        kind=database.kind.name,
        namespace=resource["metadata"].get("namespace", ""),
        name=resource["metadata"]["name"],
        phase=str(status.get("phase") or ""),
        version=str(status.get("version") or status.get("etcdVersion") or ""),
        observed=accessors.is_current(resource),
        paused=is_paused(resource),
        deleting=accessors.is_terminating(resource),
        conditions=tuple(_conditions(status, now)),
        progress=tuple(_progress(status)),
        servers=tuple(_servers(database, status, cluster, now)),
        unread=cluster.unread,
        decision={key: str(recovery.get(key) or "") for key in ("token", "message")} if recovery else {},
    )


def selector(database: Database, name: str) -> str:
    """Return the label selector of the pods of a resource."""
    return f"{database.selector},{INSTANCE}={name}"


def duration(seconds: float | None) -> str:
    """Return a duration as kubectl writes it: 45s, 12m, 3h, 5d; `-` if it is unknown."""
    if seconds is None:
        return "-"
    for size, unit, most in ((1, "s", 120), (60, "m", 180), (3600, "h", 48)):
        if seconds < size * most:
            return f"{max(int(seconds // size), 0)}{unit}"
    return f"{int(seconds // 86400)}d"


def since(moment: Any, now: datetime) -> float | None:
    """Return the seconds since a time of the API; None if it is none."""
    try:
        return (now - datetime.fromisoformat(moment)).total_seconds()
    except (TypeError, ValueError):
        return None


def _conditions(status: Obj, now: datetime) -> Iterable[Condition]:
    for found in accessors.conditions_of(status):
        name, value = str(found.get("type")), str(found.get("status"))
        if name in ("master", "slave"):  # nodes, in the first API of redis
            continue
        yield Condition(
            name,
            value,
            str(found.get("reason") or ""),
            str(found.get("message") or ""),
            since(found.get("lastTransitionTime"), now),
            value == NORMAL.get(name, "False"),
        )


def _progress(status: Obj) -> Iterable[str]:
    for entry in status.get("progress") or ():
        left = entry.get("remainingSeconds")
        text = f"{entry.get('done')} of {entry.get('total')} {str(entry.get('what')).lower()}"
        yield text + (f", about {duration(left)} left" if left is not None else "")


def _servers(database: Database, status: Obj, cluster: Cluster, now: datetime) -> list[Server]:
    if database == REDIS:
        found = _nodes(status, now)
    elif database == ETCD:
        found = [_member(member, status, now) for member in status.get("members") or ()]
    elif database == MEMCACHED:
        found = [Server(name, "", "", UNKNOWN, "") for name in status.get("nodes") or ()]
    else:
        return []
    if cluster.pods is None:
        return found
    pods = {str(pod["metadata"]["name"]): pod for pod in cluster.pods}
    known = {server.name for server in found}
    found += [Server(name, "", "", UNKNOWN, "New") for name in sorted(pods.keys() - known)]
    found = [_with_pod(database, server, pods.get(server.name)) for server in found]
    return [_with_cluster(server, pods.get(server.name), cluster) for server in found]


def _with_cluster(server: Server, pod: Obj | None, cluster: Cluster) -> Server:
    """Return a server with its zone and volumes."""
    zone = cluster.zones.get(server.host, "")
    details = {**_given(zone=zone), **server.details}  # the status may have it, as the database sees it
    mounted = [
        str((volume.get("persistentVolumeClaim") or {}).get("claimName"))
        for volume in ((pod or {}).get("spec") or {}).get("volumes") or ()
    ]
    claims = {str(claim["metadata"]["name"]): claim for claim in cluster.claims}
    volumes = tuple(_volume(claims[name], cluster.used.get(name)) for name in mounted if name in claims)
    return replace(server, details=details, volumes=volumes)


def _volume(claim: Obj, used: int | None) -> Volume:
    spec, status = claim.get("spec") or {}, accessors.status_of(claim)
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return Volume(
        str(claim["metadata"]["name"]),
        str((status.get("capacity") or {}).get("storage") or requested or ""),
        str(spec.get("storageClassName") or ""),
        str(status.get("phase") or ""),
        _size(used),
    )


def _nodes(status: Obj, now: datetime) -> list[Server]:
    """Return the nodes of a RedisCluster, by shard."""
    entries = {entry["name"]: entry for entry in status.get("nodes") or ()}
    ordered: list[tuple[str, str]] = []
    for shard in status.get("shards") or ():
        ordered += [(name, f"slots {shard.get('slots')}") for name in (shard["master"], *(shard.get("replicas") or ()))]
    in_shards = {name for name, _ in ordered}
    ordered += [(name, "without slots") for name in entries if name not in in_shards]
    return [
        Server(
            name,
            group,
            str(entry.get("role") or ""),
            str(entry.get("status") or UNKNOWN),
            str(entry.get("reason") or ""),
            str(entry.get("message") or ""),
            str(entry.get("host") or ""),
            _given(zone=entry.get("zone"), version=entry.get("version"), lag=_lag(entry, now)),
        )
        for name, group in ordered
        for entry in (entries.get(name) or {},)
    ]


def _lag(node: Obj, now: datetime) -> str:
    """Return whether a replica has what its primary has; empty for a primary."""
    if node.get("inSync") == GOOD:
        return "in sync"
    if node.get("inSync") == BAD:
        return f"not in sync for {duration(since(node.get('outOfSyncSince'), now))}"
    return "unknown" if node.get("inSync") else ""


def _learner_lag(member: Obj, now: datetime) -> str:
    """Return how far a learner has read the log; empty for a voter."""
    progress = member.get("progress")
    if not isinstance(progress, dict):
        return ""
    index, seconds = progress.get("index"), since(progress.get("since"), now)
    return f"{f'at log index {index}' if index else 'receives a snapshot'} for {duration(seconds)}"


def _member(member: Obj, status: Obj, now: datetime) -> Server:
    healthy = member.get("healthy")
    alarms = ", ".join(member.get("alarms") or ())
    return Server(
        str(member.get("name")),
        "",
        "leader" if member.get("name") == status.get("leader") else str(member.get("role") or ""),
        UNKNOWN if healthy is None else str(healthy),
        alarms or ("Unknown" if healthy is None else "Healthy" if healthy else "Unhealthy"),
        details=_given(
            version=member.get("version"), lag=_learner_lag(member, now), database=_size(member.get("dbSize"))
        ),
    )


def _with_pod(database: Database, server: Server, pod: Obj | None) -> Server:
    """Return a server with what only its pod shows: its host, its restarts, and why it does not start."""
    if pod is None:
        return replace(server, status=BAD, reason="NoPod", message=server.message or "It has no pod.")
    containers = accessors.status_of(pod).get("containerStatuses") or ()
    count = sum(each.get("restartCount") or 0 for each in containers)
    details = {**server.details, **_given(restarts=count or None)}
    host = server.host or str((pod.get("spec") or {}).get("nodeName") or "")
    problem = problem_of(pod)
    reason, text = problem if problem.text else restarts(pod)
    if accessors.is_terminating(pod):
        reason, text = "Terminating", text or "Its pod is being deleted."
    server = replace(server, host=host, details=details)
    if text:
        return replace(server, status=BAD, reason=reason, message=text)
    if not server.reason or (server.status == UNKNOWN and database == MEMCACHED):
        ready = accessors.is_true(pod, "Ready")
        return replace(server, status=GOOD if ready else BAD, reason="Serving" if ready else "NotReady")
    return server


def _given(**values: object) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value not in (None, "")}


def _size(count: int | None) -> str:
    """Return a number of bytes with a binary unit."""
    if count is None:
        return ""
    value = float(count)
    for unit in ("B", "Ki", "Mi"):
        if value < 1024:
            return f"{value:.0f}{unit}"
        value /= 1024
    return f"{value:.1f}Gi"


def urgent(overviews: Sequence[Overview]) -> list[Overview]:
    """Return overviews in the order in which a person on call would read them: what serves no client first."""

    def rank(each: Overview) -> tuple[bool, bool, bool, str, str, str]:
        available, degraded = each.condition(conditions.AVAILABLE), each.condition(conditions.DEGRADED)
        return (
            available is None or available.normal,
            each.ready.normal,
            degraded is None or degraded.normal,
            each.namespace,
            each.kind,
            each.name,
        )

    return sorted(overviews, key=rank)
