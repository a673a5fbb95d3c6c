"""What a run with EtcdClusters comes to, and when a goal is met."""

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
TRANSFER = Transfer(100 * MIB, ours=1.25, theirs=1.0, restored=2.0, theirs_restored=1.0)
FIGURES = Figures([GROWTH], [GROWTH], UPGRADE, [TRANSFER])


def test_what_is_within_its_bounds_meets_every_goal() -> None:
    found = goals(FIGURES)
    assert [goal.name for goal in found if not goal.met] == []
    assert {goal.name: goal.value for goal in found} == {
        "apply to Ready of 3, of the pods' own starts": 1.25,
        "1 to 3 members, of the new pods' own starts": 1.25,
        "upgrade under load: failed operations": 0,
        "upgrade under load: p99 of a write, s": 0.01,
        "upgrade under load: longest pause, s": 2.0,
        "snapshot, MiB/s": 80.0,
        "restore, MiB/s": 50.0,
    }


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (replace(FIGURES, created=[replace(GROWTH, seconds=19.0)]), "apply to Ready of 3, of the pods' own starts"),
        (replace(FIGURES, grown=[replace(GROWTH, seconds=19.0)]), "1 to 3 members, of the new pods' own starts"),
        (replace(FIGURES, upgrade=replace(UPGRADE, failed=1)), "upgrade under load: failed operations"),
        (replace(FIGURES, upgrade=replace(UPGRADE, writes=(2.0,))), "upgrade under load: p99 of a write, s"),
        (replace(FIGURES, upgrade=replace(UPGRADE, pause=6.0)), "upgrade under load: longest pause, s"),
        (replace(FIGURES, transfers=[replace(TRANSFER, ours=5.1)]), "snapshot, MiB/s"),
        (replace(FIGURES, transfers=[replace(TRANSFER, restored=5.1)]), "restore, MiB/s"),
    ],
)
def test_each_goal_can_be_missed(found: Figures, missed: str) -> None:
    assert [goal.name for goal in goals(found) if not goal.met] == [missed]


def test_one_slow_round_of_three_decides_nothing() -> None:
    slow = replace(FIGURES, created=[GROWTH, replace(GROWTH, seconds=99.0), GROWTH])
    assert all(goal.met for goal in goals(slow))


def test_all_of_it_can_be_written_down() -> None:
    found = json.loads(json.dumps(figures(FIGURES)))
    assert found["upgrade"]["writes"] == 100
    assert found["transfers"][0]["snapshot"] == {"ours": 1.25, "etcdctl": 1.0, "ratio": 0.8}
    assert found["created"][0]["pods"] == [5.0, 4.0, 3.0]


def test_ours_is_compared_with_etcds_own() -> None:
    assert (TRANSFER.snapshot_ratio, TRANSFER.restore_ratio) == (0.8, 2.0)


def test_a_pods_start_is_from_its_first_event_to_the_first_that_says_ready() -> None:
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
        starts.see(uid, conditions, now)
    assert starts.own == [4.0, 2.0], "in the order of their creation; one that never was ready is none"


def write(returned: float | None) -> Operation:
    return Operation("k", str(returned), write=True, called=0.0, returned=returned)


def test_a_pause_is_the_longest_time_without_an_answered_write() -> None:
    history = [write(3.0), write(1.0), write(None), write(7.5), Operation("k", "1", False, 0.0, 5.0), write(8.0)]
    assert longest_pause(history, 0.0, 9.0) == 4.5, "reads are none, nor what nobody answered"
    assert longest_pause(history, 0.0, 20.0) == 12.0, "up to the end"
    assert longest_pause(history, 7.0, 8.0) == 0.5, "and not before the beginning"
    assert longest_pause([], 1.0, 3.0) == 2.0
