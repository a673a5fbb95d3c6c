"""Guards for what the operator does not own: claims of other owners, members that a user added. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.quorum import member_names
from operators.etcd.objects.names import CLUSTER_UID, COMPONENT, owner
from operators.etcd.observe import Instance, Observed
from operators.etcd.reasons import UNKNOWN_MEMBER, VOLUME_IN_THE_WAY
from shared.runtime.plan import PASS, Step
from shared.runtime.settings import Settings
from shared.steps import claims


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
    """Whether the volume of an instance belongs to another owner than this cluster."""
    return instance.volume is not None and claims.is_foreign(
        instance.volume, CLUSTER_UID, name=resource.name, uid=resource.uid
    )


def refuse_foreign_volumes(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Block if a claim of this name has another owner: it is neither used, nor changed, nor deleted.

    The labels of the cluster's own claims are restored.
    """
    found = [instance.volume for instance in seen.instances if instance.volume]
    own = owner(resource, settings.operator)
    message = claims.refusal(found, own, CLUSTER_UID, may_adopt=seen.stateful_set is None)
    if not message:
        return claims.keep_labels(found, own, COMPONENT, CLUSTER_UID)
    return Step.blocked(VOLUME_IN_THE_WAY, message, requeue=claims.RETRY_SECONDS)
