"""Parts of the Kubernetes objects that several kinds own. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.ownership import Owner


def service_port(name: str, number: int) -> Obj:
    """Return the port of a Service; the container port has the same name."""
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}


def stateful_set(own: Owner, component: str, template: Obj, replicas: int, **fields: Obj) -> Obj:
    """Return a StatefulSet, which starts and stops its pods in parallel.

    Args:
        template: template of the pods.
        replicas: number of pods.
        fields: further fields of its spec.
    """
    spec = {
        "serviceName": own.name,
        "replicas": replicas,
        "selector": {"matchLabels": own.selector(component)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "template": template,
    }
    return own.object(STATEFUL_SET, own.name, component=component, spec=spec | fields)


def claim_template(
    name: str,
    labels: Mapping[str, str],
    size: int | str,
    storage_class: str | None,
    attributes_class: str | None = None,
) -> Obj:
    """Return a volumeClaimTemplate of a StatefulSet.

    Args:
        size: size of each volume.
        storage_class: storage class; None for the default of the cluster.
        attributes_class: VolumeAttributesClass; None for none.
    """
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    if attributes_class is not None:
        spec["volumeAttributesClassName"] = attributes_class
    # The API server defaults kind and version and records them as owned by this manager, so they are sent.
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
    }
