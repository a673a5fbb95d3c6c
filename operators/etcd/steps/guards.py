"""Guards for what the operator does not own: volumes of another cluster, members that a user added. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.quorum import member_names
from operators.etcd.objects.names import CLUSTER_UID
from operators.etcd.observe import Instance, Observed
from operators.etcd.reasons import UNKNOWN_MEMBER, VOLUME_IN_THE_WAY
from shared.kubernetes.accessors import label
from shared.runtime.plan import PASS, Step


def refuse_unknown_members(_resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Block while etcd lists members without a pod of this cluster: their health is unknown."""
    if not seen.unknown_members:
        return PASS
    names = member_names(seen, seen.unknown_members)
    return Step.blocked(
        UNKNOWN_MEMBER,
        f"etcd lists {names}, which belongs to no pod of this cluster: a user added it or changed its address. "
        "The operator changes no members until it is removed (etcdctl member remove) or has its former address.",
    )


def is_foreign(resource: EtcdCluster, instance: Instance) -> bool:
    """Whether the volume of an instance has the data of another cluster."""
    return instance.volume is not None and label(instance.volume, CLUSTER_UID) != resource.uid


def refuse_foreign_volumes(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Block if a volume has the data of another cluster: such a volume is neither used nor deleted."""
    for instance in seen.instances:
        if instance.volume is None or not is_foreign(resource, instance):
            continue
        name, uid = instance.volume["metadata"]["name"], label(instance.volume, CLUSTER_UID)
        if not uid:
            return Step.blocked(
                VOLUME_IN_THE_WAY,
                f"PersistentVolumeClaim {name} already exists, and its data is not of this cluster. Nothing was "
                "changed. Rename this resource, or delete the claim if its data is not needed.",
            )
        return Step.blocked(
            VOLUME_IN_THE_WAY,
            f"PersistentVolumeClaim {name} has the data of a former EtcdCluster (uid {uid}). Nothing was changed. To "
            f"continue with that data, set spec.adopt.fromUID to {uid}. To start empty instead, delete the claims with "
            f"the label {CLUSTER_UID}={uid}, or rename this resource.",
        )
    return PASS
