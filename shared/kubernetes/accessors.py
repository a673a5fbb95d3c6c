"""Fields that every Kubernetes object may have: versions, annotations, conditions, times."""

from __future__ import annotations

import time

from shared.kubernetes.kinds import Obj


def resource_version(obj: Obj) -> int:
    """An object's resourceVersion as a number: larger is newer (comparable since Kubernetes 1.35, KEP-5504).

    Before that the numbers were opaque in word but ordered in every released API server.
    """
    return int(obj["metadata"].get("resourceVersion") or 0)


def annotation(obj: Obj | None, name: str) -> str:
    """What an object's annotation says; empty where there is none."""
    return str((((obj or {}).get("metadata") or {}).get("annotations") or {}).get(name, ""))


def now_rfc3339() -> str:
    """The wall clock as Kubernetes writes times."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def condition(resource: Obj, name: str) -> Obj:
    """A condition of a resource by its type; empty if it has none."""
    return condition_in((resource.get("status") or {}).get("conditions") or [], name)


def condition_in(conditions: list[Obj], name: str) -> Obj:
    return next((found for found in conditions if found.get("type") == name), {})


def is_true(resource: Obj, name: str) -> bool:
    return condition(resource, name).get("status") == "True"


def is_current(resource: Obj) -> bool:
    """Whether a resource's status tells of its present spec."""
    observed = (resource.get("status") or {}).get("observedGeneration")
    return bool(observed == resource["metadata"].get("generation"))
