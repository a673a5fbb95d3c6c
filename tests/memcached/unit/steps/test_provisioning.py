"""Optional objects of a Memcached: PodDisruptionBudget, autoscaler and metrics; and deadlines."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest

from operators.memcached.operator import controller
from shared.cli.options import parse_options
from shared.kubernetes.kinds import AUTOSCALER, DISRUPTION_BUDGET, POD, Kind, Obj
from shared.status.verdict import Progress
from simulator.harness import NAMESPACE, NOW, Harness
from tests.memcached.unit.world import UNPAUSED, observed_pods, plan, pod, resource, workload_in

OPTIONAL: dict[Kind, Obj] = {
    DISRUPTION_BUDGET: {"podDisruptionBudget": {"minAvailable": 1}},
    AUTOSCALER: {"autoscaling": {"minReplicas": 2, "maxReplicas": 4}},
}


def started(*arguments: str, **options: Any) -> Harness:
    given = parse_options("memcached-operator", "memcached", ["--agent-image=operator:1", *arguments], {})
    return Harness(controller(given), **options)


@pytest.fixture
async def harness() -> Harness:
    return started()


async def settled(harness: Harness, **spec: Any) -> Obj:
    harness.apply("cache", **({"size": 3} | spec))
    await harness.settle()
    return harness.resource("cache")


def reason(obj: Obj) -> str:
    return str(obj["status"]["conditions"][0]["reason"])


@pytest.mark.parametrize("kind", OPTIONAL, ids=str)
async def test_optional_object_is_created_repaired_and_deleted(harness: Harness, kind: Kind) -> None:
    await settled(harness, **OPTIONAL[kind])
    result = harness.user_client.get(kind, NAMESPACE, "cache")
    harness.user_client.merge(kind, NAMESPACE, "cache", {"spec": {"maxReplicas": 9, "minAvailable": 9}})
    await harness.settle()
    edited = harness.user_client.get(kind, NAMESPACE, "cache")["spec"]
    assert {name: edited[name] for name in result["spec"]} == result["spec"]
    harness.user_client.delete(kind, NAMESPACE, "cache")
    await harness.settle()
    assert harness.user_client.get(kind, NAMESPACE, "cache")["spec"] == result["spec"]
    uids = {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)}
    assert reason(await settled(harness)) == "Ready"
    assert not harness.server.objects(kind)
    assert {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)} == uids


async def test_other_kind_of_budget_replaces_a_manually_edited_one(harness: Harness) -> None:
    """Kubernetes rejects both at once, and an apply does not remove fields of other managers."""
    await settled(harness, podDisruptionBudget={"minAvailable": 1})
    harness.user_client.merge(DISRUPTION_BUDGET, NAMESPACE, "cache", {"spec": {"minAvailable": 3}})
    await settled(harness, podDisruptionBudget={"maxUnavailable": 2})
    spec = harness.user_client.get(DISRUPTION_BUDGET, NAMESPACE, "cache")["spec"]
    assert (spec["maxUnavailable"], spec.get("minAvailable")) == (2, None)


def _without_status(obj: Obj) -> Obj:
    """Return an object without what changes when a controller of Kubernetes writes its status."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in ("resourceVersion", "managedFields")}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


@pytest.mark.parametrize("kind", OPTIONAL, ids=str)
async def test_foreign_object_of_the_same_name_is_never_deleted(harness: Harness, kind: Kind) -> None:
    foreign = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "cache", "namespace": NAMESPACE}}
    before = harness.user_client.create(kind, {**foreign, "spec": {"maxReplicas": 2}})
    await settled(harness)
    await harness.restart().settle()
    after = harness.user_client.get(kind, NAMESPACE, "cache")
    assert _without_status(after) == _without_status(before)


async def test_size_set_by_the_autoscaler_is_kept(harness: Harness) -> None:
    await settled(harness, **OPTIONAL[AUTOSCALER])
    hpa = harness.server.actor("horizontal-pod-autoscaler")
    hpa.merge(harness.controller.kind, NAMESPACE, "cache", {"spec": {"size": 4}})
    await harness.settle()
    assert workload_in(harness.server)["spec"]["replicas"] == 4
    assert harness.resource("cache")["spec"]["size"] == 4, "the operator does not reset it"


@pytest.mark.parametrize(("size", "runs"), [(1, 2), (3, 3), (9, 4)])
async def test_size_outside_the_autoscalers_bounds_is_clamped(harness: Harness, size: int, runs: int) -> None:
    """The webhook clamps the size at admission; without it, the operator clamps it."""
    await settled(harness, size=size, **OPTIONAL[AUTOSCALER])
    assert workload_in(harness.server)["spec"]["replicas"] == runs
    assert reason(harness.resource("cache")) == "Ready"


def test_metrics_without_an_exporter_image_block_the_plan() -> None:
    result = plan(resource(metrics={}), observed_pods(pod(1)), agent_image="")
    assert result.actions == ()
    assert (result.verdict.progress, result.verdict.reason) == (Progress.BLOCKED, "NoExporterImage")
    assert "--agent-image" in result.verdict.message
    assert plan(resource(metrics={"enabled": False}), observed_pods(pod(1)), agent_image="").actions


def test_exporter_imports_no_operator_dependencies() -> None:
    program = (
        "import runpy, sys; sys.argv = ['memcached', 'exporter', '--help']\n"
        "try: runpy.run_module('operators.memcached', run_name='__main__')\n"
        "except SystemExit as end: print('ended', end.code)\n"
        "print([name for name in ('kopf', 'kubernetes', 'aiohttp', 'pydantic') if name in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.splitlines()[-2:] == ["ended 0", "[]"]


def late(phase: str, seconds: float, **spec: Any) -> Any:
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Reconciling", "status": "True", "lastTransitionTime": since}
    return resource(phase=phase, observed=1, status={"conditions": [condition]}, **UNPAUSED | spec)


@pytest.mark.parametrize(
    ("phase", "limit", "reason"), [("Creating", 600, "CreateTimeout"), ("Updating", 1800, "UpgradeTimeout")]
)
def test_exceeded_deadline_is_a_warning_with_the_cause(phase: str, limit: float, reason: str) -> None:
    observed = observed_pods(pod(1), pod(2, ready=False, problem="CreateContainerConfigError: no key"))
    early = plan(late(phase, limit - 7), observed)
    assert (early.verdict.reason, early.requeue) == ("ServerFailing", 7)
    verdict = plan(late(phase, limit), observed).verdict
    assert (verdict.reason, verdict.warning) == (reason, True)
    assert verdict.message.startswith("1 of 3 servers are ready. cache-2 does not start: CreateContainerConfigError")
    assert plan(late(phase, limit), observed).status["phase"] == phase


def test_pauses_extend_the_deadline_of_a_rolling_update() -> None:
    observed = observed_pods(pod(1), pod(2), pod(3), updated=1)
    paced = {"updateStrategy": {"pauseSeconds": 1000}}
    assert plan(late("Updating", 1800 + 2999, **paced), observed).verdict.reason == "Updating"
    assert plan(late("Updating", 1800 + 3000, **paced), observed).verdict.reason == "UpgradeTimeout"


@pytest.mark.parametrize("phase", ["Scaling", "Degraded"])
def test_other_operations_have_no_deadline(phase: str) -> None:
    result = plan(late(phase, 10**6), observed_pods(pod(1)))
    assert (result.verdict.reason, result.requeue) == (phase, None)


async def test_create_timeout_is_reported_even_across_a_restart() -> None:
    time = NOW
    harness = started("--create-timeout=60", clock=lambda: time)
    harness.workloads.pod_problem = lambda _: "ImagePullBackOff"
    assert reason(await settled(harness)) == "ImagePullFailed"
    # The reconciler takes times in the status from the wall clock.
    started_at = harness.resource("cache")["status"]["conditions"][1]["lastTransitionTime"]
    time = type(NOW).fromisoformat(started_at) + timedelta(seconds=61)
    for _ in range(2):
        harness = harness.restart()
        await harness.settle()
        assert reason(harness.resource("cache")) == "CreateTimeout"
    harness.workloads.pod_problem = lambda _: ""
    await harness.settle()
    assert reason(harness.resource("cache")) == "Ready"
