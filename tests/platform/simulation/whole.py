"""One seed, a whole world: all operators on one API server, with clients, faults and users, in virtual time.

A seed draws a script: which operator, or the whole world, what happens there, and with which seed of its own. The
courses of each database (`tests/*/simulation/courses.py`) carry out the events of their operator: changes of specs,
losses, upgrades, consents, other tenants. Events of the world concern several: drains, months, a stale cache, late
events, steps of the wall clock, errors of the API server, and the end of operators. So a change of one operator is in
progress while something happens to another one. After each event the guards of all databases judge every operation
and every acknowledged write, the judges each status, and `shared_world` each destructive act.

    python -m tests.platform.simulation.whole --first 1 --count 100

runs a world for each seed, prints those that fail, with their scripts reduced to the events that matter, and how many
cluster-days it simulates per core-hour. The same seed gives the same requests, one by one. `--keep 3,7` repeats only
these events of a script.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import POD
from simulator.faults import WRITES
from simulator.virtual_time import VirtualTimeLoop
from tests.etcd.simulation import courses as etcd
from tests.harness.scenario import later
from tests.memcached.simulation import courses as memcached
from tests.platform.simulation.shared_world import NODES, SharedWorld
from tests.redis.simulation import courses as redis
from tests.support import course_runner

EVENTS = 24
"""Events of a script."""

MAX_TURNS = 12
"""Turns that each other operator takes after an event, at most."""

DAY = 86400.0
SLICE = 20 * DAY
"""Longest time that passes at once: certificates are renewed in between."""

LONG_SECONDS = 3600.0
"""Time that passes in an event after which every operator settles, as it would have meanwhile."""

WORLD = (
    *("drain", "drain", "stale", "late", "fresh", "step_clock", "refuse", "lose_answer", "crash_in_write"),
    *("restart_all", "months"),
)
"""Events that concern all operators."""

SHARES = {"redis": 4, "etcd": 4, "memcached": 2, "world": 3}
"""Share of the events of each operator, and of the world."""

MODULES: dict[str, Any] = {"redis": redis, "etcd": etcd, "memcached": memcached}

ERRORS = (-timedelta(hours=1), timedelta(minutes=5), timedelta(hours=1))
"""Errors of the wall clock."""


@dataclass(frozen=True)
class Event:
    """An event of a script.

    Attributes:
        where: namespace of the operator, or `world`.
        name: name of the event there.
        seed: seed of what it draws, so that it is the same without the events before it.
    """

    where: str
    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.where}.{self.name}"


class Whole:
    """A world of all operators, and the script of what happens in it.

    Args:
        keep: numbers of the events to carry out; None for all.

    Attributes:
        courses: the courses of the operators, by namespace.
        text: the events so far.
        steps: number of events.
    """

    def __init__(self, seed: int, events: int = EVENTS, keep: Sequence[int] | None = None) -> None:
        self.seed = seed
        chance = Random(seed)
        self.courses: dict[str, Any] = {
            name: module.Course(chance.randrange(1 << 30), chance.choice(sorted(module.THEMES)))
            for name, module in MODULES.items()
        }
        drawn = [self._draw(chance) for _ in range(events)]
        self.script = [(number, event) for number, event in enumerate(drawn) if keep is None or number in keep]
        self.theme, self.text, self.steps = "whole", list[str](), 0

    def _draw(self, chance: Random) -> Event:
        where = chance.choices(list(SHARES), list(SHARES.values()))[0]
        names = WORLD if where == "world" else MODULES[where].THEMES[self.courses[where].theme]
        return Event(where, chance.choice(names), chance.randrange(1 << 30))

    @property
    def kind(self) -> str:
        return "; ".join(f"{name} ({course.theme}): {course.kind}" for name, course in self.courses.items())

    @property
    def result(self) -> str:
        return ", ".join(f"{name} {course.ready['reason']}" for name, course in self.courses.items())

    @property
    def days(self) -> float:
        """Simulated days of all clusters together."""
        return float(sum(course.days for course in self.courses.values()))

    @property
    def requests(self) -> str:
        """Digest of all writes and calls of the operators, in order."""
        return hashlib.sha256("\n".join(map(repr, self.world.server.log.all_writes)).encode()).hexdigest()

    async def begin(self) -> None:
        random.seed(self.seed)  # of passwords and jitter, if anything draws without a generator of its own
        self.world = SharedWorld(module.SUBJECT for module in MODULES.values())
        for name, course in self.courses.items():
            await course.begin(self.world.parts[name])
            course.pass_time = partial(self._pass, course)
        if (months := self.courses.get("etcd")) and not months.kind.tls:  # these pass at once in a world of its own
            months._months = partial(self._pass, months, 300 * DAY)
        self.left = iter(self.script)

    async def event(self) -> None:
        """Carry out the next event; the others take some turns, or settle if much time has passed."""
        number, event = next(self.left)
        self.steps += 1
        before, lengths = self.world.clock.now, {name: len(course.text) for name, course in self.courses.items()}
        chance = Random(event.seed)
        try:
            if event.where == "world":
                await getattr(self, f"_{event.name}")(chance)
            else:
                course = self.courses[event.where]
                course.chance = chance
                await getattr(course, f"_{event.name}")()
            long = (self.world.clock.now - before).total_seconds() > LONG_SECONDS
            await self._others(event.where, None if long else chance.randint(0, MAX_TURNS))
        finally:
            what = ", ".join(text for name, course in self.courses.items() for text in course.text[lengths[name] :])
            self.text.append(f"{number} {event}: {what}" if what else f"{number} {event}")

    async def _others(self, but: str, turns: int | None) -> None:
        for name, course in self.courses.items():
            if name == but:
                continue
            if turns is None:
                course.play.resync()
                await course.play.settle()
            else:
                await course.play._turn(turns)
        self.require_safe()

    def require_safe(self) -> None:
        for part in self.world.parts.values():
            part.require_safe()

    async def _pass(self, course: Any, seconds: float) -> None:
        """Let months pass, in which every operator works."""
        while seconds > 0:
            await course.go(later(min(seconds, SLICE)))
            seconds -= SLICE
            await self._others("", None)

    async def end(self) -> None:
        """End the faults of the world, then those of each database; each has the desired state."""
        self.world.clock.error = timedelta()
        self.world.server.faults.clear()
        self.world.workloads.cordon(())
        for course in self.courses.values():
            self._refresh(course)
        for name, course in self.courses.items():
            course.chance = Random(self.seed)
            await course.end()
            await self._others(name, None)

    # Events of the world.

    def _some(self, chance: Random) -> Any:
        return chance.choice(list(self.courses.values()))

    @staticmethod
    def _refresh(course: Any) -> None:
        """End what delays the events of an operator."""
        course.play.lags = False
        operator = course.play.operator
        if operator is not None and operator.broken_watches:
            operator.relist()

    async def _drain(self, chance: Random) -> None:
        """Cordon a Kubernetes node and evict its pods one by one, as far as their budgets permit."""
        node = f"node-{chance.randint(1, NODES)}"
        self.world.workloads.cordon({node})
        user = self.world.server.actor("kubectl")
        for _, pod in self.world.server.objects(POD):
            namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
            if pod["spec"].get("nodeName") != node or namespace == "memcached":  # without a budget, all servers end
                continue
            with suppress(KubeError):
                user.evict(namespace, name)
            await self._others("", chance.randint(0, 3))

    async def _stale(self, chance: Random) -> None:
        """Break watches of an operator; the judges of etcd require that it observes what has happened."""
        course = chance.choice([self.courses["redis"], self.courses["memcached"]])
        if (operator := course.play.operator) is not None:
            kinds = operator.controller.kinds
            operator.broken_watches.update(chance.sample(kinds, chance.randint(1, len(kinds))))

    async def _late(self, chance: Random) -> None:
        self._some(chance).play.lags = True

    async def _fresh(self, _: Random) -> None:
        for course in self.courses.values():
            self._refresh(course)
        self.world.server.faults.clear()

    async def _step_clock(self, chance: Random) -> None:
        self.world.clock.error = chance.choice((timedelta(), *ERRORS))

    async def _refuse(self, chance: Random) -> None:
        faults = self.world.server.faults
        faults.answer(chance.choice((409, 429, 500, 503)), skip=chance.randint(0, 20), times=chance.randint(1, 3))

    async def _lose_answer(self, chance: Random) -> None:
        self.world.server.faults.lose_answer(skip=chance.randint(0, 20))

    async def _crash_in_write(self, chance: Random) -> None:
        """Let an operator end with one of its next writes; that of etcd has another controller, which outlives it."""
        path = f"/namespaces/{chance.choice(('redis', 'memcached'))}/"
        crash = chance.choice((self.world.server.faults.crash_before, self.world.server.faults.crash_after))
        crash(chance.randint(1, 10), when=lambda method, at: method in WRITES and path in at)

    async def _restart_all(self, chance: Random) -> None:
        """End all operators at once, as their Kubernetes node does, and start them again."""
        for name, course in self.courses.items():
            course.play.end()
            if name == "etcd":
                course.backups.stop()
                course._start()
            else:
                course.play.begin()
        await self._others("", chance.randint(0, MAX_TURNS))

    async def _months(self, chance: Random) -> None:
        for _ in range(chance.choice((1, 3))):
            later(SLICE).act(self.courses["etcd"].play.stage)
            await self._others("", None)


async def check(seed: int, events: int = EVENTS, keep: Sequence[int] | None = None) -> Whole:
    """Run a world to its end.

    Raises:
        AssertionError: a guard or a judge found a violation; its notes have the events.
    """
    whole = Whole(seed, events, keep)
    await course_runner.follow(whole, seed, len(whole.script))
    return whole


def run_in_virtual_time(seed: int, events: int = EVENTS, keep: Sequence[int] | None = None) -> Whole:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(check(seed, events, keep))


def failure_of(seed: int, events: int, keep: Sequence[int] | None) -> str:
    """Return how a script fails, without what differs between runs of other events; empty if it does not."""
    try:
        run_in_virtual_time(seed, events, keep)
    except Exception as error:  # every failure counts
        text = str(error).partition("\n")[0]
        return f"{type(error).__name__}: {''.join('#' if each.isdigit() else each for each in text)[:60]}"
    return ""


def shrunk(items: Sequence[int], fails: Callable[[Sequence[int]], bool]) -> Sequence[int]:
    """Return a part of a script that still fails, and does not without any one of its events (ddmin).

    Source: A. Zeller, R. Hildebrandt: Simplifying and isolating failure-inducing input (IEEE TSE 28, 2002).
    """
    kept, parts = list(items), 2
    while len(kept) >= 2:
        size = -(-len(kept) // parts)
        chunks = [kept[at : at + size] for at in range(0, len(kept), size)]
        rest = [[each for each in kept if each not in chunk] for chunk in chunks]
        if found := next((each for each in rest if fails(each)), None):
            kept, parts = found, max(parts - 1, 2)
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return [] if kept and fails([]) else kept


def main() -> int:
    """Run the seeds that the command line names; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--count", type=int, default=100, help="number of seeds")
    parser.add_argument("--events", type=int, default=EVENTS, help="events of each script")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no world after this time")
    parser.add_argument("--keep", default="", help="numbers of the events to carry out, such as 3,7")
    parser.add_argument("--whole-scripts", action="store_true", help="do not reduce the scripts that fail")
    options = parser.parse_args()
    gc.set_threshold(200_000, 20, 20)  # most objects live as long as a world
    keep = [int(each) for each in options.keep.split(",") if each] or None
    began, days, ends = time.monotonic(), 0.0, Counter[str]()
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() - began > options.seconds:
            break
        try:
            whole = run_in_virtual_time(seed, options.events, keep)
        except Exception as error:  # every failure is reported, and the next world runs
            ends["failed"] += 1
            course_runner.report(f"FAILED {seed}: {type(error).__name__}: {str(error)[:1000]}", *error.__notes__)
            if not options.whole_scripts:
                expected = failure_of(seed, options.events, keep)
                numbers = keep or list(range(options.events))
                left = shrunk(numbers, lambda kept: failure_of(seed, options.events, kept) == expected)  # noqa: B023
                again = ",".join(map(str, left)) or "none"
                course_runner.report(f"the same with --first {seed} --count 1 --events {options.events} --keep {again}")
        else:
            days += whole.days
            ends[whole.result] += 1
            course_runner.report(
                f"{seed}: {whole.steps} events, {whole.days:,.1f} days, requests {whole.requests[:12]}"
            )
    course_runner.report(f"ends: {dict(ends)}", course_runner.summary(ends, days))
    return 1 if ends["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
