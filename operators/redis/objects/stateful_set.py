"""The StatefulSet of the nodes' pods and volumes. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLUSTER_UID, COMPONENT, DATA, ORIGIN
from shared.api import applied_spec
from shared.kubernetes import objects
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.steps.provisioning import template_attributes_class, template_size


def stateful_set(
    resource: RedisCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None, origin: str = ""
) -> Obj:
    """Return the StatefulSet of the nodes. It starts pods in parallel, and only deletes those above `replicas`.

    Args:
        pod: template from pod.py.
        replicas: number of instances.
        existing: present StatefulSet, whose volume claim template is immutable and stays (`provisioning.Volumes.grow`
            replaces the StatefulSet); None if there is none.
        origin: UID of the resource that created the volumes; empty for volumes of earlier builds.
    """
    fields: Obj = {"updateStrategy": {"type": "OnDelete"}}
    storage = resource.spec.storage
    if storage is not None:
        keep = storage.retain or own.lasting
        fields["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Retain" if keep else "Delete",
            "whenScaled": "Retain",
        }
        size, uid, attributes_class = storage.size, resource.uid, storage.volume_attributes_class_name
        if existing is not None:
            size, uid = template_size(existing) or size, template_label(existing, CLUSTER_UID) or uid
            attributes_class = template_attributes_class(existing)
        labels = own.labels(COMPONENT) | {CLUSTER_UID: uid} | ({ORIGIN: origin} if origin else {})
        claim = objects.claim_template(DATA, labels, size, storage.storage_class_name, attributes_class)
        fields["volumeClaimTemplates"] = [claim]
    made = objects.stateful_set(own, COMPONENT, pod, replicas, **fields)
    made["metadata"]["labels"][CLUSTER_UID] = resource.uid
    made["metadata"]["annotations"] = applied_spec.note(resource)
    return made


def template_label(stateful_set: Obj, name: str) -> str:
    """Return the value of a label that new volumes of a StatefulSet have; empty if they do not have it."""
    return next((label(claim, name) for claim in stateful_set["spec"].get("volumeClaimTemplates") or ()), "")
