"""The whole operator on the in-memory API server: its writes, and convergence.

Disturbances at every write are in simulation/test_crash.py.
"""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.memcached.api.spec import MemcachedSpec
from operators.memcached.operator import controller
from shared.cli.options import parse_options
from shared.kubernetes.kinds import (
    AUTOSCALER,
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.runtime.reconciler import MAX_COLLECTION_FAILURES
from simulator.faults import requests
from simulator.harness import NAMESPACE, Harness
from simulator.memcached.fake_servers import secret
from tests.memcached.unit.world import NOW, UNPAUSED, observed_pods, plan, pod
from tests.memcached.unit.world import resource as parsed

CONTROLLER = controller(parse_options("memcached-operator", "memcached", [], {}))
KIND = CONTROLLER.kind
READY = {
    "Ready": "True",
    "Reconciling": "False",
    "Stalled": "False",
    "Available": "True",
    "Degraded": "False",
    "Observed": "True",
}
"""Conditions of a resource that matches its spec."""


@pytest.fixture
async def harness() -> Harness:
    return Harness(CONTROLLER)


async def created(harness: Harness, **spec: Any) -> Obj:
    harness.apply("cache", **({"size": 2} | spec))
    await harness.settle()
    return harness.resource("cache")


def conditions(resource: Obj) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource["status"]["conditions"]}


def reason(resource: Obj) -> str:
    return str(resource["status"]["conditions"][0]["reason"])


async def test_resource_creates_servers_and_its_status_lists_them(harness: Harness) -> None:
    resource = await created(harness)
    assert conditions(resource) == READY
    pods = [pod for _, pod in harness.server.objects(POD)]
    assert resource["status"]["nodes"] == [pod["metadata"]["name"] for pod in pods]
    assert resource["status"]["servers"] == [f"cache-{number}.cache.{NAMESPACE}.svc:11211" for number in range(2)]
    assert [found for found, _ in await harness.events()] == ["Creating", "Ready"]


async def test_status_lists_the_addresses_of_the_servers_of_a_deployment(harness: Harness) -> None:
    resource = await created(harness, workload="Deployment")
    pods = [pod for _, pod in harness.server.objects(POD)]
    assert resource["status"]["servers"] == sorted(f"{pod['status']['podIP']}:11211" for pod in pods)


async def test_creation_writes_each_object_once_and_the_status_twice(harness: Harness) -> None:
    harness.apply("cache", size=2)
    await harness.run()
    kinds = [(str(write.verb), write.kind) for write in harness.server.log.writes()]
    applied = [("APPLY", kind) for kind in ("Service", "NetworkPolicy", "StatefulSet", "Secret")]
    assert kinds == [*applied, ("PATCH", "Memcached")]
    assert not harness.server.log.reads, "creations fail if the object exists"
    await harness.settle()
    others = [write for write in harness.server.log.writes() if write.kind not in ("Memcached", "Secret")]
    assert len(others) == 3, "NetworkPolicy, Service and StatefulSet once each"


@pytest.mark.parametrize("requested", [True, False])
async def test_existing_connection_secret_is_read_once_its_creation_is_refused(
    harness: Harness, *, requested: bool
) -> None:
    """A new resource expects none; one of another owner keeps its content, and is reported if it is in the way."""
    content = {"password": "c2VjcmV0"}
    name = {"name": "cache-connection", "namespace": NAMESPACE}
    harness.user_client.create(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": content})
    resource = await created(harness, connectionSecret=requested)
    [(_, found)] = harness.server.objects(SECRET)
    assert (found["data"], reason(resource)) == (content, "ConnectionSecretTaken" if requested else "Ready")


async def test_connection_secret_of_an_interrupted_reconcile_is_emptied_if_the_spec_changed_since(
    harness: Harness,
) -> None:
    harness.apply("cache", size=2)
    harness.server.faults.lose_request(when=requests("PATCH", "/status"))
    (key,) = harness.cache.keys(KIND)
    await harness.reconciler.reconcile(key)
    assert [obj["data"] for _, obj in harness.server.objects(SECRET)], "the process ends before it writes the status"
    harness.apply("cache", size=2, connectionSecret=False)
    await harness.restart().settle()
    assert not any(obj.get("data") for _, obj in harness.server.objects(SECRET))


async def test_healthy_resource_causes_no_write_and_one_read(harness: Harness) -> None:
    await created(harness)
    harness.server.log.reset()
    for _ in range(3):
        for key in harness.cache.keys(KIND):
            harness.queue.add(key)
        harness.user_client.merge(KIND, NAMESPACE, "cache", {"metadata": {"annotations": {"a": str(_)}}})
        await harness.settle()
    assert not harness.server.log.writes()
    assert harness.server.log.reads == {"GET": 3}, "the connection Secret, which no watch reports here"


async def test_restarted_operator_does_not_write_to_a_healthy_resource(harness: Harness) -> None:
    await created(harness)
    harness.server.log.reset()
    await harness.restart().settle()
    assert not harness.server.log.writes()


OF_WORKLOADS: tuple[Obj, ...] = (
    {"spec": {"replicas": 7}},
    {"metadata": {"labels": {"app.kubernetes.io/part-of": None}}},
    {"metadata": {"ownerReferences": None}},
    {"spec": {"template": {"spec": {"securityContext": None}}}},
)


@pytest.mark.parametrize(
    ("kind", "edit"),
    [
        *((kind, edit) for kind in (DEPLOYMENT, STATEFUL_SET) for edit in OF_WORKLOADS),
        (SERVICE, {"spec": {"ports": None}}),
        (SERVICE, {"spec": {"selector": {"app.kubernetes.io/instance": "other"}}}),
    ],
)
async def test_foreign_edit_is_reverted_and_reported(harness: Harness, kind: Any, edit: Obj) -> None:
    await created(harness, **({"workload": "Deployment"} if kind == DEPLOYMENT else {}))
    before = harness.user_client.get(kind, NAMESPACE, "cache")
    harness.user_client.merge(kind, NAMESPACE, "cache", edit)
    await harness.settle()
    after = harness.user_client.get(kind, NAMESPACE, "cache")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert after["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    assert "Restored" in [found for found, _ in await harness.events()]


async def test_foreign_addition_is_kept(harness: Harness) -> None:
    await created(harness)
    harness.server.log.reset()
    harness.user_client.merge(STATEFUL_SET, NAMESPACE, "cache", {"metadata": {"annotations": {"note": "yes"}}})
    await harness.settle()
    assert not harness.server.log.writes()
    assert harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")["metadata"]["annotations"]["note"] == "yes"


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET, SERVICE], ids=str)
async def test_deleted_object_is_recreated(harness: Harness, kind: Any) -> None:
    await created(harness, **({"workload": "Deployment"} if kind == DEPLOYMENT else {}))
    harness.user_client.delete(kind, NAMESPACE, "cache")
    await harness.settle()
    assert harness.user_client.get(kind, NAMESPACE, "cache")
    assert conditions(harness.resource("cache"))["Ready"] == "True"


@pytest.mark.parametrize("controlled", [False, True], ids=["without owner", "of another controller"])
async def test_foreign_object_blocks_the_resource_until_its_deletion(harness: Harness, controlled: bool) -> None:
    shop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop", "namespace": NAMESPACE}}
    uid = harness.user_client.create(CONFIG_MAP, shop)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "shop", "uid": uid, "controller": True}
    metadata = {"name": "cache", "namespace": NAMESPACE, **({"ownerReferences": [owner]} if controlled else {})}
    foreign = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    before = harness.user_client.create(SERVICE, foreign)
    resource = await created(harness)
    assert harness.user_client.get(SERVICE, NAMESPACE, "cache") == before
    assert conditions(resource)["Stalled"] == "True"
    assert reason(resource) == "ForeignObject"
    message = resource["status"]["conditions"][0]["message"]
    assert ("belongs to ConfigMap shop" if controlled else "was not created by this operator") in message
    assert not harness.server.objects(STATEFUL_SET), "no step runs after the one that blocks"
    harness.user_client.delete(SERVICE, NAMESPACE, "cache")
    [key] = harness.cache.keys(KIND)
    harness.queue.add(key)
    await harness.settle()
    assert conditions(harness.resource("cache"))["Ready"] == "True"


async def test_status_of_a_stalled_resource_still_lists_the_actual_servers(harness: Harness) -> None:
    await created(harness, workload="Deployment")
    taken: Obj = {"ownerReferences": None, "labels": None}
    harness.user_client.merge(SERVICE, NAMESPACE, "cache", {"metadata": taken})
    await harness.run()
    assert reason(harness.resource("cache")) == "ForeignObject"
    pod = harness.server.objects(POD)[0][1]
    harness.user_client.merge(
        POD, NAMESPACE, pod["metadata"]["name"], {"status": {"conditions": []}}, subresource="status"
    )
    await harness.run()
    stalled = harness.resource("cache")
    assert reason(stalled) == "ForeignObject"
    assert (len(stalled["status"]["servers"]), stalled["status"]["phase"]) == (1, "Failed")


STRAYS: dict[str, Obj | None] = {
    "without a controller": None,
    "of a Job": {"apiVersion": "batch/v1", "kind": "Job", "name": "cache"},
    "of another Deployment": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cache-copy-5d8f7c9b4d"},
    "of another StatefulSet": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cache-copy"},
}


@pytest.mark.parametrize("controller", STRAYS.values(), ids=STRAYS)
@pytest.mark.parametrize("workload", ["Deployment", "StatefulSet"])
async def test_stray_pod_with_the_labels_is_no_server(harness: Harness, workload: str, controller: Obj | None) -> None:
    before = await created(harness, workload=workload)
    pod = harness.server.objects(POD)[0][1]
    labels = {**pod["metadata"]["labels"], "pod-template-hash": "5d8f7c9b4d"}
    shop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shop", "namespace": NAMESPACE}}
    uid = harness.user_client.create(CONFIG_MAP, shop)["metadata"]["uid"]
    owners = [{**controller, "uid": uid, "controller": True}] if controller else []
    metadata = {"name": "debug", "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners}
    harness.user_client.create(POD, {"metadata": metadata, "spec": pod["spec"]})
    await harness.settle()
    after = harness.resource("cache")["status"]
    assert {**after, "conditions": None} == {**before["status"], "conditions": None}
    assert reason(harness.resource("cache")) == "Ready"


@pytest.mark.parametrize("workload", ["Deployment", "StatefulSet"])
async def test_pod_with_a_forged_controller_is_no_server(harness: Harness, workload: str) -> None:
    """The owner reference names the controller of a real server, with another UID.

    The garbage collector deletes such a pod, and does not run here before the reconcile.
    """
    before = await created(harness, workload=workload)
    pod = harness.server.objects(POD)[0][1]
    [owner] = pod["metadata"]["ownerReferences"]
    forged = {"ownerReferences": [owner | {"uid": "forged"}], "labels": pod["metadata"]["labels"]}
    debug = {"metadata": {"name": "debug", "namespace": NAMESPACE} | forged, "spec": pod["spec"]}
    harness.user_client.create(POD, debug)
    harness.user_client.merge(POD, NAMESPACE, "debug", {"status": pod["status"]}, subresource="status")
    await harness.run()
    after = harness.resource("cache")["status"]
    assert "debug" in {pod["metadata"]["name"] for _, pod in harness.server.objects(POD)}
    assert {**after, "conditions": None} == {**before["status"], "conditions": None}
    assert reason(harness.resource("cache")) == "Ready"


async def test_replica_set_is_read_once_and_a_foreign_one_after_each_change_of_the_deployment(harness: Harness) -> None:
    before = await created(harness, workload="Deployment")
    harness.server.log.reset()
    pod = harness.server.objects(POD)[0][1]
    [owner] = pod["metadata"]["ownerReferences"]
    for number in range(5):
        labels = pod["metadata"]["labels"] | {"pod-template-hash": f"hash{number}"}
        owners = [owner | {"name": f"cache-hash{number}"}]
        metadata = {"name": f"debug-{number}", "namespace": NAMESPACE, "labels": labels, "ownerReferences": owners}
        harness.user_client.create(POD, {"metadata": metadata, "spec": pod["spec"]})
        await harness.run()
    assert harness.server.log.reads["GET"] <= 2 * 5, "each ReplicaSet, and the connection Secret"
    assert harness.resource("cache")["status"]["servers"] == before["status"]["servers"]


async def test_servers_stay_those_of_a_deployment_that_was_deleted_without_them(harness: Harness) -> None:
    """`kubectl delete --cascade=orphan`: the new Deployment adopts the ReplicaSet, and with it the pods."""
    before = await created(harness, workload="Deployment")
    uid = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")["metadata"]["uid"]
    harness.user_client.delete(DEPLOYMENT, NAMESPACE, "cache", propagationPolicy="Orphan")
    await harness.settle()
    assert harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")["metadata"]["uid"] != uid
    after = harness.resource("cache")
    assert (reason(after), after["status"]["servers"]) == ("Ready", before["status"]["servers"])


async def test_servers_stay_those_of_a_stateful_set_that_was_deleted_without_them(harness: Harness) -> None:
    await created(harness)
    uids = {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)}
    before = harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")["metadata"]["uid"]
    harness.user_client.delete(STATEFUL_SET, NAMESPACE, "cache", propagationPolicy="Orphan")
    await harness.settle()
    assert harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")["metadata"]["uid"] != before
    assert reason(harness.resource("cache")) == "Ready"
    assert {pod["metadata"]["uid"] for _, pod in harness.server.objects(POD)} == uids


async def warnings(harness: Harness) -> list[str]:
    """Return the reasons of the Warning events."""
    await harness.events()
    return [obj["reason"] for _, obj in harness.server.objects(EVENT) if obj["type"] == "Warning"]


async def test_resource_that_is_deleted_and_recreated_at_once_causes_no_warning(harness: Harness) -> None:
    """The garbage collector needs a moment for the objects of the former resource."""
    await created(harness)
    harness.user_client.delete(KIND, NAMESPACE, "cache")
    harness.apply("cache", size=2)
    await harness.run()
    harness.server.collect_garbage()
    await harness.settle()
    assert reason(harness.resource("cache")) == "Ready"
    assert await warnings(harness) == []


async def test_object_that_the_garbage_collector_leaves_is_reported(harness: Harness) -> None:
    await created(harness)
    harness.user_client.delete(KIND, NAMESPACE, "cache")
    harness.apply("cache", size=2)
    [key] = harness.cache.keys(KIND)
    for _ in range(MAX_COLLECTION_FAILURES + 1):
        await harness.run()
        harness.queue.add(key)
    await harness.run()
    assert reason(harness.resource("cache")) == "ForeignObject"


def test_unschedulable_server_is_a_warning_only_after_a_while() -> None:
    unscheduled = pod(1, ready=False, problem="Unschedulable: 0/3 nodes are available.")
    since = (NOW - timedelta(seconds=10)).strftime("%Y-%m-%dT%H:%M:%SZ")
    observed = observed_pods(dataclasses.replace(unscheduled, unscheduled_since=since))
    early = plan(parsed(size=1), observed)
    assert (early.verdict.reason, early.verdict.warning, early.requeue) == ("Creating", False, 50)
    since = (NOW - timedelta(seconds=60)).strftime("%Y-%m-%dT%H:%M:%SZ")
    late = plan(parsed(size=1), observed_pods(dataclasses.replace(unscheduled, unscheduled_since=since)))
    assert (late.verdict.reason, late.verdict.warning) == ("ServerFailing", True)


@pytest.mark.parametrize("kind", [DEPLOYMENT, STATEFUL_SET], ids=str)
async def test_orphaned_object_is_adopted(harness: Harness, kind: Any) -> None:
    await created(harness, workload=kind.name)
    harness.user_client.delete(KIND, NAMESPACE, "cache", propagationPolicy="Orphan")
    harness.server.collect_garbage()
    uid = harness.user_client.get(kind, NAMESPACE, "cache")["metadata"]["uid"]
    resource = await created(harness)
    adopted = harness.user_client.get(kind, NAMESPACE, "cache")
    assert adopted["metadata"]["uid"] == uid
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == resource["metadata"]["uid"]


async def test_resource_under_deletion_is_not_reconciled(harness: Harness) -> None:
    await created(harness)
    harness.user_client.delete(KIND, NAMESPACE, "cache", propagationPolicy="Foreground")
    harness.server.log.reset()
    await harness.run()
    assert harness.server.log.is_empty
    harness.server.collect_garbage()
    await harness.settle()
    assert not harness.server.objects(STATEFUL_SET)


async def test_invalid_spec_stalls_and_running_servers_are_kept(harness: Harness) -> None:
    before = await created(harness)
    running = harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")
    harness.apply("cache", size=2, memoryMB=1)
    await harness.settle()
    stalled = harness.resource("cache")
    assert (reason(stalled), conditions(stalled)["Stalled"]) == ("InvalidSpec", "True")
    assert "spec.memoryMB: 1 is too small; use at least 8." in stalled["status"]["conditions"][0]["message"]
    assert stalled["status"]["servers"] == before["status"]["servers"]
    harness.apply("cache", size=2)
    await harness.settle()
    assert harness.user_client.get(STATEFUL_SET, NAMESPACE, "cache")["spec"] == running["spec"]
    assert conditions(harness.resource("cache"))["Ready"] == "True"


async def test_only_repeated_api_failures_are_reported(harness: Harness) -> None:
    await created(harness)
    harness.server.faults.answer(500, when=lambda method, path: "statefulsets" in path, times=None)
    harness.apply("cache", size=3)
    [key] = harness.cache.keys(KIND)
    for attempt in range(4):
        harness.queue.add(key)
        await harness.run()
        reported = "ApiUnavailable" in reason(harness.resource("cache"))
        assert reported is (attempt >= 2)
    assert harness.resource("cache")["status"]["servers"], "the status still lists the running servers"
    harness.server.faults.clear()
    await harness.settle()
    assert reason(harness.resource("cache")) == "Ready"


async def test_stale_cache_does_not_touch_an_object_that_replaced_a_deleted_one(harness: Harness) -> None:
    """The watch delays the events of a deletion and a creation, so that the operator acts on stale state."""
    await created(harness, workload="Deployment")
    harness.server.watches.hold()
    harness.user_client.delete(DEPLOYMENT, NAMESPACE, "cache")
    harness.apply("cache", size=3)
    new = harness.user_client.create(
        DEPLOYMENT,
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "cache", "namespace": NAMESPACE},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
            },
        },
    )
    [key] = harness.cache.keys(KIND)
    harness.queue.add(key)
    await harness.run()
    kept = harness.user_client.get(DEPLOYMENT, NAMESPACE, "cache")
    assert kept["metadata"]["uid"] == new["metadata"]["uid"]
    assert kept["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    harness.server.watches.release()
    await harness.settle()
    assert reason(harness.resource("cache")) == "ForeignObject"


async def test_status_is_not_written_to_a_later_resource_of_the_same_name(harness: Harness) -> None:
    await created(harness)
    harness.server.watches.hold()
    harness.user_client.delete(KIND, NAMESPACE, "cache")
    harness.apply("cache", size=1)
    harness.user_client.delete(POD, NAMESPACE, harness.server.objects(POD)[0][1]["metadata"]["name"])
    pod = harness.server.objects(POD)[-1][1]  # the new resource has none of its name
    harness.cache.on_changed(POD, pod | {"metadata": pod["metadata"] | {"resourceVersion": "99999"}})
    [key] = harness.cache.keys(KIND)
    harness.queue.add(key)
    await harness.run()
    assert "status" not in harness.resource("cache")
    harness.server.watches.release()
    await harness.settle()
    assert conditions(harness.resource("cache"))["Ready"] == "True"


OWNED = (DEPLOYMENT, STATEFUL_SET, SERVICE, DISRUPTION_BUDGET, AUTOSCALER)
SIZES = st.integers(0, 4)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("size"), SIZES),
        st.tuples(st.just("version"), st.sampled_from(["1.6.18", "1.6.45"])),
        st.tuples(st.just("paused"), st.booleans()),
        st.tuples(st.just("memoryMB"), st.sampled_from([1, 64, 128])),
        st.tuples(st.just("workload"), st.sampled_from(["Deployment", "StatefulSet", None])),
        st.tuples(st.just("auth"), st.sampled_from([None, {"secretName": "users"}])),
        st.tuples(st.just("users"), st.sampled_from([None, "app:one\n", "app:two\n", "wrong"])),
        st.tuples(st.just("podDisruptionBudget"), st.sampled_from([None, {}, {"minAvailable": 1}])),
        st.tuples(st.just("autoscaling"), st.sampled_from([None, {"minReplicas": 2, "maxReplicas": 3}])),
        st.tuples(st.just("fault"), st.sampled_from([409, 429, 500, 503])),
        st.tuples(st.just("lost"), st.booleans()),
        st.tuples(st.just("delete"), st.sampled_from(OWNED)),
        st.tuples(st.just("kill"), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("missed"), st.booleans()),
        st.tuples(st.just("run"), st.none()),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_any_sequence_of_events_converges_and_stays_stable(moves: list[tuple[str, Any]]) -> None:
    """Eventually stable reconciliation: without interference, the state matches the spec and stays the same."""
    asyncio.run(_converges_and_stays_stable(moves))


async def _converges_and_stays_stable(moves: list[tuple[str, Any]]) -> None:
    harness = Harness(CONTROLLER)
    spec: dict[str, Any] = {"size": 2} | UNPAUSED
    chosen = {"StatefulSet", *(str(value) for move, value in moves if move == "workload")}
    harness.apply("cache", **spec)
    for move, value in moves:
        harness = await _move(harness, spec, move, value)
    harness.server.faults.clear()
    harness.server.watches.release()
    spec |= {"paused": False, "memoryMB": 64}
    harness.user_client.apply(SECRET, secret("users", users="app:three\n"), force=True)
    harness.apply("cache", **spec)
    harness.relist()
    await harness.settle()
    resource = harness.resource("cache")
    vulnerable = {"Vulnerable": "True"} if spec.get("version") == "1.6.18" else {}
    assert conditions(resource) == READY | vulnerable
    desired = parsed(**spec).spec
    workload = resource["status"]["workload"]
    assert workload == desired.workload or ("workload" not in spec and workload in chosen)
    assert len(resource["status"]["servers"]) == len(harness.server.objects(POD)) == desired.size
    made = [(str(kind), obj) for kind, obj in harness.server.objects() if kind in OWNED]
    expected = {workload: True, "Service": True, "PodDisruptionBudget": "podDisruptionBudget" in spec}
    expected["HorizontalPodAutoscaler"] = "autoscaling" in spec
    assert sorted(kind for kind, _ in made) == sorted(kind for kind, there in expected.items() if there)
    template = dict(made)[workload]["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == f"memcached:{desired.version}"
    assert ("annotations" in template["metadata"]) is ("auth" in spec)
    harness.server.log.reset()
    for key in harness.cache.keys(KIND):
        harness.queue.add(key)
    await harness.settle()
    assert not harness.server.log.writes()
    named = 3 * int("auth" in spec)  # the users file, its copy, and the key of attestations
    assert sum(harness.server.log.reads.values()) == 1 + named, "only Secrets are read live"


ALIASES = {field.alias for field in MemcachedSpec.model_fields.values()}


async def _move(harness: Harness, spec: dict[str, Any], move: str, value: Any) -> Harness:
    if move == "users":
        if value is not None:
            harness.user_client.apply(SECRET, secret("users", users=value), force=True)
        elif any(obj["metadata"]["name"] == "users" for _, obj in harness.server.objects(SECRET)):
            harness.user_client.delete(SECRET, NAMESPACE, "users")
    elif move in ALIASES:
        spec.pop(move, None)
        spec |= {} if value is None else {move: value}
        harness.apply("cache", **spec)
    elif move == "fault":
        harness.server.faults.answer(value)
    elif move == "lost":
        (harness.server.faults.lose_answer if value else harness.server.faults.lose_request)()
    elif move == "delete" and harness.server.objects(value):
        harness.user_client.delete(value, NAMESPACE, "cache")
    elif move == "kill" and len(harness.server.objects(POD)) > value:
        pod = harness.server.objects(POD)[value][1]
        harness.user_client.delete(POD, NAMESPACE, pod["metadata"]["name"])
    elif move == "restart":
        harness = harness.restart()
    elif move == "missed":
        if value:
            harness.server.watches.hold()
        else:
            harness.server.watches.drop()
            harness.server.watches.release()
            harness.relist()
    else:
        await harness.run()
        harness.workloads.step()
    return harness
