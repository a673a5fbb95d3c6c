"""Tests of the in-memory API server against recorded responses of a real one, and of its own interface."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.kubernetes.client import Kube
from shared.kubernetes.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, DEPLOYMENT, POD, SERVICE, Obj
from simulator.api_server.kinds import NAMESPACE
from simulator.api_server.requests import merge_patch, selects
from simulator.faults import requests
from tests.harness import ApiServer, Crash, Served, reads
from tests.support import paths
from tests.support.api_server_scenarios import SCENARIOS, WIDGET, config_map, deployment, replay, service, widget
from tests.support.list_pages import KINDS, replay_pages

RECORDED: dict[str, list[Obj]] = json.loads((paths.RECORDED / "kubernetes/kube-apiserver.json").read_text())
PAGES: dict[str, list[Obj]] = json.loads((paths.RECORDED / "kubernetes/list-pages.json").read_text())


@pytest.fixture
def server() -> ApiServer:
    return ApiServer([Served(WIDGET, replicas="spec.size")], clock=lambda: datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture
def kube(server: ApiServer) -> Kube:
    return Kube(server, manager="operator")


def in_cache_namespace(obj: Obj, **metadata: Any) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "cache", **metadata}}


@pytest.mark.parametrize("name", SCENARIOS)
def test_responses_match_those_of_a_real_api_server(server: ApiServer, name: str) -> None:
    replayed = replay(SCENARIOS[name], server.actor, "cache")
    assert json.loads(json.dumps(replayed)) == RECORDED[name]


@pytest.mark.parametrize("plural", KINDS)
def test_pages_of_lists_match_those_of_a_real_api_server(server: ApiServer, plural: str) -> None:
    replayed = replay_pages(server, KINDS[plural], "cache", server.compact)
    assert json.loads(json.dumps(replayed)) == PAGES[plural]


def test_every_recorded_scenario_is_replayed() -> None:
    assert RECORDED.keys() == SCENARIOS.keys()
    assert PAGES.keys() == KINDS.keys()


# Reads and creations.


async def test_lists_select_by_labels_and_namespace(server: ApiServer, kube: Kube) -> None:
    kubectl = server.actor("kubectl")
    for name, labels in (("a", {"tier": "web"}), ("b", {"tier": "db"}), ("c", {})):
        kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({}), name=name, labels=labels))
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({}), name="d", namespace="other", labels={"tier": "web"}))

    async def names(namespace: str | None, labels: str) -> list[str]:
        listing = await kube.list(CONFIG_MAP, namespace, labels=labels)
        return [item["metadata"]["name"] for item in listing["items"]]

    assert await names("cache", "tier=web") == ["a"]
    assert await names(None, "tier in (web, db)") == ["a", "b", "d"]
    assert await names("cache", "tier!=web") == ["b", "c"]
    assert await names(None, "!tier") == ["c"]
    assert await names("other", "") == ["d"]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("a=1,b", True),
        ("a==2", False),
        ("a in (1,2),b notin (x)", True),
        ("b notin (2)", False),
        ("c notin (2)", True),
        ("!a", False),
    ],
)
def test_label_selectors_follow_kubectl_syntax(selector: str, matches: bool) -> None:
    assert selects(selector)({"a": "1", "b": "2"}) is matches


async def test_new_object_gets_server_set_metadata(kube: Kube) -> None:
    created = await kube.create(WIDGET, in_cache_namespace(widget({"size": 1}), uid="mine", generation=7))
    assert created["metadata"]["creationTimestamp"] == "2026-01-02T00:00:00Z"
    assert created["metadata"]["generation"] == 1
    assert created["metadata"]["uid"] != "mine"
    with pytest.raises(AlreadyExists):
        await kube.create(WIDGET, in_cache_namespace(widget({"size": 1})))


async def test_generated_names_differ(kube: Kube) -> None:
    bare = {"metadata": {"namespace": "cache", "generateName": "it-"}}
    names = {(await kube.create(CONFIG_MAP, bare))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("it-") and len(name) == 8 for name in names)


async def test_unserved_kinds_and_missing_objects_are_not_found(server: ApiServer, kube: Kube) -> None:
    with pytest.raises(NotFound):
        await Kube(ApiServer(), manager="operator").list(WIDGET)
    with pytest.raises(NotFound, match=r'widgets\.test\.example\.com "it" not found'):
        await kube.get(WIDGET, "cache", "it")
    with pytest.raises(NotFound):
        await kube.merge(CONFIG_MAP, "cache", "it", {}, subresource="status")


async def test_terminating_namespace_rejects_new_objects(server: ApiServer, kube: Kube) -> None:
    kubectl = server.actor("kubectl")
    kubectl.create(NAMESPACE, {"metadata": {"name": "cache", "finalizers": ["example.com/content"]}})
    kubectl.delete(NAMESPACE, None, "cache")
    with pytest.raises(Forbidden, match="being terminated"):
        await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))


async def test_admission_sets_defaults_and_rejects_invalid_objects(server: ApiServer) -> None:
    def admit(obj: Obj) -> None:
        if obj["spec"].setdefault("size", 3) < 0:
            raise ValueError("spec.size: Invalid value: -1: should be greater than or equal to 0")

    kubectl = ApiServer([Served(WIDGET, admit)]).actor("kubectl")
    assert kubectl.create(WIDGET, in_cache_namespace(widget({})))["spec"] == {"size": 3}
    with pytest.raises(Invalid, match=r'Widget "it" is invalid: spec\.size: Invalid value: -1'):
        kubectl.merge(WIDGET, "cache", "it", {"spec": {"size": -1}})


def test_responses_are_copies(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))["data"]["a"] = "changed"
    kubectl.get(CONFIG_MAP, "cache", "it")["data"]["a"] = "changed"
    assert kubectl.get(CONFIG_MAP, "cache", "it")["data"] == {"a": "1"}


def test_merge_patch_follows_rfc_7386() -> None:
    """Check the example of RFC 7386, section 3, abridged."""
    target = {"title": "Goodbye!", "author": {"givenName": "John", "familyName": "Doe"}, "tags": ["a", "b"]}
    patch = {"title": "Hello!", "author": {"familyName": None}, "tags": ["a"], "phone": {"home": None}}
    merged = {"title": "Hello!", "author": {"givenName": "John"}, "tags": ["a"], "phone": {}}
    assert merge_patch(target, patch) == merged


# Watches.


def watch(server: ApiServer) -> list[tuple[str, str]]:
    received: list[tuple[str, str]] = []
    server.subscribe(lambda event: received.append((event["type"], event["object"]["metadata"]["name"])), CONFIG_MAP)
    return received


def test_watch_receives_changes_of_its_kind_only(server: ApiServer) -> None:
    received, kubectl = watch(server), server.actor("kubectl")
    kubectl.apply(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))
    kubectl.apply(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))
    kubectl.merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    kubectl.apply(SERVICE, in_cache_namespace(service({"port": 80})))
    kubectl.delete(CONFIG_MAP, "cache", "it")
    assert received == [("ADDED", "it"), ("MODIFIED", "it"), ("DELETED", "it")]


def test_deletion_event_has_its_own_version(server: ApiServer) -> None:
    events: list[Obj] = []
    server.subscribe(events.append)
    kubectl = server.actor("kubectl")
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({})))
    kubectl.delete(CONFIG_MAP, "cache", "it")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions[1] > versions[0]


def test_delayed_events_are_delivered_later_or_dropped(server: ApiServer) -> None:
    received, kubectl = watch(server), server.actor("kubectl")
    server.watches.hold()
    for name in "abc":
        kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({}), name=name))
    assert received == []
    server.watches.release(1)
    assert received == [("ADDED", "a")]
    server.watches.drop(1)
    server.watches.release()
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({}), name="d"))
    assert received == [("ADDED", "a"), ("ADDED", "c"), ("ADDED", "d")]


# Faults and the log.


async def test_log_records_requests_and_their_effects(server: ApiServer, kube: Kube) -> None:
    await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))
    await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))
    with pytest.raises(NotFound):
        await kube.merge(WIDGET, "cache", "none", {"status": {}}, subresource="status")
    await kube.get(CONFIG_MAP, "cache", "it")
    await kube.list(CONFIG_MAP)
    server.actor("kubectl").merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    assert [(str(write), write.changed, write.status) for write in server.log.writes()] == [
        ("APPLY ConfigMap cache/it", True, 201),
        ("APPLY ConfigMap cache/it", False, 200),
        ("PATCH Widget cache/none/status", False, 404),
    ]
    assert server.log.reads == {"GET": 1, "LIST": 1}
    assert len(server.log.writes("ConfigMap", changed=True)) == 1
    server.log.reset()
    assert server.log.is_empty


async def test_log_records_which_writes_name_a_uid(server: ApiServer, kube: Kube) -> None:
    created = await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))
    uid = created["metadata"]["uid"]
    await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"}, uid=uid)))
    await kube.merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    await kube.delete(CONFIG_MAP, "cache", "it", uid=uid)
    assert [write.pinned for write in server.log.writes()] == [False, True, False, True]


def test_fork_has_the_same_state_and_history_and_is_independent(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({"a": "1"})))
    seen: list[Obj] = []
    server.subscribe(seen.append)
    fork = server.fork(clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    fork.actor("kubectl").merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    fork.actor("kubectl").create(CONFIG_MAP, in_cache_namespace(config_map({}), name="other"))
    assert kubectl.get(CONFIG_MAP, "cache", "it")["data"] == {"a": "1"}
    assert [event["type"] for _, event in fork.watches.history] == ["ADDED", "MODIFIED", "ADDED"]
    assert fork.objects(CONFIG_MAP)[1][1]["metadata"]["creationTimestamp"] == "2030-01-01T00:00:00Z"
    assert (len(server.objects(CONFIG_MAP)), len(server.watches.history), seen) == (1, 1, [])


async def test_injected_error_changes_nothing(server: ApiServer, kube: Kube) -> None:
    server.faults.answer(429, retry_after=7.0)
    with pytest.raises(Unavailable) as caught:
        await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))
    assert caught.value.retry_after == 7.0
    server.faults.answer(409)
    with pytest.raises(Conflict):
        await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))
    assert not server.objects(CONFIG_MAP)
    await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))
    assert server.objects(CONFIG_MAP)


@pytest.mark.parametrize("landed", [False, True])
async def test_timed_out_write_may_have_been_carried_out(server: ApiServer, kube: Kube, landed: bool) -> None:
    (server.faults.lose_answer if landed else server.faults.lose_request)()
    with pytest.raises(Unavailable, match="no answer"):
        await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({})))
    assert bool(server.objects(CONFIG_MAP)) is landed
    assert [write.changed for write in server.log.writes()] == [landed]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_crash_happens_before_or_after_the_nth_write(server: ApiServer, kube: Kube, when: str) -> None:
    script: Callable[[int], None] = getattr(server.faults, f"crash_{when}")
    script(2)
    await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({}), name="first"))
    await kube.list(CONFIG_MAP)
    with pytest.raises(Crash):
        await kube.apply(CONFIG_MAP, in_cache_namespace(config_map({}), name="second"))
    assert len(server.objects(CONFIG_MAP)) == (1 if when == "before" else 2)
    assert not server.faults.pending


async def test_faults_strike_matching_requests_only(server: ApiServer, kube: Kube) -> None:
    server.faults.answer(500, when=requests("PATCH", "/status"), times=None)
    server.faults.answer(503, when=reads, skip=1)
    await kube.create(WIDGET, in_cache_namespace(widget({"size": 1})))
    await kube.get(WIDGET, "cache", "it")
    with pytest.raises(Unavailable):
        await kube.get(WIDGET, "cache", "it")
    for _ in range(3):
        with pytest.raises(Unavailable):
            await kube.merge(WIDGET, "cache", "it", {"status": {}}, subresource="status")
    server.faults.clear()
    await kube.merge(WIDGET, "cache", "it", {"status": {}}, subresource="status")


# Deletion and garbage collection.


def owned(owner: Obj, *, blocks: bool = False, **metadata: Any) -> Obj:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "blockOwnerDeletion": blocks}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return in_cache_namespace(config_map({}), ownerReferences=[reference], **metadata)


def remaining(server: ApiServer) -> list[str]:
    return [f"{kind} {obj['metadata']['name']}" for kind, obj in server.objects()]


def test_garbage_collection_deletes_dependents(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    child = kubectl.create(CONFIG_MAP, owned(kubectl.create(WIDGET, in_cache_namespace(widget({}))), name="child"))
    kubectl.create(CONFIG_MAP, owned(child, name="grandchild"))
    kubectl.create(CONFIG_MAP, in_cache_namespace(config_map({}), name="unrelated"))
    kubectl.delete(WIDGET, "cache", "it", propagationPolicy="Background")
    assert remaining(server) == ["ConfigMap child", "ConfigMap grandchild", "ConfigMap unrelated"]
    assert server.collect_garbage() == 2
    assert remaining(server) == ["ConfigMap unrelated"]


def test_orphaned_dependents_lose_their_owner_reference(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    kubectl.create(CONFIG_MAP, owned(kubectl.create(WIDGET, in_cache_namespace(widget({}))), name="child"))
    kubectl.delete(WIDGET, "cache", "it", propagationPolicy="Orphan")
    server.collect_garbage()
    assert remaining(server) == ["ConfigMap child"]
    assert "ownerReferences" not in kubectl.get(CONFIG_MAP, "cache", "child")["metadata"]


def test_reference_to_a_missing_owner_is_removed_while_another_owner_exists(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    child = owned(kubectl.create(WIDGET, in_cache_namespace(widget({}))), name="child")
    present = child["metadata"]["ownerReferences"]
    child["metadata"]["ownerReferences"] = [*present, {**present[0], "uid": "missing"}]
    kubectl.create(CONFIG_MAP, child)
    server.collect_garbage()
    assert kubectl.get(CONFIG_MAP, "cache", "child")["metadata"]["ownerReferences"] == present


def test_object_has_one_controller(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    child = owned(kubectl.create(WIDGET, in_cache_namespace(widget({}))), name="child")
    (present,) = child["metadata"]["ownerReferences"]
    kubectl.create(CONFIG_MAP, child)
    both = [{**present, "uid": uid, "controller": True} for uid in (present["uid"], "another")]
    with pytest.raises(Invalid, match="Only one reference can have Controller set to true"):
        kubectl.merge(CONFIG_MAP, "cache", "child", {"metadata": {"ownerReferences": both}})


def test_foreground_deletion_removes_the_owner_last(server: ApiServer) -> None:
    kubectl, deleted = server.actor("kubectl"), []
    server.subscribe(lambda event: deleted.append(event["object"]["kind"]) if event["type"] == "DELETED" else None)
    kubectl.create(CONFIG_MAP, owned(kubectl.create(WIDGET, in_cache_namespace(widget({}))), blocks=True, name="child"))
    kubectl.delete(WIDGET, "cache", "it", propagationPolicy="Foreground")
    assert kubectl.get(WIDGET, "cache", "it")["metadata"]["finalizers"] == ["foregroundDeletion"]
    server.collect_garbage()
    assert deleted == ["ConfigMap", "Widget"]


def test_dependent_with_a_finalizer_blocks_foreground_deletion(server: ApiServer) -> None:
    kubectl = server.actor("kubectl")
    owner = kubectl.create(WIDGET, in_cache_namespace(widget({})))
    kubectl.create(CONFIG_MAP, owned(owner, blocks=True, name="child", finalizers=["example.com/hold"]))
    kubectl.delete(WIDGET, "cache", "it", propagationPolicy="Foreground")
    server.collect_garbage()
    assert remaining(server) == ["ConfigMap child", "Widget it"]
    kubectl.merge(CONFIG_MAP, "cache", "child", {"metadata": {"finalizers": None}})
    server.collect_garbage()
    assert remaining(server) == []


async def test_deletion_with_a_uid_spares_a_recreated_object(server: ApiServer, kube: Kube) -> None:
    first = await kube.create(CONFIG_MAP, in_cache_namespace(config_map({})))
    assert await kube.delete(CONFIG_MAP, "cache", "it", uid=first["metadata"]["uid"]) is None
    await kube.create(CONFIG_MAP, in_cache_namespace(config_map({})))
    with pytest.raises(Conflict, match="UID in precondition"):
        await kube.delete(CONFIG_MAP, "cache", "it", uid=first["metadata"]["uid"])
    assert remaining(server) == ["ConfigMap it"]


async def test_pod_on_a_node_is_removed_by_its_kubelet(server: ApiServer, kube: Kube) -> None:
    pod = in_cache_namespace(
        {"metadata": {"name": "it"}, "spec": {"containers": [{"name": "main", "image": "image:1"}]}}
    )
    created = await kube.create(POD, pod)
    server.actor("scheduler").merge(POD, "cache", "it", {"spec": {"nodeName": "node-1"}})
    left = await kube.delete(POD, "cache", "it", uid=created["metadata"]["uid"])
    assert left is not None
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    server.actor("kubelet").delete(POD, "cache", "it", gracePeriodSeconds=0)
    assert remaining(server) == []


async def test_second_deletion_only_shortens_the_grace_period(server: ApiServer, kube: Kube) -> None:
    """Source: BeforeDelete in registry/rest/delete.go of Kubernetes."""
    pod = in_cache_namespace(
        {"metadata": {"name": "it"}, "spec": {"containers": [{"name": "main", "image": "image:1"}]}}
    )
    created = await kube.create(POD, pod)
    server.actor("scheduler").merge(POD, "cache", "it", {"spec": {"nodeName": "node-1"}})

    async def deleted(seconds: int | None) -> tuple[float, int]:
        left = await kube.delete(POD, "cache", "it", uid=created["metadata"]["uid"], grace_seconds=seconds)
        assert left is not None
        deadline, now = (datetime.fromisoformat(time) for time in (left["metadata"]["deletionTimestamp"], server.now()))
        return (deadline - now).total_seconds(), left["metadata"]["deletionGracePeriodSeconds"]

    assert [await deleted(seconds) for seconds in (None, 40, 10, None, 20)] == [(30, 30), (30, 30), *[(10, 10)] * 3]


async def test_deployment_with_an_empty_selector_is_rejected(kube: Kube) -> None:
    bare = deployment()
    bare["spec"]["selector"] = {}
    with pytest.raises(Invalid, match=r"spec\.template\.metadata\.labels"):
        await kube.apply(DEPLOYMENT, in_cache_namespace(bare))
