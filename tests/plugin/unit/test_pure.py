"""Conclusions of the plugin from objects of the API, without a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import io
import re
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from plugin import cli as program
from plugin import diagnosis, health
from plugin.commands import base
from plugin.commands.backup import name_of
from plugin.commands.logs import OPERATORS, about, sources
from plugin.commands.report import pack, redacted
from plugin.databases import ETCD, REDIS, Database, parsed
from plugin.health import BAD, GOOD, UNKNOWN, WARNING
from plugin.output import Output, row, tree
from plugin.overview import Overview, duration, overview, urgent
from plugin.problem import Problem
from plugin.results import Done, one
from plugin.session import Session, Target
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.status.reconciliation_pause import PAUSE

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TARGET = ["--context", "prod"]


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
        "status": {"readyReplicas": ready, "replicas": replicas, "updatedReplicas": replicas},
    }


def test_doctor_finds_an_operator_that_is_missing_or_down() -> None:
    found = list(health.operators([deployment("redis-operator", 0), deployment("etcd-operator", 1, 2)], [], TARGET))
    states = {finding.check: finding.state for finding in found}
    assert states == {
        "memcached operator": WARNING,
        "operator platform-redis-operator": BAD,
        "operator platform-etcd-operator": WARNING,
    }
    assert all(finding.fix for finding in found)
    assert all("--context prod" in finding.fix for finding in found if "kubectl " in finding.fix)


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
    [found] = health.leases([deployment("redis-operator", 1)], [lease("redis-operator", **spec)], NOW, TARGET)
    assert found.state == state
    assert "kubectl " not in found.fix or found.fix.endswith("kubectl platform logs --context prod")


def lease(name: str, **spec: object) -> Obj:
    return {"metadata": {"name": name, "namespace": "system"}, "spec": spec}


def test_doctor_finds_a_lease_that_no_replica_acquires_or_ever_acquired() -> None:
    deployments = [deployment("redis-operator", 1), deployment("etcd-operator", 1)]
    released = lease("redis-operator", holderIdentity="", renewTime=ago(hours=1))
    found = {each.check: each.state for each in health.leases(deployments, [released], NOW)}
    assert found == {"leader of redis-operator": BAD, "leader of etcd-operator": WARNING}


def test_doctor_judges_the_shards_in_effect() -> None:
    """A Lease of a shard stays when the number of shards is reduced."""
    renewed = {"renewTime": ago(seconds=1), "leaseDurationSeconds": 15}
    found = [
        lease("redis-operator", holderIdentity="2-shards", **renewed),
        lease("redis-operator-shard-0", holderIdentity="pod-a", **renewed),
        lease("redis-operator-shard-1", holderIdentity="pod-b", renewTime=ago(hours=1)),
        lease("redis-operator-shard-2", holderIdentity="pod-c", renewTime=ago(days=9)),
    ]
    states = {each.check: each.state for each in health.leases([deployment("redis-operator", 1)], found, NOW)}
    expected = {"redis-operator": GOOD, "redis-operator-shard-0": GOOD, "redis-operator-shard-1": BAD}
    assert states == {f"leader of {name}": state for name, state in expected.items()}


def test_doctor_finds_an_operator_without_replicas_and_a_rollout_that_stops() -> None:
    names = ("memcached-operator", "redis-operator", "etcd-operator")
    stuck = deployment(names[1], 1, replicas=1) | {"status": {"readyReplicas": 1, "replicas": 2, "updatedReplicas": 1}}
    found = list(health.operators([deployment(names[0], 0, replicas=0), stuck, deployment(names[2], 1)], []))
    assert [each.state for each in found] == [WARNING, WARNING, GOOD]
    assert "0 replicas" in found[0].text
    assert "not complete" in found[1].text


def test_doctor_finds_a_webhook_without_a_ca() -> None:
    hooks = [{"name": "good", "clientConfig": {"caBundle": "x"}}, {"name": "bad", "clientConfig": {}}]
    [found] = health.webhooks([{"metadata": {"name": "redis"}, "webhooks": hooks}])
    assert found.state == BAD
    assert found.text == "bad has no caBundle, so that changes of resources are refused."


def test_webhook_that_may_fail_refuses_nothing() -> None:
    hooks = [{"name": "bad", "clientConfig": {}, "failurePolicy": "Ignore"}]
    [found] = health.webhooks([{"metadata": {"name": "redis"}, "webhooks": hooks}])
    assert (found.state, "are not checked" in found.text) == (WARNING, True)


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


def test_interrupt_ends_a_command_that_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt and a client of a database do not return to the event loop, whose handler would only note the signal."""

    async def blocks() -> None:
        signal.raise_signal(signal.SIGINT)
        pytest.fail("the interrupt was ignored")

    monkeypatch.setattr(program, "cli", lambda **_: asyncio.run(blocks()))
    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            program.main()
    finally:
        signal.signal(signal.SIGINT, before)


def test_addresses_are_printed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    address = "[fd00:100::5]:6379"
    written = io.StringIO()
    monkeypatch.setattr(base, "connected", connected_to_nothing)
    monkeypatch.setattr("sys.stdout", written)

    @base.command("show", examples=[], prints=one(Done))
    async def show(session: Session, output: Output) -> None:
        output.json({"address": address})
        output.text(address)

    show.main([], standalone_mode=False)
    assert written.getvalue().count(address) == 2


def test_file_that_cannot_be_written_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(base, "connected", connected_to_nothing)

    @base.command("write", examples=[], prints=one(Done))
    async def write(session: Session, output: Output) -> None:
        raise PermissionError(13, "Permission denied", "/root/report")

    with pytest.raises(SystemExit):
        write.main([])
    assert capsys.readouterr().err == "error: [Errno 13] Permission denied: '/root/report'\n"


@contextlib.asynccontextmanager
async def connected_to_nothing(target: Target) -> AsyncIterator[None]:
    yield None


@pytest.mark.parametrize(
    ("confirmed", "message"),
    [("", "At present it is unknown whether this data is lost."), ("abc", "All keys of the slots 0-99 are lost.")],
    ids=["unknown", "confirmed"],
)
def test_loss_that_cannot_be_confirmed_now_waits_for_no_user(confirmed: str, message: str) -> None:
    found = resource(recovery={"token": "abc", "message": message}) | {"spec": {"recovery": {"confirm": confirmed}}}
    assert not overview(REDIS, found, (), NOW).decision


def test_log_line_that_names_a_similar_resource_first_is_shown() -> None:
    lines = [
        '{"time": "t", "level": "info", "message": "shop/orders-2: restored from shop/orders."}',
        '{"time": "t", "level": "error", "message": "shop/orders: failed", "exception": "Traceback\\n  line"}',
        '{"time": "t", "level": "info", "message": "shop/orders.example: created"}',
    ]
    assert list(about(lines, "shop/orders")) == [
        "t INFO    shop/orders-2: restored from shop/orders.",
        "t ERROR   shop/orders: failed",
        "Traceback",
        "  line",
    ]


def test_logs_of_each_release_are_read() -> None:
    """An operator may be installed once for each group of namespaces."""
    releases = [deployment("redis-operator", 1), deployment("etcd-operator", 1), deployment("redis-operator", 1)]
    releases[2]["metadata"]["namespace"] = "team"

    class Listed:
        async def objects(self, *_: object) -> list[Obj]:
            return releases

    found = asyncio.run(sources(Listed(), REDIS, ""))  # type: ignore[arg-type]
    assert found == [(name, f"{OPERATORS},app.kubernetes.io/name=redis-operator") for name in ("system", "team")]


def test_report_has_no_copy_of_a_manifest() -> None:
    """Other tools keep what they applied, too: with the values of the environment."""
    copies = {"kapp.k14s.io/original": '{"env": "secret"}', "cattle.io/last-applied-configuration": "secret"}
    found = redacted({"metadata": {"annotations": {**copies, "team": "shop"}}})
    assert "secret" not in str(found)
    assert found["metadata"]["annotations"]["team"] == "shop"


def test_report_that_replaces_a_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    path.touch(mode=0o644)
    pack(path, "orders", {"why.txt": "text"})
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("regarding", "expected"),
    [
        ({"kind": "RedisCluster", "name": "orders", "uid": "1"}, True),
        ({"kind": "RedisCluster", "name": "orders", "uid": "0"}, False),  # a deleted resource of this name
        ({"kind": "Memcached", "name": "orders", "uid": "2"}, False),
        ({"kind": "StatefulSet", "name": "orders", "uid": "3"}, True),
        ({"kind": "ReplicaSet", "name": "orders-5d9c", "uid": "4"}, True),
        ({"kind": "Pod", "name": "orders-0", "uid": "5"}, True),
        ({"kind": "Pod", "name": "orders", "uid": "6"}, False),
    ],
)
def test_events_are_of_this_resource(regarding: Obj, expected: bool) -> None:
    assert base.concerns(regarding, {"metadata": {"name": "orders", "uid": "1"}}, {"orders-0"}) is expected


@pytest.mark.parametrize(("reason", "page"), [("SlotsLost", "redis"), ("ForeignObject", "README")])
def test_page_of_the_runbook_has_the_reason(reason: str, page: str) -> None:
    [fact] = diagnosis.of_resource(
        REDIS,
        resource(),
        overview(REDIS, resource(conditions=[condition("Ready", "False", reason)]), (), NOW),
        [],
        NOW,
    )
    assert fact.fix == f"docs/runbook/{page}.md#{reason.lower()}"
    assert f"\n### {reason}\n" in Path(fact.fix.partition("#")[0]).read_text()


def test_suggested_commands_name_the_namespace() -> None:
    """The same name in the namespace of the context is another resource."""
    paused = resource(recovery={"token": "t", "message": "lost"})
    paused["metadata"]["annotations"] = {PAUSE: "true"}
    facts = diagnosis.of_resource(REDIS, paused, overview(REDIS, paused, (), NOW), [], NOW)
    commands = [
        fact.fix for fact in facts if fact.fix.startswith(("kubectl platform resume", "kubectl platform confirm"))
    ]
    assert len(commands) == 2
    assert all(command.endswith(" --namespace shop") for command in commands)


def test_resource_that_is_being_deleted_is_shown_as_such() -> None:
    deleted = resource(conditions=[condition("Ready", "True")])
    deleted["metadata"]["deletionTimestamp"] = ago(minutes=1)
    found = overview(REDIS, deleted, (), NOW)
    assert "(being deleted)" in " ".join(row(found))
    assert "It is being deleted" in " ".join(
        fact.text for fact in diagnosis.of_resource(REDIS, deleted, found, [], NOW)
    )


def test_why_a_pod_does_not_start() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node fits"}
    waiting = {"name": "init", "state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no Secret"}}}
    statuses: dict[str, Obj] = {
        "no node fits": {"phase": "Pending", "conditions": [unscheduled]},
        "no Secret": {"phase": "Pending", "initContainerStatuses": [waiting]},
        "low on memory": {"phase": "Failed", "reason": "Evicted", "message": "low on memory"},
    }
    for text, status in statuses.items():
        assert text in " ".join(fact.text for fact in diagnosis.of_pod(pod("orders-0", **status), [], NOW))


def test_name_of_a_backup_is_valid_for_the_longest_name_of_a_cluster() -> None:
    for cluster in ("settings", "s" * 63, f"{'s' * 46}-{'t' * 10}"):
        name = name_of(cluster, NOW)
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name), name  # operators.etcd.api.backup
    assert name_of("settings", NOW) == "settings-20260101-120000"


def test_message_does_not_control_the_terminal() -> None:
    """A server may end with a message that quotes what its client wrote."""
    message = "\x1b]0;title\x07 \x9b2J"
    written = io.StringIO()
    output = Output(Console(file=written))
    output.text(message)
    output.table(("MESSAGE",), [(message,)])
    output.console.print(tree(seen(conditions=[condition("Ready", "False", "Failed", message)])))
    assert not {"\x1b", "\x07", "\x9b"} & set(written.getvalue())
    assert written.getvalue().count("]0;title") == 3
