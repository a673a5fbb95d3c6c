"""The StatefulSet of an EtcdCluster, and the template of its volume claims. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import CLUSTER_UID, COMPONENT, DATA
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.objects import claim_template
from shared.kubernetes.ownership import Owner
from shared.steps import provisioning


def stateful_set(resource: EtcdCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None) -> Obj:
    """The members' pods and volumes. It starts pods together, and ends none but those above `replicas`.

    Args:
        pod: as pod.py makes it.
        replicas: places, from 0 on.
        existing: the StatefulSet as it is: the size in its template for volumes cannot be changed, and stays
            (`grow_volumes` makes another); None where there is none.
    """
    storage = resource.spec.storage
    spec: Obj = {
        "serviceName": resource.name,
        "replicas": replicas,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": "Retain" if storage.retain else "Delete",
            "whenScaled": "Retain",
        },
        "template": pod,
    }
    if storage.medium == "Volume":
        size = storage.size if existing is None else (provisioning.template_size(existing) or storage.size)
        spec["volumeClaimTemplates"] = [claim(resource, own, size)]
    return own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)


def claim(resource: EtcdCluster, own: Owner, size: int | str) -> Obj:
    """The template of members' volume claims."""
    labels = own.labels(COMPONENT) | {CLUSTER_UID: resource.uid}
    return claim_template(DATA, labels, size, resource.spec.storage.storage_class_name)
