"""Hibernation in worlds of etcd and Redis: records of a StatefulSet, and what the user requests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import STATEFUL_SET, Kind, Obj
from shared.steps.database import HIBERNATION
from tests.harness.api_server.requests import value_at
from tests.harness.harness import NAMESPACE
from tests.harness.scenario_runner import World


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


def refuse_to_stop(patch: pytest.MonkeyPatch, world: World, name: str, status: int) -> None:
    """Let a policy refuse StatefulSets without replicas, also in a dry run."""
    request, path = world.server.request, STATEFUL_SET.path(NAMESPACE, name)
    refusal = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "message": POLICY}

    async def judged(given: Request) -> Response:
        if given.path == path and given.method == "PATCH" and value_at(given.body, "spec.replicas") == 0:
            return Response(status, refusal)
        return await request(given)

    patch.setattr(world.server, "request", judged)


POLICY = "policy: replicas must be at least 1"
