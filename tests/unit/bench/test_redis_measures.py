"""What a run with Redis and Valkey comes to, and when a goal is met."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from e2e.bench.redis_measures import Creation, Figures, Loss, Moves, Race, Side, figures, goals

OURS = Side(1.0, 4096, (0.001,) * 99 + (0.02,))
THEIRS = Side(5.0, 4096, (0.001,) * 98 + (0.03,) * 2)
RACE = Race(OURS, THEIRS)
CREATED, LOST, FASTER, ERRORS, WAITS = (
    "apply to Ready of 3 masters and 3 replicas, of the pods' own",
    "a lost master's slots are served again, of cluster-node-timeout",
    "redis 7.0: a fourth master joins, times as fast",
    "redis 7.0: clients' errors meanwhile",
    "redis 7.0: clients' p99 meanwhile, of theirs",
)


def figured(*races: Race, created: float = 6.0, lost: float = 7.0) -> Figures:
    moves = Moves("redis 7.0", 300_000, races or (RACE,))
    return Figures([moves], [Creation(created, 5.0)], [Loss(lost, 5.0)])


def missed(found: Figures) -> list[str]:
    return [goal.name for goal in goals(found) if not goal.met]


def test_what_is_within_its_bounds_meets_every_goal() -> None:
    assert [goal.name for goal in goals(figured())] == [CREATED, LOST, FASTER, ERRORS, WAITS]
    assert missed(figured()) == []


@pytest.mark.parametrize(
    ("race", "name"),
    [
        (replace(RACE, ours=replace(OURS, seconds=1.3)), FASTER),
        (replace(RACE, ours=replace(OURS, errors={"TRYAGAIN": 1})), ERRORS),
        (replace(RACE, ours=replace(OURS, waits=(0.04,) * 100)), WAITS),
    ],
)
def test_each_goal_of_a_race_can_be_missed(race: Race, name: str) -> None:
    assert missed(figured(race)) == [name]


def test_so_can_those_of_the_cluster() -> None:
    assert missed(figured(created=8.0)) == [CREATED]
    assert missed(figured(lost=11.0)) == [LOST]


def test_one_slow_round_of_three_decides_nothing() -> None:
    assert missed(figured(RACE, replace(RACE, ours=replace(OURS, seconds=50.0)), RACE)) == []


def test_an_error_of_any_round_counts() -> None:
    assert missed(figured(RACE, replace(RACE, ours=replace(OURS, errors={"TRYAGAIN": 1})), RACE)) == [ERRORS]


def test_the_figures_can_be_written_down() -> None:
    found = json.loads(json.dumps(figures(figured())))
    (moves,) = found["moves"]
    assert moves["ratio"] == 5.0
    assert moves["races"][0]["theirs"]["p99"] == 0.03
