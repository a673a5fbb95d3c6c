"""Results and goals of the etcd benchmark."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from e2e.bench.etcd_measures import Figures, Growth, Transfer, Upgrade, figures, goals, longest_pause
from e2e.bench.measures import MIB
from e2e.bench.resources import Starts
from e2e.scenarios.etcd.linearizability import Operation

GROWTH = Growth(15.0, (5.0, 4.0, 3.0))
UPGRADE = Upgrade(30.0, failed=0, repeated=5, writes=(0.01,) * 99 + (3.0,), pause=2.0)
TRANSFER = Transfer(100 * MIB, operator=1.25, etcdctl=1.0, restored=2.0, etcdutl_restored=1.0)
FIGURES = Figures([GROWTH], [GROWTH], UPGRADE, [TRANSFER])


def test_values_within_bounds_meet_every_goal() -> None:
    found = goals(FIGURES)
    assert [goal.name for goal in found if not goal.met] == []
    assert {goal.name: goal.value for goal in found} == {
        "create 3 members, relative to the pod starts": 1.25,
        "scale from 1 to 3 members, relative to the pod starts": 1.25,
        "upgrade under load: failed operations": 0,
        "upgrade under load: p99 write latency, s": 0.01,
        "upgrade under load: longest pause of writes, s": 2.0,
        "snapshot, MiB/s": 80.0,
        "restore, MiB/s": 50.0,
    }


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (replace(FIGURES, created=[replace(GROWTH, seconds=19.0)]), "create 3 members, relative to the pod starts"),
        (
            replace(FIGURES, grown=[replace(GROWTH, seconds=19.0)]),
            "scale from 1 to 3 members, relative to the pod starts",
        ),
        (replace(FIGURES, upgrade=replace(UPGRADE, failed=1)), "upgrade under load: failed operations"),
        (replace(FIGURES, upgrade=replace(UPGRADE, writes=(2.0,))), "upgrade under load: p99 write latency, s"),
        (replace(FIGURES, upgrade=replace(UPGRADE, pause=6.0)), "upgrade under load: longest pause of writes, s"),
        (replace(FIGURES, transfers=[replace(TRANSFER, operator=5.1)]), "snapshot, MiB/s"),
        (replace(FIGURES, transfers=[replace(TRANSFER, restored=5.1)]), "restore, MiB/s"),
    ],
)
def test_value_outside_its_bound_misses_its_goal(found: Figures, missed: str) -> None:
    assert [goal.name for goal in goals(found) if not goal.met] == [missed]


def test_single_slow_round_of_three_misses_no_goal() -> None:
    slow = replace(FIGURES, created=[GROWTH, replace(GROWTH, seconds=99.0), GROWTH])
    assert all(goal.met for goal in goals(slow))


def test_results_are_serialized_as_json() -> None:
    found = json.loads(json.dumps(figures(FIGURES)))
    assert found["upgrade"]["writes"] == 100
    assert found["transfers"][0]["snapshot"] == {"ours": 1.25, "etcdctl": 1.0, "ratio": 0.8}
    assert found["created"][0]["pods"] == [5.0, 4.0, 3.0]


def test_ratios_compare_the_operator_with_etcds_tools() -> None:
    assert (TRANSFER.snapshot_ratio, TRANSFER.restore_ratio) == (0.8, 2.0)


def test_pod_start_lasts_from_the_first_event_to_the_first_ready_one() -> None:
    starts = Starts()
    for uid, conditions, now in [
        ("a", {}, 1.0),
        ("a", {"Ready": "False"}, 1.5),
        ("b", {}, 2.0),
        ("b", {"Ready": "True"}, 4.0),
        ("a", {"Ready": "True"}, 5.0),
        ("a", {"Ready": "False"}, 6.0),
        ("a", {"Ready": "True"}, 7.0),
        ("c", {"Ready": "False"}, 8.0),
    ]:
        starts.record(uid, conditions, now)
    assert starts.own == [4.0, 2.0], "in order of creation, without pods that were never ready"


def write(returned: float | None) -> Operation:
    return Operation("k", str(returned), write=True, called=0.0, returned=returned)


def test_pause_is_the_longest_time_without_an_acknowledged_write() -> None:
    history = [write(3.0), write(1.0), write(None), write(7.5), Operation("k", "1", False, 0.0, 5.0), write(8.0)]
    assert longest_pause(history, 0.0, 9.0) == 4.5, "neither reads nor unacknowledged writes count"
    assert longest_pause(history, 0.0, 20.0) == 12.0, "the pause before the end counts"
    assert longest_pause(history, 7.0, 8.0) == 0.5, "times before the beginning do not count"
    assert longest_pause([], 1.0, 3.0) == 2.0
