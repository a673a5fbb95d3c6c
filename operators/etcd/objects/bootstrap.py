"""How a member that finds an empty disk may begin. Pure, and the guard of everybody's data.

etcd reads its bootstrap flags only where its data directory is empty. All pods have one template; so what it says
decides what becomes of *any* pod that has lost its disk. If such a pod began anew, it would be a cluster of its own
with the ids of the old one, or a voter that has forgotten what it voted for: acknowledged writes would be lost. So:

- only the seed of a cluster that never was may begin one (`New`);
- only the one member that was just added may join (`Joining`): all others stand in the list under names that no pod
  bears, for etcd tells members apart by URL, and only itself by name;
- otherwise nobody may (`Closed`): etcd ends with "couldn't find local name", which the operator reads.

What a pod may do stands in its annotations, and comes into its arguments through variables that the kubelet reads each
time it starts the container (makeEnvironmentVariables in pkg/kubelet/kubelet_pods.go). So a pod that was made as `New`
or `Joining` can be closed once its member has begun (`close_begun`), and a node that restarts with its
memory, or its disk, gone finds it closed: the same pod, with the same flags, would begin or join a second time.

Source: https://github.com/etcd-io/etcd server/config (hasLocalMember, VerifyBootstrap, VerifyJoinExisting) and
server/etcdserver/api/membership (ValidateClusterAndAssignIDs), the same from 3.4 to 3.7.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.server import Member
from operators.etcd.objects import names
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj

SEED = 0
"""The place of the member that begins a cluster."""

PLACEHOLDER_NAME = "_nobody"
"""A member's name that no pod can have: '_' is in no name of Kubernetes."""

REFUSED = "couldn't find local name"
"""What etcd ends with where its disk is empty and the list does not name it."""


@dataclass(frozen=True, slots=True)
class New:
    """The seed begins the cluster; it alone."""


@dataclass(frozen=True, slots=True)
class Joining:
    """One member, and no other, may join with an empty disk.

    Attributes:
        number: its place; a member of this place is among `members`.
        members: the list as etcd has it: etcd refuses one that lacks somebody.
    """

    number: int
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """Nobody may start with an empty disk."""


Start = New | Joining | Closed

INITIAL_CLUSTER, INITIAL_STATE = "etcd.ydzs.io/initial-cluster", "etcd.ydzs.io/initial-cluster-state"
"""Annotations of pods: etcd's --initial-cluster, and its --initial-cluster-state."""

_VARIABLES = {"INITIAL_CLUSTER": INITIAL_CLUSTER, "INITIAL_CLUSTER_STATE": INITIAL_STATE}


def flags(resource: EtcdCluster) -> list[str]:
    """Arguments that are the same whoever may begin; the token holds the resource's UID: no other cluster has it."""
    return [
        "--initial-cluster-state=$(INITIAL_CLUSTER_STATE)",
        "--initial-cluster=$(INITIAL_CLUSTER)",
        f"--initial-cluster-token={resource.uid}",
    ]


def environment() -> list[Obj]:
    """What the kubelet puts in their place."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}}
        for name, annotation in _VARIABLES.items()
    ]


def annotated(resource: EtcdCluster, start: Start) -> dict[str, str]:
    """What a pod may do with an empty disk."""
    state, listed = "existing", [(PLACEHOLDER_NAME, names.peer_url(resource, SEED))]
    match start:
        case New():
            state, listed = "new", [(names.member_name(resource, SEED), names.peer_url(resource, SEED))]
        case Joining():
            listed = _listed(resource, start)
    return {INITIAL_STATE: state, INITIAL_CLUSTER: ",".join(f"{name}={url}" for name, url in listed)}


def _listed(resource: EtcdCluster, start: Joining) -> list[tuple[str, str]]:
    """Each URL of each member, in the order of their ids."""
    found = []
    for member in sorted(start.members, key=lambda member: member.id):
        own = any(names.number_of(resource, url) == start.number for url in member.peer_urls)
        name = names.member_name(resource, start.number) if own else f"_{member.id:016x}"
        found += [(name, url) for url in member.peer_urls]
    return found


def of(made: Obj) -> tuple[str, str]:
    """What a pod, or a template, says of an empty disk: state and list; empty where it says nothing."""
    return annotation(made, INITIAL_STATE), annotation(made, INITIAL_CLUSTER)


def recovery_cluster_token(resource: EtcdCluster, token: str) -> str:
    """What the recovery's pod gives to `etcdutl snapshot restore --initial-cluster-token`."""
    return f"{resource.uid}-{token}"


def ids(peer_url: str, token: str) -> tuple[int, int]:
    """Ids of the member and of the cluster that etcd makes of a new one with a single member.

    They follow from nothing else, so that they are known beforehand.
    Source: computeMemberID and genID in server/etcdserver/api/membership of 3.4 to 3.7.
    """
    member = hashlib.sha1((peer_url + token).encode(), usedforsecurity=False).digest()[:8]
    cluster = hashlib.sha1(member, usedforsecurity=False).digest()[:8]
    return int.from_bytes(member, "big"), int.from_bytes(cluster, "big")


def successor(resource: EtcdCluster) -> int:
    """Id of the cluster that the recovery in the status makes; 0 if there is none."""
    recorded: Obj = resource.reported.get("recovery") or {}
    number = names.number_of(resource, recorded["survivor"]) if recorded else None
    if number is None:
        return 0
    _, cluster_id = ids(names.peer_url(resource, number), recovery_cluster_token(resource, recorded["token"]))
    return cluster_id
