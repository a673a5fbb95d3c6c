"""Tries a disturbance at every point of a scenario, and asks of each run what must hold all the same."""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shared.kubernetes.errors import KubeError
from shared.runtime import reconciler
from shared.testing.harness.disturbance import Disturbance, Overwritten
from shared.testing.harness.outcome import HISTORY
from shared.testing.harness.reference_run import Course, panics
from shared.testing.harness.scenario import Scenario, Subject, Unsafe
from shared.testing.harness.scenario_runner import Play


class Oracle(enum.Enum):
    """What must hold of every run."""

    END = "it ends as if nothing had happened"
    COUNTS = "no object is created or deleted another number of times"
    DEFECT = "no reconcile ends in a defect"
    NEWER = "an old view harms nothing newer"
    SAFE = "nobody's data is put at risk"
    REST = "it comes to rest"
    STILL = "at rest it writes nothing"


@dataclass(frozen=True)
class Failure:
    """A run of which something did not hold.

    Attributes:
        run: which: scenario, disturbance and point.
        said: what was otherwise, a line each.
    """

    run: str
    oracle: Oracle
    said: tuple[str, ...]

    def __str__(self) -> str:
        return "\n    ".join((f"{self.run}: not so: {self.oracle.value}", *self.said))


@dataclass
class Sweep:
    """What came of trying a disturbance at every point.

    Attributes:
        name: of subject and scenario, as the summary has it.
        runs: how many there were.
    """

    name: str
    runs: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return self.runs - len({failure.run for failure in self.failures})


_courses: dict[tuple[Subject, Scenario], Course] = {}


async def course_of(subject: Subject, scenario: Scenario) -> Course:
    """The undisturbed course, learned once."""
    if (subject, scenario) not in _courses:
        _courses[subject, scenario] = await Course.learn(subject, scenario)
    return _courses[subject, scenario]


async def sweep(subject: Subject, scenario: Scenario, disturbance: Disturbance) -> Sweep:
    """Play the scenario with the disturbance at every point where there can be one."""
    course = await course_of(subject, scenario)
    done = Sweep(f"{subject.name}/{scenario}")
    points = disturbance.points(course)
    for nth, point in enumerate(points):
        run = f"{done.name}, {disturbance} {nth + 1} of {len(points)} ({point})"
        done.failures += [Failure(run, oracle, tuple(said)) for oracle, said in await _tried(course, disturbance, nth)]
        done.runs += 1
    return done


async def _tried(course: Course, disturbance: Disturbance, nth: int) -> list[tuple[Oracle, list[str]]]:
    """What did not hold of one run."""
    failed: list[tuple[Oracle, list[str]]] = []
    with _defects() as defects:
        try:
            play = await disturbance.play(course, nth)
            outcome = play.world.outcome
            unstable = (*disturbance.unstable, *course.subject.unstable, *(() if course.scenario.counted else HISTORY))
            failed.append((Oracle.END, course.reference.differences(outcome, unstable=unstable)))
            if disturbance.counts != "any" and course.scenario.counted and not play.contended:
                at_most = disturbance.counts == "at most"
                failed.append((Oracle.COUNTS, course.reference.miscounts(outcome, at_most=at_most)))
            failed.append((Oracle.STILL, await _writes_at_rest(play)))
        except KubeError as error:
            failed.append((Oracle.END, [f"a step could not be taken: {error}"]))
        except Overwritten as error:
            failed.append((Oracle.NEWER, [str(error)]))
        except Unsafe as error:
            failed.append((Oracle.SAFE, [str(error)]))
        except AssertionError as error:
            failed.append((Oracle.REST, [str(error)]))
    failed.append((Oracle.DEFECT, defects))
    return [(oracle, said) for oracle, said in failed if said]


async def _writes_at_rest(play: Play) -> list[str]:
    """What is written when everything is looked at again, by this process and by the next; refusals aside."""
    log = play.world.server.log
    log.reset()
    play.look_again()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    return [f"{write} ({'a change' if write.changed else 'no change'})" for write in log.writes() if write.status < 400]


@contextmanager
def _defects() -> Iterator[list[str]]:
    """What reconciles that ended in a defect said meanwhile."""
    told = _Told()
    logger = logging.getLogger(reconciler.__name__)
    before = panics()
    logger.addHandler(told)
    said: list[str] = []
    try:
        yield said
    finally:
        logger.removeHandler(told)
        if count := panics() - before:
            said += [f"{count:g} defects", *told.tracebacks]


class _Told(logging.Handler):
    """Keeps what the log tells of defects: their last lines."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := record.exc_info[1]):
            self.tracebacks.append(" ".join(traceback.format_exception(error, limit=-1)).strip())
