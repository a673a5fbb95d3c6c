"""Hibernation in worlds of etcd and Redis: records of a StatefulSet, and what the user requests."""

from __future__ import annotations

from collections.abc import Iterable

from shared.kubernetes.kinds import Kind, Obj
from shared.steps.database import HIBERNATION


def annotated(stateful_set: Obj, note: str, *, by: str = "") -> Obj:
    """Return a StatefulSet with a record.

    Args:
        by: another client that wrote it; empty for the operator, which applies it with its other fields.
    """
    metadata = stateful_set["metadata"]
    fields: Obj = {"f:annotations": {f"f:{HIBERNATION}": {}}}
    managers = metadata["managedFields"]
    if by:
        managers = [*managers, {"manager": by, "operation": "Update", "fieldsV1": {"f:metadata": fields}}]
    else:
        [own] = managers
        former = own["fieldsV1"].get("f:metadata", {})
        fields = former | {"f:annotations": former.get("f:annotations", {}) | fields["f:annotations"]}
        managers = [own | {"fieldsV1": own["fieldsV1"] | {"f:metadata": fields}}]
    annotations = {**metadata.get("annotations", {}), HIBERNATION: note}
    return stateful_set | {"metadata": metadata | {"annotations": annotations, "managedFields": managers}}


def is_requested(resources: Iterable[tuple[Kind, Obj]], name: str) -> bool:
    """Whether the user requests that the pods of a cluster stop."""
    return any(obj["spec"].get("hibernate") for _, obj in resources if obj["metadata"]["name"] == name)
