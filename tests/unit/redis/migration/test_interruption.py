"""The operator may stop between any two commands, of a call too; and any command, or its answer, may be lost.

The sweep of `test_crash.py` counts a call as one write. Here each command that changes something is a point of its own:
a slot that is open at one end, a node that only some have forgotten, is what the next process finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from shared.kubernetes.client import Request
from shared.testing.faults import CALL, Crash
from shared.testing.harness.disturbance import Disturbance
from shared.testing.harness.outcome import HISTORY
from shared.testing.harness.reference_run import Course
from shared.testing.harness.scenario import Scenario
from shared.testing.harness.scenario_runner import Play, World
from shared.testing.harness.scoreboard import Scoreboard
from shared.testing.harness.sweep import sweep
from tests.support.redis.scenarios import REDIS, SCENARIOS
from tests.unit.redis.simulation.database import FakeRedis

POINTS, FEW = 40, 10
"""Of a scenario that has more commands, about as many are tried, spread over all; and at once."""

BY_NAME = {str(scenario): scenario for scenario in SCENARIOS}


@dataclass
class Strike:
    """Befalls the nth command.

    Attributes:
        left: commands that come before.
        befall: what does; returns whether the command is carried out, though its answer is lost.
    """

    left: int
    befall: Callable[[str], bool]

    def __call__(self, what: str) -> bool | None:
        self.left -= 1
        return self.befall(what) if self.left == -1 else None


def _crash(what: str) -> bool:
    raise Crash(f"before {what}", Request(CALL, what))


def _redis(world: World) -> FakeRedis:
    assert isinstance(world.database, FakeRedis)
    return world.database


def _chosen(course: Course, points: int) -> list[tuple[int, str]]:
    """Commands, by their numbers."""
    first, last = (_redis(halt).commanded for halt in (course.halts[0], course.halts[-1]))
    said = list(enumerate(last[len(first) :]))
    return said[:: max(1, len(said) // points)]


def _struck(name: str, befall: Callable[[str], bool], points: int = POINTS) -> Disturbance:
    async def play(course: Course, nth: int) -> Play:
        play = Play(course.halts[0].fork())
        _redis(play.world).fault = Strike(_chosen(course, points)[nth][0], befall)
        await play.go(course.scenario.steps)
        return play

    return Disturbance(
        name,
        lambda course: [what for _, what in _chosen(course, points)],
        play,
        counts="any",
        unstable=(*HISTORY, "message"),
    )


DISTURBANCES = (
    _struck("the operator stops before a command", _crash),
    _struck("a command is lost", lambda _: False),
    _struck("the answer to a command is lost", lambda _: True),
)
BRIEFLY = _struck("the operator stops before one of a few commands", _crash, FEW)

PLAYED = (
    "create",
    "there and back",
    "there and back with valkey",
    "slots assigned",
    "upgraded",
    "all pods gone",
    "a master lost in memory",
    "slots lost and recovered",
    "another password",
    "another authority",
)
AT_ONCE = ("slots assigned", "a master lost in memory")

CASES = [
    *(pytest.param(BY_NAME[name], BRIEFLY, id=f"{name}-{BRIEFLY}") for name in AT_ONCE),
    *(
        pytest.param(BY_NAME[name], disturbance, id=f"{name}-{disturbance}", marks=pytest.mark.long)
        for name in PLAYED
        for disturbance in DISTURBANCES
    ),
]


@pytest.mark.parametrize(("scenario", "disturbance"), CASES)
async def test_it_ends_as_if_nothing_had_happened(
    scenario: Scenario, disturbance: Disturbance, scoreboard: Scoreboard
) -> None:
    scoreboard.require(await sweep(REDIS, scenario, disturbance))
