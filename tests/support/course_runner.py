"""Command line of the random courses of an operator: runs them one after the other, and prints those that fail."""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Protocol

from tests.support.virtual_time import VirtualTimeLoop


class Course(Protocol):
    """A course that has ended without a violation.

    Attributes:
        steps: number of steps.
    """

    steps: int

    @property
    def result(self) -> str:
        """How it ended, for the counts at the end."""


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
    gc.set_threshold(50_000, 20, 20)  # most objects live as long as a course
    began, steps = time.monotonic(), 0
    ends: Counter[str] = Counter()
    for done, number in enumerate(range(options.first, options.first + options.count), 1):
        if time.monotonic() - began > options.seconds:
            break
        try:
            with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                course = runner.run(check(number, options.theme))
        except Exception as error:  # every failure is reported, and the next course runs
            text = str(error).partition("\n")[0]
            _print(f"FAILED {number}: {type(error).__name__}: {text[:1000]}", *error.__notes__)
            ends["failed"] += 1
        else:
            steps += course.steps
            ends[course.result] += 1
        spent = time.monotonic() - began
        _print(f"{options.first}-{number}: {done} courses, {steps} steps, {ends['failed']} failed, {spent:.0f} s")
    _print(f"ends: {dict(ends)}, {time.process_time():.0f} s of CPU time")
    return 1 if ends["failed"] else 0


def _print(*lines: str) -> None:
    sys.stdout.write("\n    ".join(lines) + "\n")
    sys.stdout.flush()
