"""The in-memory API server does what a real one did, and what its users rely on."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.kubernetes.client import Kube, Request
from shared.kubernetes.errors import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Unavailable
from shared.kubernetes.kinds import DEPLOYMENT, POD, SERVICE, Obj
from shared.testing import ApiServer, Crash, Served, reads
from shared.testing.api_server.kinds import CONFIG_MAP, NAMESPACE
from shared.testing.api_server.requests import merge_patch, selects
from shared.testing.faults import requests
from tests.support import paths
from tests.support.api_server_scenarios import STORIES, WIDGET, config_map, deployment, service, tell, widget

RECORDED: dict[str, list[Obj]] = json.loads((paths.RECORDED / "kubernetes/kube-apiserver.json").read_text())


@pytest.fixture
def server() -> ApiServer:
    return ApiServer([Served(WIDGET, replicas="spec.size")], clock=lambda: datetime(2026, 1, 2, tzinfo=UTC))


@pytest.fixture
def kube(server: ApiServer) -> Kube:
    return Kube(server, manager="operator")


def placed(obj: Obj, **metadata: Any) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "cache", **metadata}}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_goes_as_it_went_on_a_real_api_server(server: ApiServer, name: str) -> None:
    told = tell(STORIES[name], server.actor, "cache")
    assert json.loads(json.dumps(told)) == RECORDED[name]


def test_every_recorded_story_is_told() -> None:
    assert RECORDED.keys() == STORIES.keys()


# Reading and creating.


async def test_lists_select_by_labels_and_namespace(server: ApiServer, kube: Kube) -> None:
    person = server.actor("person")
    for name, labels in (("a", {"tier": "web"}), ("b", {"tier": "db"}), ("c", {})):
        person.create(CONFIG_MAP, placed(config_map({}), name=name, labels=labels))
    person.create(CONFIG_MAP, placed(config_map({}), name="d", namespace="other", labels={"tier": "web"}))

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
def test_selectors_read_as_kubectl_writes_them(selector: str, matches: bool) -> None:
    assert selects(selector)({"a": "1", "b": "2"}) is matches


async def test_a_long_list_comes_in_pages(server: ApiServer) -> None:
    for name in "abc":
        server.actor("person").create(CONFIG_MAP, placed(config_map({}), name=name))
    first = server.handle(Request("GET", CONFIG_MAP.path("cache"), {"limit": "2"})).body
    query = {"limit": "2", "continue": first["metadata"]["continue"]}
    rest = server.handle(Request("GET", CONFIG_MAP.path("cache"), query)).body
    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert "continue" not in rest["metadata"]


async def test_a_new_object_gets_what_the_server_gives(kube: Kube) -> None:
    made = await kube.create(WIDGET, placed(widget({"size": 1}), uid="mine", generation=7))
    assert made["metadata"]["creationTimestamp"] == "2026-01-02T00:00:00Z"
    assert made["metadata"]["generation"] == 1
    assert made["metadata"]["uid"] != "mine"
    with pytest.raises(AlreadyExists):
        await kube.create(WIDGET, placed(widget({"size": 1})))


async def test_generated_names_differ(kube: Kube) -> None:
    bare = {"metadata": {"namespace": "cache", "generateName": "it-"}}
    names = {(await kube.create(CONFIG_MAP, bare))["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("it-") and len(name) == 8 for name in names)


async def test_what_is_not_served_is_not_found(server: ApiServer, kube: Kube) -> None:
    with pytest.raises(NotFound):
        await Kube(ApiServer(), manager="operator").list(WIDGET)
    with pytest.raises(NotFound, match=r'widgets\.test\.example\.com "it" not found'):
        await kube.get(WIDGET, "cache", "it")
    with pytest.raises(NotFound):
        await kube.merge(CONFIG_MAP, "cache", "it", {}, subresource="status")


async def test_nothing_is_created_in_a_namespace_that_goes(server: ApiServer, kube: Kube) -> None:
    person = server.actor("person")
    person.create(NAMESPACE, {"metadata": {"name": "cache", "finalizers": ["example.com/content"]}})
    person.delete(NAMESPACE, None, "cache")
    with pytest.raises(Forbidden, match="being terminated"):
        await kube.apply(CONFIG_MAP, placed(config_map({})))


async def test_admission_defaults_and_refuses(server: ApiServer) -> None:
    def admit(obj: Obj) -> None:
        if obj["spec"].setdefault("size", 3) < 0:
            raise ValueError("spec.size: Invalid value: -1: should be greater than or equal to 0")

    person = ApiServer([Served(WIDGET, admit)]).actor("person")
    assert person.create(WIDGET, placed(widget({})))["spec"] == {"size": 3}
    with pytest.raises(Invalid, match=r'Widget "it" is invalid: spec\.size: Invalid value: -1'):
        person.merge(WIDGET, "cache", "it", {"spec": {"size": -1}})


def test_answers_are_copies(server: ApiServer) -> None:
    person = server.actor("person")
    person.create(CONFIG_MAP, placed(config_map({"a": "1"})))["data"]["a"] = "changed"
    person.get(CONFIG_MAP, "cache", "it")["data"]["a"] = "changed"
    assert person.get(CONFIG_MAP, "cache", "it")["data"] == {"a": "1"}


def test_merge_patch_follows_the_rfc() -> None:
    """The example of RFC 7386, section 3, in short."""
    target = {"title": "Goodbye!", "author": {"givenName": "John", "familyName": "Doe"}, "tags": ["a", "b"]}
    patch = {"title": "Hello!", "author": {"familyName": None}, "tags": ["a"], "phone": {"home": None}}
    merged = {"title": "Hello!", "author": {"givenName": "John"}, "tags": ["a"], "phone": {}}
    assert merge_patch(target, patch) == merged


# Watches.


def watch(server: ApiServer) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []
    server.subscribe(lambda event: heard.append((event["type"], event["object"]["metadata"]["name"])), CONFIG_MAP)
    return heard


def test_watches_tell_of_changes_and_of_nothing_else(server: ApiServer) -> None:
    heard, person = watch(server), server.actor("person")
    person.apply(CONFIG_MAP, placed(config_map({"a": "1"})))
    person.apply(CONFIG_MAP, placed(config_map({"a": "1"})))
    person.merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    person.apply(SERVICE, placed(service({"port": 80})))
    person.delete(CONFIG_MAP, "cache", "it")
    assert heard == [("ADDED", "it"), ("MODIFIED", "it"), ("DELETED", "it")]


def test_a_deletion_is_told_at_its_own_version(server: ApiServer) -> None:
    events: list[Obj] = []
    server.subscribe(events.append)
    person = server.actor("person")
    person.create(CONFIG_MAP, placed(config_map({})))
    person.delete(CONFIG_MAP, "cache", "it")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions[1] > versions[0]


def test_a_held_watch_tells_later_or_never(server: ApiServer) -> None:
    heard, person = watch(server), server.actor("person")
    server.watches.hold()
    for name in "abc":
        person.create(CONFIG_MAP, placed(config_map({}), name=name))
    assert heard == []
    server.watches.release(1)
    assert heard == [("ADDED", "a")]
    server.watches.drop(1)
    server.watches.release()
    person.create(CONFIG_MAP, placed(config_map({}), name="d"))
    assert heard == [("ADDED", "a"), ("ADDED", "c"), ("ADDED", "d")]


# Faults, and the log.


async def test_the_log_tells_what_was_asked_and_what_it_changed(server: ApiServer, kube: Kube) -> None:
    await kube.apply(CONFIG_MAP, placed(config_map({"a": "1"})))
    await kube.apply(CONFIG_MAP, placed(config_map({"a": "1"})))
    with pytest.raises(NotFound):
        await kube.merge(WIDGET, "cache", "none", {"status": {}}, subresource="status")
    await kube.get(CONFIG_MAP, "cache", "it")
    await kube.list(CONFIG_MAP)
    server.actor("person").merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    assert [(str(write), write.changed, write.status) for write in server.log.writes()] == [
        ("APPLY ConfigMap cache/it", True, 201),
        ("APPLY ConfigMap cache/it", False, 200),
        ("PATCH Widget cache/none/status", False, 404),
    ]
    assert server.log.reads == {"GET": 1, "LIST": 1}
    assert len(server.log.writes("ConfigMap", changed=True)) == 1
    server.log.reset()
    assert server.log.silent


async def test_the_log_tells_which_writes_say_the_object_they_mean(server: ApiServer, kube: Kube) -> None:
    made = await kube.apply(CONFIG_MAP, placed(config_map({})))
    uid = made["metadata"]["uid"]
    await kube.apply(CONFIG_MAP, placed(config_map({"a": "1"}, uid=uid)))
    await kube.merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    await kube.delete(CONFIG_MAP, "cache", "it", uid=uid)
    assert [write.pinned for write in server.log.writes()] == [False, True, False, True]


def test_a_fork_keeps_what_there_is_and_what_there_was_and_goes_its_own_way(server: ApiServer) -> None:
    person = server.actor("person")
    person.create(CONFIG_MAP, placed(config_map({"a": "1"})))
    seen: list[Obj] = []
    server.subscribe(seen.append)
    fork = server.fork(clock=lambda: datetime(2030, 1, 1, tzinfo=UTC))
    fork.actor("kubectl").merge(CONFIG_MAP, "cache", "it", {"data": {"a": "2"}})
    fork.actor("kubectl").create(CONFIG_MAP, placed(config_map({}), name="other"))
    assert person.get(CONFIG_MAP, "cache", "it")["data"] == {"a": "1"}
    assert [event["type"] for _, event in fork.watches.history] == ["ADDED", "MODIFIED", "ADDED"]
    assert fork.objects(CONFIG_MAP)[1][1]["metadata"]["creationTimestamp"] == "2030-01-01T00:00:00Z"
    assert (len(server.objects(CONFIG_MAP)), len(server.watches.history), seen) == (1, 1, [])


async def test_an_error_answer_changes_nothing(server: ApiServer, kube: Kube) -> None:
    server.faults.answer(429, retry_after=7.0)
    with pytest.raises(Unavailable) as caught:
        await kube.apply(CONFIG_MAP, placed(config_map({})))
    assert caught.value.retry_after == 7.0
    server.faults.answer(409)
    with pytest.raises(Conflict):
        await kube.apply(CONFIG_MAP, placed(config_map({})))
    assert not server.objects(CONFIG_MAP)
    await kube.apply(CONFIG_MAP, placed(config_map({})))
    assert server.objects(CONFIG_MAP)


@pytest.mark.parametrize("landed", [False, True])
async def test_a_timeout_may_or_may_not_have_landed(server: ApiServer, kube: Kube, landed: bool) -> None:
    (server.faults.lose_answer if landed else server.faults.lose_request)()
    with pytest.raises(Unavailable, match="no answer"):
        await kube.apply(CONFIG_MAP, placed(config_map({})))
    assert bool(server.objects(CONFIG_MAP)) is landed
    assert [write.changed for write in server.log.writes()] == [landed]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_crash_strikes_the_nth_write(server: ApiServer, kube: Kube, when: str) -> None:
    script: Callable[[int], None] = getattr(server.faults, f"crash_{when}")
    script(2)
    await kube.apply(CONFIG_MAP, placed(config_map({}), name="first"))
    await kube.list(CONFIG_MAP)
    with pytest.raises(Crash):
        await kube.apply(CONFIG_MAP, placed(config_map({}), name="second"))
    assert len(server.objects(CONFIG_MAP)) == (1 if when == "before" else 2)
    assert not server.faults.pending


async def test_faults_pick_their_requests(server: ApiServer, kube: Kube) -> None:
    server.faults.answer(500, when=requests("PATCH", "/status"), times=None)
    server.faults.answer(503, when=reads, skip=1)
    await kube.create(WIDGET, placed(widget({"size": 1})))
    await kube.get(WIDGET, "cache", "it")
    with pytest.raises(Unavailable):
        await kube.get(WIDGET, "cache", "it")
    for _ in range(3):
        with pytest.raises(Unavailable):
            await kube.merge(WIDGET, "cache", "it", {"status": {}}, subresource="status")
    server.faults.clear()
    await kube.merge(WIDGET, "cache", "it", {"status": {}}, subresource="status")


# Deletion and garbage.


def owned(owner: Obj, *, blocks: bool = False, **metadata: Any) -> Obj:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "blockOwnerDeletion": blocks}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return placed(config_map({}), ownerReferences=[reference], **metadata)


def remaining(server: ApiServer) -> list[str]:
    return [f"{kind} {obj['metadata']['name']}" for kind, obj in server.objects()]


def test_dependents_go_when_garbage_is_collected(server: ApiServer) -> None:
    person = server.actor("person")
    child = person.create(CONFIG_MAP, owned(person.create(WIDGET, placed(widget({}))), name="child"))
    person.create(CONFIG_MAP, owned(child, name="grandchild"))
    person.create(CONFIG_MAP, placed(config_map({}), name="stranger"))
    person.delete(WIDGET, "cache", "it", propagationPolicy="Background")
    assert remaining(server) == ["ConfigMap child", "ConfigMap grandchild", "ConfigMap stranger"]
    assert server.collect_garbage() == 2
    assert remaining(server) == ["ConfigMap stranger"]


def test_orphans_stay_and_lose_their_owner(server: ApiServer) -> None:
    person = server.actor("person")
    person.create(CONFIG_MAP, owned(person.create(WIDGET, placed(widget({}))), name="child"))
    person.delete(WIDGET, "cache", "it", propagationPolicy="Orphan")
    server.collect_garbage()
    assert remaining(server) == ["ConfigMap child"]
    assert "ownerReferences" not in person.get(CONFIG_MAP, "cache", "child")["metadata"]


def test_in_the_foreground_an_owner_goes_last(server: ApiServer) -> None:
    person, gone = server.actor("person"), []
    server.subscribe(lambda event: gone.append(event["object"]["kind"]) if event["type"] == "DELETED" else None)
    person.create(CONFIG_MAP, owned(person.create(WIDGET, placed(widget({}))), blocks=True, name="child"))
    person.delete(WIDGET, "cache", "it", propagationPolicy="Foreground")
    assert person.get(WIDGET, "cache", "it")["metadata"]["finalizers"] == ["foregroundDeletion"]
    server.collect_garbage()
    assert gone == ["ConfigMap", "Widget"]


def test_a_held_dependent_holds_its_owner_in_the_foreground(server: ApiServer) -> None:
    person = server.actor("person")
    owner = person.create(WIDGET, placed(widget({})))
    person.create(CONFIG_MAP, owned(owner, blocks=True, name="child", finalizers=["example.com/hold"]))
    person.delete(WIDGET, "cache", "it", propagationPolicy="Foreground")
    server.collect_garbage()
    assert remaining(server) == ["ConfigMap child", "Widget it"]
    person.merge(CONFIG_MAP, "cache", "child", {"metadata": {"finalizers": None}})
    server.collect_garbage()
    assert remaining(server) == []


async def test_a_deletion_with_a_uid_spares_the_successor(server: ApiServer, kube: Kube) -> None:
    first = await kube.create(CONFIG_MAP, placed(config_map({})))
    assert await kube.delete(CONFIG_MAP, "cache", "it", uid=first["metadata"]["uid"]) is None
    await kube.create(CONFIG_MAP, placed(config_map({})))
    with pytest.raises(Conflict, match="UID in precondition"):
        await kube.delete(CONFIG_MAP, "cache", "it", uid=first["metadata"]["uid"])
    assert remaining(server) == ["ConfigMap it"]


async def test_a_pod_on_a_node_lives_until_its_kubelet_ends_it(server: ApiServer, kube: Kube) -> None:
    pod = placed({"metadata": {"name": "it"}, "spec": {"containers": [{"name": "main", "image": "image:1"}]}})
    made = await kube.create(POD, pod)
    server.actor("scheduler").merge(POD, "cache", "it", {"spec": {"nodeName": "node-1"}})
    left = await kube.delete(POD, "cache", "it", uid=made["metadata"]["uid"])
    assert left is not None
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    server.actor("kubelet").delete(POD, "cache", "it", gracePeriodSeconds=0)
    assert remaining(server) == []


async def test_a_deployment_without_pods_to_select_is_refused(kube: Kube) -> None:
    bare = deployment()
    bare["spec"]["selector"] = {}
    with pytest.raises(Invalid, match=r"spec\.template\.metadata\.labels"):
        await kube.apply(DEPLOYMENT, placed(bare))
