"""Parts of the Kubernetes objects that several kinds own. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shared.kubernetes.kinds import Obj


def service_port(name: str, number: int) -> Obj:
    """A Service's port, which pods name alike."""
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}


def headless(selector: Mapping[str, str], ports: Sequence[Obj]) -> Obj:
    """The spec of a Service that gives each pod a name from its first second, whether it is ready or not."""
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": dict(selector),
        "ports": list(ports),
    }


def claim_template(name: str, labels: Mapping[str, str], size: int | str, storage_class: str | None) -> Obj:
    """A StatefulSet's template of volume claims.

    Args:
        size: of each volume.
        storage_class: None for the cluster's default.
    """
    spec: Obj = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    # Kind and version are the API server's defaults, sent because it would add them to what we are said to own.
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "labels": dict(labels)},
        "spec": spec,
    }
