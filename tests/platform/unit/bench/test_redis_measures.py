"""Results and goals of the redis benchmark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from e2e.bench.redis_measures import Creation, Figures, Loss, Moves, Race, Side, figures, goals

OPERATOR = Side(1.0, 4096, (0.001,) * 99 + (0.02,))
CLI = Side(5.0, 4096, (0.001,) * 98 + (0.03,) * 2)
RACE = Race(OPERATOR, CLI)
CREATED, LOST, FASTER, ERRORS, WAITS = (
    "create 3 primaries and 3 replicas, relative to the pod starts",
    "failover, relative to cluster-node-timeout",
    "redis 7.0: add a fourth primary, speedup over the CLI",
    "redis 7.0: client errors during the migration",
    "redis 7.0: client p99 during the migration, relative to the CLI",
)


def figured(*races: Race, created: float = 6.0, lost: float = 7.0) -> Figures:
    moves = Moves("redis 7.0", 300_000, races or (RACE,))
    return Figures([moves], [Creation(created, 5.0)], [Loss(lost, 5.0)])


def missed(found: Figures) -> list[str]:
    return [goal.name for goal in goals(found) if not goal.met]


def test_values_within_bounds_meet_every_goal() -> None:
    assert [goal.name for goal in goals(figured())] == [CREATED, LOST, FASTER, ERRORS, WAITS]
    assert missed(figured()) == []


@pytest.mark.parametrize(
    ("race", "name"),
    [
        (replace(RACE, operator=replace(OPERATOR, seconds=1.3)), FASTER),
        (replace(RACE, operator=replace(OPERATOR, errors={"TRYAGAIN": 1})), ERRORS),
        (replace(RACE, operator=replace(OPERATOR, waits=(0.04,) * 100)), WAITS),
    ],
)
def test_migration_outside_its_bounds_misses_the_goal(race: Race, name: str) -> None:
    assert missed(figured(race)) == [name]


def test_slow_creation_or_failover_misses_the_goal() -> None:
    assert missed(figured(created=8.0)) == [CREATED]
    assert missed(figured(lost=11.0)) == [LOST]


def test_single_slow_round_of_three_misses_no_goal() -> None:
    assert missed(figured(RACE, replace(RACE, operator=replace(OPERATOR, seconds=50.0)), RACE)) == []


def test_client_error_in_any_round_misses_the_goal() -> None:
    assert missed(figured(RACE, replace(RACE, operator=replace(OPERATOR, errors={"TRYAGAIN": 1})), RACE)) == [ERRORS]


def test_results_are_serialized_as_json() -> None:
    found = json.loads(json.dumps(figures(figured())))
    (moves,) = found["moves"]
    assert moves["ratio"] == 5.0
    assert moves["races"][0]["theirs"]["p99"] == 0.03
