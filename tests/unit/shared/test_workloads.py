"""The simulated Deployment controller and kubelet move as a cluster's do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kube import DEPLOYMENT, POD, Obj
from shared.testing import ApiServer, Workloads
from tests.apiserver_scenarios import deployment


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
