"""A wall clock that is set by an hour at any write of a scenario does not change the final state.

The recorded times stay behind or ahead if the operator restarts then, because the new process reads the new time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from shared.runtime import reconciler
from tests.harness import scenario_runner
from tests.harness.disturbance import Disturbance
from tests.harness.outage import sample
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, Subject
from tests.harness.scenario_runner import ScenarioRun
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import Sweep, sweep
from tests.support.etcd import scenarios as etcd
from tests.support.redis import scenarios as redis

HOUR = timedelta(hours=1)


def step_of(error: timedelta, *, restarts: bool) -> Disturbance:
    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play, steps, nth = course.play(course.writes, nth)
        faults, clock = play.world.server.faults, play.world.clock

        def set_clock() -> None:
            clock.error = error

        if restarts:
            faults.crash_after(nth + 1)
        else:
            faults.lose_answer(skip=nth)
        faults.on_strike = set_clock
        await play.run_steps(steps)
        return play

    def points(course: ReferenceRun) -> list[str]:
        return [occasion.text for occasion in course.writes]

    name = f"clock set {'forward' if error > timedelta() else 'back'}{', restart' if restarts else ''}"
    return Disturbance(name, points, play, counts="any", unstable=HISTORY)


def named(scenarios: tuple[Scenario, ...], name: str) -> Scenario:
    return next(scenario for scenario in scenarios if scenario.name == name)


SCENARIOS: dict[str, tuple[Subject, Scenario, int]] = {
    "etcd": (etcd.ETCD, named(etcd.SCENARIOS, "create"), 8),
    "redis": (redis.REDIS, named(redis.SCENARIOS, "upgrade without volumes"), 24),
}
"""Scenarios that wait for recorded times, as none of Memcached does; of so many points, one is run."""

CASES = [
    pytest.param("etcd", False, id="etcd"),
    pytest.param("etcd", True, id="etcd, restart"),
    pytest.param("redis", False, id="redis", marks=pytest.mark.nightly),
    pytest.param("redis", True, id="redis, restart", marks=pytest.mark.nightly),
]


async def swept(operator: str, error: timedelta, *, restarts: bool) -> Sweep:
    subject, scenario, share = SCENARIOS[operator]
    return await sweep(subject, scenario, sample(step_of(error, restarts=restarts), share))


@pytest.mark.parametrize("error", [-HOUR, HOUR], ids=["back", "forward"])
@pytest.mark.parametrize(("operator", "restarts"), CASES)
async def test_step_of_the_wall_clock_changes_nothing(
    scoreboard: Scoreboard, operator: str, error: timedelta, restarts: bool
) -> None:
    scoreboard.require(await swept(operator, error, restarts=restarts))


class WallClock:
    """The wall clock instead of `SteadyClock` and `ResourceClock`."""

    def __init__(self, wall: Callable[[], datetime], _: object) -> None:
        self._wall = wall

    def __call__(self) -> datetime:
        return self._wall()


@pytest.mark.parametrize(("operator", "restarts"), CASES)
async def test_operator_that_obeys_the_wall_clock_is_caught(
    monkeypatch: pytest.MonkeyPatch, operator: str, restarts: bool
) -> None:
    monkeypatch.setattr(scenario_runner, "SteadyClock", WallClock)
    monkeypatch.setattr(reconciler, "ResourceClock", lambda _, clock: clock)
    assert (await swept(operator, -HOUR, restarts=restarts)).failures
