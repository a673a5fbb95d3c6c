"""RedisClusters and the observed state around them, as data, for tests of the planner and its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from operators.redis.api.resource import API, RedisCluster
from operators.redis.api.status import RecordedNode
from operators.redis.client.responses import Follower, Node, NodeReport, digest
from operators.redis.client.server import REPLICATION_USER
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names, redis_conf
from operators.redis.objects.names import CONFIG_MARK, USERS_MARK
from operators.redis.objects.pod import LAST_RUN_VARIABLE, TEMPLATE
from operators.redis.plan import Planner
from operators.redis.security.secrets import Secrets, judge
from operators.redis.security.users import Passwords
from operators.redis.settings import Settings
from operators.redis.slots.hash_slots import SLOTS, Slots
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps.configuration import configured, live_settings
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.pods import Pod
from shared.kubernetes.secrets import encoded
from shared.runtime.plan import Action, Plan

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
JUST_NOW = "2026-01-01T11:59:30Z"
LONG_AGO = "2026-01-01T11:00:00Z"
SETTINGS = Settings("redis-operator", "example.com/redis")
PLANNER = Planner(SETTINGS)
UID = "u-1"
CURRENT, FORMER = "current", "an earlier one"
REPLICATION = "r"
"""Password of the replicas' user, which all nodes use."""


def assess(
    resource: RedisCluster, observed: Observed, now: datetime = NOW, settings: Settings = SETTINGS
) -> Assessment:
    """Return what the steps of a reconcile read."""
    return Assessment.of(resource, observed, settings, now)


def node_id(number: int, incarnation: int = 0) -> str:
    """Id of the node of pod `number`; a later incarnation is a node that started there with an empty volume."""
    return f"{number:02x}{incarnation:02x}".ljust(40, "a")


def thirds(count: int = 3) -> list[str]:
    """All slots, in `count` equal ranges."""
    bounds = [round(SLOTS * number / count) for number in range(count + 1)]
    return [f"{start}-{stop - 1}" for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class At:
    """State of one pod and its node; by default a member in sync, on the recorded volume.

    Attributes:
        slots: slots that the node owns.
        of: number of the pod whose node this one replicates; None for a primary.
        incarnation: increases when the node loses its volume, which gives it another id.
        up: whether the node answers; failed: whether the other nodes report it as failed.
        member: whether the cluster knows the node; knows: whether the node knows the cluster.
        recorded: incarnation of the node in the status; None if the status has no entry.
        disk: UID of the volume or pod that has the data (None: the recorded one; empty: none).
        claim_leaving: whether its claim is being deleted, which waits for the pod.
        link: address and port that a replica replicates (INFO); empty for the present address of its primary.
        unlinked_seconds: time for which a replica has had no link; infinite if it had none since it started.
        answered: seconds since failed nodes last answered it, by pod number.
        history: replication id, up to `offset`.
        snapshot: replication id and offset of the snapshot that a primary loaded; empty if it is unknown.
        syncing: whether a replica runs a full sync.
        copied: whether the status records that the replica has had all data of its primary.
        had_keys: whether the status records that this copy had keys.
        problem: reason and message of the waiting container, as `Reason: message`.
        stale_address: address at which the other nodes know this one; empty for its current address.
        old: whether the pod has an earlier template; afresh: whether each of its processes begins as a new node.
        host: Kubernetes node of the pod (None: one of its own; empty: not scheduled); zone: zone of that node.
        since: last transition time in the status.
        refuses_writes: whether the node cannot write to its log.
        rewrites_log, rewrite_failed, log_pending: state of its log, as in `Facts`.
        save_failed: whether the node could not write its last snapshot.
        settings: settings that the server reports; None for the persistence of the spec.
        open_slots: open slots, as `{slot: (">", number)}` for migrating or `("<", number)` for importing.
        strays: number of keys of slots that the node does not own, by slot.
        trimming: number of its keys that the server is deleting, after it gave their slots away.
        copied_elsewhere: whether a server that is no member replicates it too.
    """

    slots: str = ""
    of: int | None = None
    incarnation: int = 0
    up: bool = True
    failed: bool = False
    member: bool = True
    knows: bool = True
    recorded: int | None = 0
    keys: int = 0
    epoch: int | None = None
    offset: int = 1000
    synced: bool = True
    link: str = ""
    unlinked_seconds: float = 0.0
    answered: Mapping[int, float] = field(default_factory=dict)
    history: str = "h"
    snapshot: tuple[str, int] = ("", -2)
    syncing: bool = False
    copied: bool = True
    had_keys: bool = False
    loading: bool = False
    refuses_writes: bool = False
    save_failed: bool = False
    rewrites_log: bool = False
    rewrite_failed: bool = False
    log_pending: bool = False
    settings: Mapping[str, str] | None = None
    memory: int = 0
    max_memory: int = 0
    pod: bool = True
    ready: bool | None = None
    runs: bool | None = None
    leaving: bool = False
    problem: str = ""
    disk: str | None = None
    claim_leaving: bool = False
    host: str | None = None
    zone: str | None = ""
    address: str = ""
    stale_address: str = ""
    old: bool = False
    afresh: bool = False
    created: str = LONG_AGO
    since: str = LONG_AGO
    version: str = "8.0.2"
    open_slots: Mapping[int, tuple[str, int]] | None = None
    strays: Mapping[int, int] | None = None
    trimming: int = 0
    copied_elsewhere: bool = False
    error: str = "no route to host"
    labels: Mapping[str, str] | None = None


NEW = At(member=False, knows=False, recorded=None, epoch=0)
"""A node that has just started: it knows no other node, and no other node knows it."""

NEW_RECORDED = replace(NEW, recorded=0)
ABSENT = At(up=False, member=False, knows=False, recorded=None, pod=False, disk="")


def replica(of: int, **more: Any) -> At:
    return At(of=of, **more)


def formed(primaries: int = 3, copies: int = 1) -> list[At]:
    """A cluster in its desired state: first the primaries, then their replicas in the same order."""
    owners = [At(slots, keys=10) for slots in thirds(primaries)]
    return owners + [replica(number % primaries, keys=10) for number in range(primaries * copies)]


def cluster(
    *at: At,
    replicas: int | None = None,
    phase: str = "Running",
    is_formed: bool = True,
    generation: int = 1,
    observed: int = 1,
    status: Obj | None = None,
    **spec: Any,
) -> RedisCluster:
    """A RedisCluster `default/demo` whose status has an entry for each recorded node."""
    metadata = {"name": "demo", "namespace": "default", "uid": UID, "generation": generation}
    nodes = [_entry(number, spot) for number, spot in enumerate(at) if spot.recorded is not None]
    recorded: Obj = {"phase": phase, "observedGeneration": observed, "nodes": nodes, "formed": is_formed}
    recorded["moves"] = []
    fields = {"replicas": len(at) if replicas is None else replicas, "version": "8.0.2", "storage": {}, **spec}
    fields = {key: value for key, value in fields.items() if value is not None}
    return RedisCluster.parse(
        {"kind": "RedisCluster", "metadata": metadata, "spec": fields, "status": recorded | (status or {})}
    )


def _entry(number: int, spot: At) -> Obj:
    entry = {
        "name": f"demo-{number}",
        "role": "primary" if spot.of is None else "replica",
        "nodeId": node_id(number, spot.recorded or 0),
        "primaryId": "" if spot.of is None else node_id(spot.of),
        "disk": f"disk-{number}",
        "status": "True",
        "version": "redis 8.0.2",
        "slots": spot.slots,
        "lastTransitionTime": spot.since,
        "copyOf": node_id(spot.of) if spot.of is not None and spot.copied else "",
        "copyHasKeys": spot.of is not None and spot.copied and spot.had_keys,
    }
    return {key: value for key, value in entry.items() if value}


def seen(
    resource: RedisCluster,
    *at: At,
    replicas: int | None = None,
    stateful_set: bool = True,
    scaled_by_hand: bool = False,
    **more: Any,
) -> Observed:
    """The observed state of these pods, numbered from 0.

    Args:
        replicas: `spec.replicas` of the StatefulSet; None for the number that covers the spec and every pod.
        scaled_by_hand: whether another client than the operator has set it.
    """
    made = None
    if stateful_set:
        pods = [number for number, spot in enumerate(at) if spot.pod]
        count = replicas if replicas is not None else max([resource.spec.replicas, *(number + 1 for number in pods)])
        marks = {TEMPLATE: CURRENT, USERS_MARK: secrets_of(resource).users_mark}
        template = {"metadata": {"annotations": marks}, "spec": {"containers": [_container()]}}
        about: Obj = {"name": "demo", "namespace": "default", "uid": "s-1", "labels": {names.CLUSTER_UID: UID}}
        applied = {"manager": "operator", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        about["managedFields"] = [] if scaled_by_hand else [applied]
        made = {"kind": "StatefulSet", "metadata": about, "spec": {"replicas": count, "template": template}}
    instances = tuple(_instance(resource, at, number) for number in range(len(at)))
    return replace(Observed(stateful_set=made, instances=instances, secrets=secrets_of(resource)), **more)


def stored(obj: Obj) -> Obj:
    """Return an object as the API server has it once the operator applied it."""
    body = {key: part for key, part in obj.items() if key not in ("apiVersion", "kind")}
    entry = {"manager": "operator", "operation": "Apply", "fieldsV1": _fields(body)}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [entry]}}


def patched(annotation: str) -> list[Obj]:
    """Return the managedFields of an object of which the operator wrote an annotation with a merge patch."""
    fields: Obj = {"f:metadata": {"f:annotations": {f"f:{annotation}": {}}}}
    return [{"manager": "redis-operator", "operation": "Update", "fieldsV1": fields}]


def edited(obj: Obj, **data: str) -> Obj:
    """Return a ConfigMap after another client than the operator has changed these keys."""
    [own] = obj["metadata"]["managedFields"]
    kept = {name: part for name, part in own["fieldsV1"]["f:data"].items() if name[2:] not in data}
    own = {**own, "fieldsV1": {**own["fieldsV1"], "f:data": kept}}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [own]}, "data": {**obj["data"], **data}}


def _fields(value: Any) -> Obj:
    return {f"f:{key}": _fields(part) for key, part in value.items()} if isinstance(value, dict) else {}


def secrets_of(resource: RedisCluster) -> Secrets:
    """Secrets of a cluster without a password."""
    name = names.users_secret(resource)
    about = {"name": name, "namespace": "default", "uid": "secret-1", "labels": {names.CLUSTER_UID: UID}}
    content = Passwords("", exporter="e", replication=REPLICATION, uses_replication=True).content()
    return judge(resource, {name: {"kind": "Secret", "metadata": about, "data": encoded(content)}})


def world(*at: At, **more: Any) -> tuple[RedisCluster, Observed]:
    """A cluster and its observed state, which the status matches."""
    of_seen = {key: more.pop(key) for key in ("stateful_set", "instances") if key in more}
    resource = cluster(*at, **more)
    return resource, seen(resource, *at, **of_seen)


def _container(image: str = "example.com/redis:8.0.2") -> Obj:
    return {"name": names.CONTAINER, "image": image}


def _instance(resource: RedisCluster, at: tuple[At, ...], number: int) -> Instance:
    spot, name = at[number], f"demo-{number}"
    disk = spot.disk if spot.disk is not None else f"disk-{number}"
    pod_obj = _pod(resource, number, spot, disk) if spot.pod else None
    recorded = next((known for known in resource.recorded_nodes if known.name == name), None)
    report = report_of(at, number) if spot.up and spot.pod else None
    if report and spot.settings is None:
        settings = redis_conf.live(resource)
        report = replace(report, settings={name: settings[name] for name in redis_conf.PERSISTENCE if name in settings})
    return Instance(
        number,
        name,
        pod=Pod.of(pod_obj, container=names.CONTAINER) if pod_obj else None,
        pod_obj=pod_obj,
        volume=_volume(number, disk, leaving=spot.claim_leaving) if resource.has_storage and disk else None,
        report=report,
        error="" if report or not spot.pod else spot.error,
        disk=disk if resource.has_storage or spot.pod else "",
        recorded=recorded,
        zone=spot.zone,
    )


def report_of(at: tuple[At, ...], number: int) -> NodeReport:
    """Report of the node of pod `number`."""
    spot = at[number]
    lines = [_line(at, number, other) for other in range(len(at)) if _knows(at, number, other)]
    return NodeReport(
        node_id(number, spot.incarnation),
        version=spot.version,
        nodes=tuple(lines),
        epoch=max([_epoch(at, other) for other in range(len(at))]) if spot.knows else _epoch(at, number),
        keys=spot.keys,
        memory=spot.memory,
        max_memory=spot.max_memory,
        loading=spot.loading,
        refuses_writes=spot.refuses_writes,
        save_failed=spot.save_failed,
        rewrites_log=spot.rewrites_log,
        rewrite_failed=spot.rewrite_failed,
        log_pending=spot.log_pending,
        settings=spot.settings or {},
        replicates="" if spot.of is None else spot.link or f"{address(spot.of, at[spot.of])}:6379",
        link_up=spot.of is None or (spot.synced and (bool(spot.link) or _accepts_links(at[spot.of]))),
        unlinked_seconds=spot.unlinked_seconds,
        answered={node_id(other): seconds for other, seconds in spot.answered.items()},
        syncing=spot.syncing,
        offset=spot.offset,
        history=spot.history,
        former_history=spot.snapshot[0],
        forked_at=spot.snapshot[1] + 1,
        run_id=f"run-{number}",
        replicas=tuple(_followers(at, number)),
        strays=dict(spot.strays or {}),
        trimming=spot.trimming,
        gives=digest(REPLICATION),
        gives_as=REPLICATION_USER,
        admits=(digest(REPLICATION),),
    )


def _accepts_links(primary: At) -> bool:
    """Whether a replica is connected to its primary, although the operator may not reach it."""
    return primary.pod and not primary.failed


def _followers(at: tuple[At, ...], number: int) -> Iterator[Follower]:
    if at[number].copied_elsewhere:
        yield Follower("10.9.9.9", 6379, True, at[number].offset)
    for other, spot in enumerate(at):
        if spot.of == number and spot.up and spot.pod:
            yield Follower(address(other, spot), 6379, spot.synced, spot.offset)


def _knows(at: tuple[At, ...], number: int, other: int) -> bool:
    return number == other or (at[number].knows and at[other].member)


def _epoch(at: tuple[At, ...], number: int) -> int:
    spot = at[number]
    if spot.epoch is not None:
        return spot.epoch
    return _epoch(at, spot.of) if spot.of is not None else number + 1


def address(number: int, spot: At) -> str:
    return spot.address or f"10.0.0.{number + 1}"


def _line(at: tuple[At, ...], number: int, other: int) -> Node:
    spot, me = at[other], number == other
    flags = {"master" if spot.of is None else "slave"} | ({"myself"} if me else set())
    if spot.failed and not me:
        flags.add("fail")
    open_slots = dict(spot.open_slots or {}) if me else {}
    return Node(
        node_id(other, spot.incarnation),
        address(other, spot) if me else spot.stale_address or address(other, spot),
        6379,
        frozenset(flags),
        "" if spot.of is None else node_id(spot.of, at[spot.of].incarnation),
        _epoch(at, other),
        me or (spot.up and spot.pod),
        Slots.parse(spot.slots),
        {slot: node_id(to, at[to].incarnation) for slot, (arrow, to) in open_slots.items() if arrow == ">"},
        {slot: node_id(to, at[to].incarnation) for slot, (arrow, to) in open_slots.items() if arrow == "<"},
    )


def _pod(resource: RedisCluster, number: int, spot: At, disk: str) -> Obj:
    ready = spot.ready if spot.ready is not None else spot.up and not spot.loading
    runs = spot.runs if spot.runs is not None else spot.up
    state: Obj = {"running": {"startedAt": LONG_AGO}} if runs else {"terminated": {"reason": "Error"}}
    if spot.problem:
        reason, _, message = spot.problem.partition(": ")
        state = {"waiting": {"reason": reason, "message": message}}
    metadata: Obj = {
        "name": f"demo-{number}",
        "namespace": "default",
        "uid": f"pod-{number}" if resource.has_storage else disk,
        "creationTimestamp": spot.created,
        "labels": dict(spot.labels or {names.SERVES: names.CLIENTS}),
        "annotations": {
            TEMPLATE: FORMER if spot.old else CURRENT,
            CONFIG_MARK: configured(live_settings(assess(resource, Observed()))),
            USERS_MARK: secrets_of(resource).users_mark,
            **({names.LAST_RUN: f"run-{number}"} if spot.afresh else {}),
        },
    }
    if spot.leaving:
        metadata["deletionTimestamp"] = JUST_NOW
    container = {"name": names.CONTAINER, "ready": ready, "state": state}
    reported = {
        "podIP": address(number, spot),
        "hostIP": "192.0.2.1",
        "containerStatuses": [container],
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    host = spot.host if spot.host is not None else f"host-{number}"
    containers = [{"name": names.CONTAINER, "env": [{"name": LAST_RUN_VARIABLE}]}] if spot.afresh else []
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": host, "containers": containers},
        "status": reported,
    }


_CLAIM_LABELS = {
    names.CLUSTER_UID: UID,
    **Owner(API.kind, "default", "demo", UID, "redis", SETTINGS.operator).labels(names.COMPONENT),
}


def _volume(number: int, uid: str, *, leaving: bool) -> Obj:
    metadata = {"name": f"data-demo-{number}", "namespace": "default", "uid": uid}
    if leaving:
        metadata["deletionTimestamp"] = JUST_NOW
    return {"kind": "PersistentVolumeClaim", "metadata": metadata | {"labels": dict(_CLAIM_LABELS)}}


def plan(resource: RedisCluster, found: Observed) -> Plan:
    return PLANNER.plan(resource, found, NOW)


def planned(*at: At, **more: Any) -> Plan:
    """Plan of a cluster whose status matches the observed state."""
    return plan(*world(*at, **more))


def acts(made: Iterable[Action]) -> list[str]:
    """Descriptions of the planned actions, except applies and patches."""
    found = []
    for action in made:
        kind = type(action).__name__
        if kind in ("Delete", "Evict"):
            obj = action.obj  # type: ignore[union-attr]
            found.append(f"{kind.lower()} {obj['kind']} {obj['metadata']['name']}")
        elif kind not in ("Apply", "Patch"):
            found.append(str(action))
    return found


def of(made: Iterable[Action], kind: str) -> list[Any]:
    """Planned actions of the type with this name."""
    return [action for action in made if type(action).__name__ == kind]


def requested_replicas(made: Plan) -> int:
    """Return the replicas that the plan requests of the StatefulSet."""
    (applied,) = (action for action in of(made.actions, "Apply") if action.obj["kind"] == "StatefulSet")
    return int(applied.obj["spec"]["replicas"])


def known(number: int, **more: Any) -> RecordedNode:
    return RecordedNode(f"demo-{number}", node_id(number), f"disk-{number}", **more)
