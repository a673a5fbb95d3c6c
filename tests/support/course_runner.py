"""Random courses of an operator: runs one, or those that a command line names, and shows what the judges find."""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from shared.kubernetes.kinds import Obj
from simulator.virtual_time import VirtualTimeLoop
from tests.support import seeds

Database = TypeVar("Database")


class Course(Protocol):
    """A course of events, drawn by its number.

    Attributes:
        theme: which events it draws.
        steps: number of steps so far.
        text: events so far.
    """

    theme: str
    steps: int

    @property
    def text(self) -> Sequence[str]: ...

    @property
    def kind(self) -> object:
        """Kind of cluster."""

    @property
    def result(self) -> str:
        """How it ended, for the counts at the end."""

    @property
    def days(self) -> float:
        """Simulated time so far, in days."""

    async def begin(self) -> None: ...

    async def event(self) -> None: ...

    async def end(self) -> None: ...


def numbers(start: int, count: int) -> range:
    """Return the numbers of courses; another seed draws others."""
    first = start + 1000 * seeds.seed()
    return range(first, first + count)


async def follow(course: Course, number: int, events: int) -> None:
    """Run a course to its end.

    Raises:
        AssertionError: a judge found a violation; its notes have the events.
    """
    try:
        await course.begin()
        for _ in range(events):
            await course.event()
        await course.end()
    except BaseException as error:
        text = "; ".join(course.text)
        error.add_note(f"course {number}, {course.theme}, {course.kind}, {course.steps} steps: {text}")
        raise


def undetected(
    changes: Mapping[str, Callable[[Obj, Database], object]],
    judge: Callable[[Database, Obj], None],
    database: Database,
    found: Obj,
) -> Iterator[str]:
    """Yield the changes of a resource or its database after which a judge finds nothing."""
    for what, change in changes.items():
        changed, world = copy.deepcopy(found), copy.deepcopy(database)
        change(changed, world)
        try:
            judge(world, changed)
        except AssertionError:
            continue
        yield what


def run(check: Callable[[int, str], Coroutine[Any, Any, Course]], themes: Collection[str], description: str) -> int:
    """Run the courses that the command line names; return 1 if one failed.

    Args:
        check: runs the course of a number with a theme, which is empty to draw it; what it raises is a failure, whose
            notes have the events.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=1, help="number of the first course")
    parser.add_argument("--count", type=int, default=100, help="number of courses")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no course after this time")
    parser.add_argument("--theme", choices=list(themes), default="", help="events of all courses")
    options = parser.parse_args()
    gc.set_threshold(200_000, 20, 20)  # most objects live as long as a course
    began, steps, days = time.monotonic(), 0, 0.0
    ends: Counter[str] = Counter()
    for done, number in enumerate(range(options.first, options.first + options.count), 1):
        if time.monotonic() - began > options.seconds:
            break
        try:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                course = runner.run(check(number, options.theme))
        except Exception as error:  # every failure is reported, and the next course runs
            text = str(error).partition("\n")[0]
            report(f"FAILED {number}: {type(error).__name__}: {text[:1000]}", *error.__notes__)
            ends["failed"] += 1
        else:
            steps, days = steps + course.steps, days + course.days
            ends[course.result] += 1
        spent = time.monotonic() - began
        report(f"{options.first}-{number}: {done} courses, {steps} steps, {ends['failed']} failed, {spent:.0f} s")
    report(f"ends: {dict(ends)}", summary(ends, days))
    return 1 if ends["failed"] else 0


def summary(ends: Counter[str], days: float) -> str:
    """Return how many courses ended, and how much time they simulated for the CPU time of this process."""
    spent = time.process_time()
    return (
        f"{ends.total()} courses, {ends['failed']} violations, {days:,.1f} simulated days, {spent:.0f} s of CPU time, "
        f"{days / spent * 3600:,.0f} cluster-days per core-hour"
    )


def report(*lines: str) -> None:
    sys.stdout.write("\n    ".join(lines) + "\n")
    sys.stdout.flush()
