"""Sweeps: a scenario with a disturbance at every point, and the oracles that check each run."""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from shared.kubernetes.errors import KubeError
from shared.runtime import reconciler
from tests.harness.disturbance import Disturbance, Overwritten
from tests.harness.flapping import flaps
from tests.harness.outcome import HISTORY
from tests.harness.reference_run import ReferenceRun, panics
from tests.harness.scenario import Scenario, Subject, Unsafe
from tests.harness.scenario_runner import ScenarioRun


class Oracle(enum.Enum):
    """A property that every run must have."""

    END = "the run must end as the undisturbed run does"
    COUNTS = "objects must be created and deleted as often as in the undisturbed run"
    DEFECT = "no reconcile may raise an unexpected exception"
    NEWER = "an operator with a stale view must not change newer objects"
    SAFE = "no operation may put data at risk"
    REST = "the run must complete with operator and workloads settled"
    STILL = "a settled operator must not write"
    FLAPPING = "a message or reason must not leave and come back while nothing else changes"


@dataclass(frozen=True)
class Failure:
    """A run that an oracle rejects.

    Attributes:
        run: scenario, disturbance and point.
        details: differences from the expectation, one per line.
    """

    run: str
    oracle: Oracle
    details: tuple[str, ...]

    def __str__(self) -> str:
        return "\n    ".join((f"{self.run}: failed: {self.oracle.value}", *self.details))


@dataclass
class Sweep:
    """The results of a disturbance at every point.

    Attributes:
        name: names of subject and scenario, as in the summary.
        runs: number of runs.
    """

    name: str
    runs: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return self.runs - len({failure.run for failure in self.failures})


_reference_runs: dict[tuple[Subject, Scenario], ReferenceRun] = {}


async def reference_run_of(subject: Subject, scenario: Scenario) -> ReferenceRun:
    """Return the undisturbed run, recorded once per process."""
    if (subject, scenario) not in _reference_runs:
        _reference_runs[subject, scenario] = await ReferenceRun.record(subject, scenario)
    return _reference_runs[subject, scenario]


async def sweep(subject: Subject, scenario: Scenario, disturbance: Disturbance) -> Sweep:
    """Run the scenario once for each point of the disturbance."""
    course = await reference_run_of(subject, scenario)
    done = Sweep(f"{subject.name}/{scenario}")
    points = disturbance.points(course)
    for nth, point in enumerate(points):
        run = f"{done.name}, disturbance '{disturbance}', point {nth + 1} of {len(points)} ({point})"
        done.failures += [
            Failure(run, oracle, tuple(details)) for oracle, details in await _check_run(course, disturbance, nth)
        ]
        done.runs += 1
    return done


async def _check_run(course: ReferenceRun, disturbance: Disturbance, nth: int) -> list[tuple[Oracle, list[str]]]:
    """Return the oracles that reject one run, with the differences."""
    failed: list[tuple[Oracle, list[str]]] = []
    with _unexpected_exceptions() as defects:
        try:
            play = await disturbance.play(course, nth)
            await play.outlast_evictions()
            outcome = play.world.outcome
            unstable = (
                *disturbance.unstable,
                *course.subject.unstable,
                *(() if course.scenario.exact_counts else HISTORY),
            )
            failed.append((Oracle.END, course.reference.differences(outcome, unstable=unstable)))
            if disturbance.counts != "any" and course.scenario.exact_counts and not play.contended:
                at_most = disturbance.counts == "at most"
                inexact = course.scenario.inexact
                lines = course.reference.miscounts(outcome, inexact=inexact, at_most=at_most)
                failed.append((Oracle.COUNTS, lines))
            failed.append((Oracle.STILL, await _writes_at_rest(play)))
            if not disturbance.sees_past:
                failed.append((Oracle.FLAPPING, list(flaps(play.stage.kind, play.world.history))))
        except KubeError as error:
            failed.append((Oracle.END, [f"a step of the scenario failed: {error}"]))
        except Overwritten as error:
            failed.append((Oracle.NEWER, [str(error)]))
        except Unsafe as error:
            failed.append((Oracle.SAFE, [str(error)]))
        except AssertionError as error:
            failed.append((Oracle.REST, [str(error)]))
    failed.append((Oracle.DEFECT, defects))
    return [(oracle, details) for oracle, details in failed if details]


async def _writes_at_rest(play: ScenarioRun) -> list[str]:
    """Return the writes after a resync of the current process and a start of another one, except failed writes."""
    log = play.world.server.log
    log.reset()
    play.resync()
    await play.settle()
    play.end()
    play.begin()
    await play.settle()
    return [
        f"{write} ({'changed the object' if write.changed else 'no-op'})"
        for write in log.writes()
        if write.status < 400
    ]


@contextmanager
def _unexpected_exceptions() -> Iterator[list[str]]:
    """Collect the unexpected exceptions of reconciles."""
    collector = _ExceptionCollector()
    logger = logging.getLogger(reconciler.__name__)
    before = panics()
    logger.addHandler(collector)
    details: list[str] = []
    try:
        yield details
    finally:
        logger.removeHandler(collector)
        if count := panics() - before:
            details += [f"{count:g} unexpected exceptions", *collector.tracebacks]


class _ExceptionCollector(logging.Handler):
    """Keeps the last lines of logged exceptions."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and (error := record.exc_info[1]):
            self.tracebacks.append(" ".join(traceback.format_exception(error, limit=-1)).strip())
