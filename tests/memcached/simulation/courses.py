"""Random courses of a Memcached: specs, lost servers, months and restarts of the operator in any order.

A course is drawn from its number. It begins with servers that are Ready, and ends with the desired ones. The guard
(`guard`) watches every write and every server, and judges what the status claims whenever the operator has settled.

    python -m tests.memcached.simulation.courses --first 1 --count 1000

runs courses one after the other, for hours if need be, and prints those that fail.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from random import Random

from shared.kubernetes import accessors
from shared.kubernetes.kinds import DISRUPTION_BUDGET, POD, SECRET, SERVICE, Obj
from shared.status import conditions
from tests.harness.outage import status_lost
from tests.harness.reference_run import panics
from tests.harness.scenario import ScenarioStep, edit, if_present, later, limit_turns
from tests.harness.scenario_runner import ScenarioRun, World
from tests.memcached.simulation.guard import ready_servers
from tests.support import course_runner
from tests.support.memcached.scenarios import BUDGET, ISSUED, MEMCACHED, NEW_PASSWORD, Servers, apply
from tests.support.plays import issued_with_new_keys

STEPS = 12
"""Events of a course."""

MAX_TURNS = 12
"""Longest pause after an event, in turns of operator and workloads, unless they settle."""

NAME = "cache"
DAY = 86400.0

CHANGES = ("resize", "resize", "upgrade", "memory", "switch", "budget", "authenticate", "pause", "resume", "resume")
FAULTS = ("lose", "lose", "edit", "take", "crash", "lose_status", "wait", "wait")
AGES = ("encrypt", "encrypt", "rotate", "months", "months")
THEMES = {"changes": CHANGES, "faults": (*CHANGES, *FAULTS), "everything": (*CHANGES, *FAULTS, *AGES)}

SUBJECT = replace(
    MEMCACHED, controller=lambda servers: replace(MEMCACHED.controller(servers), issue=issued_with_new_keys)
)
"""The operator, with certificates that are valid from the time of the world on."""


class Course:
    """A random course of events.

    Attributes:
        spec: the spec, as the user has it now.
        text: the events so far.
        steps: number of events and pauses.
    """

    def __init__(self, number: int, theme: str = "") -> None:
        self.number = number
        self.chance = chance = Random(number)
        self.theme = theme or chance.choice(tuple(THEMES))
        self.spec: Obj = {"size": chance.randint(1, 3), "workload": chance.choice(("StatefulSet", "Deployment"))}
        self.kind = f"{self.spec['size']} in a {self.spec['workload']}"
        self.text: list[str] = []
        self.steps = 0
        self.panics = panics()

    # The world.

    @property
    def servers(self) -> Servers:
        found = self.play.world.database
        assert isinstance(found, Servers)
        return found

    @property
    def mine(self) -> Obj:
        [found] = self.play.stage.find()
        return found

    @property
    def ready(self) -> Obj:
        return accessors.condition(self.mine, conditions.READY)

    @property
    def result(self) -> str:
        return f"{self.theme}: {self.ready['reason']}"

    @property
    def days(self) -> float:
        return (self.play.world.clock.now - self.begun) / timedelta(days=1)

    async def begin(self, world: World | None = None) -> None:
        """Begin with servers that are Ready, in a world of its own or in a given one."""
        self.play = ScenarioRun(world or World(SUBJECT))
        self.begun = self.play.world.clock.now
        await self.go(self._applied())
        assert self.ready["reason"] == "Ready", self.ready

    async def go(self, step: ScenarioStep) -> None:
        """Carry out a step, and judge its end if it settles."""
        self.steps += 1
        self.text.append(str(step) if step.turns is None else f"{step} ({step.turns} turns)")
        await self.play.step(replace(step, unobserved=step.turns is None))
        assert panics() == self.panics, "a reconcile raised an unexpected exception"

    async def event(self) -> None:
        await getattr(self, f"_{self.chance.choice(THEMES[self.theme])}")()

    async def pass_time(self, seconds: float) -> None:
        """Let months pass at once."""
        await self.go(later(seconds))

    def _applied(self, **changes: object) -> ScenarioStep:
        self.spec |= changes
        return apply(**{name: value for name, value in self.spec.items() if value is not None})

    async def _one(self, step: ScenarioStep) -> None:
        """Carry out a step in the middle of others, or wait for its end."""
        chance = self.chance
        await self.go(step if chance.random() < 0.5 else limit_turns(step, chance.randint(0, MAX_TURNS)))

    # Changes by users.

    async def _resize(self) -> None:
        await self._one(self._applied(size=self.chance.randint(1, 4)))

    async def _upgrade(self) -> None:
        await self._one(self._applied(version=self.chance.choice(("1.6.38", "1.6.18"))))

    async def _memory(self) -> None:
        await self._one(self._applied(memoryMB=self.chance.choice((64, 128))))

    async def _switch(self) -> None:
        await self._one(self._applied(workload=self.chance.choice(("StatefulSet", "Deployment"))))

    async def _budget(self) -> None:
        await self._one(self._applied(podDisruptionBudget=self.chance.choice((None, BUDGET["podDisruptionBudget"]))))

    async def _authenticate(self) -> None:
        await self._one(self._applied(auth=self.chance.choice((None, {}))))

    async def _encrypt(self) -> None:
        await self._one(self._applied(tls=self.chance.choice((None, ISSUED["tls"]))))

    async def _rotate(self) -> None:
        await self._one(edit(None, NEW_PASSWORD))

    async def _pause(self) -> None:
        await self.go(self._applied(paused=True))

    async def _resume(self) -> None:
        await self._one(self._applied(paused=None))

    # Faults.

    async def _lose(self) -> None:
        """Delete a pod while all others serve."""
        pods = [pod["metadata"]["name"] for pod in ready_servers(self.servers)]
        if len(pods) == self.spec["size"] == len(self.play.stage.find(POD)):
            await self.go(self.deleted(self.chance.choice(sorted(pods))))

    def deleted(self, pod: str) -> ScenarioStep:
        return if_present(
            f"{pod} is deleted",
            lambda stage: stage.user_client.delete(POD, stage.namespace, pod, gracePeriodSeconds=0),
        )

    async def _edit(self) -> None:
        """Let a person change what the operator keeps."""
        change = {"spec": {"selector": {"app.kubernetes.io/instance": "another"}}}
        await self._one(if_present("the Service is edited", edit(SERVICE, change, NAME).act))

    async def _take(self) -> None:
        """Delete an object that the operator creates again."""
        kind, name = self.chance.choice(((SERVICE, NAME), (DISRUPTION_BUDGET, NAME), (SECRET, f"{NAME}-connection")))
        step = if_present(
            f"{kind} {name} is deleted", lambda stage: stage.user_client.delete(kind, stage.namespace, name)
        )
        await self._one(step)

    async def _lose_status(self) -> None:
        await self._one(if_present("the status is lost", status_lost))

    async def _crash(self) -> None:
        self.text.append("the operator crashes")
        self.play.end()
        self.play.begin()
        await self.play._turn(self.chance.randint(0, MAX_TURNS))

    async def _wait(self) -> None:
        await self.go(later(self.chance.choice((5, 60, 700))))

    async def _months(self) -> None:
        for _ in range(self.chance.choice((1, 4, 18))):
            await self.pass_time(20 * DAY)

    # The end.

    async def end(self) -> None:
        """End all faults, and require the desired servers, and an operator that writes nothing more."""
        await self.go(self._applied(paused=None))
        for _ in range(3):
            await self.go(later(60))
        assert self.ready["reason"] == "Ready", self.ready
        running, size = len(ready_servers(self.servers)), self.spec["size"]
        assert running == size, f"{running} of {size} servers run at the end"
        before = len(self.play.world.server.log.all_writes)
        self.play.resync()
        await self.play.settle()
        written = self.play.world.server.log.all_writes[before:]
        assert not written, f"the settled operator writes: {written}"


async def check(number: int, theme: str = "") -> Course:
    """Run a course to its end, as `course_runner.follow` does."""
    course = Course(number, theme)
    await course_runner.follow(course, number, STEPS)
    return course


if __name__ == "__main__":
    sys.exit(course_runner.run(check, THEMES, __doc__))
