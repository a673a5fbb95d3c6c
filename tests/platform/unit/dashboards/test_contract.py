"""Every metric and label that panels and rules query occurs in a recorded scrape; unknown names are detected."""

from __future__ import annotations

from collections.abc import Iterator

import promql_parser
import pytest

from dashboards import contract
from dashboards.catalogue import queries
from dashboards.contract import Recorded, metrics_of
from dashboards.promql import filled as with_variables
from dashboards.rules.catalogue import RULES
from dashboards.rules.model import Recording, filled


@pytest.fixture(scope="module")
def recorded() -> Recorded:
    return contract.recorded().with_recordings(dict(recordings()))


def recordings() -> Iterator[tuple[str, str]]:
    for rules in RULES.values():
        for group in rules.groups:
            for rule in group.rules:
                if isinstance(rule, Recording):
                    yield rule.name, filled(rule.expr, rules.defaults)


def expressions() -> Iterator[tuple[str, str]]:
    """Yield every expression with its location."""
    for each in queries():
        yield f"{each.dashboard}: {each.panel}", with_variables(each.expr)
    for rules in RULES.values():
        for alert in rules.alerts:
            yield f"{rules.operator}: {alert.name}", filled(alert.expr, rules.defaults)
    yield from recordings()


def test_every_queried_metric_and_label_was_recorded(recorded: Recorded) -> None:
    queried = list(expressions())
    breaches = [f"{location}: {breach}" for location, expr in queried for breach in recorded.breaches(expr)]
    assert not breaches, "\n".join(breaches)
    assert len(queried) > 300


def test_recordings_cover_every_program(recorded: Recorded) -> None:
    for program in ("memcached_up", "etcd_server_has_leader", "redis_up", "leader_election_master_status"):
        assert program in recorded.series, program
    assert len(recorded.series) > 500


def test_renamed_metrics_are_detected(recorded: Recorded) -> None:
    """For each queried metric, a different name in the recording is reported."""
    queried = {metric.name: expr for _, expr in expressions() for metric in metrics_of(expr)}
    assert len(queried) > 120
    for name, expr in queried.items():
        renamed = Recorded({f"{each}_renamed" if each == name else each: of for each, of in recorded.series.items()})
        assert f"no program exposes {name}" in renamed.breaches(expr)


def test_renamed_labels_are_detected(recorded: Recorded) -> None:
    """For each label in a selector, except target labels, a different name in the recording is reported."""
    queried = {
        (each.name, matcher.name): expr
        for _, expr in expressions()
        for each in metrics_of(expr)
        for matcher in each.matchers
        if matcher.name not in contract.TARGET and not matcher.value.endswith("|")
    }
    assert len(queried) > 40
    for (name, label), expr in queried.items():
        labels = {f"{each}_renamed" if each == label else each: of for each, of in recorded.series[name].items()}
        renamed = Recorded({**recorded.series, name: labels})
        assert f"{name} has no label {label}" in renamed.breaches(expr)


@pytest.mark.parametrize(
    ("expr", "breach"),
    [
        ("rate(etcd_server_proposals_lost_total[5m])", "no program exposes etcd_server_proposals_lost_total"),
        ('memcached_commands_total{cmd="get"}', "memcached_commands_total has no label cmd"),
        ('memcached_commands_total{command="fetch"}', "memcached_commands_total has no series with command fetch"),
        ("sum by (role) (memcached_up)", "no series of the expression has the label role"),
        ("redis_up * on (shard) redis_connected_clients", "no series of the expression has the label shard"),
        ('{__name__=~"redis_up|redis_down"}', "no program exposes redis_down"),
    ],
)
def test_unknown_names_are_reported(recorded: Recorded, expr: str, breach: str) -> None:
    assert list(recorded.breaches(expr)) == [breach]


def test_labels_created_by_the_expression_need_no_recording(recorded: Recorded) -> None:
    expr = 'sum by (dashboard) (label_replace(redis_up, "dashboard", "$1", "pod", "(.*)"))'
    assert not list(recorded.breaches(expr))


def test_invalid_promql_is_rejected(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        list(recorded.breaches("sum by (pod (redis_up)"))
    assert promql_parser.parse("redis_up")
