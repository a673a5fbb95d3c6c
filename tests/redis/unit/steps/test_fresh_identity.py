"""Nodes without persistence: no member may have the identity that its next process would read."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.objects.names import CONTAINER, LAST_RUN
from operators.redis.objects.pod import LAST_RUN_VARIABLE
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from operators.redis.steps.fresh_identity import prepare_restarts
from shared.runtime.plan import PASS, Patch
from tests.redis.unit.world import NEW_RECORDED, acts, assess, formed, of, plan, world

VOLATILE: Any = {"config": {"appendonly": "no", "save": ""}}
VARIABLE = {"name": LAST_RUN_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{LAST_RUN}']"}}}


def volatile(instance: Instance, last_run: str = "") -> Instance:
    """The instance with a pod whose server has another identity after each start."""
    pod = copy.deepcopy(instance.pod_obj)
    assert pod is not None
    pod["spec"]["containers"] = [{"name": CONTAINER, "env": [VARIABLE]}]
    pod["metadata"]["annotations"] |= {LAST_RUN: last_run} if last_run else {}
    return replace(instance, pod_obj=pod)


def prepared(found: Observed) -> Observed:
    """The nodes whose processes are recorded."""
    instances = (volatile(one, one.report.run_id) if one.report else one for one in found.instances)
    return replace(found, instances=tuple(instances))


def test_new_node_joins_only_after_its_process_is_recorded() -> None:
    resource, found = world(*formed(), NEW_RECORDED, **VOLATILE)
    found = prepared(found)
    *others, new = found.instances
    made = plan(resource, replace(found, instances=(*others, volatile(new, "an earlier process"))))
    (patch,) = of(made.actions, "Patch")
    assert patch.change["metadata"]["annotations"] == {LAST_RUN: "run-6"}
    assert made.verdict.reason == "PreparingRestart"
    assert not acts(made.actions), "no MEET yet"
    assert any("meet demo-6" in act for act in acts(plan(resource, found).actions))


def test_process_that_started_since_is_recorded_again() -> None:
    resource, found = world(*formed(), **VOLATILE)
    instances = (volatile(found.instances[0], "an earlier process"), *prepared(found).instances[1:])
    step = prepare_restarts(assess(resource, replace(found, instances=instances)))
    (patch,) = step.actions
    assert isinstance(patch, Patch)
    assert patch.obj["metadata"]["name"] == "demo-0"


@pytest.mark.parametrize("change", [{"report": None}, {"pod_obj": None}])
def test_unreachable_node_is_not_recorded(change: dict[str, Any]) -> None:
    resource, found = world(*formed(), **VOLATILE)
    first, *others = prepared(found).instances
    instances = (replace(volatile(first), **change), *others)
    assert prepare_restarts(assess(resource, replace(found, instances=instances))) == PASS


def test_pod_that_keeps_its_identity_is_not_recorded() -> None:
    resource, found = world(*formed())
    assert prepare_restarts(assess(resource, found)) == PASS
