"""The StatefulSet of the nodes' pods and volumes. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLUSTER_UID, COMPONENT, DATA, ORIGIN
from shared.api import applied_spec
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.objects import claim_template
from shared.kubernetes.ownership import Owner
from shared.steps.provisioning import template_attributes_class


def stateful_set(
    resource: RedisCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None, origin: str = ""
) -> Obj:
    """Return the StatefulSet of the nodes. It starts pods in parallel, and only deletes those above `replicas`.

    Args:
        pod: template from pod.py.
        replicas: number of instances.
        existing: present StatefulSet, whose volume claim template is immutable and stays (`provisioning.grow_volumes`
            replaces the StatefulSet); None if there is none.
        origin: UID of the resource that created the volumes; empty for volumes of earlier builds.
    """
    spec: Obj = {
        "serviceName": resource.name,
        "replicas": replicas,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "template": pod,
    }
    storage = resource.spec.storage
    if storage is not None:
        keep = storage.retain or own.lasting
        spec["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Retain" if keep else "Delete",
            "whenScaled": "Retain",
        }
        size, uid = (None, None) if existing is None else template_claim(existing)
        labels = own.labels(COMPONENT) | {CLUSTER_UID: uid or resource.uid} | ({ORIGIN: origin} if origin else {})
        requested = storage.volume_attributes_class_name
        attributes_class = requested if existing is None else template_attributes_class(existing)
        claim = claim_template(DATA, labels, size or storage.size, storage.storage_class_name, attributes_class)
        spec["volumeClaimTemplates"] = [claim]
    made = own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)
    made["metadata"]["labels"][CLUSTER_UID] = resource.uid
    made["metadata"]["annotations"] = applied_spec.note(resource)
    return made


def template_claim(stateful_set: Obj) -> tuple[int | str | None, str | None]:
    """Return the size of new volumes of a StatefulSet, and the UID in their labels; None without a volume claim
    template.
    """
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size, (claim["metadata"].get("labels") or {}).get(CLUSTER_UID)
    return None, None


def template_origin(stateful_set: Obj) -> str:
    """Return the UID of the resource that created the volumes of a StatefulSet; empty if it is not recorded."""
    return next((label(claim, ORIGIN) for claim in stateful_set["spec"].get("volumeClaimTemplates") or ()), "")
