"""Hibernation in worlds of etcd and Redis: records of a StatefulSet, and what the user requests."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from shared.kubernetes import accessors
from shared.kubernetes.client import Request, Response
from shared.kubernetes.kinds import POD, STATEFUL_SET, Kind, Obj
from shared.status import conditions
from shared.steps import hibernation
from shared.steps.database import HIBERNATION
from shared.steps.hibernation import WAKES
from simulator.api_server.requests import value_at
from simulator.harness import NAMESPACE
from tests.harness.scenario import ScenarioStep, edit
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.plays import pods, ready


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


@dataclass
class Hibernations:
    """The hibernations that an operator has begun.

    Attributes:
        begun: records of these by the name of the StatefulSet, without whether the pods return.
    """

    begun: dict[str, dict[str, int]] = field(default_factory=dict)

    def violation(self, name: str, record: dict[str, int], live: Obj | None) -> str:
        """Return why the operator must not write a record; empty if it may.

        It may begin a hibernation by stopping running pods, and keep the record of that until all pods are back.
        By a record of its own, another client could otherwise stop a database, or give it another size.
        """
        size = {key: value for key, value in record.items() if key != WAKES}
        if record.get(WAKES) == 0 and value_at(live, "spec.replicas"):
            self.begun[name] = size
        if not size:
            self.begun.pop(name, None)
        return "" if self.begun.get(name, {}) == size else f"the operator obeys a record of {name} by another: {size}"


def obeys_records_of_others(patch: pytest.MonkeyPatch) -> None:
    """Obey a record of a hibernation that any client wrote."""
    patch.setattr(hibernation, "managed_fields", SimpleNamespace(is_applied=lambda *_: True))


def forged(name: str, **note: int) -> ScenarioStep:
    """Let a person, or a tool that restores a former StatefulSet, write a record."""
    return edit(STATEFUL_SET, {"metadata": {"annotations": {HIBERNATION: json.dumps(note)}}}, name)


def is_requested(resources: Iterable[tuple[Kind, Obj]], name: str) -> bool:
    """Whether the user requests that the pods of a cluster stop."""
    return any(obj["spec"].get("hibernate") for _, obj in resources if obj["metadata"]["name"] == name)


async def require_refused_stop_costs_no_pod(
    run: ScenarioRun, asleep: ScenarioStep, name: str, status: int, expected: str
) -> None:
    """Require that a policy which refuses the stop is the reason of Ready, until it is removed.

    Args:
        asleep: step in which the user requests the hibernation.
        expected: reason while the API server answers with the status.
    """
    before = pods(run)
    with pytest.MonkeyPatch.context() as patch:
        refuse_to_stop(patch, run.world, name, status)
        await run.run_steps((asleep,))
        for _ in range(15):
            await run.wait(60)
            found, [resource] = ready(run), run.stage.find()
            available = accessors.condition(resource, conditions.AVAILABLE)["reason"]
            assert (pods(run), found["reason"], available) == (before, expected, "Served")
            assert POLICY in found["message"]
    await run.wait(60)
    assert (ready(run)["reason"], len(run.stage.find(POD))) == ("Hibernated", 0)


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
