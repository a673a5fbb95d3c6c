"""Random losses months apart, and recoveries that users confirm, withdraw and repeat: no consent outlives its loss.

Pods move away from their data and come back, volumes are destroyed, disks are not mounted, the operator alone does not
reach some nodes, or does not run for months. The guard keeps each consent with its loss (`Guard.agree`), and requires
that a cluster is created again only if no disk has keys.
"""

from __future__ import annotations

from random import Random

import pytest

from shared.kubernetes.kinds import Obj
from shared.testing.harness.scenario import ScenarioStep, later
from shared.testing.harness.scenario_runner import ScenarioRun, World
from tests.support import seeds
from tests.support.redis.scenarios import NAME, cluster, in_memory, recovery_confirmed
from tests.unit.redis.simulation.database import FakeRedis
from tests.unit.redis.simulation.losses import (
    DAY,
    ON_HOSTS,
    SUBJECT,
    destroyed,
    hidden,
    hosts,
    moved,
    shard_of,
    withdrawn,
)
from tests.unit.redis.simulation.moving_slots import redis_of, status
from tests.unit.redis.simulation.test_consent import ready, run

STEPS = 10

UNDECIDED = frozenset(
    {"SlotsLost", "SlotsUnserved", "TokenRefused", "NodeNotEmpty", "IdentityLost", "RedisUnreachable"}
)
"""Reasons of Ready while a user must decide, or data is away."""


class Course:
    """A random course of events.

    Attributes:
        text: the events so far.
    """

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.text: list[str] = []
        self.copies = self.chance.choice([0, 1, 1, 1])
        self.kind = self.chance.choice(["hosts", "hosts", "claims", "memory"])
        self.play = ScenarioRun(World(SUBJECT))
        self.redis.tidy = True
        self.home: dict[str, str] = {}
        self.tokens: list[str] = []

    @property
    def redis(self) -> FakeRedis:
        return redis_of(self.play.world)

    @property
    def pods(self) -> list[str]:
        return [f"{NAME}-{number}" for number in range(3 * (1 + self.copies))]

    async def begin(self) -> None:
        size = len(self.pods)
        alone: Obj = {"replicasPerMaster": self.copies}
        step = {
            "hosts": lambda: cluster(size, **ON_HOSTS, **alone),
            "claims": lambda: cluster(size, **alone),
            "memory": lambda: in_memory(size, **alone),
        }[self.kind]()
        await self.go(step)
        assert ready(self.play)["reason"] == "Ready", ready(self.play)
        self.home = hosts(self.play.stage)

    async def go(self, *steps: ScenarioStep) -> None:
        for step in steps:
            self.text.append(str(step))
            if step.turns is None and not step.absent:
                self.text.append("")
        await run(self.play, steps)
        self.judge()

    def judge(self) -> None:
        """Judge the status as data: Ready needs an owner of every slot."""
        if self.play.operator is not None and not self.redis.hidden and ready(self.play)["status"] == "True":
            [shape] = self.redis.state()
            assert sum(shape["slots by primary"]) == 16384, shape

    def some(self) -> list[str]:
        """Return the pods of a shard, or any pods."""
        try:
            if self.chance.random() < 0.7:
                return shard_of(self.redis, self.chance.randrange(3))
        except ZeroDivisionError:
            pass
        return self.chance.sample(self.pods, self.chance.choice([1, 1, 2, len(self.pods)]))

    async def event(self) -> None:
        await self.chance.choice(
            (
                *(self._lose, self._lose, self._lose, self._return, self._return, self._unmount, self._mount),
                *(self._confirm, self._confirm, self._confirm, self._withdraw, self._stale),
                *(self._hide, self._hide, self._show, self._down, self._up),
                *(self._wait, self._wait, self._months),
            )
        )()

    async def _lose(self) -> None:
        pods = [pod for pod in self.some() if pod in hosts(self.play.stage)]
        if self.kind == "hosts" and pods:
            await self.go(moved(pods))
        elif pods:
            await self.go(*destroyed(pods))

    async def _return(self) -> None:
        if self.kind == "hosts":
            for pod, host in hosts(self.play.stage).items():
                if host != self.home[pod]:
                    await self.go(moved([pod], [self.home[pod]]))

    async def _confirm(self) -> None:
        if offered := status(self.play).get("recovery"):
            self.tokens.append(offered["token"])
            await self.go(recovery_confirmed())

    async def _withdraw(self) -> None:
        await self.go(withdrawn())

    async def _stale(self) -> None:
        """Apply the manifest of an earlier recovery again, as GitOps does."""
        offered = (status(self.play).get("recovery") or {}).get("token")
        if tokens := [token for token in self.tokens if token != offered]:
            token = self.chance.choice(tokens)
            await self.go(withdrawn())
            patch = {"spec": {"recovery": {"confirm": token}}}
            await self.go(
                ScenarioStep(
                    f"the user confirms {token} again",
                    lambda stage: stage.user_client.merge(stage.kind, stage.namespace, NAME, patch),
                )
            )

    async def _wait(self) -> None:
        await self.go(later(self.chance.choice([5, 30, 700])))

    async def _months(self) -> None:
        await self.go(later(self.chance.choice([2 * 3600, 30 * DAY, 300 * DAY])))

    async def _hide(self) -> None:
        pods = self.chance.choice([self.some, lambda: self.pods, self._primaries])()
        await self.go(hidden(pods))

    def _primaries(self) -> list[str]:
        return [process.pod for process in self.redis.running if not process.node.me.primary]

    async def _show(self) -> None:
        await self.go(hidden(()))

    async def _down(self) -> None:
        self.text.append("the operator ends")
        self.play.end()

    async def _up(self) -> None:
        if self.play.operator is None:
            self.text.append("the operator begins")
            self.play.begin()
            await self.go(later(1))

    async def _unmount(self) -> None:
        await self._mounts(self.some(), mounts=False)

    async def _mount(self) -> None:
        await self._mounts(self.pods, mounts=True)

    async def _mounts(self, pods: list[str], *, mounts: bool) -> None:
        if self.kind == "memory":
            return

        def act(redis: FakeRedis) -> None:
            for process in list(redis.processes.values()):
                if process.pod in pods and not process.exit_message:
                    redis.stop(process, "killed")
                    redis.unmount(process.pod, mounts=mounts)

        what = "are mounted" if mounts else "are not mounted"
        await self.go(
            ScenarioStep(f"the disks of {', '.join(pods)} {what}", lambda stage: act(stage.database), unobserved=True)
        )

    async def end(self) -> None:
        """End all faults, and let the user decide what is left."""
        await self._show()
        await self._mount()
        await self._return()
        await self._up()
        for _ in range(4):
            await self.go(later(60))
            if ready(self.play)["reason"] in ("SlotsLost", "SlotsUnserved", "TokenRefused"):
                await self._confirm()
        reason = ready(self.play)["reason"]
        assert reason in UNDECIDED | {"Ready"}, ready(self.play)
        if reason == "Ready":
            self.redis.guard.require_resolved(self.redis)


async def check(seed: int) -> str:
    course = Course(seed)
    try:
        await course.begin()
        for _ in range(STEPS):
            await course.event()
        await course.end()
    except BaseException as error:
        error.add_note(f"seed {seed}: {course.kind}, {course.copies} copies: " + "; ".join(filter(None, course.text)))
        raise
    return str(ready(course.play)["reason"])


def courses(start: int, count: int) -> range:
    """Return the numbers of courses; another seed draws others."""
    first = start + 1000 * seeds.seed()
    return range(first, first + count)


async def test_no_consent_outlives_its_loss() -> None:
    await check(0)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", courses(1, 12))
async def test_no_consent_outlives_its_loss_in_some_courses(seed: int) -> None:
    await check(seed)


@pytest.mark.weekly
@pytest.mark.parametrize("seed", courses(13, 300))
async def test_no_consent_outlives_its_loss_in_many_courses(seed: int) -> None:
    await check(seed)
