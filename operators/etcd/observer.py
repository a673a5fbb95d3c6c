"""Gathers what there is of an EtcdCluster: Kubernetes' part from the cache, etcd's live from its members.

A member that does not answer keeps none of the others from being heard: it is a place with an error. Whether that is
its own trouble or the way to it, the plan must judge.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from operators.etcd import observe
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import view
from operators.etcd.client.errors import Denied, EtcdError
from operators.etcd.client.server import Connect, EndpointStatus, HashKV, Member, Members, Server
from operators.etcd.membership.corruption import suspected
from operators.etcd.membership.layout import begun
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import SEED, successor
from operators.etcd.objects.names import COMPONENT, DATA
from operators.etcd.observe import Instance, Observed, has_empty_data_dir
from operators.etcd.security.secrets import read
from operators.etcd.steps.credentials import former
from shared.kubernetes import ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Key, Kind, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.cache import Cache

Observe = Callable[[EtcdCluster, Cache, Kube], Awaitable[Observed]]

Answer = TypeVar("Answer")

Servers = dict[int, Server]
"""Connections to members, by number."""


def observer(connect: Connect) -> Observe:
    """Gathers what there is of an EtcdCluster.

    Args:
        connect: to a member's server.
    """
    return partial(_observe, connect)


async def _observe(connect: Connect, resource: EtcdCluster, cache: Cache, kube: Kube) -> Observed:
    key = Key(resource.namespace, resource.name)
    seen = Observed(
        stateful_set=cache.get(STATEFUL_SET, *key),
        disruption_budget=ownership.made_for(resource.uid, cache.get(DISRUPTION_BUDGET, *key)),
        secrets=await read(resource, kube),
        backup=await view.observe(resource, cache, kube),
    )
    pods = cache.owned(POD, key)
    members = {number: pod for pod in pods if (number := _member_number(resource, pod)) is not None}
    job_pods = {pod["metadata"]["name"]: pod for pod in pods if pod not in members.values()}
    volumes = {
        number: volume
        for volume in cache.owned(PERSISTENT_VOLUME_CLAIM, key)
        if (number := _volume_number(resource, volume)) is not None
    }
    numbers = {*range(_expected(resource, seen)), *members, *volumes}
    places = tuple(_place(resource, number, members.get(number), volumes.get(number)) for number in sorted(numbers))
    seen = dataclasses.replace(seen, places=places, job_pods=job_pods)
    return await _look_closer(resource, await _hear(connect, resource, seen), kube)


async def _hear(connect: Connect, resource: EtcdCluster, before: Observed) -> Observed:
    """What members say to whom the Secret makes of us; if they let that one not in, to whom it made before."""
    async with _connected(connect, resource, before) as servers:
        seen = await _ask(resource, before, servers)
    access = former(seen.secrets)
    if not seen.denied or access is None:
        return seen
    before = dataclasses.replace(before, secrets=dataclasses.replace(before.secrets, access=access))
    async with _connected(connect, resource, before) as servers:
        again = await _ask(resource, before, servers)
    return seen if again.denied else dataclasses.replace(again, former_password=True)


def _member_number(resource: EtcdCluster, pod: Obj) -> int | None:
    labels = pod["metadata"].get("labels") or {}
    if labels.get(ownership.COMPONENT) != COMPONENT:
        return None
    return names.number_of(resource, pod["metadata"]["name"])


def _volume_number(resource: EtcdCluster, volume: Obj) -> int | None:
    name = volume["metadata"]["name"]
    return names.number_of(resource, name.removeprefix(f"{DATA}-")) if name.startswith(f"{DATA}-") else None


def _expected(resource: EtcdCluster, seen: Observed) -> int:
    replicas = int(seen.stateful_set["spec"]["replicas"]) if seen.stateful_set else 0
    return max(resource.spec.size, replicas)


def _place(resource: EtcdCluster, number: int, pod_obj: Obj | None, volume: Obj | None) -> Instance:
    name = names.member_name(resource, number)
    pod = Pod.of(pod_obj, container=names.CONTAINER) if pod_obj else None
    holder = volume if resource.spec.storage.medium == "Volume" else pod_obj
    return Instance(
        number,
        name,
        pod=pod if pod and not pod.ended else None,
        pod_obj=pod_obj,
        volume=volume,
        disk=holder["metadata"]["uid"] if holder else "",
        recorded=next((known.volume for known in resource.recorded_members if known.name == name), ""),
        empty_data_dir=has_empty_data_dir(pod_obj),
    )


@asynccontextmanager
async def _connected(connect: Connect, resource: EtcdCluster, seen: Observed) -> AsyncIterator[Servers]:
    """Connections to every pod that has an address; nothing is sent yet."""
    servers = {
        place.number: connect(observe.endpoint(resource, place), seen.secrets.access)
        for place in seen.places
        if place.pod and place.pod.address
    }
    try:
        yield servers
    finally:
        await asyncio.gather(*(server.aclose() for server in servers.values()))


async def _ask(resource: EtcdCluster, seen: Observed, servers: Servers) -> Observed:
    """What members say: each of itself, and one of those that take part of the cluster."""
    answers = await asyncio.gather(*(_answer(server.status()) for server in servers.values()))
    said = dict(zip(servers, answers, strict=True))
    if not any(isinstance(answer, EndpointStatus) for answer in answers):
        seen = dataclasses.replace(seen, denied=next((str(no) for no in answers if isinstance(no, Denied)), ""))
    places = tuple(_with_answer(place, said.get(place.number)) for place in seen.places)
    seen = dataclasses.replace(seen, places=places, cluster_id=_cluster_id(resource, places))
    for place in _voices(seen):
        server = servers[place.number]
        found = await _answer(server.members())
        if isinstance(found, Members):
            seen = with_members(resource, seen, found)
            return await _ask_further(seen, place, server, servers)
    return await _ask_remembered(seen, servers)


async def _answer(question: Awaitable[Answer]) -> Answer | EtcdError:
    """An answer, or why there is none."""
    try:
        return await question
    except EtcdError as error:
        return error


def _with_answer(place: Instance, answer: EndpointStatus | EtcdError | None) -> Instance:
    if isinstance(answer, EtcdError):
        return dataclasses.replace(place, error=str(answer))
    return dataclasses.replace(place, status=answer)


def _cluster_id(resource: EtcdCluster, places: Iterable[Instance]) -> int:
    """That which a recovery makes, else the recorded one, if anybody answers with it; else what anybody says."""
    found = [place.status.cluster_id for place in places if place.status]
    known = (successor(resource), resource.recorded_cluster_id)
    return next((cluster_id for cluster_id in (*known, *found) if cluster_id in found), 0)


def _voices(seen: Observed) -> list[Instance]:
    """Who can tell the list: members of this cluster that know a leader; the leader itself first."""
    able = [
        place
        for place in seen.answering
        if place.status
        and place.status.leader
        and not place.status.learner
        and place.status.cluster_id == seen.cluster_id
    ]
    return sorted(able, key=lambda place: (place is not seen.leader, place.number))[:3]


def with_members(resource: EtcdCluster, seen: Observed, found: Members) -> Observed:
    """The places with their members: each by its peer URL, and with the disk that is recorded for this very member."""
    by_number: dict[int, Member] = {}
    for member in found.members:
        for url in member.peer_urls:
            if (number := names.number_of(resource, url)) is not None:
                by_number[number] = member
    places = {place.number: place for place in seen.places}
    for number in by_number.keys() - places.keys():
        places[number] = _place(resource, number, None, None)
    recorded = {known.id: known.volume for known in resource.recorded_members if known.id}
    for number, member in by_number.items():
        places[number] = dataclasses.replace(places[number], member=member, recorded=recorded.get(member.id, ""))
    return dataclasses.replace(
        seen,
        places=tuple(places[number] for number in sorted(places)),
        members=found.members,
        cluster_id=found.cluster_id,
    )


async def _ask_further(seen: Observed, voice: Instance, server: Server, servers: Servers) -> Observed:
    """What else one member can say of the cluster, and what is asked only where something is the matter."""
    version, auth = await asyncio.gather(_answer(server.cluster_version()), _answer(server.auth_enabled()))
    seen = dataclasses.replace(
        seen,
        alarms=voice.status.alarms if voice.status else (),
        cluster_version=version if isinstance(version, str) else "",
        auth_enabled=auth if isinstance(auth, bool) else None,
    )
    leader = seen.leader
    if seen.is_full and leader and leader.status and leader.number in servers:
        compacted = await _answer(servers[leader.number].is_compacted(leader.status.revision))
        seen = dataclasses.replace(seen, compacted=compacted is True)
    return dataclasses.replace(seen, hashes=await _hashes(seen, servers)) if suspected(seen) else seen


async def _hashes(seen: Observed, servers: Servers) -> dict[int, HashKV]:
    """Every voter's hash at the lowest revision that any of them is at."""
    asked = [place for place in seen.places if place.status and place.member and not place.member.learner]
    revision = min((place.status.revision for place in asked if place.status), default=0)
    answers = await asyncio.gather(*(_answer(servers[place.number].hash_kv(revision)) for place in asked))
    return {
        place.member.id: answer
        for place, answer in zip(asked, answers, strict=True)
        if place.member and isinstance(answer, HashKV)
    }


async def _ask_remembered(seen: Observed, servers: Servers) -> Observed:
    """Where nobody knows a quorum: the list as the most advanced has it, and how far the silent ones' data goes."""
    silent = [number for number in servers if (place := seen.place(number)) and place.status is None]
    answers = await asyncio.gather(*(_answer(servers[number].progress()) for number in silent))
    progress = {
        number: answer for number, answer in zip(silent, answers, strict=True) if not isinstance(answer, EtcdError)
    }
    places = tuple(dataclasses.replace(place, progress=progress.get(place.number)) for place in seen.places)
    seen = dataclasses.replace(seen, places=places)
    advanced = sorted(
        (place for place in seen.answering if place.status and place.status.cluster_id == seen.cluster_id),
        key=lambda place: (place.status.raft_term, place.status.raft_index) if place.status else (0, 0),
        reverse=True,
    )
    for place in advanced:
        found = await _answer(servers[place.number].remembered_members())
        if isinstance(found, Members):
            return dataclasses.replace(seen, remembered=found.members)
    return seen


async def _look_closer(resource: EtcdCluster, seen: Observed, kube: Kube) -> Observed:
    """Read live what a step that cannot be taken back would rest on: the cache may be behind, or not know it at all.

    That is a disk that seems to be another than the recorded one, and a volume that would be in the way of a member
    that is to come, which somebody else may have made.
    """
    places = [await _looked_at(resource, seen, place, kube) for place in seen.places]
    return dataclasses.replace(seen, places=tuple(places))


async def _looked_at(resource: EtcdCluster, seen: Observed, place: Instance, kube: Kube) -> Instance:
    in_volume = resource.spec.storage.medium == "Volume"
    if seen.lost(place) and place.empty_data_dir:
        place = dataclasses.replace(
            place, empty_data_dir=has_empty_data_dir(await _live(kube, POD, resource.namespace, place.name))
        )
    if seen.lost(place) and not place.empty_data_dir:
        kind, name = (
            (PERSISTENT_VOLUME_CLAIM, names.volume_name(resource, place.number)) if in_volume else (POD, place.name)
        )
        return _with_holder(place, await _live(kube, kind, resource.namespace, name), in_volume=in_volume)
    if in_volume and place.volume is None and _may_come(resource, seen, place):
        name = names.volume_name(resource, place.number)
        return _with_holder(place, await _live(kube, PERSISTENT_VOLUME_CLAIM, resource.namespace, name), in_volume=True)
    return place


def _may_come(resource: EtcdCluster, seen: Observed, place: Instance) -> bool:
    """Whether a volume is about to be made here: for the seed, or for a member that is to be added."""
    replicas = int(seen.stateful_set["spec"]["replicas"]) if seen.stateful_set else 0
    if seen.members is None:
        return place.number == SEED and seen.stateful_set is None and not begun(resource, seen)
    missing = [other.number for other in seen.places if other.member is None and other.number >= replicas]
    return place.number == min(missing, default=None) and place.number < resource.spec.size


def _with_holder(place: Instance, holder: Obj | None, *, in_volume: bool) -> Instance:
    disk = holder["metadata"]["uid"] if holder else ""
    return dataclasses.replace(place, disk=disk, volume=holder if in_volume else place.volume)


async def _live(kube: Kube, kind: Kind, namespace: str, name: str) -> Obj | None:
    try:
        return await kube.get(kind, namespace, name)
    except NotFound:
        return None
