"""Plans in each state, and the objects that they apply."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from operators.greeter.api.resource import API, Greeter
from operators.greeter.observe import Observed
from operators.greeter.plan import Planner
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Apply, Plan
from shared.runtime.settings import Settings
from shared.status.verdict import Progress

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = {"data": {"text": "hello"}}


def deployment(ready: int, observed: int = 1) -> Obj:
    return {"metadata": {"generation": 1}, "status": {"readyReplicas": ready, "observedGeneration": observed}}


def plan(observed: Observed, **spec: Any) -> Plan:
    metadata = {"name": "a", "namespace": "default", "uid": "1", "generation": 1}
    obj = {"apiVersion": API.kind.api_version, "kind": API.kind.name, "metadata": metadata, "spec": spec}
    return Planner(Settings("greeter-operator", "nginx")).plan(Greeter.parse(obj), observed, NOW)


def test_text_is_applied_before_the_servers() -> None:
    made = [action.obj for action in plan(Observed(), text="hello", replicas=2).actions if isinstance(action, Apply)]
    assert [obj["kind"] for obj in made] == ["ConfigMap", "Service", "Deployment"]
    (container,) = made[2]["spec"]["template"]["spec"]["containers"]
    assert (made[2]["spec"]["replicas"], container["image"]) == (2, "nginx:1.29")


def test_plan_waits_until_all_servers_are_ready() -> None:
    for observed in (Observed(TEXT), Observed(TEXT, deployment(1)), Observed(TEXT, deployment(2, observed=0))):
        found = plan(observed, text="hello", replicas=2)
        assert (found.verdict.reason, found.status["phase"]) == ("Creating", "Creating")
    found = plan(Observed(TEXT, deployment(2)), text="hello", replicas=2)
    assert (found.verdict.done, found.verdict.message) == (True, "2 of 2 servers are ready.")
    assert found.status == {"phase": "Running", "configMap": "a-greeter", "readyReplicas": 2}


def test_paused_resource_is_not_changed() -> None:
    found = plan(Observed(TEXT, deployment(2)), text="other", paused=True)
    assert (found.actions, found.verdict.progress) == ((), Progress.PAUSED)
