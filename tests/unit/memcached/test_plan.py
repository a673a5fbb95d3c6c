"""What the operator does and says in every state a Memcached can be in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.memcached.observe import Observed
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Apply
from shared.status.verdict import Progress
from tests.unit.memcached.world import EMPTY, plan, pod, resource, world

THREE = tuple(pod(number) for number in (1, 2, 3))


def test_a_new_resource_gets_its_objects() -> None:
    made = plan(resource(), EMPTY)
    assert [str(action.kind) for action in made.actions if isinstance(action, Apply)] == ["Service", "Deployment"]
    assert (made.verdict.reason, made.verdict.message) == ("Creating", "0 of 3 servers are ready.")
    assert made.status["phase"] == "Creating"


def test_a_resource_as_wanted_is_ready_and_lists_its_servers() -> None:
    made = plan(resource(phase="Creating"), world(*THREE))
    assert made.verdict.done
    assert made.verdict.message == "3 of 3 servers are ready."
    assert made.status["phase"] == "Running"
    assert made.status["nodes"] == ["cache-1", "cache-2", "cache-3"]
    assert made.status["servers"] == ["10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211"]
    assert made.requeue is None


def test_only_servers_that_clients_may_use_are_listed() -> None:
    seen = world(pod(1), pod(2, ready=False), pod(3, leaving=True))
    status = plan(resource(phase="Running", observed=1), seen).status
    assert status["servers"] == ["10.0.0.1:11211"]
    assert status["nodes"] == ["cache-1", "cache-2"]
    assert (status["replicas"], status["readyReplicas"]) == (2, 1)


def test_an_ipv6_server_is_written_as_clients_read_it() -> None:
    seen = world(replace(pod(1), address="fd00::1"))
    assert plan(resource(size=1), seen).status["servers"] == ["[fd00::1]:11211"]


def test_none_wanted_and_none_there_is_ready() -> None:
    made = plan(resource(size=0, phase="Scaling"), world(replicas=0))
    assert made.verdict.done
    assert made.verdict.message == "No server is wanted, and none runs."


@pytest.mark.parametrize(
    ("before", "seen", "reason", "message"),
    [
        ("", world(pod(1), pod(2, ready=False)), "Creating", "1 of 3 servers are ready."),
        ("Creating", world(pod(1)), "Creating", "1 of 3 servers are ready."),
        (
            "Running",
            world(*THREE, replicas=4, updated=1),
            "Updating",
            "3 of 3 servers are ready; 3 still run as before",
        ),
        ("Updating", world(pod(1), pod(2)), "Updating", "2 of 3 servers are ready."),
        ("Scaling", world(pod(1)), "Scaling", "1 of 3 servers are ready."),
        ("Failed", world(pod(1, ready=False)), "Creating", "0 of 3 servers are ready."),
        ("Failed", world(pod(1), pod(2)), "Updating", "2 of 3 servers are ready."),
        ("Running", world(pod(1), pod(2)), "Degraded", "2 of 3 servers are ready."),
        ("Running", world(*THREE, pod(4)), "Degraded", "4 servers run; 3 are wanted."),
        ("Scaling", world(*THREE, seen=False), "Scaling", "3 of 3 servers are ready; Kubernetes has not yet taken up"),
    ],
)
def test_what_is_under_way_has_a_name_until_it_is_over(before: str, seen: Observed, reason: str, message: str) -> None:
    made = plan(resource(phase=before, observed=1), seen)
    assert made.verdict.progress is Progress.PROGRESSING
    assert made.verdict.reason == made.status["phase"] == reason
    assert made.verdict.message.startswith(message)
    assert made.verdict.warning is (reason == "Degraded")


def test_a_changed_size_is_scaling_not_a_loss() -> None:
    made = plan(resource(phase="Running", generation=2, observed=1, size=5), world(*THREE))
    assert made.verdict.reason == "Scaling"


def test_a_changed_spec_is_not_reality_before_kubernetes_took_it_up() -> None:
    changed = resource(phase="Running", generation=2, observed=1)
    assert plan(changed, world(*THREE, seen=False)).verdict.reason == "Updating"


def test_an_annotation_of_anothers_on_the_deployment_is_no_loss() -> None:
    """It raises the Deployment's generation; what ran before still runs."""
    assert plan(resource(phase="Running", observed=1), world(*THREE, seen=False)).verdict.done


def test_a_server_that_cannot_start_is_named_with_kubernetes_own_words() -> None:
    seen = world(pod(1), pod(2), pod(3, ready=False, trouble="ImagePullBackOff: no such image"))
    verdict = plan(resource(phase="Creating"), seen).verdict
    assert verdict.reason == "ServerFailing"
    assert verdict.message == "2 of 3 servers are ready. cache-3 does not start: ImagePullBackOff: no such image"
    assert verdict.warning


def test_pods_refused_by_a_quota_are_told() -> None:
    verdict = plan(resource(phase="Creating"), world(refusal="exceeded quota: few")).verdict
    assert verdict.reason == "PodsRefused"
    assert "exceeded quota: few" in verdict.message


def test_paused_reports_and_touches_nothing() -> None:
    whole = plan(resource(paused=True, phase="Running"), world(*THREE))
    assert whole.actions == ()
    assert (whole.verdict.reason, whole.verdict.ready, whole.status["phase"]) == ("Paused", True, "Paused")
    assert plan(resource(paused=True), world(pod(1))).verdict.ready is False


def test_a_contradiction_that_came_past_admission_changes_nothing() -> None:
    made = plan(resource(memoryMB=8, maxItemSizeMB=8, phase="Running"), world(*THREE))
    assert made.actions == ()
    assert made.verdict.progress is Progress.BLOCKED
    assert "spec.maxItemSizeMB: 8" in made.verdict.message
    assert made.verdict.message.endswith("Nothing was changed.")
    assert len(made.status["servers"]) == 3, "what runs is reported all the same"


PODS = st.lists(
    st.builds(
        pod, st.integers(1, 9), ready=st.booleans(), leaving=st.booleans(), trouble=st.sampled_from(["", "X: y"])
    ),
    max_size=6,
    unique_by=lambda found: found.name,
)
PHASES = st.sampled_from(["", "Creating", "Running", "Scaling", "Updating", "Degraded", "Paused", "Failed"])


@given(PODS, PHASES, st.integers(0, 5), st.integers(0, 6), st.booleans(), st.booleans())
def test_ready_is_never_said_of_a_world_that_is_not_as_wanted(
    pods: list[Pod], phase: str, size: int, updated: int, taken_up: bool, paused: bool
) -> None:
    seen = world(*pods, updated=updated, seen=taken_up)
    made = plan(resource(phase=phase, observed=1, size=size, paused=paused), seen)
    if made.verdict.done:
        assert taken_up or phase == "Running"
        assert not paused
        assert len(seen.workload.current) == len(seen.workload.ready) == size
        assert seen.workload.outdated <= 0
    else:
        assert made.verdict.reason
        assert made.verdict.message
    assert set(made.status["servers"]) == {f"{found.address}:11211" for found in seen.workload.ready}
    assert made == plan(resource(phase=phase, observed=1, size=size, paused=paused), seen), "a plan is a function"
