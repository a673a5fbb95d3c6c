"""Conclusions of the plugin from objects of the API, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from plugin import diagnosis, health
from plugin.commands.logs import about
from plugin.commands.report import redacted
from plugin.databases import ETCD, REDIS, Database, parsed
from plugin.health import BAD, GOOD, UNKNOWN, WARNING
from plugin.overview import Overview, duration, overview, urgent
from plugin.problem import Problem
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(**passed: float) -> str:
    return rfc3339(NOW - timedelta(**passed))


def resource(name: str = "orders", generation: int = 1, **status: object) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "shop", "generation": generation},
        "spec": {},
        "status": {"observedGeneration": 1, **status},
    }


def condition(name: str, status: str, reason: str = "Ready", message: str = "") -> Obj:
    return {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": ago(minutes=5)}


def seen(database: Database = REDIS, pods: tuple[Obj, ...] = (), **status: object) -> Overview:
    return overview(database, resource(**status), pods, NOW)  # type: ignore[arg-type]


def pod(name: str, **status: object) -> Obj:
    return {
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": ago(hours=1)},
        "spec": {},
        "status": status,
    }


def event(name: str, reason: str, when: str, count: int = 1) -> Obj:
    return {
        "metadata": {"name": f"{name}.1", "creationTimestamp": when},
        "involvedObject": {"name": name},
        "reason": reason,
        "message": f"{reason} happened",
        "lastTimestamp": when,
        "count": count,
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (-3, "0s"),
        (119, "119s"),
        (120, "2m"),
        (10799, "179m"),
        (10800, "3h"),
        (172799, "47h"),
        (172800, "2d"),
    ],
)
def test_durations_are_those_of_kubectl(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("rec/a",), [(REDIS, "a")]),
        (("RedisCluster", "a", "b"), [(REDIS, "a"), (REDIS, "b")]),
        (("etcdclusters.etcd.ydzs.io/a", "rediscluster/b"), [(ETCD, "a"), (REDIS, "b")]),
        ((), []),
    ],
)
def test_resources_are_named_as_for_kubectl(words: tuple[str, ...], found: list[tuple[Database, str]]) -> None:
    assert parsed(words) == found


@pytest.mark.parametrize("words", [("rec",), ("rec/",), ("rec/a/b",), ("rec/a", "b"), ("pods", "a")])
def test_words_that_name_no_resource_are_a_problem(words: tuple[str, ...]) -> None:
    with pytest.raises(Problem) as raised:
        parsed(words)
    assert raised.value.fix


def test_resource_without_a_status_points_to_the_operator() -> None:
    found = overview(REDIS, {"metadata": {"name": "a", "namespace": "shop", "generation": 1}}, (), NOW)
    assert found.ready.reason == "NoStatus"
    assert "kubectl platform doctor" in found.ready.message
    assert not found.observed


def test_status_of_any_content_is_shown() -> None:
    """Any client with the permission may write any content into a status."""
    statuses: tuple[object, ...] = (
        *("text", [], None),
        {"conditions": "none", "nodes": None},
        {"conditions": [1, {"type": "Ready"}]},
    )
    for status in statuses:
        overview(REDIS, {"metadata": {"name": "a"}, "status": status}, (), NOW)


def test_server_without_a_pod_serves_no_client() -> None:
    nodes = [{"name": "orders-0", "role": "primary", "status": "Unknown", "reason": "PodDeleted"}]
    [server] = seen(nodes=nodes, shards=[{"master": "orders-0", "slots": "0-16383"}]).servers
    assert (server.status, server.reason, server.group) == ("False", "NoPod", "slots 0-16383")


def test_pod_that_does_not_start_shows_the_reason() -> None:
    waiting = {"name": "redis", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no Secret"}}}
    [server] = seen(pods=(pod("orders-0", containerStatuses=[waiting]),)).servers
    assert (server.status, server.reason) == ("False", "CreateContainerConfigError")
    assert "no Secret" in server.message


def test_resource_that_serves_no_client_comes_first() -> None:
    states = {
        "good": ("True", "True"),
        "changing": ("False", "True"),
        "down": ("False", "False"),
    }
    found = [
        overview(
            REDIS, resource(name, conditions=[condition("Ready", ready), condition("Available", available)]), (), NOW
        )
        for name, (ready, available) in states.items()
    ]
    assert [each.name for each in urgent(found)] == ["down", "changing", "good"]


def test_diagnosis_reports_a_change_that_was_not_observed() -> None:
    changed = resource(generation=2, conditions=[condition("Ready", "True")])
    found = overview(REDIS, changed, (), NOW)
    facts = diagnosis.of_resource(REDIS, changed, found, [], NOW)
    assert "The operator has not observed the last change of the spec." in [fact.text for fact in facts]


def test_diagnosis_names_the_last_writer_of_the_spec() -> None:
    changed = resource(conditions=[condition("Ready", "True")])
    changed["metadata"]["managedFields"] = [
        {"manager": "helm", "time": ago(hours=9), "fieldsV1": {"f:spec": {"f:version": {}}}},
        {
            "manager": "kubectl",
            "time": ago(minutes=3),
            "fieldsV1": {"f:spec": {"f:replicas": {}, "f:tls": {"f:mode": {}}}},
        },
        {"manager": "redis-operator", "time": ago(minutes=1), "subresource": "status", "fieldsV1": {"f:spec": {}}},
    ]
    facts = diagnosis.of_resource(REDIS, changed, overview(REDIS, changed, (), NOW), [], NOW)
    assert facts[-1].text == "kubectl wrote the spec last, 3m ago. Fields that it owns: spec.replicas, spec.tls.mode."


def test_events_are_shown_oldest_first_and_only_the_newest() -> None:
    events = [event("orders", f"R{n}", ago(minutes=n), count=n) for n in range(1, 20)]
    facts = diagnosis.of_pod(pod("orders"), events, NOW)
    texts = [fact.text for fact in facts if fact.source == "event of orders"]
    assert texts[-1] == "60s ago: R1: R1 happened"
    assert texts[0] == "12m ago: R12: R12 happened (12 times)"


def test_why_a_container_was_restarted() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ago(minutes=4), "message": ""}
    status = {"name": "redis", "restartCount": 3, "state": {"running": {}}, "lastState": {"terminated": ended}}
    [fact] = [
        f for f in diagnosis.of_pod(pod("orders-0", containerStatuses=[status]), [], NOW) if "container" in f.source
    ]
    assert fact.text == "It was restarted 3 times. It last ended 4m ago with exit code 137 (OOMKilled)."


def deployment(name: str, ready: int, replicas: int = 1) -> Obj:
    labels = {"app.kubernetes.io/name": name}
    containers = [{"image": "example.com/operator:1"}]
    return {
        "metadata": {"name": f"platform-{name}", "namespace": "system", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"spec": {"containers": containers}},
        },
        "status": {"readyReplicas": ready},
    }


def test_doctor_finds_an_operator_that_is_missing_or_down() -> None:
    found = list(health.operators([deployment("redis-operator", 0), deployment("etcd-operator", 1, 2)], []))
    states = {finding.check: finding.state for finding in found}
    assert states == {
        "memcached operator": WARNING,
        "operator platform-redis-operator": BAD,
        "operator platform-etcd-operator": WARNING,
    }
    assert all(finding.fix for finding in found)


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({"holderIdentity": "a", "renewTime": ago(seconds=5), "leaseDurationSeconds": 15}, GOOD),
        ({"holderIdentity": "a", "renewTime": ago(minutes=5), "leaseDurationSeconds": 15}, BAD),
        ({"holderIdentity": "", "renewTime": ago(seconds=5)}, WARNING),
        ({}, WARNING),
    ],
)
def test_doctor_judges_the_leader(spec: Obj, state: str) -> None:
    [found] = health.leases([{"metadata": {"name": "redis-operator"}, "spec": spec}], NOW)
    assert found.state == state


def test_doctor_finds_a_webhook_without_a_ca() -> None:
    hooks = [{"name": "good", "clientConfig": {"caBundle": "x"}}, {"name": "bad", "clientConfig": {}}]
    [found] = health.webhooks([{"metadata": {"name": "redis"}, "webhooks": hooks}])
    assert found.state == BAD
    assert found.text.startswith("bad has no caBundle")


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ({"gitVersion": "v1.36.1", "minor": "36"}, GOOD),
        ({"gitVersion": "v1.27.1", "minor": "27+"}, WARNING),
        ({}, UNKNOWN),
    ],
)
def test_doctor_judges_the_version(found: Obj, state: str) -> None:
    assert health.version(found).state == state


@pytest.mark.parametrize(("skew", "state"), [(None, UNKNOWN), (2.0, GOOD), (-90.0, WARNING), (90.0, WARNING)])
def test_doctor_judges_the_clock(skew: float | None, state: str) -> None:
    assert health.clock(skew).state == state


def test_doctor_wants_a_default_storage_class() -> None:
    marked = {"storageclass.kubernetes.io/is-default-class": "true"}
    assert health.storage([{"metadata": {"name": "fast", "annotations": marked}}]).state == GOOD
    assert health.storage([{"metadata": {"name": "fast"}}]).state == WARNING


def test_log_lines_of_another_resource_are_left_out() -> None:
    lines = [
        '{"time": "t", "level": "info", "message": "shop/orders: created Service orders"}',
        '{"time": "t", "level": "info", "message": "shop/orders-2: created Service orders-2"}',
        '{"time": "t", "level": "info", "message": "eshop/orders: created"}',
        "2026 INFO shop/orders: as text\n",
        "[" * 100_000,
    ]
    assert list(about(lines, "shop/orders")) == [
        "t INFO    shop/orders: created Service orders",
        "2026 INFO shop/orders: as text",
    ]


def test_report_has_no_values_of_the_environment() -> None:
    secret = "correct horse battery staple"
    container = {"env": [{"name": "A", "value": secret}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}
    last = {"kubectl.kubernetes.io/last-applied-configuration": secret}
    found = redacted(
        {"metadata": {"annotations": last, "managedFields": [secret]}, "spec": {"containers": [container]}}
    )
    assert secret not in str(found)
    assert "secretKeyRef" in str(found)
