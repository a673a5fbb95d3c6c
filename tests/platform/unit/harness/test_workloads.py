"""Tests of the simulated Deployment and StatefulSet controllers and the kubelet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET, Obj
from tests.harness import ApiServer, Workloads
from tests.support.api_server_scenarios import deployment, stateful_set


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def apply_deployment(server: ApiServer, replicas: int, image: str = "image:1", **spec: object) -> None:
    obj = deployment(image=image)
    obj["metadata"]["namespace"] = "cache"
    obj["spec"] |= {"replicas": replicas, **spec}
    server.actor("operator").apply(DEPLOYMENT, obj, force=True)


def pods(server: ApiServer) -> list[Obj]:
    return [pod for _, pod in server.objects(POD)]


def ready(pod: Obj) -> bool:
    return any(found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions", ()))


def status(server: ApiServer) -> Obj:
    found: Obj = server.actor("kubectl").get(DEPLOYMENT, "cache", "it")["status"]
    return found


def test_deployment_creates_pods_and_counts_them(server: ApiServer) -> None:
    apply_deployment(server, 3)
    workloads = Workloads(server)
    assert workloads.settle() > 0
    assert not workloads.step(), "settled workloads take no action"
    assert len({pod["status"]["podIP"] for pod in pods(server)}) == 3
    assert all(ready(pod) and pod["metadata"]["labels"]["app"] == "it" for pod in pods(server))
    exact_counts = {
        key: status(server)[key] for key in ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration")
    }
    assert exact_counts == {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 1}


def test_scaling_down_deletes_surplus_pods(server: ApiServer) -> None:
    apply_deployment(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    apply_deployment(server, 0)
    workloads.settle()
    assert not pods(server)
    assert "readyReplicas" not in status(server), "the API omits zeros"


@given(replicas=st.integers(1, 6))
def test_rolling_update_respects_surge_and_unavailability_limits(replicas: int) -> None:
    server = ApiServer()
    apply_deployment(server, replicas)
    workloads = Workloads(server)
    workloads.settle()
    apply_deployment(server, replicas, "image:2")
    surge, unavailable = -(-replicas // 4), replicas // 4
    while workloads.step():
        alive = [pod for pod in pods(server) if not pod["metadata"].get("deletionTimestamp")]
        assert len(alive) <= replicas + surge
        assert sum(map(ready, alive)) >= replicas - unavailable
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * replicas


def test_recreate_strategy_never_runs_both_versions(server: ApiServer) -> None:
    apply_deployment(server, 2, strategy={"type": "Recreate"})
    workloads = Workloads(server)
    workloads.settle()
    apply_deployment(server, 2, "image:2", strategy={"type": "Recreate"})
    while workloads.step():
        alive = [pod for pod in pods(server) if not pod["metadata"].get("deletionTimestamp")]
        assert len({pod["spec"]["containers"][0]["image"] for pod in alive}) <= 1
    assert len(pods(server)) == 2


def test_failed_deployment_rollout_stops_and_resumes_after_the_fix(server: ApiServer) -> None:
    apply_deployment(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    apply_deployment(server, 2, "image:broken")
    workloads.pod_problem = lambda pod: "ImagePullBackOff" if "broken" in pod["spec"]["containers"][0]["image"] else ""
    workloads.settle()
    assert [ready(pod) for pod in pods(server)].count(True) == 2, "the old pods stay ready"
    [waiting] = [pod for pod in pods(server) if not ready(pod)]
    assert waiting["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ImagePullBackOff"}}
    assert waiting["status"]["phase"] == "Pending"
    apply_deployment(server, 2, "image:2")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * 2


def test_unready_pod_keeps_running(server: ApiServer) -> None:
    apply_deployment(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    workloads.pod_problem = lambda _: "Unready"
    workloads.settle()
    [pod] = pods(server)
    assert (pod["status"]["phase"], ready(pod)) == ("Running", False)
    assert {found["type"]: found["status"] for found in status(server)["conditions"]}["Available"] == "False"


def test_replacement_pod_has_a_new_name_and_address(server: ApiServer) -> None:
    apply_deployment(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    [before] = pods(server)
    server.actor("kubectl").delete(POD, "cache", before["metadata"]["name"])
    workloads.settle()
    [after] = pods(server)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert after["status"]["podIP"] != before["status"]["podIP"]


def apply_stateful_set(server: ApiServer, replicas: int, image: str = "image:1", **spec: object) -> None:
    obj = stateful_set(replicas=replicas, **spec)
    obj["metadata"]["namespace"] = "cache"
    obj["spec"]["template"]["spec"]["containers"][0]["image"] = image
    server.actor("operator").apply(STATEFUL_SET, obj, force=True)


def test_stateful_set_pods_keep_their_names(server: ApiServer) -> None:
    apply_stateful_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    assert not workloads.step(), "settled workloads take no action"
    assert [pod["metadata"]["name"] for pod in pods(server)] == ["it-0", "it-1", "it-2"]
    before = pods(server)[1]
    server.actor("kubectl").delete(POD, "cache", "it-1")
    workloads.settle()
    after = pods(server)[1]
    assert after["metadata"]["name"] == "it-1"
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["podIP"] != before["status"]["podIP"]
    apply_stateful_set(server, 1)
    workloads.settle()
    assert [pod["metadata"]["name"] for pod in pods(server)] == ["it-0"]
    exact_counts = server.actor("kubectl").get(STATEFUL_SET, "cache", "it")["status"]
    assert (exact_counts["replicas"], exact_counts["readyReplicas"], exact_counts["updatedReplicas"]) == (1, 1, 1)


@pytest.mark.parametrize("policy", ["Parallel", "OrderedReady"])
def test_pod_management_policy_decides_the_start_order(server: ApiServer, policy: str) -> None:
    apply_stateful_set(server, 3, podManagementPolicy=policy)
    workloads = Workloads(server, pod_problem=lambda _: "Unready")
    workloads.settle()
    assert len(pods(server)) == (3 if policy == "Parallel" else 1)


def test_stateful_set_rolls_one_pod_at_a_time_from_the_highest_ordinal(server: ApiServer) -> None:
    apply_stateful_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    apply_stateful_set(server, 3, "image:2")
    order = []
    while workloads.step():
        there = pods(server)
        assert sum(map(ready, there)) >= 2
        new = [pod["metadata"]["name"] for pod in there if pod["spec"]["containers"][0]["image"] == "image:2"]
        order += [name for name in new if name not in order]
    assert order == ["it-2", "it-1", "it-0"]


def test_failed_stateful_set_rollout_stops_and_resumes_after_the_fix(server: ApiServer) -> None:
    apply_stateful_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    apply_stateful_set(server, 3, "image:broken")
    workloads.pod_problem = lambda pod: "ImagePullBackOff" if "broken" in pod["spec"]["containers"][0]["image"] else ""
    workloads.settle()
    assert [ready(pod) for pod in pods(server)] == [True, True, False]
    apply_stateful_set(server, 3, "image:2")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * 3
