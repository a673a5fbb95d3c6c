"""Metrics are documented and follow the naming conventions of Prometheus."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from prometheus_client import Metric
from prometheus_client.metrics import MetricWrapperBase

import operators
import operators.etcd.report.metrics
import operators.memcached.report.metrics
import operators.redis.report.metrics
from shared.cli.options import parse_options
from shared.observability import metrics
from shared.pki.validity import Validity
from shared.runtime.operator import Operator
from shared.status import resource_metrics
from shared.status.resource_metrics import State
from tests.support import paths

PAGE = paths.REPOSITORY / "docs/reference/metrics.md"
OWN = {
    "memcached": operators.memcached.report.metrics.STATES,
    "etcd": operators.etcd.report.metrics.STATES,
    "redis": operators.redis.report.metrics.STATES,
}
STATES: tuple[State, ...] = (*resource_metrics.STATES, *(state for own in OWN.values() for state in own))
METRICS = [found for found in vars(metrics).values() if isinstance(found, MetricWrapperBase)]


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def labels(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _family(metric: MetricWrapperBase) -> Metric:
    [family] = metric.describe()
    return family


def row_of(metric: MetricWrapperBase) -> str:
    """Return a metric's row in the table; its name is that of its series."""
    family = _family(metric)
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return row(f"`{name}`", family.type, labels(metric._labelnames), family.documentation)


def documented(title: str) -> list[str]:
    """Return the rows of the table under a heading."""
    [part] = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line for line in part.splitlines() if line.startswith("| `")]


def test_every_resource_metric_is_documented() -> None:
    assert documented("States of resources") == [
        row(f"`{state.name}`", labels(state.labels), state.description) for state in STATES
    ]


def test_every_operator_metric_is_documented() -> None:
    assert len(METRICS) > 30
    assert documented("Work of the operators") == sorted(map(row_of, METRICS))


def test_metric_names_are_unique() -> None:
    names = [state.name for state in STATES] + [_family(metric).name for metric in METRICS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_metric_name_follows_the_conventions_of_prometheus(state: State) -> None:
    assert re.fullmatch(r"platform_(resource|etcd|redis|memcached)_[a-z]+(_[a-z]+)*", state.name)
    assert not state.name.endswith(("_total", "_count", "_sum", "_bucket")), "these are of counters and histograms"
    assert not set(state.labels) & {*resource_metrics.RESOURCE, "job", "instance", "le", "quantile"}
    assert state.name.endswith("_timestamp_seconds") == ("Unix time" in state.description)
    assert state.description.endswith(".")


@pytest.mark.parametrize(
    ("operator", "with_certificates"),
    list(zip(operators.installed(), ({"EtcdCluster"}, {"Memcached"}, {"RedisCluster"}), strict=True)),
    ids=lambda given: getattr(given, "process_name", ""),
)
def test_every_operator_exposes_its_resources_and_certificates(operator: Operator, with_certificates: set[str]) -> None:
    options = parse_options(operator.process_name, operator.image_repository, [], {})
    ends = datetime(2026, 1, 1, tzinfo=UTC)
    validity = {"tls": Validity(ends, ends)}
    seen = SimpleNamespace(secrets=SimpleNamespace(validity=validity))
    new, formed = {"spec": {"size": 3, "replicas": 3}}, {"spec": {}, "status": {"formed": True}}
    exposed = set()
    for controller in operator.controllers(options):
        exposed |= {sample.state for obj in (new, formed) for sample in controller.states(obj)}
        assert controller.validity(seen) == (validity if controller.kind.name in with_certificates else {})
    assert {resource_metrics.DESIRED, resource_metrics.READY, resource_metrics.PAUSED} <= exposed
    assert exposed - set(resource_metrics.STATES) == set(OWN[operator.name])
