"""Collects the observed state of an EtcdCluster: Kubernetes from the cache, etcd live from its members.

An unreachable member does not affect the others: its instance has an error. The plan judges whether the member failed
or only the connection to it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from operators.etcd.api.resource import API, EtcdCluster
from operators.etcd.api.spec import MAX_SIZE
from operators.etcd.backup import view
from operators.etcd.client.errors import Denied, EtcdError, Unauthenticated
from operators.etcd.client.server import Connect, EndpointStatus, HashKV, Members, Server
from operators.etcd.membership.corruption import suspected
from operators.etcd.membership.layout import begun
from operators.etcd.membership.volume_record import own_records
from operators.etcd.objects import names
from operators.etcd.objects.bootstrap import SEED, founded, successor
from operators.etcd.objects.names import DATA
from operators.etcd.security.secrets import CLIENT, CLIENT_ROLE, read
from operators.etcd.state import empty_directory, observed
from operators.etcd.state.empty_directory import EmptyStarts
from operators.etcd.state.observed import ClientUser, Instance, Observed
from operators.etcd.steps.credentials import other_credentials
from shared.kubernetes import ordinals, ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import (
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    Key,
    Obj,
)
from shared.kubernetes.ordinals import ordinal
from shared.kubernetes.pods import Pod
from shared.runtime.cache import Cache
from shared.status.phases import CREATING, RESTORING
from shared.steps import connection
from shared.steps.adoption_observer import adopted_volumes, is_adopting
from shared.steps.hidden_pods import with_hidden
from shared.steps.network_policy import network_policy_name

Observe = Callable[[EtcdCluster, Cache, Kube], Awaitable[Observed]]

Answer = TypeVar("Answer")

_FIRST_REVISION = 2
"""Revision of the first change of a key."""

Servers = dict[int, Server]
"""Connections to members, by number."""


def observer(connect: Connect) -> Observe:
    """Return a function that observes an EtcdCluster.

    Args:
        connect: opens a connection to a member.
    """
    return partial(_observe, connect)


async def _observe(connect: Connect, resource: EtcdCluster, cache: Cache, kube: Kube) -> Observed:
    key = Key(resource.namespace, resource.name)
    seen = Observed(
        stateful_set=cache.get(STATEFUL_SET, *key),
        disruption_budget=cache.get(DISRUPTION_BUDGET, *key),
        network_policy=cache.get(NETWORK_POLICY, key.namespace, network_policy_name(key.name)),
        secrets=await read(resource, kube),
        backup=await view.observe(resource, cache, kube),
        connection=await connection.read(kube, cache, resource.obj),
    )
    pods = cache.owned(POD, key)
    members = {number: pod for pod in pods if (number := names.member_of(resource, pod)) is not None}
    others = [pod for pod in pods if names.member_of(resource, pod) is None]
    job_pods = {pod["metadata"]["name"]: pod for pod in others if ownership.belongs_to(pod, resource.uid, {})}
    stray_pods = {pod["metadata"]["name"]: pod for pod in others if pod["metadata"]["name"] not in job_pods}
    claims = cache.owned(PERSISTENT_VOLUME_CLAIM, key)
    if is_adopting(resource, claims, names.CLUSTER_UID):
        claims, former_resource = await adopted_volumes(resource, API.kind, "etcd", names.CLUSTER_UID, cache, kube)
        seen = dataclasses.replace(seen, former_resource=former_resource)
    numbered = ((ordinal(volume["metadata"]["name"], f"{DATA}-{resource.name}"), volume) for volume in claims)
    volumes = {number: volume for number, volume in numbered if number is not None}
    numbers = ordinals.to_observe(_expected(resource, seen), {*members, *volumes}, MAX_SIZE)
    instances = tuple(_instance(resource, number, members.get(number), volumes.get(number)) for number in numbers)
    if resource.phase not in ("", CREATING, RESTORING):  # pods of a new cluster do not exist yet, and are not read
        instances = await with_hidden(kube, seen.stateful_set, instances)
    seen = dataclasses.replace(seen, instances=instances, job_pods=job_pods, stray_pods=stray_pods)
    return await _read_live(resource, await _query(connect, resource, seen, kube), kube)


async def _query(connect: Connect, resource: EtcdCluster, before: Observed, kube: Kube) -> Observed:
    """Query the members, and etcd's user for applications."""
    seen = await _query_as_root(connect, resource, before, kube)
    password, voter = seen.secrets.client_password, next(iter(seen.healthy_voters), None)
    if not seen.auth_enabled or seen.denied or not password or voter is None:
        return seen
    endpoint, access = observed.endpoint(resource, voter), seen.secrets.access_to(resource, voter.pod_obj)
    as_client = dataclasses.replace(access, user=CLIENT, password=password) if access.user else access
    root, client = (connect(endpoint, each) for each in (access, as_client))
    try:
        return dataclasses.replace(seen, client=await _client_user(root, client))
    finally:
        await asyncio.gather(root.aclose(), client.aclose())


async def _client_user(root: Server, client: Server) -> ClientUser | None:
    """Log in as the user for applications; only if etcd denies that, read its roles, which is an entry of Raft's log.

    etcd denies an unknown user, a wrong password and a lack of permission. A user is the operator's if it has the
    operator's role or accepts the password that only the operator generated; the latter, when the operator stopped
    before it granted the role.
    """
    answer = await _answer(client.is_compacted(_FIRST_REVISION))
    if not isinstance(answer, EtcdError):
        return ClientUser(accepted=True)
    if not isinstance(answer, Denied) or isinstance(answer, Unauthenticated):  # its token was outdated twice
        return None
    login, roles = await asyncio.gather(_answer(client.authenticate()), _answer(root.roles(CLIENT)))
    if isinstance(roles, EtcdError) or (isinstance(login, EtcdError) and not isinstance(login, Denied)):
        return None
    is_own = roles is None or CLIENT_ROLE in roles or login is None
    return ClientUser(accepted=False, roles=roles, is_own=is_own)


async def _query_as_root(connect: Connect, resource: EtcdCluster, before: Observed, kube: Kube) -> Observed:
    """Query the members with the password of the user's Secret, or else with the others that may be valid."""
    async with _connected(connect, resource, before) as servers:
        seen = await _query_members(resource, before, servers)
    if not seen.denied:
        return seen
    if resource.spec.auth is None:  # it was removed: the operator's own Secret is read only now
        before = dataclasses.replace(before, secrets=await read(resource, kube, with_stored=True))
    for access in other_credentials(before.secrets, refused=seen.secrets.access):
        attempt = dataclasses.replace(before, secrets=dataclasses.replace(before.secrets, access=access))
        async with _connected(connect, resource, attempt) as servers:
            again = await _query_members(resource, attempt, servers)
        if not again.denied:
            return dataclasses.replace(again, former_password=True)
    return seen


def _expected(resource: EtcdCluster, seen: Observed) -> int:
    replicas = ordinals.replicas(seen.stateful_set, MAX_SIZE)
    known = (names.number_of(resource, member.name) for member in resource.recorded_members)
    return max(resource.spec.size, replicas, *(number + 1 for number in known if number is not None))


def _instance(resource: EtcdCluster, number: int, pod_obj: Obj | None, volume: Obj | None) -> Instance:
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
        empty=_empty_starts(resource, name, pod_obj),
    )


def _empty_starts(resource: EtcdCluster, name: str, pod: Obj | None) -> EmptyStarts | None:
    before = next((known.found_empty for known in resource.recorded_members if known.name == name), None)
    return empty_directory.observed(pod, before)


@asynccontextmanager
async def _connected(connect: Connect, resource: EtcdCluster, seen: Observed) -> AsyncIterator[Servers]:
    """Connect to every pod that has an address; nothing is sent yet."""
    servers = {
        instance.number: connect(
            observed.endpoint(resource, instance), seen.secrets.access_to(resource, instance.pod_obj)
        )
        for instance in seen.instances
        if instance.pod and instance.pod.address
    }
    try:
        yield servers
    finally:
        await asyncio.gather(*(server.aclose() for server in servers.values()))


async def _query_members(resource: EtcdCluster, seen: Observed, servers: Servers) -> Observed:
    """Query each member for its own status, and one healthy member for the state of the cluster."""
    answers = await asyncio.gather(*(_answer(server.status()) for server in servers.values()))
    replies = dict(zip(servers, answers, strict=True))
    if not any(isinstance(answer, EndpointStatus) for answer in answers):
        seen = dataclasses.replace(seen, denied=next((str(no) for no in answers if isinstance(no, Denied)), ""))
    instances = tuple(_with_reply(instance, replies.get(instance.number)) for instance in seen.instances)
    seen = dataclasses.replace(seen, instances=instances, cluster_id=_cluster_id(resource, instances))
    for instance in _queryable(seen):
        server = servers[instance.number]
        found = await _answer(server.members())
        if isinstance(found, Members):
            seen = with_members(resource, seen, found)
            return await _query_cluster(seen, instance, server, servers)
        if isinstance(found, Denied):  # 3.4 answers its status without a password
            seen = dataclasses.replace(seen, denied=str(found))
    return await _query_without_quorum(seen, servers)


async def _answer(request: Awaitable[Answer]) -> Answer | EtcdError:
    """Return the response, or the error."""
    try:
        return await request
    except EtcdError as error:
        return error.with_traceback(None)  # which would keep what has arrived


def _with_reply(instance: Instance, answer: EndpointStatus | EtcdError | None) -> Instance:
    if isinstance(answer, EtcdError):
        return dataclasses.replace(instance, error=str(answer))
    return dataclasses.replace(instance, status=answer)


def _cluster_id(resource: EtcdCluster, instances: Sequence[Instance]) -> int:
    """Return the id of the recovery's cluster, or the recorded one, if a member reports it; else any reported id.

    Before an id is recorded, or after it was lost, only one counts that follows from the UID of the resource, or that
    its own volume claims have: members of a deleted resource of this name may still answer.
    """
    found = [instance.status.cluster_id for instance in instances if instance.status]
    recorded = resource.recorded_cluster_id
    known = [successor(resource), recorded, *found] if recorded else [founded(resource)]
    if not recorded:
        known += [record.cluster_id for record in own_records(resource, instances)]
    return next((cluster_id for cluster_id in known if cluster_id in found), 0)


def _queryable(seen: Observed) -> list[Instance]:
    """Return members that can provide the list: voters of this cluster that know a leader; the leader first."""
    able = [
        instance
        for instance in seen.answering
        if instance.status
        and instance.status.leader
        and not instance.status.learner
        and instance.status.cluster_id == seen.cluster_id
    ]
    return sorted(able, key=lambda instance: (instance is not seen.leader, instance.number))[:3]


def with_members(resource: EtcdCluster, seen: Observed, found: Members) -> Observed:
    """Assign members to instances by peer URL, with the volume that is recorded for exactly this member."""
    numbers = [(observed.number_of_member(resource, member), member) for member in found.members]
    by_number = {number: member for number, member in numbers if number is not None}
    instances = {instance.number: instance for instance in seen.instances}
    for number in by_number.keys() - instances.keys():
        instances[number] = _instance(resource, number, None, None)
    recorded = {known.id: known.volume for known in resource.recorded_members if known.id}
    for number, member in by_number.items():
        instances[number] = dataclasses.replace(instances[number], member=member, recorded=recorded.get(member.id, ""))
    return dataclasses.replace(
        seen,
        instances=tuple(instances[number] for number in sorted(instances)),
        members=found.members,
        cluster_id=found.cluster_id,
    )


async def _query_cluster(seen: Observed, source: Instance, server: Server, servers: Servers) -> Observed:
    """Query one member for the state of the cluster; some queries are sent only if there is a problem."""
    version, auth = await asyncio.gather(_answer(server.cluster_version()), _answer(server.auth_enabled()))
    seen = dataclasses.replace(
        seen,
        alarms=source.status.alarms if source.status else (),
        cluster_version=version if isinstance(version, str) else "",
        auth_enabled=auth if isinstance(auth, bool) else None,
    )
    if auth is True:  # before 3.5.22, status and list of members need no password, but changes do
        permitted = await _answer(server.is_compacted(_FIRST_REVISION))
        if isinstance(permitted, Denied):
            return dataclasses.replace(seen, denied=str(permitted))
    seen = await _query_learner(seen, servers)
    leader = seen.leader
    if seen.is_full and leader and leader.status and leader.number in servers:
        compacted = await _answer(servers[leader.number].is_compacted(leader.status.revision))
        seen = dataclasses.replace(seen, compacted=compacted is True)
    return dataclasses.replace(seen, hashes=await _hashes(seen, servers)) if suspected(seen) else seen


async def _query_learner(seen: Observed, servers: Servers) -> Observed:
    """Query the metrics of a learner that does not answer: while it receives a snapshot, it serves nothing else."""
    learner = seen.instance_of(seen.learner) if seen.learner else None
    if learner is None or learner.status is not None or learner.number not in servers:
        return seen
    found = await _answer(servers[learner.number].progress())
    if isinstance(found, EtcdError):
        return seen
    instances = (dataclasses.replace(each, progress=found) if each is learner else each for each in seen.instances)
    return dataclasses.replace(seen, instances=tuple(instances))


async def _hashes(seen: Observed, servers: Servers) -> dict[int, HashKV]:
    """Return the hash of every voter at the lowest revision of any voter."""
    queried = [
        instance for instance in seen.instances if instance.status and instance.member and not instance.member.learner
    ]
    revision = min((instance.status.revision for instance in queried if instance.status), default=0)
    answers = await asyncio.gather(*(_answer(servers[instance.number].hash_kv(revision)) for instance in queried))
    return {
        instance.member.id: answer
        for instance, answer in zip(queried, answers, strict=True)
        if instance.member and isinstance(answer, HashKV)
    }


async def _query_without_quorum(seen: Observed, servers: Servers) -> Observed:
    """Without a quorum, query the most advanced member's local list, and the progress of unreachable members."""
    unreachable = [number for number in servers if (instance := seen.instance(number)) and instance.status is None]
    answers = await asyncio.gather(*(_answer(servers[number].progress()) for number in unreachable))
    progress = {
        number: answer for number, answer in zip(unreachable, answers, strict=True) if not isinstance(answer, EtcdError)
    }
    instances = tuple(
        dataclasses.replace(instance, progress=progress.get(instance.number)) for instance in seen.instances
    )
    seen = dataclasses.replace(seen, instances=instances)
    advanced = sorted(
        (instance for instance in seen.answering if instance.status and instance.status.cluster_id == seen.cluster_id),
        key=lambda instance: (instance.status.raft_term, instance.status.raft_index) if instance.status else (0, 0),
        reverse=True,
    )
    for instance in advanced:
        found = await _answer(servers[instance.number].remembered_members())
        if isinstance(found, Members):
            return dataclasses.replace(seen, remembered=found.members)
    return seen


async def _read_live(resource: EtcdCluster, seen: Observed, kube: Kube) -> Observed:
    """Read from the API server what an irreversible step depends on: the cache may be stale or incomplete.

    That is a volume that seems to differ from the recorded one, the volume of a pod whose claim lost its labels, and a
    volume that another user may have created for a member that is about to be added.
    """
    instances = [await _read_instance_live(resource, seen, instance, kube) for instance in seen.instances]
    return dataclasses.replace(seen, instances=tuple(instances))


async def _read_instance_live(resource: EtcdCluster, seen: Observed, instance: Instance, kube: Kube) -> Instance:
    in_volume = resource.spec.storage.medium == "Volume"
    if seen.lost(instance) and instance.proves_loss:
        pod = await kube.find(POD, resource.namespace, instance.name)
        instance = dataclasses.replace(instance, empty=_empty_starts(resource, instance.name, pod))
    if seen.lost(instance) and not instance.proves_loss:
        kind = PERSISTENT_VOLUME_CLAIM if in_volume else POD
        name = names.volume_name(resource, instance.number) if in_volume else instance.name
        return _with_holder(instance, await kube.find(kind, resource.namespace, name), in_volume=in_volume)
    if in_volume and instance.volume is None and (instance.pod_obj or _may_come(resource, seen, instance)):
        name = names.volume_name(resource, instance.number)
        holder = await kube.find(PERSISTENT_VOLUME_CLAIM, resource.namespace, name)
        return _with_holder(instance, holder, in_volume=True)
    return instance


def _may_come(resource: EtcdCluster, seen: Observed, instance: Instance) -> bool:
    """Whether a volume is about to be created here: for the seed, or for a member that is to be added."""
    replicas = ordinals.replicas(seen.stateful_set, MAX_SIZE)
    if seen.members is None:
        return instance.number == SEED and seen.stateful_set is None and not begun(resource, seen)
    missing = [other.number for other in seen.instances if other.member is None and other.number >= replicas]
    is_recorded = any(member.name == instance.name for member in resource.recorded_members)
    awaited = instance.number < resource.spec.size or is_recorded
    return instance.number == min(missing, default=None) and awaited


def _with_holder(instance: Instance, holder: Obj | None, *, in_volume: bool) -> Instance:
    disk = holder["metadata"]["uid"] if holder else ""
    return dataclasses.replace(instance, disk=disk, volume=holder if in_volume else instance.volume)
