"""Plans a change on a real cluster as `kubectl platform plan` does, and requires that it is executed as planned."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from e2e.plans import report
from e2e.plans.comparison import differences, durations, side_by_side
from e2e.plans.executed import Execution
from e2e.plans.recording import Recording
from e2e.scenarios.support.commands import run, until
from simulator.plan import PERSON, UNKNOWN, Plan

if TYPE_CHECKING:
    from e2e.scenarios.support.resource import Resource

LATE_SECONDS = 60.0
"""Time for steps that follow after a resource is Ready, such as the deletion of a volume."""

QUIET_SECONDS = 2.0
"""Time in which nothing more may happen."""


def known(resource: Resource, spec: Mapping[str, Any]) -> Plan:
    """Return the plan of a change of the spec, which is not applied.

    Raises:
        AssertionError: the simulation does not know the present state, or a person is needed.
        Refused: the API server refuses the change, or the plugin cannot plan it.
    """
    kubectl, kind = resource.kubectl, resource.KIND.lower()
    patch = f"--patch={json.dumps({'spec': spec})}"
    change = kubectl("patch", kind, resource.name, "--type=merge", patch, "--dry-run=server", "-o", "json")
    cluster = kubectl.environment["KUBECONFIG"]
    command = ["nice", "-n", "19", sys.executable, "-m", "e2e.plans", cluster, kubectl.namespace, kind, resource.name]
    found = parsed(run(command, kubectl.environment, given=change))
    assert found.outcome not in (UNKNOWN, PERSON), f"{found.outcome}: {found.reason}: {found.message}"
    return found


def parsed(text: str) -> Plan:
    """Return a plan from its JSON."""
    return TypeAdapter(Plan).validate_json(text)


def require_executed(plan: Plan, recording: Recording, spec: Mapping[str, Any]) -> None:
    """Require that a plan was executed, and add its durations to the report of this run.

    Raises:
        AssertionError: something else was executed; the message has both sides.
    """

    def check() -> Execution:
        executed = recording.execution()
        found = differences(plan, executed)
        assert not found, "\n" + side_by_side(plan, executed, found)
        return executed

    until("what was planned is executed", check, seconds=LATE_SECONDS, every=1.0)
    time.sleep(QUIET_SECONDS)
    report.add(plan, spec, durations(plan, check()))
