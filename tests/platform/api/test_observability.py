"""The metrics, traces and logs of a running operator, and the links between them."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from shared.kubernetes.kinds import EVENT, STATEFUL_SET
from tests.platform.api.support.replicas import Replica, wait
from tests.platform.api.support.world import MEMCACHED, World
from tests.platform.api.test_leadership import leader_and_standby
from tests.support.otlp import Collector, Span, collecting
from tools.local.controlplane import ControlPlane

pytestmark = pytest.mark.nightly

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.3"
"""The Accept header of a Prometheus server that stores exemplars."""

STATE = re.compile("platform_resource_")


class Observed(NamedTuple):
    """An operator process and the receiver of its traces, which arrive within 0.1 seconds."""

    replica: Replica
    collector: Collector

    @property
    def log(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.replica.log_lines if line.startswith("{")]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture
def observed(
    plane: ControlPlane, world: World, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Observed]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    flags = (f"--watch-namespace={world.namespace}", f"--otlp-endpoint={collector.url}", "--log-format=json")
    with Replica.running(plane.kubeconfig, *flags) as replica:
        yield Observed(replica, collector)


def scrape(replica: Replica, accept: str = "") -> tuple[str, list[Metric]]:
    """Return the content type and the metric families."""
    request = urllib.request.Request(replica.metrics, headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        kind, text = answer.headers["Content-Type"], answer.read().decode()
    read = read_openmetrics if "openmetrics" in kind else read_text
    return kind, list(read(text))


def states(replica: Replica, of: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the series of a resource by metric, without the labels that identify the resource."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in scrape(replica)[1]:
        for sample in family.samples:
            if STATE.match(sample.name) and sample.labels["name"] == of:
                own = {key: value for key, value in sample.labels.items() if key not in ("kind", "namespace", "name")}
                found.setdefault(sample.name, []).append((own, sample.value))
    return found


def test_series_exist_as_long_as_the_resource(observed: Observed, world: World) -> None:
    for name in ("cache", "other"):
        world.create(name, size=2)
    world.eventually(lambda: world.is_ready("cache") and world.is_ready("other"))
    wait(lambda: "platform_resource_unready_since_timestamp_seconds" not in states(observed.replica, "cache"))
    found = states(observed.replica, "cache")
    assert found["platform_resource_desired_replicas"] == [({}, 2)]
    assert found["platform_resource_ready_replicas"] == [({}, 2)]
    assert found["platform_resource_phase"] == [({"phase": "Running"}, 1)]
    assert ({"type": "Ready", "status": "True", "reason": "Ready"}, 1) in found["platform_resource_condition"]
    types = sorted(labels["type"] for labels, _ in found["platform_resource_condition"])
    assert types == ["Available", "Degraded", "Observed", "Ready", "Reconciling", "Stalled"]
    assert states(observed.replica, "other").keys() == found.keys()

    world.delete(MEMCACHED, "cache")
    wait(lambda: not states(observed.replica, "cache"))
    assert states(observed.replica, "other").keys() == found.keys()
    _, families = scrape(observed.replica)
    named = [sample for family in families for sample in family.samples if "cache" in sample.labels.values()]
    assert named == [], "no metric mentions the deleted resource"


def test_unready_resource_reports_since_when(observed: Observed, world: World) -> None:
    world.workloads = None
    world.create(size=2)
    since = "platform_resource_unready_since_timestamp_seconds"
    wait(lambda: world.reason() and since in states(observed.replica, "cache"))
    found = states(observed.replica, "cache")
    assert found["platform_resource_ready_replicas"] == [({}, 0)]
    assert found["platform_resource_phase"] == [({"phase": "Creating"}, 1)]


def test_only_the_leader_exports_resource_metrics(plane: ControlPlane, world: World) -> None:
    with leader_and_standby(plane, world) as (leader, standby):
        world.create()
        wait(lambda: states(leader, "cache"))
        assert states(standby, "cache") == {}
        leader.process.terminate()
        wait(lambda: states(standby, "cache"))


def path_of(span: Span) -> str:
    return urlsplit(str(span.attributes.get("url.full", ""))).path


def test_reconcile_is_one_trace_of_its_requests(observed: Observed, world: World) -> None:
    world.create()
    world.eventually(world.is_ready)
    workload = STATEFUL_SET.path(world.namespace, "cache")

    def creating() -> list[Span]:
        return [span for span in observed.collector.spans if path_of(span) == workload]

    wait(creating)
    [applied] = [span for span in creating() if span.name == "PATCH"][:1]

    def root() -> list[Span]:
        return [span for span in observed.collector.spans if (span.trace, span.parent) == (applied.trace, "")]

    wait(root)
    [reconcile] = root()
    assert (reconcile.service, reconcile.name) == ("memcached-operator", "reconcile")
    assert reconcile.attributes == {
        "k8s.object.kind": "Memcached",
        "k8s.namespace.name": world.namespace,
        "k8s.object.name": "cache",
        "result": reconcile.attributes["result"],
    }
    parts = observed.collector.parts(reconcile)
    assert applied in parts
    assert [part.name for part in parts][:2] == ["observe", "plan"]
    assert {part.name for part in parts} == {"observe", "plan", "PATCH"}
    assert MEMCACHED.path(world.namespace, "cache", "status") in map(path_of, parts)
    assert applied.is_client
    assert applied.attributes["http.response.status_code"] in (200, 201)
    assert reconcile.seconds >= sum(part.seconds for part in parts)
    created = [line for line in observed.log if "created StatefulSet cache" in line["message"]]
    assert [line["trace_id"] for line in created] == [applied.trace], "log lines carry the trace ID"


def test_only_reconciles_start_a_trace(plane: ControlPlane, world: World, collector: Collector) -> None:
    """Lease renewals, lists and events happen continuously and belong to no trace."""
    flags = ("--leader-elect", f"--leader-elect-namespace={world.namespace}", "--leader-elect-retry-period=0.2")
    with Replica.running(
        plane.kubeconfig, f"--watch-namespace={world.namespace}", f"--otlp-endpoint={collector.url}", *flags
    ) as replica:
        world.create()
        world.eventually(world.is_ready)
        world.eventually(lambda: world.listed(EVENT))
        replica.process.terminate()
        replica.end()
    assert {span.name for span in collector.spans if not span.parent} == {"reconcile"}


def test_exemplars_link_to_traces_in_openmetrics_only(observed: Observed, world: World) -> None:
    world.create()
    world.eventually(world.is_ready)
    wait(lambda: any(span.name == "reconcile" for span in observed.collector.spans))
    kind, families = scrape(observed.replica, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    exemplars = {
        family.name: sample.exemplar.labels["trace_id"]
        for family in families
        for sample in family.samples
        if sample.exemplar and sample.labels.get("controller") == "memcached"
    }
    assert exemplars.keys() == {
        "controller_runtime_reconcile_time_seconds",
        "platform_time_to_ready_seconds",
        "workqueue_work_duration_seconds",
    }
    wait(lambda: set(exemplars.values()) <= {span.trace for span in observed.collector.spans})

    kind, plain = scrape(observed.replica)
    assert kind.startswith("text/plain; version=0.0.4")
    names = {sample.name for family in families for sample in family.samples}
    assert {sample.name for family in plain for sample in family.samples} == names, "both formats list the same metrics"


def test_convergence_time_and_events_are_counted(observed: Observed, world: World) -> None:
    world.create()
    world.eventually(world.is_ready)
    world.change(size=2)
    world.eventually(lambda: world.is_ready() and len(world.events(reason="Ready")) == 2)
    ready = 'platform_time_to_ready_seconds_count{controller="memcached"'
    wait(lambda: observed.replica.metric(ready) == 2)
    events = 'platform_events_total{controller="memcached",reason="Scaling",type="Normal"'
    wait(lambda: observed.replica.metric(events) == 1)
    assert observed.replica.metric("platform_events_total") == len(world.events())
