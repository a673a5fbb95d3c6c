"""Every metric and label that panels and rules ask for is in a recorded scrape; a name that is none is found."""

from __future__ import annotations

from collections.abc import Iterator

import promql_parser
import pytest

from dashboards import contract
from dashboards.catalogue import queries
from dashboards.contract import Recorded, asked_by
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
    """Every expression there is, and where it stands."""
    for each in queries():
        yield f"{each.dashboard}: {each.panel}", with_variables(each.expr)
    for rules in RULES.values():
        for alert in rules.alerts:
            yield f"{rules.operator}: {alert.name}", filled(alert.expr, rules.defaults)
    yield from recordings()


def test_every_name_that_is_asked_for_was_scraped(recorded: Recorded) -> None:
    asked = list(expressions())
    breaches = [f"{where}: {breach}" for where, expr in asked for breach in recorded.breaches(expr)]
    assert not breaches, "\n".join(breaches)
    assert len(asked) > 300


def test_every_recording_is_of_a_program(recorded: Recorded) -> None:
    for program in ("memcached_up", "etcd_server_has_leader", "redis_up", "leader_election_master_status"):
        assert program in recorded.series, program
    assert len(recorded.series) > 500


def test_no_metric_can_be_renamed_unnoticed(recorded: Recorded) -> None:
    """Whichever of the metrics that are asked for has another name in the scrape, somebody is missing it."""
    asking = {asked.name: expr for _, expr in expressions() for asked in asked_by(expr)}
    assert len(asking) > 120
    for name, expr in asking.items():
        renamed = Recorded({f"{each}_renamed" if each == name else each: of for each, of in recorded.series.items()})
        assert f"no program shows {name}" in renamed.breaches(expr)


def test_no_label_can_be_renamed_unnoticed(recorded: Recorded) -> None:
    """The same of each label that a selector names and a target does not bring."""
    asking = {
        (each.name, matcher.name): expr
        for _, expr in expressions()
        for each in asked_by(expr)
        for matcher in each.matchers
        if matcher.name not in contract.TARGET and not matcher.value.endswith("|")
    }
    assert len(asking) > 40
    for (name, label), expr in asking.items():
        labels = {f"{each}_renamed" if each == label else each: of for each, of in recorded.series[name].items()}
        renamed = Recorded({**recorded.series, name: labels})
        assert f"{name} has no label {label}" in renamed.breaches(expr)


@pytest.mark.parametrize(
    ("expr", "breach"),
    [
        ("rate(etcd_server_proposals_lost_total[5m])", "no program shows etcd_server_proposals_lost_total"),
        ('memcached_commands_total{cmd="get"}', "memcached_commands_total has no label cmd"),
        ('memcached_commands_total{command="fetch"}', "memcached_commands_total was never seen with command fetch"),
        ("sum by (role) (memcached_up)", "no series here has the label role"),
        ("redis_up * on (shard) redis_connected_clients", "no series here has the label shard"),
        ('{__name__=~"redis_up|redis_down"}', "no program shows redis_down"),
    ],
)
def test_what_nobody_shows_is_named(recorded: Recorded, expr: str, breach: str) -> None:
    assert list(recorded.breaches(expr)) == [breach]


def test_a_label_that_the_expression_makes_itself_is_none_of_the_scrapes(recorded: Recorded) -> None:
    made = 'sum by (dashboard) (label_replace(redis_up, "dashboard", "$1", "pod", "(.*)"))'
    assert not list(recorded.breaches(made))


def test_what_is_no_promql_is_refused(recorded: Recorded) -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        list(recorded.breaches("sum by (pod (redis_up)"))
    assert promql_parser.parse("redis_up")
