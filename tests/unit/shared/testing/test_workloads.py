"""The simulated controllers of Deployments and StatefulSets, and the kubelet, move as a cluster's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET, Obj
from shared.testing import ApiServer, Workloads
from tests.support.api_server_scenarios import deployment, stateful_set


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


def make(server: ApiServer, replicas: int, image: str = "image:1", **spec: object) -> None:
    obj = deployment(image=image)
    obj["metadata"]["namespace"] = "cache"
    obj["spec"] |= {"replicas": replicas, **spec}
    server.actor("operator").apply(DEPLOYMENT, obj, force=True)


def pods(server: ApiServer) -> list[Obj]:
    return [pod for _, pod in server.objects(POD)]


def ready(pod: Obj) -> bool:
    return any(found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions", ()))


def status(server: ApiServer) -> Obj:
    found: Obj = server.actor("person").get(DEPLOYMENT, "cache", "it")["status"]
    return found


def test_pods_come_up_and_are_counted(server: ApiServer) -> None:
    make(server, 3)
    workloads = Workloads(server)
    assert workloads.settle() > 0
    assert not workloads.step(), "at rest nothing moves"
    assert len({pod["status"]["podIP"] for pod in pods(server)}) == 3
    assert all(ready(pod) and pod["metadata"]["labels"]["app"] == "it" for pod in pods(server))
    counted = {
        key: status(server)[key] for key in ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration")
    }
    assert counted == {"replicas": 3, "readyReplicas": 3, "updatedReplicas": 3, "observedGeneration": 1}


def test_scaling_down_deletes_the_surplus(server: ApiServer) -> None:
    make(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    make(server, 0)
    workloads.settle()
    assert not pods(server)
    assert "readyReplicas" not in status(server), "the API leaves zeros out"


@given(replicas=st.integers(1, 6))
def test_a_rolling_update_keeps_what_it_promised(replicas: int) -> None:
    server = ApiServer()
    make(server, replicas)
    workloads = Workloads(server)
    workloads.settle()
    make(server, replicas, "image:2")
    surge, unavailable = -(-replicas // 4), replicas // 4
    while workloads.step():
        alive = [pod for pod in pods(server) if not pod["metadata"].get("deletionTimestamp")]
        assert len(alive) <= replicas + surge
        assert sum(map(ready, alive)) >= replicas - unavailable
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * replicas


def test_recreate_never_runs_both(server: ApiServer) -> None:
    make(server, 2, strategy={"type": "Recreate"})
    workloads = Workloads(server)
    workloads.settle()
    make(server, 2, "image:2", strategy={"type": "Recreate"})
    while workloads.step():
        alive = [pod for pod in pods(server) if not pod["metadata"].get("deletionTimestamp")]
        assert len({pod["spec"]["containers"][0]["image"] for pod in alive}) <= 1
    assert len(pods(server)) == 2


def test_a_rollout_that_fails_stops_and_goes_on_once_mended(server: ApiServer) -> None:
    make(server, 2)
    workloads = Workloads(server)
    workloads.settle()
    make(server, 2, "image:broken")
    workloads.trouble = lambda pod: "ImagePullBackOff" if "broken" in pod["spec"]["containers"][0]["image"] else ""
    workloads.settle()
    assert [ready(pod) for pod in pods(server)].count(True) == 2, "the old pods serve on"
    [waiting] = [pod for pod in pods(server) if not ready(pod)]
    assert waiting["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ImagePullBackOff"}}
    assert waiting["status"]["phase"] == "Pending"
    make(server, 2, "image:2")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * 2


def test_a_pod_that_turns_unready_keeps_running(server: ApiServer) -> None:
    make(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    workloads.trouble = lambda _: "Unready"
    workloads.settle()
    [pod] = pods(server)
    assert (pod["status"]["phase"], ready(pod)) == ("Running", False)
    assert {found["type"]: found["status"] for found in status(server)["conditions"]}["Available"] == "False"


def test_a_killed_pod_is_replaced_under_another_name_and_address(server: ApiServer) -> None:
    make(server, 1)
    workloads = Workloads(server)
    workloads.settle()
    [before] = pods(server)
    server.actor("person").delete(POD, "cache", before["metadata"]["name"])
    workloads.settle()
    [after] = pods(server)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert after["status"]["podIP"] != before["status"]["podIP"]


def make_set(server: ApiServer, replicas: int, image: str = "image:1", **spec: object) -> None:
    obj = stateful_set(replicas=replicas, **spec)
    obj["metadata"]["namespace"] = "cache"
    obj["spec"]["template"]["spec"]["containers"][0]["image"] = image
    server.actor("operator").apply(STATEFUL_SET, obj, force=True)


def test_a_stateful_sets_pods_have_names_that_stay(server: ApiServer) -> None:
    make_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    assert not workloads.step(), "at rest nothing moves"
    assert [pod["metadata"]["name"] for pod in pods(server)] == ["it-0", "it-1", "it-2"]
    before = pods(server)[1]
    server.actor("person").delete(POD, "cache", "it-1")
    workloads.settle()
    after = pods(server)[1]
    assert after["metadata"]["name"] == "it-1"
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert after["status"]["podIP"] != before["status"]["podIP"]
    make_set(server, 1)
    workloads.settle()
    assert [pod["metadata"]["name"] for pod in pods(server)] == ["it-0"]
    counted = server.actor("person").get(STATEFUL_SET, "cache", "it")["status"]
    assert (counted["replicas"], counted["readyReplicas"], counted["updatedReplicas"]) == (1, 1, 1)


@pytest.mark.parametrize("policy", ["Parallel", "OrderedReady"])
def test_a_stateful_set_starts_its_pods_together_or_one_after_the_other(server: ApiServer, policy: str) -> None:
    make_set(server, 3, podManagementPolicy=policy)
    workloads = Workloads(server, trouble=lambda _: "Unready")
    workloads.settle()
    assert len(pods(server)) == (3 if policy == "Parallel" else 1)


def test_a_stateful_set_replaces_one_pod_at_a_time_from_the_highest(server: ApiServer) -> None:
    make_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    make_set(server, 3, "image:2")
    order = []
    while workloads.step():
        there = pods(server)
        assert sum(map(ready, there)) >= 2
        new = [pod["metadata"]["name"] for pod in there if pod["spec"]["containers"][0]["image"] == "image:2"]
        order += [name for name in new if name not in order]
    assert order == ["it-2", "it-1", "it-0"]


def test_a_stateful_sets_rollout_that_fails_stops_and_goes_on_once_mended(server: ApiServer) -> None:
    make_set(server, 3)
    workloads = Workloads(server)
    workloads.settle()
    make_set(server, 3, "image:broken")
    workloads.trouble = lambda pod: "ImagePullBackOff" if "broken" in pod["spec"]["containers"][0]["image"] else ""
    workloads.settle()
    assert [ready(pod) for pod in pods(server)] == [True, True, False]
    make_set(server, 3, "image:2")
    workloads.settle()
    assert [pod["spec"]["containers"][0]["image"] for pod in pods(server)] == ["image:2"] * 3
