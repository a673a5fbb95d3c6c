"""A key-by-key migration survives the end of either end, before and after each of its commands, and loses no key.

The whole operator moves some slots to a new primary, or empties a primary that is removed. At one of its commands, the
server of the source or of the target ends. It comes back at once, or its replica is elected first; the operator is
slow, and clients write meanwhile, also on the keys that had moved already. Then all faults are over. What clients were
promised is found again (`ledger`), or kept at both ends and reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pytest

from tests.harness.scenario import Unsafe
from tests.harness.scenario_runner import ScenarioRun
from tests.harness.scoreboard import Scoreboard
from tests.harness.sweep import Failure, Oracle, Sweep
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.moving_slots import Shape, healed, of_migration, redis_of, start_of

ELECTION_SECONDS = 12.0
"""Time until a replica of a failed primary has been elected, its slots are served, and clients have written there."""

FEW_POINTS = 2
"""Points of a case each night, spread evenly."""


@dataclass(frozen=True)
class Case:
    """A scenario of the matrix.

    Attributes:
        direction: whether the slots move to a new primary, or from one that is removed.
        victim: end that fails.
        when: whether it fails before or after the operator's command.
        returns: whether it comes back at once, after an election, or only when the operator can do nothing more.
        replicas: replicas of each primary.
    """

    direction: Literal["out", "in"]
    victim: Literal["source", "target"]
    when: Literal["before", "after"]
    returns: Literal["at once", "elected", "late"]
    replicas: int
    engine: Literal["redis", "valkey"] = "redis"

    @property
    def shape(self) -> Shape:
        return Shape(self.direction, self.replicas, self.engine)

    def __str__(self) -> str:
        back = {"at once": "back at once", "elected": "back after an election", "late": "back late"}[self.returns]
        replicas = "" if self.replicas else ", no replicas"
        engine = f", {self.engine}" if self.engine != "redis" else ""
        return f"scale {self.direction}, {self.victim} ends {self.when} a command, {back}{replicas}{engine}"


def _cases() -> Iterator[Case]:
    for direction in ("out", "in"):
        for victim in ("source", "target"):
            for when in ("before", "after"):
                yield Case(direction, victim, when, "at once", 0)
                yield Case(direction, victim, when, "at once", 1)
                yield Case(direction, victim, when, "elected", 1)
                yield Case(direction, victim, when, "late", 1)
            yield Case(direction, victim, "before", "elected", 1, "valkey")


CASES = tuple(_cases())

OF_EACH_NIGHT = {
    "scale out, source ends before a command, back after an election",
    "scale out, target ends after a command, back after an election",
    "scale in, source ends after a command, back at once, no replicas",
    "scale in, target ends before a command, back after an election",
    "scale out, source ends before a command, back after an election, valkey",
}


@dataclass
class Kill:
    """Ends a server at the nth command of a migration.

    Attributes:
        left: commands of the migration before that.
    """

    redis: FakeRedis
    pod: str
    left: int
    returns: str

    def __call__(self, what: str) -> None:
        if of_migration(what):
            self.left -= 1
            if self.left == -1:
                self._strike()

    def _strike(self) -> None:
        process = self.redis.named(self.pod)
        if self.returns == "late":
            self.redis.failing[self.pod] = "NodeLost"
        self.redis.stop(process, "killed")
        if self.returns != "at once":
            self.redis.stall = ELECTION_SECONDS


async def run(case: Case, nth: int) -> None:
    """Run one point of a case.

    Raises:
        Unsafe: a key was lost, or came back.
        AssertionError: the cluster does not heal.
    """
    start = await start_of(case.shape)
    play = ScenarioRun(start.world.fork())
    redis = redis_of(play.world)
    pod = start.source if case.victim == "source" else start.target
    kill = Kill(redis, pod, nth, case.returns)
    if case.when == "before":
        redis.fault = lambda what: kill(what)
    else:
        redis.after = kill
    await play.step(start.step)
    assert kill.left < 0, "the migration ended before this point"
    redis.failing.clear()
    await healed(play)


async def sweep(case: Case, points: int | None = None) -> Sweep:
    """Run the points of a case; all, or that many."""
    start = await start_of(case.shape)
    done = Sweep(f"redis/crash matrix: {case}")
    every = 1 if points is None else max(1, len(start.points) // points)
    for nth in range(every // 2, len(start.points), every):
        name = f"{done.name}, point {nth + 1} of {len(start.points)} ({start.points[nth]})"
        try:
            await run(case, nth)
        except Unsafe as error:
            done.failures.append(Failure(name, Oracle.SAFE, (str(error),)))
        except AssertionError as error:
            done.failures.append(Failure(name, Oracle.REST, (str(error),)))
        done.runs += 1
    return done


@pytest.mark.nightly
@pytest.mark.parametrize("case", [case for case in CASES if str(case) in OF_EACH_NIGHT], ids=str)
async def test_migration_survives_the_end_of_a_server_at_some_commands(case: Case, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(case, FEW_POINTS))


@pytest.mark.weekly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_migration_survives_the_end_of_a_server_at_any_command(case: Case, scoreboard: Scoreboard) -> None:
    scoreboard.require(await sweep(case))


def test_cases_of_each_night_exist() -> None:
    assert {str(case) for case in CASES} >= OF_EACH_NIGHT
