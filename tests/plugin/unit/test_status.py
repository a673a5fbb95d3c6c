"""`kubectl platform status`: the tree with volumes, zones and lag, what may not be read, and --watch."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from plugin.commands import base
from plugin.databases import ETCD, REDIS, ZONE
from plugin.overview import Cluster, complete
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.client import Response
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import NODE, PERSISTENT_VOLUME_CLAIM, POD, Obj
from tests.harness.scenario import edit
from tests.redis.simulation import losses
from tests.support.etcd import scenarios as etcd
from tests.support.plugin import Terminal
from tests.support.redis import scenarios as redis

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """An EtcdCluster with volumes."""
    return Terminal(monkeypatch, etcd.ETCD, etcd.cluster(3))


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch, losses.SUBJECT, redis.cluster(6))


def hosts(terminal: Terminal) -> list[str]:
    return sorted({pod["spec"]["nodeName"] for pod in terminal.play.stage.find(POD)})


def servers(terminal: Terminal, line: str) -> dict[str, Obj]:
    result = terminal.run(line)
    assert result.exit_code == 0, result.output
    return {server["name"]: server for server in json.loads(result.stdout)["servers"]}


def test_volumes_of_each_member_have_size_and_class(settings: Terminal) -> None:
    claims = {claim["metadata"]["name"]: claim for claim in settings.play.stage.find(PERSISTENT_VOLUME_CLAIM)}
    found = servers(settings, "status etcdcluster/cache -o json")
    for name, server in found.items():
        [volume] = server["volumes"]
        claim = claims[volume["name"]]
        assert volume["name"].endswith(name)
        assert volume["size"] == claim["spec"]["resources"]["requests"]["storage"]
        assert (volume["storage_class"], volume["used"]) == (claim["spec"].get("storageClassName") or "", "")
    text = settings.text("status etcdcluster/cache")
    assert text.count("── volume ") == 3, text


def test_usage_is_that_of_the_kubelets(settings: Terminal) -> None:
    by_host: dict[str, list[Obj]] = {}
    for pod in settings.play.stage.find(POD):
        [claim] = [each["persistentVolumeClaim"] for each in pod["spec"]["volumes"] if "persistentVolumeClaim" in each]
        volume = {"usedBytes": 3 * 2**20, "pvcRef": {"name": claim["claimName"]}}
        stats = {"podRef": {"uid": pod["metadata"]["uid"]}, "volume": [volume, {"name": "tmp", "usedBytes": 1}]}
        by_host.setdefault(pod["spec"]["nodeName"], []).append(stats)
    for host, pods in by_host.items():
        answer = Response(200, {"pods": [*pods, {"podRef": {"uid": "other"}, "volume": [{"usedBytes": 1}]}]})
        settings.transport.answers[f"{NODE.path(None, host)}/proxy/stats/summary"] = answer
    found = servers(settings, "status etcdcluster/cache --usage -o json")
    assert {server["volumes"][0]["used"] for server in found.values()} == {"3Mi"}
    assert "3Mi of " in settings.text("status etcdcluster/cache --usage")


@pytest.mark.parametrize("hides", ["/proxy/", ""], ids=["forbidden", "no metrics"])
def test_usage_that_cannot_be_read_is_unknown(settings: Terminal, hides: str) -> None:
    settings.transport.forbidden = hides
    result = settings.run("status etcdcluster/cache --usage -o json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert all("How full the volumes on" in sentence for sentence in found["unread"])
    assert len(found["unread"]) == len(hosts(settings))
    assert {server["status"] for server in found["servers"]} == {"True"}


def test_zones_are_those_of_the_nodes(settings: Terminal) -> None:
    for number, host in enumerate(hosts(settings)):
        metadata = {"name": host, "uid": host, "resourceVersion": "1", "labels": {ZONE: f"zone-{number}"}}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        settings.transport.answers[NODE.path(None, host)] = Response(200, node)
    found = servers(settings, "status etcdcluster/cache -o json")
    assert all(server["details"]["zone"].startswith("zone-") for server in found.values())


@pytest.mark.parametrize(
    ("forbidden", "unread"),
    [
        ("/persistentvolumeclaims", ["You may not read the volume claims: "]),
        ("/nodes/", []),
        (r"/pods$", ["You may not read the pods, so that only the status is shown: "]),
    ],
)
def test_missing_right_hides_only_what_it_is_about(settings: Terminal, forbidden: str, unread: list[str]) -> None:
    settings.transport.forbidden = forbidden
    result = settings.run("status etcdcluster/cache -o json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [sentence[: len(words)] for sentence, words in zip(found["unread"], unread, strict=True)] == unread
    assert {server["status"] for server in found["servers"]} == {"True"}
    shown = settings.text("status etcdcluster/cache")
    assert all(words in shown for words in unread)


def test_lag_of_replicas_and_learners_is_that_of_the_status() -> None:
    since = rfc3339(NOW - timedelta(minutes=5))
    nodes = [
        {"name": "a-0", "role": "primary", "status": "True"},
        {"name": "a-1", "role": "replica", "status": "True", "inSync": "True"},
        {"name": "a-2", "role": "replica", "status": "True", "inSync": "False", "outOfSyncSince": since},
        {"name": "a-3", "role": "replica", "status": "True", "inSync": "Unknown"},
    ]
    found = complete(REDIS, {"metadata": {"name": "a"}, "status": {"nodes": nodes}}, Cluster(pods=None), NOW)
    lags = [server.details.get("lag") for server in found.servers]
    assert lags == [None, "in sync", "not in sync for 5m", "unknown"]
    members: list[Obj] = [
        {"name": "a-0", "role": "voter"},
        {"name": "a-1", "role": "learner", "progress": {"index": 7, "since": since}},
        {"name": "a-2", "role": "learner", "progress": {"index": 0, "since": since}},
        {"name": "a-3", "role": "learner", "progress": "text"},
    ]
    found = complete(ETCD, {"metadata": {"name": "a"}, "status": {"members": members}}, Cluster(pods=None), NOW)
    lags = [server.details.get("lag") for server in found.servers]
    assert lags == [None, "at log index 7 for 5m", "receives a snapshot for 5m", None]


def test_replicas_of_a_cluster_are_in_sync(orders: Terminal) -> None:
    found = servers(orders, "status rediscluster/cache -o json")
    assert {server["details"].get("lag") for server in found.values() if server["role"] == "replica"} == {"in sync"}


def ends_after(terminal: Terminal, *acts: Callable[[], object]) -> None:
    """Act before each request, and then end the command as a user does."""
    left = [*acts]

    async def acts_or_ends() -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop(0)()

    terminal.transport.between = acts_or_ends


def changed(terminal: Terminal, phase: str) -> None:
    stage = terminal.play.stage
    stage.user_client.merge(stage.kind, stage.namespace, "cache", {"status": {"phase": phase}}, subresource="status")


def unavailable() -> None:
    raise Unavailable("the API server does not answer")


@pytest.mark.parametrize("form", ["text", "json"])
def test_watch_prints_again_only_what_has_changed(orders: Terminal, form: str) -> None:
    nothing = [lambda: None] * 9  # three lists of resources
    ends_after(orders, *nothing, lambda: changed(orders, "Other"), *nothing, unavailable, *nothing)
    result = orders.run(f"status --watch -o {form}")
    assert result.exit_code == 1
    assert "Aborted" in result.stderr
    if form == "json":
        assert [json.loads(line)[0]["phase"] for line in result.stdout.splitlines()] == ["Running", "Other"]
        assert "the API server does not answer" in result.stderr
    else:
        assert result.stdout.count("RedisCluster/cache") >= 1
        assert "the API server does not answer" in result.stdout


def test_watch_in_a_terminal_shows_the_tree_and_then_an_outage(
    settings: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def console(**given: Any) -> Console:
        return Console(**given | {"force_terminal": True, "width": 200, "height": 50})

    monkeypatch.setattr(base, "Console", console)
    ends_after(settings, *[lambda: None] * 30, unavailable)
    result = settings.run("status etcdcluster/cache --watch")
    assert result.exit_code == 1
    assert "EtcdCluster default/cache" in result.stdout
    assert "volume data-cache-0" in result.stdout
    assert "the API server does not answer" in result.stdout


def test_unfinished_work_is_shown(orders: Terminal) -> None:
    work = {"progress": [{"what": "Slots", "done": 100, "total": 400, "remainingSeconds": 90}]}
    orders.play.stage.user_client.merge(
        orders.play.stage.kind, orders.play.stage.namespace, "cache", {"status": work}, subresource="status"
    )
    assert "progress: 100 of 400 slots, about 90s left" in orders.text("status rediscluster/cache")


def test_usage_needs_a_name(orders: Terminal) -> None:
    result = orders.run("status --usage")
    assert result.exit_code == 1
    assert "  fix: name them: KIND/NAME" in result.output


def test_status_of_an_earlier_operator_is_shown(orders: Terminal) -> None:
    """An earlier version reports fewer fields."""
    orders.do(edit(None, {"metadata": {"labels": {"a": "b"}}}))
    stage = orders.play.stage
    [resource] = stage.find()
    nodes = [{"name": node["name"], "role": node["role"]} for node in resource["status"]["nodes"]]
    reduced = dict.fromkeys(resource["status"]) | {"phase": "Running", "nodes": nodes}
    stage.user_client.merge(stage.kind, stage.namespace, "cache", {"status": reduced}, subresource="status")
    found = json.loads(orders.run("status rediscluster/cache -o json").stdout)
    assert {server["role"] for server in found["servers"]} == {"primary", "replica"}
    assert found["conditions"] == []
