"""A wall clock that is set by an hour at any write of a scenario does not change the final state.

The recorded times stay behind or ahead if the operator restarts then, because the new process reads the new time.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.harness.disturbance import Disturbance
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario, Subject
from tests.harness.scenario_runner import ScenarioRun
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.support.etcd import scenarios as etcd
from tests.support.memcached import scenarios as memcached
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


SCENARIOS: dict[str, tuple[Subject, Scenario]] = {
    "memcached": (memcached.MEMCACHED, named(memcached.SCENARIOS, "scale")),
    "etcd": (etcd.ETCD, Scenario("scale", (etcd.cluster(3), etcd.cluster(1)), given=(etcd.cluster(1),))),
    "redis": (redis.REDIS, Scenario("add a replica", (redis.cluster(7),), given=(redis.cluster(6),))),
}


@pytest.mark.parametrize("error", [-HOUR, HOUR], ids=["back", "forward"])
@pytest.mark.parametrize(
    ("operator", "restarts"),
    [
        ("memcached", False),
        ("memcached", True),
        pytest.param("etcd", False, marks=pytest.mark.nightly),
        pytest.param("redis", False, marks=pytest.mark.nightly),
        pytest.param("redis", True, marks=pytest.mark.nightly),
    ],
)
async def test_step_of_the_wall_clock_changes_nothing(
    scoreboard: Scoreboard, operator: str, error: timedelta, restarts: bool
) -> None:
    subject, scenario = SCENARIOS[operator]
    scoreboard.require(await sweep(subject, scenario, step_of(error, restarts=restarts)))
