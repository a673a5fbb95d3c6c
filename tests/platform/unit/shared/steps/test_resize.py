"""Changes of CPU and memory in running pods: what is resized, what waits, and when pods are replaced instead."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Patch
from shared.steps.resize import REFUSED, can_resize, resize_pods
from tests.support.applied_workloads import container

MANAGER, NAME = "memcached-operator", "memcached"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def resized(known: dict[str, Obj], **more: Any) -> Obj:
    """Return the workload with other amounts of all of its resources."""
    made = copy.deepcopy(known["sent"])
    given = container(made)["resources"]
    for part in given.values():
        part.update({name: "7" if name == "cpu" else "7Gi" for name in part} | more)
    return made


def amounts(workload: Obj) -> Obj:
    found: Obj = container(workload)["resources"]
    return found


def pod(workload: Obj, *conditions: Obj, number: int = 0, status: Obj | None = None, **metadata: Any) -> Obj:
    """Return a running pod of a workload."""
    spec = copy.deepcopy(workload["spec"]["template"]["spec"]) | {"nodeName": "node-1"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": f"cache-{number}", "namespace": "default", "uid": f"p-{number}", **metadata},
        "spec": spec,
        "status": {"conditions": [ready, *conditions], **(status or {})},
    }


def refused(known: dict[str, Obj]) -> Obj:
    """Return a pod whose resize to the new amounts was refused."""
    [action] = resize_pods([pod(known["sent"])], amounts(resized(known)), NAME, NOW).actions
    assert isinstance(action, Patch)
    assert action.noted is not None
    key, beginning = action.noted
    return pod(known["sent"], annotations={key: f"{beginning}: forbidden"})


def unschedulable(seconds: int) -> Obj:
    since = (NOW - timedelta(seconds=seconds)).isoformat()
    return {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": since}


def infeasible() -> Obj:
    return {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "Node lacks capacity."}


def decided(known: dict[str, Obj], desired: Obj, *pods: Obj) -> bool:
    return can_resize(desired, known["observed"], pods, NAME, MANAGER, NOW)


def test_other_amounts_of_cpu_and_memory_are_set_in_running_pods(known: dict[str, Obj]) -> None:
    assert decided(known, resized(known), pod(known["sent"]))


def test_same_amounts_need_no_resize(known: dict[str, Obj]) -> None:
    assert not decided(known, known["sent"], pod(known["sent"]))


@pytest.mark.parametrize("more", [{"example.com/gpu": 1}, {"ephemeral-storage": "1Gi"}], ids=str)
def test_other_resources_replace_the_pods(known: dict[str, Obj], more: Obj) -> None:
    assert not decided(known, resized(known, **more), pod(known["sent"]))


def test_new_workload_and_one_without_pods_get_the_template(known: dict[str, Obj]) -> None:
    assert not decided(known, resized(known))
    assert not can_resize(resized(known), None, [pod(known["sent"])], NAME, MANAGER, NOW)


def test_pods_are_replaced_after_a_refusal_of_these_amounts_only(known: dict[str, Obj]) -> None:
    assert not decided(known, resized(known), refused(known))
    assert decided(known, resized(known, memory="9Gi"), refused(known))


def test_pods_are_replaced_if_a_node_is_too_small(known: dict[str, Obj]) -> None:
    assert not decided(known, resized(known), pod(known["sent"], infeasible()))


def test_pods_are_replaced_if_one_stays_unschedulable_with_the_former_amounts(known: dict[str, Obj]) -> None:
    running = pod(known["sent"])
    assert decided(known, resized(known), running, pod(known["sent"], unschedulable(10), number=1))
    assert not decided(known, resized(known), running, pod(known["sent"], unschedulable(90), number=1))


def test_pods_with_other_amounts_are_resized(known: dict[str, Obj]) -> None:
    desired = resized(known)
    step = resize_pods([pod(known["sent"]), pod(desired, number=1)], amounts(desired), NAME, NOW)
    [action] = step.actions
    assert isinstance(action, Patch)
    assert (action.obj["metadata"]["name"], action.subresource) == ("cache-0", "resize")
    [changed] = action.change["spec"]["containers"]
    assert changed == {field: container(desired)[field] for field in ("name", "resources")}
    assert step.reason == "Resizing"


def test_resize_keeps_amounts_that_an_admission_controller_added(known: dict[str, Obj]) -> None:
    running, desired = pod(known["sent"]), resized(known)
    running["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] = "1Gi"
    [action] = resize_pods([running], amounts(desired), NAME, NOW).actions
    assert isinstance(action, Patch)
    assert action.change["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "1Gi"


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        (
            {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "Node is full."},
            "Node is full.",
        ),
        ({"type": "PodResizeInProgress", "status": "True"}, "PodResizeInProgress."),
    ],
)
def test_step_waits_for_the_kubelet(known: dict[str, Obj], condition: Obj, words: str) -> None:
    desired = resized(known)
    step = resize_pods([pod(desired, condition)], amounts(desired), NAME, NOW)
    assert step.actions == ()
    assert step.message.endswith(f"cache-0 without a restart: {words}")


def test_step_waits_until_the_kubelet_reports_the_amounts(known: dict[str, Obj]) -> None:
    desired = resized(known)
    before, after = (
        {"containerStatuses": [{"name": NAME, "resources": amounts(each)}]} for each in (known["sent"], desired)
    )
    assert "in progress" in resize_pods([pod(desired, status=before)], amounts(desired), NAME, NOW).message
    assert resize_pods([pod(desired, status=after)], amounts(desired), NAME, NOW) is PASS


def test_refused_and_unscheduled_pods_are_left_alone(known: dict[str, Obj]) -> None:
    unscheduled = pod(known["sent"], unschedulable(1), number=1)
    del unscheduled["spec"]["nodeName"]
    assert resize_pods([refused(known), unscheduled], amounts(resized(known)), NAME, NOW) is PASS
    assert REFUSED in refused(known)["metadata"]["annotations"]
