"""Plan and status for every state of a Memcached."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.memcached.security.secrets import Secrets
from operators.memcached.state.observed import REVISION, Observed, Workload
from shared.kubernetes.kinds import NETWORK_POLICY, STATEFUL_SET, Obj
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Apply
from shared.status.verdict import Progress
from tests.memcached.unit.world import EMPTY, NOW, observed_pods, plan, pod, resource, template, workload_of

THREE = tuple(pod(number) for number in (1, 2, 3))


def test_new_resource_gets_its_objects() -> None:
    result = plan(resource(), EMPTY)
    assert [str(action.kind) for action in result.actions if isinstance(action, Apply)] == [
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    ]
    assert (result.verdict.reason, result.verdict.message) == (
        "Creating",
        "Creating the servers: 0 of 3 servers are ready.",
    )
    assert result.status["phase"] == "Creating"


def test_complete_resource_is_ready_and_lists_its_servers() -> None:
    result = plan(resource(phase="Creating"), observed_pods(*THREE))
    assert result.verdict.done
    assert result.verdict.message == "3 of 3 servers are ready."
    assert result.status["phase"] == "Running"
    assert result.status["nodes"] == ["cache-1", "cache-2", "cache-3"]
    assert result.status["servers"] == ["10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211"]
    assert result.requeue is None


def test_only_ready_servers_are_listed() -> None:
    observed = observed_pods(pod(1), pod(2, ready=False), pod(3, leaving=True))
    status = plan(resource(phase="Running", observed=1), observed).status
    assert status["servers"] == ["10.0.0.1:11211"]
    assert status["nodes"] == ["cache-1", "cache-2"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 1)


def test_ipv6_address_is_listed_in_brackets() -> None:
    observed = observed_pods(replace(pod(1), address="fd00::1"))
    assert plan(resource(size=1), observed).status["servers"] == ["[fd00::1]:11211"]


@pytest.mark.parametrize(("revision", "outdated"), [("new", 0), ("old", 1)])
def test_pod_that_is_being_deleted_is_no_outdated_one(revision: str, outdated: int) -> None:
    """In the status of a StatefulSet, `updatedReplicas` does not count such a pod, and `replicas` does."""
    status: Obj = {"replicas": 2, "updatedReplicas": 1, "updateRevision": "new", "currentRevision": "new"}
    staying: Obj = {"metadata": {"labels": {REVISION: revision}}}
    assert Workload(STATEFUL_SET, {"metadata": {}, "status": status}, pod_objs=(staying,)).outdated == outdated


def test_resource_scaled_to_zero_is_ready() -> None:
    result = plan(resource(size=0, phase="Scaling"), observed_pods(replicas=0))
    assert result.verdict.done
    assert result.verdict.message == "Scaled to zero: no servers run."


@pytest.mark.parametrize(
    ("before", "observed", "reason", "message"),
    [
        ("", observed_pods(pod(1), pod(2, ready=False)), "Creating", "Creating the servers: 1 of 3 servers are ready."),
        ("Creating", observed_pods(pod(1)), "Creating", "Creating the servers: 1 of 3 servers are ready."),
        (
            "Running",
            observed_pods(*THREE, replicas=4, updated=1),
            "Updating",
            "Rolling update: 1 of 3 servers are updated, and 3 are ready.",
        ),
        ("Updating", observed_pods(pod(1), pod(2)), "Updating", "Rolling update: 2 of 3 servers are ready."),
        ("Scaling", observed_pods(pod(1)), "Scaling", "Scaling to 3 servers: 1 of 3 servers are ready."),
        ("Failed", observed_pods(pod(1, ready=False)), "Creating", "Creating the servers: 0 of 3 servers are ready."),
        ("Failed", observed_pods(pod(1), pod(2)), "Updating", "Rolling update: 2 of 3 servers are ready."),
        (
            "Running",
            observed_pods(pod(1), pod(2)),
            "Degraded",
            "2 of 3 servers are ready. Kubernetes restarts or replaces",
        ),
        ("Running", observed_pods(*THREE, pod(4)), "Degraded", "Removing surplus servers: 4 servers run"),
        (
            "Scaling",
            observed_pods(*THREE, up_to_date=False),
            "Scaling",
            "3 of 3 servers are ready. Waiting for the Deployment controller",
        ),
    ],
)
def test_operation_keeps_its_reason_until_it_completes(
    before: str, observed: Observed, reason: str, message: str
) -> None:
    result = plan(resource(phase=before, observed=1), observed)
    assert result.verdict.progress is Progress.PROGRESSING
    assert result.verdict.reason == result.status["phase"] == reason
    assert result.verdict.message.startswith(message)
    assert result.verdict.warning is (reason == "Degraded")


def test_changed_size_is_scaling_and_not_degraded() -> None:
    result = plan(resource(phase="Running", generation=2, observed=1, size=5), observed_pods(*THREE))
    assert result.verdict.reason == "Scaling"


def test_changed_spec_is_not_ready_before_the_workload_observes_it() -> None:
    changed = resource(phase="Running", generation=2, observed=1)
    assert plan(changed, observed_pods(*THREE, up_to_date=False)).verdict.reason == "Updating"


def test_foreign_annotation_on_the_deployment_keeps_the_resource_ready() -> None:
    """The annotation raises the Deployment's generation, but changes no server."""
    assert plan(resource(phase="Running", observed=1), observed_pods(*THREE, up_to_date=False)).verdict.done


def test_failing_server_is_reported_with_the_message_of_kubernetes() -> None:
    observed = observed_pods(pod(1), pod(2), pod(3, ready=False, problem="CreateContainerConfigError: no key"))
    verdict = plan(resource(phase="Creating"), observed).verdict
    assert verdict.reason == "ServerFailing"
    assert verdict.message == "2 of 3 servers are ready. cache-3 does not start: CreateContainerConfigError: no key."
    assert verdict.warning


def test_pods_rejected_by_a_quota_are_reported() -> None:
    verdict = plan(resource(phase="Creating"), observed_pods(replica_failure="exceeded quota: few")).verdict
    assert verdict.reason == "PodsRefused"
    assert "exceeded quota: few" in verdict.message


def unready(seconds: float) -> Obj:
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "Unknown", "reason": "Creating", "lastTransitionTime": since}
    return {"phase": "Creating", "observedGeneration": 1, "conditions": [ready]}


def test_pods_that_a_stateful_set_does_not_create_are_reported_after_a_while() -> None:
    """Kubernetes names the reason only in events of the StatefulSet."""
    refused = Observed(workload_of("StatefulSet", pod(1)))
    early = plan(resource(status=unready(10)), refused)
    assert (early.verdict.reason, early.requeue) == ("Creating", 5)
    late = plan(resource(status=unready(15)), refused).verdict
    assert (late.reason, late.warning) == ("PodsRefused", True)
    assert late.message == (
        "1 of 3 servers are ready. Kubernetes has not created 2 of the pods: `kubectl describe statefulset cache -n "
        "default` names the reason."
    )


def test_size_that_is_not_applied_is_not_reported_as_refused_pods() -> None:
    observed = Observed(workload_of("StatefulSet", *map(pod, range(3))))
    assert plan(resource(size=5, status=unready(100)), observed).verdict.reason == "Creating"


@pytest.mark.parametrize(
    "created",
    [
        workload_of("StatefulSet", pod(1), up_to_date=False),
        workload_of("StatefulSet", pod(1), replicas=3),
        workload_of("StatefulSet", *(pod(number, ready=False) for number in (1, 2, 3)), replicas=1),
        workload_of("StatefulSet", pod(1), pod(2), pod(3, leaving=True)),
        workload_of("Deployment", pod(1)),
    ],
    ids=["change not observed", "pods not seen yet", "status not seen yet", "being replaced", "Deployment"],
)
def test_pods_that_are_being_created_are_not_reported_as_refused(created: Workload) -> None:
    assert plan(resource(status=unready(100)), Observed(created)).verdict.reason == "Creating"


def test_paused_resource_is_reported_and_not_changed() -> None:
    whole = plan(resource(paused=True, phase="Running"), observed_pods(*THREE))
    assert whole.actions == ()
    assert (whole.verdict.reason, whole.verdict.ready, whole.status["phase"]) == ("Paused", True, "Paused")
    assert plan(resource(paused=True), observed_pods(pod(1))).verdict.ready is False


def test_running_servers_are_listed_and_admitted_with_their_own_port() -> None:
    """A change of the port replaces one server after the other: clients must reach the others until then."""
    changed = resource(phase="Running", generation=2, observed=1, containerPort=11311)
    result = plan(changed, observed_pods(*THREE))
    policies = [each.obj["spec"] for each in result.actions if isinstance(each, Apply) and each.kind == NETWORK_POLICY]
    assert [{port["port"] for rule in each["ingress"] for port in rule["ports"]} for each in policies] == [
        {11311, 11211}
    ]
    assert {address.rpartition(":")[2] for address in result.status["servers"]} == {"11211"}
    replaced = Observed(workload_of("Deployment", *THREE, made=template(11311)))
    assert {address.rpartition(":")[2] for address in plan(changed, replaced).status["servers"]} == {"11311"}


def test_sets_list_a_server_with_the_port_that_it_has_or_had() -> None:
    pods = [pod(0, controller="StatefulSet"), pod(2, controller="StatefulSet", ready=False)]
    listed = [f"cache-{number}.cache.default.svc:11211" for number in range(3)]
    changed = resource(
        workload="StatefulSet", containerPort=11311, phase="Running", observed=1, status={"servers": listed}
    )
    assert plan(changed, Observed(workload_of("StatefulSet", *pods))).status["servers"] == listed


def test_own_edit_of_the_workload_is_not_in_effect_before_its_controller_reports_it() -> None:
    """Servers that read a new authority only at startup do not have it yet, although the spec is as it was."""
    workload = workload_of("Deployment", *THREE, made=template(secrets="former"), up_to_date=False)
    result = plan(resource(phase="Running", observed=1), Observed(workload, secrets=Secrets(versions={"a": "99"})))
    assert not result.verdict.done
    assert "observedSecrets" not in result.status


def test_invalid_spec_that_bypassed_admission_changes_nothing() -> None:
    result = plan(resource(memoryMB=8, maxItemSizeMB=8, phase="Running"), observed_pods(*THREE))
    assert result.actions == ()
    assert result.verdict.progress is Progress.BLOCKED
    assert "spec.maxItemSizeMB: 8" in result.verdict.message
    assert result.verdict.message.endswith("The spec was not applied.")
    assert len(result.status["servers"]) == 3, "the status still lists the running servers"


PODS = st.lists(
    st.builds(
        pod, st.integers(1, 9), ready=st.booleans(), leaving=st.booleans(), problem=st.sampled_from(["", "X: y"])
    ),
    max_size=6,
    unique_by=lambda found: found.name,
)
PHASES = st.sampled_from(["", "Creating", "Running", "Scaling", "Updating", "Degraded", "Paused", "Failed"])


@given(PODS, PHASES, st.integers(0, 5), st.integers(0, 6), st.booleans(), st.booleans())
def test_ready_is_reported_only_when_the_observed_state_matches_the_spec(
    pods: list[Pod], phase: str, size: int, updated: int, taken_up: bool, paused: bool
) -> None:
    observed = observed_pods(*pods, updated=updated, up_to_date=taken_up)
    result = plan(resource(phase=phase, observed=1, size=size, paused=paused), observed)
    if result.verdict.done:
        assert taken_up or phase == "Running"
        assert not paused
        assert len(observed.workload.current) == len(observed.workload.ready) == size
        assert observed.workload.outdated <= 0
    else:
        assert result.verdict.reason
        assert result.verdict.message
    assert set(result.status["servers"]) == {f"{found.address}:11211" for found in observed.workload.ready}
    assert result == plan(resource(phase=phase, observed=1, size=size, paused=paused), observed), (
        "the plan depends only on its inputs"
    )
