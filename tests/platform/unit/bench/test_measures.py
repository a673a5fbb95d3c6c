"""Results and goals of the memcached benchmark, and statistics."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from e2e.bench.measures import KIB, MIB, Account, Buckets, Race, Run, goals, percentile, quantile

RACE = Race(
    size=500,
    operator=Run(5.0, 1.0, 4.0, 60 * MIB),
    bare=Run(4.75, 0.5, 3.5),
    queue_p99=0.5,
    references={1: Run(4.0, 0.5, 2.0, 60 * MIB), 32: Run(5.5, 0.5, 5.0, 120 * MIB)},
)
ACCOUNT = Account(
    memory={0: 60 * MIB, 1000: 75 * MIB, 2000: 75 * MIB + 1000 * 10 * KIB},
    peak=110 * MIB,
    restarted=95 * MIB,
    writes=8000,
    owned=2,
    restart_writes=0,
    idle=60,
    idle_calls=(),
)


def operated(**figures: float) -> Race:
    """Return the race with other figures of the operator."""
    return replace(RACE, operator=replace(RACE.operator, **figures))


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
def test_quantile_equals_the_estimate_of_prometheus(buckets: Buckets, part: float, value: float) -> None:
    assert quantile(buckets, part) == pytest.approx(value)


def test_values_within_bounds_meet_every_goal() -> None:
    larger = replace(RACE, size=2000, operator=Run(5.0, 4.0, 4.0, 60 * MIB))
    found = goals([RACE, larger], ACCOUNT)
    assert [goal.name for goal in found if not goal.met] == []
    assert {goal.name: goal.value for goal in found} == {
        **{
            f"{goal} with {size} resources, relative to the reference": value
            for size in (500, 2000)
            for goal, value in (("rate", 1.1), ("API server and etcd CPU", 0.8))
        },
        **{f"operator CPU with {size} resources, ms per resource": 2.0 for size in (500, 2000)},
        "memory with 2000 resources, relative to the reference": 0.5,
        "queue wait with 500 resources, p99, s": 0.5,
        "resident memory with 1000 resources, MiB": 75,
        "memory per additional resource, KiB": 10,
        "writes per creation": 4,
        "writes after a restart": 0,
        "idle for 60 s: writes": 0,
        "idle for 60 s: reads other than resyncs": 0,
    }


@pytest.mark.parametrize(
    ("race", "account", "missed"),
    [
        (operated(seconds=5.6), ACCOUNT, "rate with 500 resources, relative to the reference"),
        (operated(client=1.3), ACCOUNT, "operator CPU with 500 resources, ms per resource"),
        (operated(server=5.1), ACCOUNT, "API server and etcd CPU with 500 resources, relative to the reference"),
        (operated(memory=61 * MIB), ACCOUNT, "memory with 500 resources, relative to the reference"),
        (replace(RACE, queue_p99=1.1), ACCOUNT, "queue wait with 500 resources, p99, s"),
        (RACE, replace(ACCOUNT, memory=ACCOUNT.memory | {1000: 81 * MIB}), "resident memory with 1000 resources, MiB"),
        (RACE, replace(ACCOUNT, memory=ACCOUNT.memory | {2000: 120 * MIB}), "memory per additional resource, KiB"),
        (RACE, replace(ACCOUNT, writes=8001), "writes per creation"),
        (RACE, replace(ACCOUNT, restart_writes=1), "writes after a restart"),
        (RACE, replace(ACCOUNT, idle_calls=("patch deployments",)), "idle for 60 s: writes"),
        (RACE, replace(ACCOUNT, idle_calls=("list pods",)), "idle for 60 s: reads other than resyncs"),
    ],
)
def test_value_outside_its_bound_misses_its_goal(race: Race, account: Account, missed: str) -> None:
    assert [goal.name for goal in goals([race], account) if not goal.met] == [missed]


def test_single_slow_round_of_three_misses_no_goal() -> None:
    races = [RACE, replace(operated(seconds=50.0), queue_p99=9.0), RACE]
    assert all(goal.met for goal in goals(races, ACCOUNT))


def test_ratio_of_work_uses_cpu_time_of_client_and_server() -> None:
    assert RACE.ratio_of_work == pytest.approx(4.0 / 5.0)


@pytest.mark.parametrize(
    ("values", "share", "value"),
    [([3.0, 1.0, 2.0], 0.5, 2.0), ([float(n) for n in range(1, 101)], 0.99, 99.0), ([1.0], 0.99, 1.0), ([], 0.99, 0.0)],
)
def test_percentile_is_the_smallest_value_not_exceeded_by_the_share(
    values: list[float], share: float, value: float
) -> None:
    assert percentile(values, share) == value
