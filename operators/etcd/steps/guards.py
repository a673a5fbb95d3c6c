"""What is not ours is left alone: volumes of another cluster, members that somebody else added. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.quorum import member_names
from operators.etcd.objects.names import CLUSTER_UID
from operators.etcd.observe import Observed
from operators.etcd.reasons import UNKNOWN_MEMBER, VOLUME_IN_THE_WAY
from shared.runtime.plan import PASS, Step


def refuse_unknown_members(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A member that is of no place is not ours to remove, and nobody can tell whether it is healthy."""
    if not seen.unknown_members:
        return PASS
    names = member_names(seen, seen.unknown_members)
    return Step.blocked(
        UNKNOWN_MEMBER,
        f"etcd's list has {names}, which is of no pod of this cluster: somebody added it, or changed its address. "
        "Members are left as they are until it is removed (etcdctl member remove) or has its address back.",
    )


def refuse_foreign_volumes(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """A volume that another cluster wrote on is never taken, nor deleted."""
    for instance in seen.instances:
        labels = (instance.volume or {"metadata": {}})["metadata"].get("labels") or {}
        if instance.volume is None or labels.get(CLUSTER_UID) == resource.uid:
            continue
        whose = f"another cluster's (uid {labels[CLUSTER_UID]})" if CLUSTER_UID in labels else "not this cluster's"
        name = instance.volume["metadata"]["name"]
        return Step.blocked(
            VOLUME_IN_THE_WAY,
            f"PersistentVolumeClaim {name} exists, and its data is {whose}. It was left alone; nothing was changed. "
            "Rename this resource; or, if nobody needs that data, delete the claim. To go on with the data of a "
            "resource that was deleted, restore a backup of it (spec.restore).",
        )
    return PASS
