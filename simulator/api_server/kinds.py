"""The kinds that the in-memory API server serves, and how it normalizes their objects before it stores them.

A real server decodes objects of built-in kinds into Go structs and omits empty optional fields when it encodes them
again, so an object may come back with fewer fields than were sent. This server does the same. Otherwise a controller
that compares the object it sent with the object it reads would pass a test and write endlessly in a cluster.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.kubernetes.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    CRD,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    LEASE,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    REPLICA_SET,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Kind,
    Obj,
)
from simulator.api_server.field_sets import Schema

NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
ATTRIBUTES_CLASS = Kind("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", namespaced=False)

IN_USE = "kubernetes.io/pvc-protection"
"""The finalizer that keeps a claim while a pod uses it."""

CUSTOM = Schema(
    keys={"metadata.ownerReferences": ("uid",), "status.conditions": ("type",)},
    sets=frozenset({"metadata.finalizers"}),
    atomic=frozenset({"metadata.ownerReferences[]"}),
    defaults={},
)
"""Custom resources whose schema declares no list types, except that conditions are a map by type."""

BUILT_IN = Schema(
    keys={
        "ownerReferences": ("uid",),
        "conditions": ("type",),
        "containers": ("name",),
        "initContainers": ("name",),
        "containers.ports": ("containerPort", "protocol"),
        "initContainers.ports": ("containerPort", "protocol"),
        "spec.ports": ("port", "protocol"),
        "env": ("name",),
        "volumes": ("name",),
        "volumeMounts": ("mountPath",),
        "volumeDevices": ("devicePath",),
        "imagePullSecrets": ("name",),
        "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
        "hostAliases": ("ip",),
        "podIPs": ("ip",),
    },
    sets=frozenset({"finalizers"}),
    atomic=frozenset(
        {"ownerReferences[]", "imagePullSecrets[]", "selector", "labelSelector", "nodeSelector", "involvedObject"}
        | {"requiredDuringSchedulingIgnoredDuringExecution", "secretKeyRef", "configMapKeyRef", "fieldRef"}
        | {"resourceFieldRef", "secretRef", "configMapRef"}
    ),
    defaults={"protocol": "TCP"},
)
"""The fields of built-in kinds that operators of databases use."""

_FREE_MAPS = frozenset(
    {"labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData", "binaryData", "limits", "requests"}
)
_OMITTED_WHEN_ZERO = frozenset(
    {"hostNetwork", "hostPID", "hostIPC", "readOnly", "minReadySeconds", "publishNotReadyAddresses", "paused", "stdin"}
    | {"tty", "initialDelaySeconds", "unavailableReplicas"}
)


def _accept_unchanged(_: Obj) -> None:
    """Apply neither defaults nor validation."""


@dataclass(frozen=True, slots=True)
class Served:
    """A kind and how the server treats its objects.

    Attributes:
        admit: sets defaults; raises ValueError (answered as 422) if schema or CEL would reject the object.
        fixed: dotted paths of fields that are immutable once set.
        replicas: dotted path of the field that the scale subresource sets; empty without that subresource.
        status: whether status is a subresource, which only writes to it can change.
        generation: whether changes of the spec increase metadata.generation.
        built_in: whether the server encodes objects from Go structs.
        resizes: whether pods have the subresource resize, as in Kubernetes 1.33 and later.
    """

    kind: Kind
    admit: Callable[[Obj], None] = _accept_unchanged
    fixed: tuple[str, ...] = ()
    replicas: str = ""
    status: bool = True
    generation: bool = True
    built_in: bool = False
    schema: Schema = CUSTOM
    resizes: bool = False

    def normalize(self, obj: Obj, live: Obj) -> Obj:
        """Return the object as the server would store it: without nulls and fields that Go omits, with defaults.

        Args:
            live: stored object, empty if there is none. Parts taken from it unchanged are normalized already.
        """
        taken = {key: part for key, part in obj.items() if key != "metadata" and part is live.get(key)}
        rest = {key: part for key, part in obj.items() if key not in taken}
        kept: Obj = taken | (_encoded_as_go_struct(rest) if self.built_in else _without_nulls(rest))
        metadata = kept["metadata"]
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not metadata.get(name, True):
                del metadata[name]
        self.admit(kept)
        return kept


def _encoded_as_go_struct(value: Any, name: str = "") -> Any:
    if isinstance(value, list):
        return [_encoded_as_go_struct(item) for item in value]
    if not isinstance(value, dict):
        return value
    if name in _FREE_MAPS:
        return dict(value)
    return {key: _encoded_as_go_struct(part, key) for key, part in value.items() if not _is_omitted(key, part)}


def _is_omitted(name: str, value: Any) -> bool:
    if value is None or value == "" or value == []:
        return True
    if isinstance(value, dict):
        return not value and name in _FREE_MAPS
    return not value and name in _OMITTED_WHEN_ZERO


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    return value


def _admit_workload(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    template = spec.setdefault("template", {})
    selected = (spec.get("selector") or {}).get("matchLabels") or {}
    labels = template.get("metadata", {}).get("labels") or {}
    if not selected or any(labels.get(key) != value for key, value in selected.items()):
        raise ValueError(
            f"spec.template.metadata.labels: Invalid value: {labels}: `selector` does not match template `labels`"
        )
    _admit_pod_spec(template.setdefault("spec", {}))


def _admit_deployment(obj: Obj) -> None:
    _admit_workload(obj)
    spec = obj["spec"]
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxSurge", "25%")
        rolling.setdefault("maxUnavailable", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    if spec["progressDeadlineSeconds"] <= (spec.get("minReadySeconds") or 0):
        raise ValueError("spec.progressDeadlineSeconds: Invalid value: must be greater than minReadySeconds")


def _admit_stateful_set(obj: Obj) -> None:
    _admit_workload(obj)
    spec = obj["spec"]
    spec.setdefault("podManagementPolicy", "OrderedReady")
    spec.setdefault("revisionHistoryLimit", 10)
    if "type" not in spec.setdefault("updateStrategy", {}):
        spec["updateStrategy"] |= {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    kept = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    kept.setdefault("whenDeleted", "Retain")
    kept.setdefault("whenScaled", "Retain")
    if "volumeClaimTemplates" in spec:
        head = {"apiVersion": PERSISTENT_VOLUME_CLAIM.api_version, "kind": PERSISTENT_VOLUME_CLAIM.name}
        spec["volumeClaimTemplates"] = [_claim(head | template) for template in spec["volumeClaimTemplates"]]


def _claim(obj: Obj) -> Obj:
    """Return a claim, or a claim template, with defaults."""
    return {
        **obj,
        "spec": {"volumeMode": "Filesystem"} | obj.get("spec", {}),
        "status": {"phase": "Pending"} | obj.get("status", {}),
    }


def _admit_claim(obj: Obj) -> None:
    obj |= _claim(obj)
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") and IN_USE not in metadata.setdefault("finalizers", []):
        metadata["finalizers"] = [*metadata["finalizers"], IN_USE]


def _admit_autoscaler(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if spec.get("maxReplicas", 0) < spec["minReplicas"]:
        raise ValueError("spec.maxReplicas: Invalid value: must be greater than or equal to `minReplicas`")


def _admit_pod_spec(spec: Obj) -> None:
    defaults = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
    }
    for key, value in defaults.items():
        spec.setdefault(key, value)
    for container in [*spec.get("initContainers", ()), *spec.get("containers", ())]:
        if not container.get("image"):
            raise ValueError(f"spec.containers[{container.get('name')}].image: Required value")
        container.setdefault("resources", {})
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports", ()):
            port.setdefault("protocol", "TCP")
        for variable in container.get("env", ()):
            if field := (variable.get("valueFrom") or {}).get("fieldRef"):
                field.setdefault("apiVersion", "v1")


def _admit_pod(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("containers"):
        raise ValueError("spec.containers: Required value")
    _admit_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    obj.setdefault("status", {}).setdefault("phase", "Pending")


def _admit_secret(obj: Obj) -> None:
    if given := obj.pop("stringData", None):
        obj["data"] = (obj.get("data") or {}) | {key: b64encode(text.encode()).decode() for key, text in given.items()}


def _admit_service(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port["port"])
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    obj.setdefault("status", {}).setdefault("loadBalancer", {})


_STATEFUL_SET_IMMUTABLE = ("spec.selector", "spec.serviceName", "spec.podManagementPolicy", "spec.volumeClaimTemplates")
"""Immutable fields of a StatefulSet."""

_CLAIM_IMMUTABLE = ("spec.accessModes", "spec.storageClassName", "spec.volumeMode", "spec.volumeName", "spec.selector")
"""Immutable fields of a claim. Its requested size may grow."""


def built_in_kinds() -> tuple[Served, ...]:
    """Return the built-in kinds that operators of databases use."""
    plain = {"built_in": True, "schema": BUILT_IN, "status": False, "generation": False}
    workload = {"built_in": True, "schema": BUILT_IN, "replicas": "spec.replicas", "fixed": ("spec.selector",)}
    return (
        Served(DEPLOYMENT, _admit_deployment, **workload),  # type: ignore[arg-type]
        Served(REPLICA_SET, **workload),  # type: ignore[arg-type]
        Served(STATEFUL_SET, _admit_stateful_set, **workload | {"fixed": _STATEFUL_SET_IMMUTABLE}),  # type: ignore[arg-type]
        Served(POD, _admit_pod, built_in=True, schema=BUILT_IN, fixed=("spec.containers", "spec.volumes")),
        Served(SERVICE, _admit_service, built_in=True, schema=BUILT_IN, generation=False, fixed=("spec.clusterIP",)),
        Served(DISRUPTION_BUDGET, built_in=True, schema=BUILT_IN),
        Served(NETWORK_POLICY, built_in=True, schema=BUILT_IN, status=False),
        Served(AUTOSCALER, _admit_autoscaler, built_in=True, schema=BUILT_IN, generation=False),
        Served(PERSISTENT_VOLUME_CLAIM, _admit_claim, **plain | {"status": True, "fixed": _CLAIM_IMMUTABLE}),  # type: ignore[arg-type]
        Served(SECRET, _admit_secret, **plain),  # type: ignore[arg-type]
        *(Served(kind, **plain) for kind in (STORAGE_CLASS, ATTRIBUTES_CLASS)),  # type: ignore[arg-type]
        Served(NAMESPACE, built_in=True, schema=BUILT_IN, generation=False),
        Served(CRD, built_in=True, schema=BUILT_IN),
        *(Served(kind, **plain) for kind in (EVENT, CONFIG_MAP, LEASE)),  # type: ignore[arg-type]
    )
