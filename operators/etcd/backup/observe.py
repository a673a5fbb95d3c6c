"""Observes one EtcdBackup. A finished one needs no requests: its pod is in the cache."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property, partial

from operators.etcd.api import resource
from operators.etcd.api.backup import EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import locations, pods
from operators.etcd.backup.outcome import Outcome, outcome
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import CORRUPT, Alarm, Connect, Endpoint, EndpointStatus
from operators.etcd.objects import names
from operators.etcd.objects.pod import ended_inconsistent
from operators.etcd.reasons import CLUSTER_INVALID, CLUSTER_MISSING, POD_IN_THE_WAY
from operators.etcd.security import secrets
from shared.api.applied_spec import to_apply
from shared.api.policy import PlatformPolicy
from shared.api.spec import InvalidSpec
from shared.kubernetes.accessors import annotation
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound, TooLarge
from shared.kubernetes.kinds import POD, STATEFUL_SET, Key, Obj
from shared.kubernetes.ownership import belongs_to
from shared.kubernetes.pods import Pod
from shared.pki.secret_checks import SecretProblem
from shared.runtime.cache import Cache

MAX_SOURCES = 16
"""Most members that are queried for one snapshot; etcd recommends at most seven."""


@dataclass(frozen=True, slots=True)
class SnapshotSource:
    """A member that could provide a snapshot.

    Attributes:
        status: status that the member reported; None if it did not answer.
        error: reason why it did not answer.
        differed: why its data may differ from its peers', as a predicate (`_source`); empty if nothing shows that.
    """

    name: str
    status: EndpointStatus | None = None
    error: str = ""
    differed: str = ""


@dataclass(frozen=True)
class Observed:
    """Observed state of an EtcdBackup.

    Attributes:
        pod: pod that takes the snapshot; None if there is none.
        cluster: EtcdCluster of the backup; None if it cannot be read.
        problem: missing prerequisite: the cluster, the destination, or credentials for the cluster.
        sources: members of the cluster; empty while a pod runs, or if there is a problem.
        password_secret: name of the Secret with root's password; empty without authentication.
    """

    pod: Obj | None = None
    cluster: EtcdCluster | None = None
    problem: SecretProblem | None = None
    sources: tuple[SnapshotSource, ...] = ()
    password_secret: str = ""

    @cached_property
    def outcome(self) -> Outcome | None:
        """Outcome of the pod; None while it runs."""
        return outcome(self.pod)

    @property
    def attempt(self) -> int:
        """Number of the pod's attempt; 0 without a pod, and if a user edited it: the status has 31 bits for it."""
        text = annotation(self.pod, pods.ATTEMPT)
        return int(text) if re.fullmatch("[0-9]{1,9}", text) else 0

    @property
    def message(self) -> str:
        """Message about the source of the snapshot, with cautions for the user."""
        return annotation(self.pod, pods.MESSAGE)

    @property
    def alive(self) -> bool:
        """Whether the pod may still take the snapshot."""
        return self.pod is not None and self.outcome is None


Observe = Callable[[EtcdBackup, Cache, Kube], Awaitable[Observed]]


def observer(connect: Connect, policy: PlatformPolicy) -> Observe:
    """Return a function that observes an EtcdBackup.

    Args:
        connect: opens a connection to a member.
        policy: policy of the platform's administrator.
    """
    return partial(_observe, connect, policy)


async def _observe(connect: Connect, policy: PlatformPolicy, backup: EtcdBackup, cache: Cache, kube: Kube) -> Observed:
    pod = cache.get(POD, *Key(backup.namespace, pods.snapshot_pod_name(backup.name)))
    if pod is not None and not belongs_to(pod, backup.uid, {}):
        return Observed(problem=_in_the_way(pod))
    seen, store = Observed(pod), locations.store_of(backup.spec.destination)
    is_taken = seen.outcome is not None and seen.outcome.succeeded
    if backup.over or seen.alive or is_taken or store is None:
        return seen
    cluster = await _cluster(kube, backup, policy)
    if isinstance(cluster, SecretProblem):
        return Observed(pod, problem=cluster)
    known = await secrets.read(cluster, kube, with_stored=True)
    if problem := await locations.problem(kube, backup.namespace, "spec.destination", store) or known.access_problem:
        return Observed(pod, cluster, problem)
    sources = await _sources(connect, cluster, known, kube)
    return Observed(pod, cluster, None, sources, known.password_secret)


def _in_the_way(pod: Obj) -> SecretProblem:
    """Report a pod of the same name that another object owns, such as an earlier EtcdBackup of this name."""
    name = pod["metadata"]["name"]
    return SecretProblem(
        POD_IN_THE_WAY,
        f"Pod {name} belongs to another object. The pod of an earlier EtcdBackup of this name is deleted "
        "automatically; delete any other pod of this name, or rename this EtcdBackup.",
    )


async def _cluster(kube: Kube, backup: EtcdBackup, policy: PlatformPolicy) -> EtcdCluster | SecretProblem:
    """Return the cluster, always from the namespace of the EtcdBackup."""
    name = backup.spec.cluster_name
    try:
        obj = await kube.get(resource.API.kind, backup.namespace, name)
        return await _parsed(kube, obj, policy)
    except NotFound:
        message = (
            f"EtcdCluster {name} does not exist in this namespace. Create it, or create an EtcdBackup of another "
            "cluster."
        )
        return SecretProblem(CLUSTER_MISSING, f"spec.clusterName: {message}")
    except InvalidSpec as wrong:
        return SecretProblem(CLUSTER_INVALID, f"spec.clusterName: EtcdCluster {name} is invalid: {wrong}")


async def _parsed(kube: Kube, obj: Obj, policy: PlatformPolicy) -> EtcdCluster:
    """Return a cluster with the spec that its own controller applies."""
    workload = await kube.find(STATEFUL_SET, obj["metadata"]["namespace"], obj["metadata"]["name"])
    return to_apply(EtcdCluster.parse, obj, (workload,), resource.MINIMAL, policy)


async def _sources(
    connect: Connect, cluster: EtcdCluster, known: secrets.Secrets, kube: Kube
) -> tuple[SnapshotSource, ...]:
    """Query the status of every member from the member itself: that needs no quorum.

    Their pods are read by name: any number of other pods may have their labels.
    """
    recorded = (names.number_of(cluster, member.name) for member in cluster.recorded_members)
    numbers = sorted({*range(cluster.spec.size), *(number for number in recorded if number is not None)})[:MAX_SOURCES]
    found = await asyncio.gather(*(_source(connect, cluster, known, kube, number) for number in numbers))
    return tuple(source for source in found if source is not None)


async def _source(
    connect: Connect, cluster: EtcdCluster, known: secrets.Secrets, kube: Kube, number: int
) -> SnapshotSource | None:
    """Return what a member reports; None if no pod of the cluster runs it, and none has ended over its data."""
    name = names.member_name(cluster, number)
    try:
        obj = await kube.find(POD, cluster.namespace, name)
    except TooLarge as error:  # as one that does not answer
        return SnapshotSource(name, error=str(error), differed="cannot be read")
    if obj is None or names.member_of(cluster, obj) is None:
        return None
    pod = Pod.of(obj)
    differed = "ended because of that" if not pod.ready and ended_inconsistent(obj) else ""
    if pod.ended or not pod.address:
        return SnapshotSource(name, differed=differed) if differed else None
    endpoint = Endpoint(pod.name, pod.address, names.host(cluster, pod.name), names.CLIENT_PORT)
    server = connect(endpoint, known.access_to(cluster, obj))
    try:
        return SnapshotSource(pod.name, await server.status(), differed=differed)
    except EtcdError as error:
        return SnapshotSource(pod.name, error=str(error), differed=differed)
    finally:
        await server.aclose()


@dataclass(frozen=True, slots=True)
class Choice:
    """Member that provides the snapshot.

    Attributes:
        caution: why the snapshot may have less or other data than earlier ones, for the user; empty if it does not.
        differs: whether that may be other data, so that it must replace no earlier one.
    """

    name: str
    status: EndpointStatus
    caution: str = ""
    differs: bool = False


def choose(cluster: EtcdCluster, sources: tuple[SnapshotSource, ...]) -> Choice | None:
    """Choose the member that provides the snapshot: an up-to-date follower, to spare the leader; never a learner.

    A snapshot is a member's own data and needs no quorum. Without a quorum, the member that has applied the most
    entries has all data of the other members that answer.
    """
    answered = [
        (source.name, source.status)
        for source in sources
        if source.status is not None
        and not source.status.learner
        and source.status.cluster_id == cluster.recorded_cluster_id != 0
        and Alarm(source.status.member_id, CORRUPT) not in source.status.alarms
    ]
    if not answered:
        return None
    led = [status for status in answered if status[1].leader]
    followers = [status for status in led if status[1].leader != status[1].member_id]
    name, status = max(followers or led or answered, key=lambda each: (each[1].raft_applied, each[0]))
    alarmed = any(alarm.kind == CORRUPT for each in sources if each.status for alarm in each.status.alarms)
    found = ["alarm CORRUPT"] if alarmed else [f"{each.name} {each.differed}" for each in sources if each.differed]
    caution = ""
    if found:
        caution = (
            f"The data of members may differ ({', '.join(found)}), and it is unknown whose is right. "
            "Scheduled snapshots beyond spec.backup.retention are kept."
        )
    elif not led:
        caution = (
            f"The cluster had no leader when {name} was chosen: it had applied the most entries of the "
            f"{len(answered)} members that answered."
        )
    return Choice(name, status, caution, bool(found))
