"""Servers with stable names, and changes of spec.workload."""

from __future__ import annotations

from typing import Any

import pytest

from operators.memcached.operator import controller
from operators.memcached.state.observed import Observed
from shared.cli.options import parse_options
from shared.kubernetes.kinds import DEPLOYMENT, POD, SERVICE, STATEFUL_SET, Obj
from shared.runtime.plan import Apply, Delete
from shared.status.verdict import Progress
from simulator.harness import NAMESPACE, Harness
from tests.memcached.unit.world import UNPAUSED, plan, pod, resource, workload_of

CONTROLLER = controller(parse_options("memcached-operator", "memcached", [], {}))
NAMES = [f"cache-{number}.cache.default.svc:11211" for number in range(5)]
SET: Obj = {"workload": "StatefulSet"}
DEPLOYED: Obj = {"workload": "Deployment"}


def set_pod(number: int, **known: Any) -> Any:
    return pod(number, controller="StatefulSet", **known)


def observed_set(*pods: Any, **counts: Any) -> Observed:
    return Observed(workload_of("StatefulSet", *pods, **counts))


def listing(*listed: str, **phase: Any) -> dict[str, Any]:
    return {"status": {"servers": list(listed), "phase": "Running", "observedGeneration": 1, **phase}, **SET}


def test_servers_are_listed_in_the_order_of_their_numbers() -> None:
    many = observed_set(*(set_pod(number) for number in (1, 10, 2, 0, 9, 3, 4, 5, 6, 7, 8)))
    servers = plan(resource(size=11, **SET), many).status["servers"]
    assert servers == [f"cache-{number}.cache.default.svc:11211" for number in range(11)]


def test_server_that_was_never_ready_is_not_listed() -> None:
    observed = observed_set(set_pod(0), set_pod(1), set_pod(2, ready=False))
    assert plan(resource(**listing(*NAMES[:2])), observed).status["servers"] == NAMES[:2]


@pytest.mark.parametrize("lost", [set_pod(1, ready=False), set_pod(1, leaving=True), None])
def test_server_that_was_ready_once_stays_listed(lost: Any) -> None:
    pods = [set_pod(0), *([lost] if lost else []), set_pod(2)]
    result = plan(resource(**listing(*NAMES[:3])), observed_set(*pods))
    assert result.status["servers"] == NAMES[:3]
    assert result.status["readyReplicas"] == 2
    assert result.verdict.reason == "Degraded"


def test_surplus_server_is_not_listed_as_soon_as_the_size_changes() -> None:
    observed = observed_set(*map(set_pod, range(4)))
    assert plan(resource(size=2, **listing(*NAMES[:4])), observed).status["servers"] == NAMES[:2]


def test_former_workload_stays_until_the_new_one_is_ready() -> None:
    old = workload_of("Deployment", *map(pod, range(3)))
    switching = resource(phase="Running", generation=2, observed=1, **SET)
    result = plan(switching, Observed(workload_of("StatefulSet", set_pod(0), set_pod(1, ready=False)), former=old))
    assert [str(action.kind) for action in result.actions if isinstance(action, Apply)] == [
        "NetworkPolicy",
        "Service",
        "StatefulSet",
    ]
    assert not [action for action in result.actions if isinstance(action, Delete)]
    assert result.verdict.reason == "SwitchingWorkload"
    assert result.verdict.message == (
        "Changing from a Deployment to a StatefulSet: 1 of 3 servers are ready in the StatefulSet. Clients use "
        "the Deployment until all are ready."
    )
    assert result.status["phase"] == "Updating"
    assert result.status["servers"] == ["10.0.0.0:11211", "10.0.0.1:11211", "10.0.0.2:11211"]
    assert result.status["readyReplicas"] == 3


def test_former_workload_is_deleted_when_all_new_servers_are_ready() -> None:
    old = workload_of("Deployment", *map(pod, range(3)))
    observed = Observed(workload_of("StatefulSet", *map(set_pod, range(3))), old)
    first = plan(resource(phase="Updating", observed=1, status={"workload": "Deployment"}, **SET), observed)
    assert not [action for action in first.actions if isinstance(action, Delete)], "the new kind is recorded first"
    assert (first.status["workload"], first.verdict.reason) == ("StatefulSet", "SwitchingWorkload")
    assert first.requeue == 1
    result = plan(resource(phase="Updating", observed=1, status=first.status, **SET), observed)
    [deletion] = [action for action in result.actions if isinstance(action, Delete)]
    assert (deletion.kind, deletion.obj) == (DEPLOYMENT, old.obj)
    assert result.verdict.progress is Progress.WAITING
    assert result.verdict.message == "Deleting the Deployment: 3 of 3 servers are ready in the StatefulSet."
    assert result.status["servers"] == NAMES[:3]


@pytest.mark.parametrize("counts", [{"up_to_date": False}, {"updated": 2}])
def test_former_workload_stays_until_the_new_one_is_rolled_out(counts: dict[str, Any]) -> None:
    new = workload_of("StatefulSet", *map(set_pod, range(3)), **counts)
    observed = Observed(new, former=workload_of("Deployment", *map(pod, range(3))))
    result = plan(resource(phase="Updating", observed=1, **SET), observed)
    assert not [action for action in result.actions if isinstance(action, Delete)]


@pytest.fixture
async def harness() -> Harness:
    return Harness(CONTROLLER)


async def settled(harness: Harness, **spec: Any) -> Obj:
    harness.apply("cache", **({"size": 3} | spec))
    await harness.settle()
    return harness.resource("cache")


def kinds(harness: Harness) -> list[str]:
    return [str(kind) for kind, _ in harness.server.objects() if kind in (DEPLOYMENT, STATEFUL_SET)]


async def test_stateful_set_gives_stable_names(harness: Harness) -> None:
    result = await settled(harness, **SET)
    assert result["status"]["servers"] == NAMES[:3]
    assert result["status"]["nodes"] == ["cache-0", "cache-1", "cache-2"]
    service = harness.user_client.get(SERVICE, NAMESPACE, "cache")["spec"]
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    owner = harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")["spec"]
    assert (owner["serviceName"], owner["podManagementPolicy"]) == ("cache", "Parallel")
    harness.server.log.reset()
    for key in harness.cache.keys(CONTROLLER.kind):
        harness.queue.add(key)
    await harness.settle()
    assert not harness.server.log.writes()


async def test_server_list_does_not_change_during_a_rolling_update(harness: Harness) -> None:
    await settled(harness, **SET)
    harness.apply("cache", size=3, version="1.6.18", **SET, **UNPAUSED)
    uids = {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)}
    lists, ready = [], []
    for _ in range(100):
        await harness.run()
        status = harness.resource("cache")["status"]
        lists.append(status["servers"])
        ready.append(status["readyReplicas"])
        if not harness.workloads.step():
            break
    await harness.settle()
    assert not uids & {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)}, "all servers were replaced"
    assert {tuple(found) for found in lists} == {tuple(NAMES[:3])}
    assert min(ready) == 2


async def test_scaling_adds_and_removes_names_at_the_end(harness: Harness) -> None:
    await settled(harness, **SET)
    assert (await settled(harness, size=5, **SET))["status"]["servers"] == NAMES
    assert (await settled(harness, size=1, **SET))["status"]["servers"] == NAMES[:1]


@pytest.mark.parametrize(("one", "other"), [("Deployment", "StatefulSet"), ("StatefulSet", "Deployment")])
async def test_workload_change_always_leaves_servers_for_clients(harness: Harness, one: str, other: str) -> None:
    before = await settled(harness, workload=one)
    harness.apply("cache", size=3, workload=other)
    observed = []
    for _ in range(200):
        await harness.run()
        observed.append((tuple(harness.resource("cache")["status"]["servers"]), kinds(harness)))
        if not harness.workloads.step() and not harness.server.collect_garbage():
            break
    await harness.settle()
    after = harness.resource("cache")
    assert kinds(harness) == [other]
    assert len(harness.server.objects(POD)) == 3
    assert {servers for servers, _ in observed} == {
        tuple(before["status"]["servers"]),
        tuple(after["status"]["servers"]),
    }
    assert ["Deployment", "StatefulSet"] in [found for _, found in observed]
    reasons = [reason for reason, _ in await harness.events()]
    assert reasons == ["Creating", "SwitchingWorkload", "Ready"], "the second Ready increases the count"


@pytest.mark.parametrize("reverted", [DEPLOYED, {}], ids=["set", "not set any more"])
async def test_reverted_workload_change_keeps_the_former_servers(harness: Harness, reverted: Obj) -> None:
    await settled(harness, **DEPLOYED)
    uids = {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)}
    harness.workloads.pod_problem = lambda obj: "" if obj["metadata"]["uid"] in uids else "ImagePullBackOff"
    harness.apply("cache", size=3, **SET)
    await harness.settle()
    assert kinds(harness) == ["Deployment", "StatefulSet"]
    assert len(harness.resource("cache")["status"]["servers"]) == 3, "the former servers still serve"
    assert harness.resource("cache")["status"]["phase"] == "Updating"
    await settled(harness, **reverted)
    assert kinds(harness) == ["Deployment"]
    assert {obj["metadata"]["uid"] for _, obj in harness.server.objects(POD)} == uids


async def test_foreign_workload_is_not_deleted(harness: Harness) -> None:
    """A copied manifest has the labels of the resource, but no owner reference to it."""
    await settled(harness, **DEPLOYED)
    foreign = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")
    harness.user_client.merge(DEPLOYMENT, NAMESPACE, "cache", {"metadata": {"ownerReferences": None}})
    harness.apply("cache", size=3, **SET)
    await harness.settle()
    assert kinds(harness) == ["Deployment", "StatefulSet"]
    kept = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")
    assert kept["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert harness.resource("cache")["status"]["servers"] == NAMES[:3]
