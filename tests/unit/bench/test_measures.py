"""What a run's figures come to, and when a goal is met."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from e2e.bench.measures import KIB, MIB, Account, Buckets, Race, Run, goals, percentile, quantile

RACE = Race(size=500, operator=Run(5.0, 1.5, 5.0), bare=Run(4.0, 0.5, 4.5), queue_p99=0.5)
ACCOUNT = Account(
    memory={0: 60 * MIB, 1000: 90 * MIB, 2000: 90 * MIB + 1000 * 10 * KIB},
    peak=110 * MIB,
    restarted=95 * MIB,
    writes=8000,
    owned=2,
    restart_writes=0,
    idle=60,
    idle_calls=(),
)


@pytest.mark.parametrize(
    ("buckets", "part", "value"),
    [
        ({1: 0, 2: 100, inf: 100}, 0.5, 1.5),
        ({1: 50, 2: 100, inf: 100}, 0.5, 1.0),
        ({1: 50, 2: 50, 4: 100, inf: 100}, 0.99, 3.96),
        ({1: 10, 2: 10, inf: 100}, 0.99, 2.0),
    ],
    ids=["within a bucket", "at a bound", "after an empty bucket", "above the last bound"],
)
def test_a_quantile_is_what_prometheus_would_say(buckets: Buckets, part: float, value: float) -> None:
    assert quantile(buckets, part) == pytest.approx(value)


def test_what_is_within_its_bounds_meets_every_goal() -> None:
    found = goals([RACE, replace(RACE, size=2000)], ACCOUNT)
    assert [goal.name for goal in found if not goal.met] == []
    assert {goal.name: goal.value for goal in found} == {
        "rate at 500, of the bare client's": 0.8,
        "rate at 2000, of the bare client's": 0.8,
        "queue wait at 500, p99, s": 0.5,
        "resident at 1000, MiB": 90,
        "each further resource, KiB": 10,
        "writes a creation": 4,
        "writes of a restart": 0,
        "idle 60 s: writes": 0,
        "idle 60 s: reads but the resync": 0,
    }


@pytest.mark.parametrize(
    ("race", "account", "missed"),
    [
        (replace(RACE, operator=Run(6.0, 1.5, 5.0)), ACCOUNT, "rate at 500, of the bare client's"),
        (replace(RACE, queue_p99=1.1), ACCOUNT, "queue wait at 500, p99, s"),
        (RACE, replace(ACCOUNT, memory=ACCOUNT.memory | {1000: 101 * MIB}), "resident at 1000, MiB"),
        (RACE, replace(ACCOUNT, memory=ACCOUNT.memory | {2000: 120 * MIB}), "each further resource, KiB"),
        (RACE, replace(ACCOUNT, writes=8001), "writes a creation"),
        (RACE, replace(ACCOUNT, restart_writes=1), "writes of a restart"),
        (RACE, replace(ACCOUNT, idle_calls=("patch deployments",)), "idle 60 s: writes"),
        (RACE, replace(ACCOUNT, idle_calls=("list pods",)), "idle 60 s: reads but the resync"),
    ],
)
def test_each_goal_can_be_missed(race: Race, account: Account, missed: str) -> None:
    assert [goal.name for goal in goals([race], account) if not goal.met] == [missed]


def test_one_slow_round_of_three_decides_nothing() -> None:
    races = [RACE, replace(RACE, operator=Run(50.0, 1.5, 5.0), queue_p99=9.0), RACE]
    assert all(goal.met for goal in goals(races, ACCOUNT))


def test_work_is_compared_by_processor_time_of_both_sides() -> None:
    assert RACE.ratio_of_work == pytest.approx(5.0 / 6.5)


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [([3.0, 1.0, 2.0], 0.5, 2.0), ([float(n) for n in range(1, 101)], 0.99, 99.0), ([1.0], 0.99, 1.0), ([], 0.99, 0.0)],
)
def test_a_percentile_is_the_value_that_so_many_do_not_exceed(values: list[float], share: float, value: float) -> None:
    assert percentile(values, share) == value
