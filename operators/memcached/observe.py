"""Observes a Memcached: from the cache, and live for Secrets, certificates, users, versions and gets of its servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from operators.memcached.api.resource import WORKLOADS, Memcached, workload_kind
from operators.memcached.client.errors import Unreachable
from operators.memcached.facts.pause import CHECK_INTERVAL_SECONDS
from operators.memcached.objects.names import owner, server_hosts
from operators.memcached.objects.pod import CONTAINER, reloads_users
from operators.memcached.replica_sets import ReplicaSets
from operators.memcached.security.certificates import ServedCertificate, inspect_certificate
from operators.memcached.security.connection import Access, Connect
from operators.memcached.security.secrets import read_secrets
from operators.memcached.security.users import AcceptedUsers, Attest, inspect_users
from operators.memcached.security.versions import inspect_response, inspect_version
from operators.memcached.state.observed import Observed, Workload
from operators.memcached.traffic import WINDOW_SECONDS, Meter, Traffic, inspect_traffic
from shared.kubernetes import ownership
from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, NETWORK_POLICY, POD, Key, Kind, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.cache import Cache
from shared.runtime.steady_clock import elapsed
from shared.status.phases import CREATING, SCALING, UPDATING
from shared.steps import connection
from shared.steps.network_policy import network_policy_name

MAX_COMPARED = 8
"""Maximum number of servers that became ready last, and that became ready first, whose gets are inspected."""

MAX_GAP_SECONDS = 120.0
"""Longest time between two queries of one outage: 60 s between observations that fail, and 48 s for a query."""

KEPT_SECONDS = 3600.0
"""Time after which a query is forgotten: the resource has been deleted, or the resync would have observed it."""

Observe = Callable[[Memcached, Cache, Kube], Awaitable[Observed]]


@dataclass(frozen=True, slots=True)
class _Query:
    """Result of the last query whether servers respond.

    Attributes:
        at: monotonic time of the result, in seconds.
        errors: servers that did not respond, by pod: why.
        since: times of the first of several such results, by pod.
    """

    at: float
    errors: Mapping[str, Unreachable] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)


def observer(connect: Connect, attest: Attest, clock: Callable[[], float] = elapsed) -> Observe:
    """Return a function that observes a Memcached.

    Args:
        connect: opens a connection to a running server.
        attest: queries the sidecar of a running server.
        clock: monotonic time in seconds.
    """
    return partial(_observe, connect, attest, clock, dict[str, _Query](), Meter(), ReplicaSets())


async def _observe(
    connect: Connect,
    attest: Attest,
    clock: Callable[[], float],
    queries: dict[str, _Query],
    meter: Meter,
    replica_sets: ReplicaSets,
    resource: Memcached,
    cache: Cache,
    kube: Kube,
) -> Observed:
    key = Key(resource.namespace, resource.name)
    pods = cache.owned(POD, key)
    found = {kind: cache.get(kind, *key) for kind in WORKLOADS.values()}
    workloads = {kind: await _workload(kind, obj, pods, replica_sets, kube) for kind, obj in found.items()}
    workload = workloads.pop(_kind(resource, found))
    (other,) = workloads.values()
    # With authentication, the Secret may remember a password from which another one is restored.
    is_new = resource.is_new and resource.spec.auth is None
    connected = await connection.read(kube, cache, resource.obj, is_new=is_new)
    template = workload.obj["spec"]["template"] if workload.obj is not None else None
    is_former = template is not None and not reloads_users(template)
    secrets = await read_secrets(resource, kube, connected, template, hashes_users=is_former)
    former = other if ownership.owned_by(resource.uid, other.obj) else None
    running = workload.joined(former)
    access = Access(connect, running.ports, secrets, resource.certificate, server_hosts(resource))
    query = await _query(access, queries, clock, resource, running)
    return Observed(
        workload=workload,
        former=former,
        disruption_budget=cache.get(DISRUPTION_BUDGET, *key),
        network_policy=cache.get(NETWORK_POLICY, key.namespace, network_policy_name(key.name)),
        autoscaler=cache.get(AUTOSCALER, *key),
        secrets=secrets,
        served_certificates=await _served_certificates(access, resource, workload),
        accepted_users=await _accepted_users(access, attest, resource, workload),
        server_images=await _server_images(access, attest, resource, workload),
        unresponsive=query.errors,
        outages={name: query.at - since for name, since in query.since.items()},
        traffic=await _traffic(access, meter, resource, workload),
        connection=connected,
    )


def _kind(resource: Memcached, found: Mapping[Kind, Obj | None]) -> Kind:
    """Return the kind of the workload.

    Raises:
        FormerObject: a workload of a former resource of the name exists. The garbage collector deletes it, or removes
            its owner: then it is adopted, and decides.
    """
    own = owner(resource, "")
    labels = {ownership.NAME: own.application, ownership.INSTANCE: own.name}  # what is watched has that of the operator
    present = {kind: obj for kind, obj in found.items() if obj and not is_terminating(obj)}
    existing = [kind for kind, obj in present.items() if ownership.belongs_to(obj, own.uid, labels)]
    if resource.chosen_workload is None and not existing:
        for obj in present.values():
            if (controller := ownership.controller_of(obj)) and own.was(controller):
                ownership.require_owned({"metadata": {"ownerReferences": [own.reference()]}}, obj)
    return workload_kind(resource, existing)


async def _workload(
    kind: Kind, obj: Obj | None, pods: Iterable[Obj], replica_sets: ReplicaSets, kube: Kube
) -> Workload:
    """Return a workload with its pods that have not ended.

    Its pods are those whose controller is the workload, or a ReplicaSet of it, by UID: any pod may have its labels.
    """
    if obj is None:
        return Workload(kind)
    uids = {obj["metadata"]["uid"]} if kind != DEPLOYMENT else await replica_sets.of(obj, pods, kube)
    own = [pod for pod in pods if (ownership.controller_of(pod) or {}).get("uid") in uids]
    found = [(pod, server) for pod in own if not (server := Pod.of(pod, container=CONTAINER)).ended]
    present = tuple(pod for pod, server in found if not server.leaving)
    return Workload(kind, obj, tuple(server for _, server in found), present)


async def _served_certificates(access: Access, resource: Memcached, workload: Workload) -> dict[str, ServedCertificate]:
    """Inspect the certificates of the ready servers, unless the status records that all serve the Secret's.

    While a CA does not sign yet, the inspection shows when servers that verify clients last loaded their files.
    """
    secrets = access.secrets
    awaits_trust = secrets.successor is not None and resource.spec.needs_client_certificate
    if secrets.pair is None or (secrets.fingerprint == resource.certificate and not awaits_trust):
        return {}
    return await _inspect(
        workload.speaking(tls=True),
        lambda pod: inspect_certificate(access, pod.address, handshake_only=pod.name not in workload.queryable),
    )


async def _accepted_users(
    access: Access, attest: Attest, resource: Memcached, workload: Workload
) -> dict[str, AcceptedUsers]:
    """Inspect the users of the ready servers, unless the status records that all have loaded those of the Secret.

    Servers that do not reload the file have read it when they started: a change replaces them.
    """
    secrets = access.secrets
    is_recorded = resource.users_digest == secrets.users_digest
    if not secrets.users or is_recorded or workload.obj is None or not reloads_users(workload.obj["spec"]["template"]):
        return {}
    ports = workload.attesting_users
    return await _inspect(workload.ready, lambda pod: inspect_users(access, attest, pod.address, ports.get(pod.name)))


async def _server_images(access: Access, attest: Attest, resource: Memcached, workload: Workload) -> dict[str, str]:
    """Query one ready server of each running image whose version the status does not record."""
    ids, ports = workload.image_ids, workload.attestation_ports
    known = {image: version for image, version in resource.server_images.items() if image in ids.values()}
    pods = [pod for pod in workload.ready if pod.name in ids and pod.name in workload.queryable]
    queried = {ids[pod.name]: pod for pod in pods if ids[pod.name] not in known}
    found = await asyncio.gather(
        *(inspect_version(access, attest, pod.address, ports.get(pod.name)) for pod in queried.values())
    )
    return known | {image: version for image, version in zip(queried, found, strict=True) if version}


async def _query(
    access: Access, queries: dict[str, _Query], clock: Callable[[], float], resource: Memcached, workload: Workload
) -> _Query:
    """Query the ready servers without a sidecar that would be their readiness probe: the kubelet only connects.

    A spec that is not applied may require TLS, or another workload, than they have. While servers are added or
    replaced, each change of each pod is observed: then the last result counts for a while.

    Args:
        queries: last query of each resource, by UID, as far as the next one depends on it, in the order of their use.
    """
    last, now = queries.pop(resource.uid, None), clock()
    while queries and now - queries[oldest := next(iter(queries))].at > KEPT_SECONDS:
        del queries[oldest]
    before = last if last is not None and now - last.at <= MAX_GAP_SECONDS else _Query(now)
    via = dict.fromkeys((pod.name for pod in workload.speaking(tls=False)), access.without_tls())
    if access.secrets.pair is not None:
        via |= dict.fromkeys((pod.name for pod in workload.speaking(tls=True)), access)
    ports = workload.attestation_ports
    queried = (pod for pod in workload.ready if pod.name in via and ports.get(pod.name) is None)
    pods = [pod for pod in queried if pod.name in workload.queryable]
    is_changing = resource.phase in ("", CREATING, SCALING, UPDATING)
    found: Mapping[str, Unreachable | None]
    is_first = last is None and resource.phase in ("", CREATING)  # not the first one after a restart of the operator
    if is_first or (is_changing and last is not None and now - last.at < CHECK_INTERVAL_SECONDS):
        at, found = before.at, before.errors
    else:
        found, at = await _inspect(pods, lambda pod: inspect_response(via[pod.name], pod.address)), clock()
    errors = {pod.name: error for pod in pods if (error := found.get(pod.name)) is not None}
    query = _Query(at, errors, {name: before.since.get(name, at) for name in errors})
    if is_changing or errors:
        queries[resource.uid] = query
    return query


async def _traffic(access: Access, meter: Meter, resource: Memcached, workload: Workload) -> dict[str, Traffic]:
    """Query the servers while a change replaces them: those that became ready last, and some of the others."""
    if workload.outdated <= 0 or resource.spec.update_strategy.pause_seconds <= WINDOW_SECONDS:
        meter.forget(resource.uid)
        return {}
    since = workload.ready_since
    spoken = workload.speaking(tls=access.secrets.pair is not None)
    pods = sorted((pod for pod in spoken if pod.name in since), key=lambda pod: since[pod.name])
    pods = pods if len(pods) <= 2 * MAX_COMPARED else pods[:MAX_COMPARED] + pods[-MAX_COMPARED:]
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in workload.pod_objs}
    meter.forget(resource.uid, but=uids.values())
    found = await asyncio.gather(*(inspect_traffic(access, pod.address) for pod in pods))
    return {
        pod.name: Traffic(error=each) if isinstance(each, str) else meter.add(resource.uid, uids[pod.name], each)
        for pod, each in zip(pods, found, strict=True)
    }


_Report = TypeVar("_Report")


async def _inspect(pods: Sequence[Pod], inspect: Callable[[Pod], Awaitable[_Report]]) -> dict[str, _Report]:
    """Return the reports on servers, by pod."""
    reports = await asyncio.gather(*map(inspect, pods))
    return dict(zip((pod.name for pod in pods), reports, strict=True))
