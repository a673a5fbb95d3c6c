"""The StatefulSet of an EtcdCluster, and the template of its volume claims. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import CLUSTER_UID, COMPONENT, DATA, VERSION
from shared.api import applied_spec
from shared.kubernetes import objects
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.steps import provisioning


def stateful_set(resource: EtcdCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None) -> Obj:
    """Return the StatefulSet of the members. It starts pods in parallel, and deletes only those beyond `replicas`.

    Args:
        pod: template of the pods.
        replicas: number of pods.
        existing: current StatefulSet, or None. The size and the VolumeAttributesClass in its volume template are kept,
            because they cannot be changed (`Volumes.grow` recreates the StatefulSet).
    """
    storage = resource.spec.storage
    retention = {"whenDeleted": "Retain" if storage.retain else "Delete", "whenScaled": "Retain"}
    fields: Obj = {"updateStrategy": {"type": "OnDelete"}, "persistentVolumeClaimRetentionPolicy": retention}
    if storage.medium == "Volume":
        size = provisioning.template_size(existing) or storage.size
        requested = storage.volume_attributes_class_name
        attributes_class = requested if existing is None else provisioning.template_attributes_class(existing)
        fields["volumeClaimTemplates"] = [claim(resource, own, size, attributes_class)]
    made = objects.stateful_set(own, COMPONENT, pod, replicas, **fields)
    made["metadata"]["annotations"] = {VERSION: str(resource.version)} | applied_spec.note(resource)
    return made


def claim(resource: EtcdCluster, own: Owner, size: int | str, attributes_class: str | None = None) -> Obj:
    """Return the template of the members' volume claims."""
    labels = own.labels(COMPONENT) | {CLUSTER_UID: resource.uid}
    return objects.claim_template(DATA, labels, size, resource.spec.storage.storage_class_name, attributes_class)
