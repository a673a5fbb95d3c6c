"""The kind of the workload: a new resource gets a StatefulSet, and an existing one keeps the kind that it has.

Another kind empties every server, and gives clients other addresses: only a change of spec.workload may cause that.
"""

from __future__ import annotations

from typing import Any

import pytest

from operators.memcached.operator import controller
from shared.cli.options import parse_options
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD, STATEFUL_SET, Kind, Obj
from shared.runtime.reconciler import MAX_COLLECTION_FAILURES
from simulator.faults import requests
from simulator.harness import NAMESPACE, Harness
from tests.support.memcached.released import RELEASED_STATUS, released_deployment

CONTROLLER = controller(parse_options("memcached-operator", "memcached", [], {}))
KIND = CONTROLLER.kind


@pytest.fixture
async def harness() -> Harness:
    return Harness(CONTROLLER)


def kinds(harness: Harness) -> list[str]:
    return [str(kind) for kind, _ in harness.server.objects() if kind in (DEPLOYMENT, STATEFUL_SET)]


def reason(harness: Harness) -> str:
    return str(harness.resource("cache")["status"]["conditions"][0]["reason"])


def recorded(harness: Harness) -> str:
    return str(harness.resource("cache")["status"]["workload"])


def foreign(kind: Kind, **metadata: Any) -> Obj:
    """Return the Deployment of release 0.1.0 as an object of another owner, or of this kind."""
    made = released_deployment()
    made["metadata"] |= metadata
    return made | {"apiVersion": kind.api_version, "kind": kind.name}


def released(harness: Harness, *, status: bool = True, deployment: bool = True, **spec: Any) -> Obj:
    """Create a resource that release 0.1.0 has reconciled; return it."""
    resource = harness.apply("cache", **({"size": 2, "memoryMB": 32, "version": "1.6.38"} | spec))
    if deployment:
        harness.server.actor("memcached-operator").apply(DEPLOYMENT, released_deployment(resource))
    if status:
        harness.user_client.merge(KIND, NAMESPACE, "cache", {"status": RELEASED_STATUS}, subresource="status")
    return resource


async def test_new_resource_gets_a_stateful_set(harness: Harness) -> None:
    harness.apply("cache", size=2)
    await harness.settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == (["StatefulSet"], "StatefulSet", "Ready")
    servers = harness.resource("cache")["status"]["servers"]
    assert servers == [f"cache-{number}.cache.{NAMESPACE}.svc:11211" for number in range(2)]


async def test_resource_of_the_previous_release_keeps_its_servers(harness: Harness) -> None:
    released(harness)
    harness.workloads.settle()
    uids = {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)}
    await harness.restart().settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == (["Deployment"], "Deployment", "Ready")
    assert {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)} == uids
    assert len(uids) == 2


@pytest.mark.parametrize(
    "left",
    [{"deployment": False}, {"status": False}, {"paused": True}],
    ids=["its Deployment was deleted", "its operator ended before it wrote the status", "it is paused"],
)
async def test_resource_of_the_previous_release_keeps_its_kind(harness: Harness, left: dict[str, Any]) -> None:
    released(harness, **left)
    await harness.settle()
    assert (kinds(harness), recorded(harness)) == (["Deployment"], "Deployment")
    harness.user_client.delete(DEPLOYMENT, NAMESPACE, "cache")
    harness.apply("cache", size=2, memoryMB=32, version="1.6.38")
    await harness.restart().settle()
    assert (kinds(harness), recorded(harness)) == (["Deployment"], "Deployment")


@pytest.mark.parametrize("status", [None, {"phase": "Failed", "observedGeneration": 1}], ids=["none", "refused"])
async def test_resource_for_which_the_previous_release_made_nothing_is_new(harness: Harness, status: Any) -> None:
    released(harness, status=False, deployment=False)
    harness.user_client.merge(KIND, NAMESPACE, "cache", {"status": status}, subresource="status")
    await harness.settle()
    assert (kinds(harness), recorded(harness)) == (["StatefulSet"], "StatefulSet")


async def test_stale_view_creates_no_other_workload(harness: Harness) -> None:
    """The list of Deployments is older than the one of the resource: the API server refuses to create it again."""
    harness.broken_watches.add(DEPLOYMENT)
    released(harness)
    await harness.run()
    assert kinds(harness) == ["Deployment"]
    assert not [write for write in harness.server.log.writes() if write.kind == "StatefulSet"]
    harness.relist()
    await harness.settle()
    assert (kinds(harness), reason(harness)) == (["Deployment"], "Ready")


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET], ids=str)
async def test_kind_that_the_spec_no_longer_sets_is_kept(harness: Harness, kind: Kind) -> None:
    harness.apply("cache", size=2, workload=kind.name)
    await harness.settle()
    uids = {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)}
    harness.apply("cache", size=2)
    await harness.settle()
    assert {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)} == uids
    harness.stop()
    harness.user_client.delete(kind, NAMESPACE, "cache")
    harness.server.collect_garbage()
    await harness.restart().settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == ([kind.name], kind.name, "Ready")


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET], ids=str)
async def test_operator_that_ended_before_it_wrote_the_status_keeps_the_kind(harness: Harness, kind: Kind) -> None:
    harness.apply("cache", size=2, workload=kind.name)
    harness.server.faults.lose_request(when=requests("PATCH", "/status"))
    (key,) = harness.cache.keys(KIND)
    await harness.reconciler.reconcile(key)
    assert (kinds(harness), "status" in harness.resource("cache")) == ([kind.name], False)
    harness.apply("cache", size=2)
    await harness.restart().settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == ([kind.name], kind.name, "Ready")


async def test_kind_is_recorded_before_the_first_workload_of_a_paused_resource(harness: Harness) -> None:
    harness.apply("cache", size=2, paused=True)
    await harness.settle()
    assert (kinds(harness), recorded(harness)) == ([], "StatefulSet")


async def test_resource_that_was_refused_first_gets_a_stateful_set(harness: Harness) -> None:
    """The refusal is a status without a record of the kind, as the previous release wrote it."""
    harness.apply("cache", size="two")
    await harness.settle()
    assert reason(harness) == "InvalidSpec"
    harness.apply("cache", size=2)
    await harness.settle()
    assert (kinds(harness), reason(harness)) == (["StatefulSet"], "Ready")


async def test_resource_whose_secrets_were_recorded_first_gets_a_stateful_set(harness: Harness) -> None:
    harness.apply("cache", size=2, auth={})
    harness.server.faults.lose_request(when=requests("PATCH", "statefulsets"))
    (key,) = harness.cache.keys(KIND)
    await harness.reconciler.reconcile(key)
    assert harness.resource("cache")["status"].keys() == {"secrets"}
    await harness.restart().settle()
    assert (kinds(harness), recorded(harness)) == (["StatefulSet"], "StatefulSet")


async def test_former_resources_workload_decides_nothing(harness: Harness) -> None:
    """The garbage collector deletes it with its owner."""
    harness.apply("cache", size=2, workload="Deployment")
    await harness.settle()
    harness.user_client.delete(KIND, NAMESPACE, "cache")
    harness.apply("cache", size=2)
    await harness.run()
    assert "status" not in harness.resource("cache"), "nothing is recorded until it is deleted"
    harness.server.collect_garbage()
    await harness.settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == (["StatefulSet"], "StatefulSet", "Ready")


async def test_former_resources_workload_that_the_garbage_collector_leaves_is_reported(harness: Harness) -> None:
    harness.apply("cache", size=2, workload="Deployment")
    await harness.settle()
    harness.user_client.delete(KIND, NAMESPACE, "cache")
    harness.apply("cache", size=2)
    [key] = harness.cache.keys(KIND)
    for _ in range(MAX_COLLECTION_FAILURES + 1):
        await harness.run()
        harness.queue.add(key)
    await harness.run()
    assert (kinds(harness), reason(harness)) == (["Deployment"], "ForeignObject")
    harness.server.collect_garbage()
    await harness.settle()
    assert (kinds(harness), recorded(harness)) == (["StatefulSet"], "StatefulSet")


async def test_orphaned_workload_is_adopted_also_if_the_operator_does_not_see_yet_that_it_is_one(
    harness: Harness,
) -> None:
    harness.apply("cache", size=2, workload="Deployment")
    await harness.settle()
    uid = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")["metadata"]["uid"]
    harness.broken_watches.add(DEPLOYMENT)
    harness.user_client.delete(KIND, NAMESPACE, "cache", propagationPolicy="Orphan")
    harness.server.collect_garbage()
    harness.apply("cache", size=2)
    await harness.run()
    assert kinds(harness) == ["Deployment"]
    harness.relist()
    await harness.settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == (["Deployment"], "Deployment", "Ready")
    assert harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")["metadata"]["uid"] == uid


async def test_workload_that_is_being_deleted_decides_nothing(harness: Harness) -> None:
    harness.user_client.create(DEPLOYMENT, released_deployment(harness.apply("cache", size=2)))
    harness.user_client.delete(DEPLOYMENT, NAMESPACE, "cache", propagationPolicy="Foreground")
    await harness.run()
    assert recorded(harness) == "StatefulSet"
    harness.server.collect_garbage()
    await harness.settle()
    assert (kinds(harness), reason(harness)) == (["StatefulSet"], "Ready")


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET], ids=str)
async def test_workload_of_another_owner_decides_nothing(harness: Harness, kind: Kind) -> None:
    shop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop", "namespace": NAMESPACE}}
    uid = harness.user_client.create(CONFIG_MAP, shop)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": uid, "controller": True}
    before = harness.user_client.create(kind, foreign(kind, ownerReferences=[owner]))
    harness.apply("cache", size=2)
    await harness.settle()
    assert recorded(harness) == "StatefulSet"
    assert reason(harness) == ("Ready" if kind == DEPLOYMENT else "ForeignObject")
    after = harness.user_client.get(kind, NAMESPACE, "cache")
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])


async def test_workload_without_labels_of_the_resource_decides_nothing(harness: Harness) -> None:
    harness.user_client.create(DEPLOYMENT, foreign(DEPLOYMENT, labels={"app": "cache"}))
    harness.apply("cache", size=2)
    await harness.settle()
    assert (sorted(kinds(harness)), recorded(harness)) == (["Deployment", "StatefulSet"], "StatefulSet")


async def test_restored_deployment_is_adopted_by_a_resource_restored_without_its_status(harness: Harness) -> None:
    """A backup has no UID of the restored resource, so that a restore leaves out the owner references."""
    uid = harness.user_client.create(DEPLOYMENT, released_deployment())["metadata"]["uid"]
    resource = released(harness, status=False, deployment=False)
    await harness.settle()
    assert (kinds(harness), recorded(harness), reason(harness)) == (["Deployment"], "Deployment", "Ready")
    adopted = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")["metadata"]
    assert (adopted["uid"], adopted["ownerReferences"][0]["uid"]) == (uid, resource["metadata"]["uid"])


@pytest.mark.parametrize("status", [RELEASED_STATUS, {"workload": "Deployment"}], ids=["0.1.0", "this release"])
async def test_status_restored_without_a_workload_decides(harness: Harness, status: Obj) -> None:
    harness.apply("cache", size=2)
    harness.user_client.merge(KIND, NAMESPACE, "cache", {"status": status}, subresource="status")
    await harness.settle()
    assert (kinds(harness), recorded(harness)) == (["Deployment"], "Deployment")


async def test_name_that_is_too_long_for_a_stateful_set_gets_a_deployment(harness: Harness) -> None:
    harness.apply(name := "a" * 53, size=1)
    await harness.settle()
    assert kinds(harness) == ["Deployment"]
    assert harness.resource(name)["status"]["workload"] == "Deployment"
