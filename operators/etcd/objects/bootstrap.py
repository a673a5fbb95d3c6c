"""Bootstrap permissions of members: what a pod with an empty volume may do. Pure, and essential for data safety.

etcd reads its bootstrap flags only if its data directory is empty. All pods have the same template, so the template
decides what becomes of *any* pod that lost its volume. If such a pod bootstrapped again, it would be a cluster of its
own with the ids of the old one, or a voter without its votes: acknowledged writes would be lost. So:

- Only the seed of a cluster that never existed may bootstrap it (`New`).
- Only the one member that was just added may join (`Joining`). All other members are listed under names that no pod
  has: etcd identifies other members by URL, and only itself by name.
- Otherwise no pod may start with an empty volume (`Closed`): etcd exits with "couldn't find local name", which the
  operator reads.

The permission of a pod is in its annotations. Its arguments read them through variables, which the kubelet resolves at
each start of the container (makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go). So a pod that was created as
`New` or `Joining` can be closed once its member has started (`close_bootstrap`). A node that restarts without its
memory or its disk then finds it closed. Otherwise the same pod, with the same flags, would bootstrap or join a second
time.

Source: https://github.com/etcd-io/etcd server/config (hasLocalMember, VerifyBootstrap, VerifyJoinExisting) and
server/etcdserver/api/membership (ValidateClusterAndAssignIDs), the same from 3.4 to 3.7.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from operators.etcd.api.arguments import argument
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.objects import names
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj

SEED = 0
"""Number of the member that bootstraps a cluster."""

PLACEHOLDER_NAME = "_nobody"
"""Member name that no pod can have: names in Kubernetes have no '_'."""

REFUSED = "couldn't find local name"
"""Last message of etcd if its data directory is empty and the list does not contain its name."""


@dataclass(frozen=True, slots=True)
class New:
    """The seed, and no other pod, may bootstrap the cluster."""


@dataclass(frozen=True, slots=True)
class Joining:
    """One member, and no other, may join with an empty volume.

    Attributes:
        number: number of the member, which is among `members`.
        members: complete list of members; etcd rejects an incomplete one.
    """

    number: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """No pod may start with an empty volume."""


Start = New | Joining | Closed

INITIAL_CLUSTER, INITIAL_STATE = "etcd.ydzs.io/initial-cluster", "etcd.ydzs.io/initial-cluster-state"
"""Annotations of pods: the values of --initial-cluster and --initial-cluster-state."""

_FOUNDER = argument("initial-cluster-token", "")
"""Flag with the UID of the resource, from which etcd derives the ids of a new cluster."""

_VARIABLES = {"INITIAL_CLUSTER": INITIAL_CLUSTER, "INITIAL_CLUSTER_STATE": INITIAL_STATE}


def flags(resource: EtcdCluster) -> list[str]:
    """Return the arguments, which are the same for every permission; the token has the resource's UID and is unique."""
    return [
        argument("initial-cluster-state", "$(INITIAL_CLUSTER_STATE)"),
        argument("initial-cluster", "$(INITIAL_CLUSTER)"),
        f"{_FOUNDER}{resource.uid}",
    ]


def uid_of(pod: Obj | None) -> str:
    """Return the UID of the resource as whose member a pod was created; empty if it is not known."""
    containers = ((pod or {}).get("spec") or {}).get("containers") or ()
    found = (argument for container in containers for argument in container.get("args") or ())
    return next((argument.removeprefix(_FOUNDER) for argument in found if argument.startswith(_FOUNDER)), "")


def environment() -> list[Obj]:
    """Return the variables that the kubelet resolves in these arguments."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}
        for name, annotation in _VARIABLES.items()
    ]


def annotated(resource: EtcdCluster, start: Start) -> dict[str, str]:
    """Return the annotations of a permission."""
    state, listed = "existing", [(PLACEHOLDER_NAME, names.peer_url(resource, SEED))]
    match start:
        case New():
            state, listed = "new", [(names.member_name(resource, SEED), names.peer_url(resource, SEED))]
        case Joining():
            listed = _listed(resource, start)
    return {INITIAL_STATE: state, INITIAL_CLUSTER: ",".join(f"{name}={url}" for name, url in listed)}


def _listed(resource: EtcdCluster, start: Joining) -> list[tuple[str, str]]:
    """Return each URL of each member with its name, ordered by member id."""
    found = []
    for member in sorted(start.members, key=lambda member: member.id):
        own = any(names.number_of(resource, url) == start.number for url in member.peer_urls)
        name = names.member_name(resource, start.number) if own else f"_{member.id:016x}"
        found += [(name, url) for url in member.peer_urls]
    return found


def of(made: Obj) -> tuple[str, str]:
    """Return the permission of a pod or template: state and list; empty if there is none."""
    return annotation(made, INITIAL_STATE), annotation(made, INITIAL_CLUSTER)


def is_closed(pod: Obj) -> bool:
    """Whether a pod may not start with an empty volume."""
    return of(pod)[1].startswith(f"{PLACEHOLDER_NAME}=")


def recovery_cluster_token(resource: EtcdCluster, token: str) -> str:
    """Return the --initial-cluster-token of the recovery's `etcdutl snapshot restore`."""
    return f"{resource.uid}-{token}"


def ids(peer_url: str, token: str) -> tuple[int, int]:
    """Return the ids of the member and of the cluster that etcd assigns to a new cluster with a single member.

    They depend only on the arguments, so that they are known in advance.

    Source: computeMemberID and genID in server/etcdserver/api/membership of 3.4 to 3.7.
    """
    member = hashlib.sha1((peer_url + token).encode(), usedforsecurity=False).digest()[:8]
    cluster = hashlib.sha1(member, usedforsecurity=False).digest()[:8]
    return int.from_bytes(member, "big"), int.from_bytes(cluster, "big")


def founded(resource: EtcdCluster) -> int:
    """Return the id of the cluster that the seed bootstraps, or that a restored snapshot becomes."""
    _, cluster_id = ids(names.peer_url(resource, SEED), resource.uid)
    return cluster_id


def successor(resource: EtcdCluster) -> int:
    """Return the id of the cluster that the recovery in the status creates; 0 if there is none."""
    return successor_of(resource, resource.reported.get("recovery") or {})


def successor_of(resource: EtcdCluster, recovery: Obj) -> int:
    """Return the id of the cluster that a recovery (as in status.recovery) creates; 0 if it is empty."""
    number = names.number_of(resource, recovery["survivor"]) if recovery else None
    if number is None:
        return 0
    _, cluster_id = ids(names.peer_url(resource, number), recovery_cluster_token(resource, recovery["token"]))
    return cluster_id
