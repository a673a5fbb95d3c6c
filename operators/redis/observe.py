"""Observes a RedisCluster: Kubernetes objects from the cache, and the nodes live.

An unreachable node is an instance with an error, and does not hide the others. The plan decides whether the node or the
network has failed.

An address may belong to another pod by the time it is inspected. A node with the id that is recorded for an instance
is that instance's node, because ids are never reused. For any other id the pod is read live *after* the response: it
had the address then, and a call checks the id again before it changes anything.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

from operators.redis.api.resource import API, RedisCluster
from operators.redis.api.spec import MAX_REPLICAS
from operators.redis.api.status import RecordedNode, recorded_node
from operators.redis.client.errors import Denied, RedisError, Unreachable
from operators.redis.client.node_inspection import count_strays, report_of, request_report
from operators.redis.client.responses import Entries, NodeReport
from operators.redis.client.server import Connect, few_long_answers
from operators.redis.objects import names, redis_conf
from operators.redis.objects.names import CLAIM_UID
from operators.redis.objects.redis_conf import CONFIG_KEY
from operators.redis.reasons import CONFIG_MAP_INVALID, CONFIG_MAP_MISSING
from operators.redis.security.secrets import read
from operators.redis.security.users import revision_of
from operators.redis.slots.hash_slots import Slots
from operators.redis.state.instance import Instance, endpoint
from operators.redis.state.observed import ConfigTemplate, Observed
from operators.redis.state.volume_record import restored_entries
from operators.redis.zones import Zones
from shared.kubernetes import ordinals, ownership
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    Key,
    Obj,
)
from shared.kubernetes.kubectl import command
from shared.kubernetes.ordinals import ordinal
from shared.kubernetes.pods import Pod
from shared.kubernetes.secrets import excess, reduce
from shared.pki.secret_checks import SecretProblem
from shared.runtime.cache import Cache
from shared.runtime.steady_clock import elapsed
from shared.status.phases import CREATING
from shared.steps import connection
from shared.steps.adoption import Adoptable
from shared.steps.adoption_observer import adopted_volumes, is_adopting
from shared.steps.hidden_pods import with_hidden
from shared.steps.network_policy import network_policy_name

log = logging.getLogger(__name__)

Observe = Callable[[RedisCluster, Cache, Kube], Awaitable[Observed]]

COPIED = (
    "its server has the node id of {others}: one of the volumes is a copy{unless}. If it is this one, run {command}, "
    "and a new node starts instead."
)
"""Error of an instance whose server may run on a copy of another one's volume."""

MAX_CONNECTIONS = 100
"""Maximum number of nodes to which connections are open at once."""

ELSEWHERE = "its address belongs to another pod now"
"""Error of an instance at whose address another pod's server answered."""


def observer(connect: Connect, clock: Callable[[], float] = elapsed) -> Observe:
    """Return the function that observes a RedisCluster.

    Args:
        connect: opens a connection to a node.
        clock: monotonic time in seconds.
    """
    observed = dict[Key, dict[str, float]]()
    return partial(_observe, connect, Zones(), lambda *given: deleted_seconds(observed, clock(), *given))


def deleted_seconds(
    observed: dict[Key, dict[str, float]], now: float, key: Key, pods: Iterable[Obj]
) -> Mapping[str, float]:
    """Return for how long the deleted ones of all pods of a resource are known to be deleted, by UID.

    Args:
        observed: when each deletion was first observed, which a new process of the operator does not know.
    """
    before = observed.pop(key, {})
    if found := {pod["metadata"]["uid"] for pod in pods if is_terminating(pod)}:
        observed[key] = {uid: before.get(uid, now) for uid in found}
    return {uid: now - before.get(uid, now) for uid in found}


async def _observe(
    connect: Connect,
    zones: Zones,
    deletions: Callable[[Key, Iterable[Obj]], Mapping[str, float]],
    resource: RedisCluster,
    cache: Cache,
    kube: Kube,
) -> Observed:
    key = Key(resource.namespace, resource.name)
    of_users = sorted(
        {names.user_secret(resource, user.name) for user in resource.spec.users} | names.recorded_user_secrets(resource)
    )
    secrets, config = await asyncio.gather(read(resource, kube), _config(resource, kube))
    published = await connection.read(kube, cache, resource.obj)
    seen = Observed(
        stateful_set=cache.get(STATEFUL_SET, *key),
        disruption_budget=cache.get(DISRUPTION_BUDGET, *key),
        network_policy=cache.get(NETWORK_POLICY, key.namespace, network_policy_name(key.name)),
        config_map=cache.get(CONFIG_MAP, key.namespace, names.config_name(resource)),
        secrets=secrets,
        config=config,
        former=resource.former_nodes,
        connection=published,
        user_connections={name: await connection.read(kube, cache, resource.obj, name=name) for name in of_users},
    )
    pods = {number: pod for pod in cache.owned(POD, key) if (number := _pod_number(resource, pod)) is not None}
    deleted = deletions(key, pods.values())
    claims = cache.owned(PERSISTENT_VOLUME_CLAIM, key)
    existing = ""
    if is_adopting(resource, claims, names.CLUSTER_UID):
        claims, existing = await adopted_volumes(resource, API.kind, "redis", names.CLUSTER_UID, cache, kube)
    if resource.adopts_from:  # also once all claims are handed over: the status may be lost
        made = [obj for obj in (seen.stateful_set, *pods.values()) if obj is not None]
        seen = dataclasses.replace(seen, adoptable=Adoptable(claims, existing, made))
    volumes = {
        number: volume
        for volume in claims
        if (number := names.volume_number(resource, volume["metadata"]["name"])) is not None
    }
    restored = restored_entries(resource, claims)
    recorded = map(recorded_node, restored) if restored else resource.recorded_nodes
    entries = ((ordinal(known.name, resource.name), known) for known in recorded if known.node_id)
    nodes = {number: known for number, known in entries if number is not None and number < MAX_REPLICAS}
    expected = range(_expected(resource, seen, nodes))
    if resource.has_storage:
        volumes |= await _unlabelled(resource, [number for number in expected if number not in volumes], kube)
    numbers = ordinals.to_observe(len(expected), {*pods, *volumes}, MAX_REPLICAS)
    instances = tuple(
        _instance(resource, number, pods.get(number), volumes.get(number), nodes.get(number), deleted)
        for number in numbers
    )
    if resource.phase not in ("", CREATING):  # pods of a new cluster do not exist yet, and are not read
        instances = await with_hidden(kube, seen.stateful_set, instances)
    seen = dataclasses.replace(seen, instances=await _in_zones(zones, instances, kube), restored=restored)
    seen = await _confirm(resource, await _inspect_all(connect, resource, seen), kube)
    if log.isEnabledFor(logging.DEBUG) and (conflicts := seen.view.settled):
        log.debug("%s: %s", key, conflicts)
    return seen


async def _config(resource: RedisCluster, kube: Kube) -> ConfigTemplate:
    """Read the user's redis.conf live: ConfigMaps of users are not watched."""
    name = resource.config_template
    if not name:
        return ConfigTemplate()
    at = "spec.pod[0].configmap"
    found = await kube.find(CONFIG_MAP, resource.namespace, name)
    if found is None:
        message = f"{at}: ConfigMap {name} does not exist. Create it with the key {CONFIG_KEY}, or change the name."
        return ConfigTemplate(problem=SecretProblem(CONFIG_MAP_MISSING, message))
    text = (found.get("data") or {}).get(CONFIG_KEY)
    if text is None and (why := excess(found, [CONFIG_KEY])):
        return ConfigTemplate(problem=SecretProblem(CONFIG_MAP_INVALID, f"{at}: ConfigMap {name}: {why}"))
    if text is None:
        message = f"{at}: ConfigMap {name} has no key {CONFIG_KEY}. Add it, or change the name."
        return ConfigTemplate(problem=SecretProblem(CONFIG_MAP_MISSING, message))
    reduce(found, {CONFIG_KEY: text[: redis_conf.MAX_BYTES + 1]})
    if why := redis_conf.excess(text):
        message = f"{at}: ConfigMap {name}: {CONFIG_KEY} {why}. Shorten it."
        return ConfigTemplate(problem=SecretProblem(CONFIG_MAP_INVALID, message))
    return ConfigTemplate(text)


async def _in_zones(zones: Zones, instances: Sequence[Instance], kube: Kube) -> tuple[Instance, ...]:
    """Return the instances with the zones that their pods run in."""
    known = await zones.of([instance.pod_obj for instance in instances if instance.pod_obj and instance.host], kube)
    return tuple(
        dataclasses.replace(instance, zone=known[instance.host]) if instance.host else instance
        for instance in instances
    )


def _pod_number(resource: RedisCluster, pod: Obj) -> int | None:
    if not ownership.is_replica(pod, STATEFUL_SET, resource.name, names.selector(resource)):
        return None
    return ordinal(pod["metadata"]["name"], resource.name)


def _expected(resource: RedisCluster, seen: Observed, nodes: Collection[int]) -> int:
    """Return how many instances there should be, or may be again: up to the last that has a recorded node."""
    replicas = ordinals.replicas(seen.stateful_set, MAX_REPLICAS)
    return max(resource.spec.replicas, replicas, *(number + 1 for number in nodes))


async def _unlabelled(resource: RedisCluster, numbers: Sequence[int], kube: Kube) -> dict[int, Obj]:
    """Return the claims of instances that the cache lacks: a StatefulSet mounts claims by name, and not by labels."""
    found = await asyncio.gather(
        *(
            kube.find(PERSISTENT_VOLUME_CLAIM, resource.namespace, names.volume_name(resource, number))
            for number in numbers
        )
    )
    return {number: claim for number, claim in zip(numbers, found, strict=True) if claim is not None}


def _instance(
    resource: RedisCluster,
    number: int,
    pod_obj: Obj | None,
    volume: Obj | None,
    recorded: RecordedNode | None,
    deleted: Mapping[str, float],
) -> Instance:
    name = names.node_name(resource, number)
    pod = Pod.of(pod_obj, container=names.CONTAINER) if pod_obj else None
    instance = Instance(
        number,
        name,
        pod=pod if pod and not pod.ended else None,
        pod_obj=pod_obj,
        recorded=recorded,
        deleted_seconds=deleted.get(pod_obj["metadata"]["uid"]) if pod_obj else None,
    )
    return _with_holder(resource, instance, volume if resource.has_storage else pod_obj)


def _with_holder(resource: RedisCluster, instance: Instance, holder: Obj | None) -> Instance:
    """Return the instance with its storage: its volume, or without storage its pod, which may mount a shared volume."""
    if resource.has_storage:
        instance = dataclasses.replace(instance, volume=holder)
    return dataclasses.replace(instance, disk=_disk(resource, holder) if holder else "")


def _disk(resource: RedisCluster, holder: Obj) -> str:
    shared = resource.spec.template.volumes
    if shared is None:
        return str(holder["metadata"]["uid"])
    return shared.persistent_volume_claim_name or str((holder.get("spec") or {}).get("nodeName") or "")


async def _inspect_all(connect: Connect, resource: RedisCluster, seen: Observed) -> Observed:
    """Inspect all nodes in parallel."""
    addressable = [instance for instance in seen.instances if instance.pod and instance.pod.address]
    turn, entries, limit = asyncio.Lock(), Entries(len(seen.instances)), asyncio.Semaphore(MAX_CONNECTIONS)
    settings = redis_conf.names(resource, seen.config.text, seen.config_map)
    users = _spec_users(resource, seen)

    async def inspect(instance: Instance) -> NodeReport | RedisError:
        async with limit:
            return await _inspect(connect, resource, seen, instance, settings, users, turn, entries)

    with few_long_answers():
        answers = await asyncio.gather(*map(inspect, addressable))
        reports = {instance.number: answer for instance, answer in zip(addressable, answers, strict=True)}
        instances = tuple(_with_answer(instance, reports.get(instance.number)) for instance in seen.instances)
        return await _with_unowned(connect, resource, dataclasses.replace(seen, instances=instances), entries, limit)


def _spec_users(resource: RedisCluster, seen: Observed) -> list[str]:
    """Return the names of the users of the spec, and of those that nodes may still have, with their revisions."""
    found = dict.fromkeys([*(user.name for user in resource.spec.users), *seen.secrets.applied_users])
    return [name for user in found for name in (user, revision_of(user))]


async def _with_unowned(
    connect: Connect, resource: RedisCluster, seen: Observed, entries: Entries, limit: asyncio.Semaphore
) -> Observed:
    """Count the keys of slots that no node claims, if all recorded nodes are reachable.

    While one is not, it may own the slots.
    """
    reports = [instance.report for instance in seen.instances if instance.report]
    ids = {report.id for report in reports}
    known = {instance.recorded.node_id for instance in seen.instances if instance.recorded}
    unowned = Slots.all() - Slots.union(report.me.slots for report in reports)
    if not resource.formed or not unowned or known - ids:
        return seen

    async def counted(instance: Instance) -> Instance:
        if instance.report is None or instance.report.me.is_replica:
            return instance
        server = connect(endpoint(resource, instance), seen.secrets.access)
        try:
            async with limit:
                if await server.execute("CLUSTER", "MYID") != instance.id:
                    return dataclasses.replace(instance, report=None, error=ELSEWHERE)
                suspected = unowned | _suspected(resource, instance, instance.id)
                report = await count_strays(server, instance.report, suspected, entries)
        except RedisError as error:
            return _with_answer(dataclasses.replace(instance, report=None), error)
        finally:
            await server.aclose()
        return dataclasses.replace(instance, report=report)

    return dataclasses.replace(seen, instances=tuple(await asyncio.gather(*map(counted, seen.instances))))


async def _inspect(
    connect: Connect,
    resource: RedisCluster,
    seen: Observed,
    instance: Instance,
    settings: Collection[str],
    users: Collection[str],
    turn: asyncio.Lock,
    entries: Entries,
) -> NodeReport | RedisError:
    """Return the report of one node, or why there is none."""
    server = connect(endpoint(resource, instance), seen.secrets.access)
    try:
        found = await request_report(server, settings, users)
        async with turn:  # responses that arrive together are parsed one in each turn of the event loop
            await asyncio.sleep(0)
            report = report_of(found, users, entries)
        return await count_strays(server, report, _suspected(resource, instance, report.id), entries)
    except RedisError as error:
        error.__context__ = None  # with the traceback, it would keep what has arrived
        return error.with_traceback(None)
    finally:
        await server.aclose()


def _suspected(resource: RedisCluster, instance: Instance, node_id: str) -> Slots:
    """Return the slots of which a node may hold foreign keys: recorded ones, its own or those of its former primary."""
    if not (foreign := resource.recorded_foreign):
        return Slots()
    known = instance.recorded
    lineage = {node_id, *((known.primary, known.copy_of) if known and known.node_id == node_id else ())}
    return Slots.union(slots for holder, slots in foreign.items() if holder in lineage)


def _with_answer(instance: Instance, answer: NodeReport | RedisError | None) -> Instance:
    if isinstance(answer, RedisError):
        denied, distrusts = isinstance(answer, Denied), isinstance(answer, Unreachable) and answer.distrusts
        return dataclasses.replace(instance, error=str(answer), denied=denied, distrusts=distrusts)
    return dataclasses.replace(instance, report=answer)


async def _confirm(resource: RedisCluster, seen: Observed, kube: Kube) -> Observed:
    """Read live what an irreversible step would depend on, because the cache may be stale.

    That is the pod of an unexpected node, and a volume that differs from the recorded one.
    """
    instances = await asyncio.gather(*(_confirmed(resource, instance, kube) for instance in seen.instances))
    return dataclasses.replace(seen, instances=tuple(_without_copies(resource, instances)))


async def _confirmed(resource: RedisCluster, instance: Instance, kube: Kube) -> Instance:
    if instance.report and not (instance.recorded and instance.recorded.node_id == instance.id):
        live = await kube.find(POD, resource.namespace, instance.name)
        if not _same(live, instance.pod_obj):
            instance = dataclasses.replace(instance, report=None, error=ELSEWHERE)
    if instance.recorded and instance.recorded.disk and instance.disk != instance.recorded.disk:
        kind = PERSISTENT_VOLUME_CLAIM if resource.has_storage else POD
        name = names.volume_name(resource, instance.number) if resource.has_storage else instance.name
        return _with_holder(resource, instance, await kube.find(kind, resource.namespace, name))
    return instance


def _without_copies(resource: RedisCluster, instances: Sequence[Instance]) -> Iterator[Instance]:
    """Yield the instances without reports of servers that may run on a copy of another one's volume.

    Such a server has the node id of the original. The id belongs to the instance that the status records for it, as
    long as that has the recorded volume; else to none of several that report it. One process that answers at the
    addresses of two pods is no copy: one of the addresses is a former one.
    """
    reporting, owners = defaultdict[str, list[Instance]](list), defaultdict[str, list[Instance]](list)
    for each in instances:
        reporting[each.id].append(each)
        marked = annotation(each.volume, CLAIM_UID) or each.disk  # on a copy, the UID of the original
        if each.recorded and each.disk and each.disk == each.recorded.disk and marked == each.disk:
            owners[each.recorded.node_id].append(each)
    for each in instances:
        others = [other for other in owners[each.id] or reporting[each.id] if each.report and other is not each]
        yield dataclasses.replace(each, report=None, error=_why_not(resource, each, others)) if others else each


def _why_not(resource: RedisCluster, instance: Instance, others: Sequence[Instance]) -> str:
    """Return why a server is not the node of an instance: others have its node id."""
    if any(other.report and instance.report and other.report.run_id == instance.report.run_id for other in others):
        return ELSEWHERE
    unless = "" if all(other.report for other in others) else ", unless that pod has this address now"
    claim = f"pvc/{names.volume_name(resource, instance.number)} " if instance.volume else ""
    listed = " and ".join(other.name for other in others)
    delete = command("delete", f"{claim}pod/{instance.name}", resource.namespace)
    return COPIED.format(others=listed, unless=unless, command=delete)


def _same(live: Obj | None, known: Obj | None) -> bool:
    """Return whether a pod is still the inspected one, at the inspected address."""
    if live is None or known is None or live["metadata"]["uid"] != known["metadata"]["uid"]:
        return False
    return bool((live.get("status") or {}).get("podIP") == (known.get("status") or {}).get("podIP"))
