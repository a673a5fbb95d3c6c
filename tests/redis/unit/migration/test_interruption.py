"""Interruption of slot migrations: the operator stops between two commands, or a command or its answer is lost.

The sweep of `test_crash.py` counts a call as one write. Here each write command is a point of interruption. The next
process may find a slot that is open on one side, or a node that only some peers have forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shared.kubernetes.client import Request
from simulator.faults import CALL, Crash
from tests.harness.disturbance import Disturbance
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun
from tests.harness.scenario import Scenario
from tests.harness.scenario_runner import ScenarioRun, World
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import sweep
from tests.redis.simulation.database import FakeRedis
from tests.support.redis.scenarios import REDIS, SCENARIOS

pytestmark = pytest.mark.nightly

POINTS, FEW_POINTS = 40, 10
"""Maximum number of commands that are interrupted per scenario, spread evenly: each week, and each night."""

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


@dataclass
class FaultAt:
    """Fault at the nth command.

    Attributes:
        left: commands before the fault.
        hit: effect of the fault; returns whether the command is carried out although its answer is lost.
    """

    left: int
    hit: Callable[[str], bool]

    def __call__(self, what: str) -> bool | None:
        self.left -= 1
        return self.hit(what) if self.left == -1 else None


def _crash(what: str) -> bool:
    raise Crash(f"before {what}", Request(CALL, what))


def _redis(world: World) -> FakeRedis:
    assert isinstance(world.database, FakeRedis)
    return world.database


def _chosen(course: ReferenceRun, points: int) -> list[tuple[int, str]]:
    """Return the commands to interrupt, with their numbers."""
    first, last = (_redis(halt).commanded for halt in (course.snapshots[0], course.snapshots[-1]))
    commands = list(enumerate(last[len(first) :]))
    return commands[:: max(1, len(commands) // points)]


def _disturbance(name: str, hit: Callable[[str], bool], points: int = POINTS) -> Disturbance:
    async def play(course: ReferenceRun, nth: int) -> ScenarioRun:
        play = ScenarioRun(course.snapshots[0].fork())
        _redis(play.world).fault = FaultAt(_chosen(course, points)[nth][0], hit)
        await play.run_steps(course.scenario.steps)
        return play

    return Disturbance(
        name,
        lambda course: [what for _, what in _chosen(course, points)],
        play,
        counts="any",
        unstable=(*HISTORY, "message"),
    )


DISTURBANCES = (
    _disturbance("the operator stops before a command", _crash),
    _disturbance("a command is lost", lambda _: False),
    _disturbance("the answer to a command is lost", lambda _: True),
)
BRIEF = _disturbance("the operator stops before one of a few commands", _crash, FEW_POINTS)

PLAYED = (
    "create",
    "scale out and in",
    "scale out and in with valkey",
    "assign slots",
    "upgrade",
    "delete all pods",
    "lose a primary without volumes",
    "lose slots and recover",
    "change the password",
    "change the certificate authority",
)
OF_EACH_NIGHT = ("assign slots", "lose a primary without volumes")

CASES = [
    *(pytest.param(BY_NAME[name], BRIEF, id=f"{name}-{BRIEF}") for name in OF_EACH_NIGHT),
    *(
        pytest.param(BY_NAME[name], disturbance, id=f"{name}-{disturbance}", marks=pytest.mark.weekly)
        for name in PLAYED
        for disturbance in DISTURBANCES
    ),
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_interrupted_run_ends_as_the_uninterrupted_one(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(REDIS, scenario, disturbance))
