"""Plays the crash harness's scenarios on a real API server, with the operator as it is started and ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from e2e.cluster.controlplane import ControlPlane
from shared.kubernetes import accessors
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import POD, Kind
from shared.runtime import operator as process_operator
from shared.status import conditions
from shared.testing.api_server import garbage_collector
from shared.testing.faults import Faults, writes
from shared.testing.harness.outcome import HISTORY, Done, Named, Outcome, Reference
from shared.testing.harness.reference_run import panics
from shared.testing.harness.scenario import Scenario, ScenarioStep, Stage, Unsafe
from shared.testing.harness.sweep import Failure, Oracle, Sweep
from shared.testing.kubelet.kubelet import Processes
from tests.api.support.running import Asked, Operator
from tests.api.support.world import EVERYTHING, MEMCACHED, World

QUIET = 0.5
"""Seconds without a request or a move after which all rest: news and a first retry come sooner."""

LOOK = 0.08
"""Seconds between two looks at whether all rest. Where they take half as much again the machine is busy with other
things, the operator may be kept from going on, and nothing can be told from its silence."""

PATIENCE = 20.0
"""Seconds within which a run must end as the undisturbed one."""

AT_ONCE = 6
"""Runs at a time: most of each is waiting."""

UNSTABLE = (*HISTORY, "currentRevision", "updateRevision")

Script = Callable[[Faults, int], None]


def counts(method: str, path: str) -> bool:
    """Writes of reconciles: those of events come when they come."""
    return writes(method, path) and "/events" not in path


SCRIPTS: dict[str, Script] = {
    "a crash after": lambda faults, nth: faults.crash_after(nth + 1, when=counts),
    "an answer lost": lambda faults, nth: faults.lose_answer(skip=nth, when=counts),
    "a crash before": lambda faults, nth: faults.crash_before(nth + 1, when=counts),
    "409": lambda faults, nth: faults.answer(409, skip=nth, when=counts),
    "429": lambda faults, nth: faults.answer(429, skip=nth, when=counts, retry_after=0.1),
    "500": lambda faults, nth: faults.answer(500, skip=nth, when=counts),
}


@dataclass(frozen=True)
class Cast:
    """Who plays.

    Attributes:
        name: the operator's, as the summary has it.
        kind: the resource's kind.
        kinds: all that may be there, of which the end is compared.
        database: makes the database of a new world; None where the operator brings its own.
        operator: the operator over such a database; without it, memcached's.
        patience: seconds without a write after which all rest though the resource is not as wanted: for so long timers
            are waited for.
        unstable: fields that may end otherwise where something went wrong.
        nodes: how many nodes pods are spread over.
        uncounted: scenarios in which a pod may be made anew once more, as real time has it: a learner's that came
            before it was known as one.
    """

    name: str
    kind: Kind
    kinds: tuple[Kind, ...]
    database: Callable[[], Any] = lambda: None
    operator: Callable[[Any], process_operator.Operator] | None = None
    patience: float = QUIET
    unstable: tuple[str, ...] = ()
    nodes: int = 1
    uncounted: frozenset[str] = frozenset()


MEMCACHED_CAST = Cast("memcached", MEMCACHED, (MEMCACHED, *EVERYTHING, POD))


class Run:
    """One run in a namespace of its own."""

    def __init__(self, plane: ControlPlane, *, seed: int = 0, cast: Cast = MEMCACHED_CAST) -> None:
        self.cast = cast
        self.database = cast.database()
        processes = self.database if isinstance(self.database, Processes) else None
        self.world = World(plane, made=1000 * seed, kinds=cast.kinds, processes=processes, nodes=cast.nodes)
        of = cast.operator(self.database) if cast.operator else None
        self.operator = Operator(plane.kubeconfig, self.world.namespace, of=of)
        self.operator.start()
        self._here = True

    @property
    def wrote(self) -> list[Asked]:
        return [asked for asked in self.operator.wire.writes if counts(asked.method, asked.path)]

    @property
    def outcome(self) -> Outcome:
        done: Counter[Done] = Counter()
        deleted: set[str] = set()
        for asked in self.wrote:
            *_, plural, name = asked.path.split("/")
            if asked.status == 201:
                done[Done("created", Named(plural, name), own=True)] += 1
            elif asked.method == "DELETE" and asked.status == 200 and asked.uid not in deleted:
                deleted.add(asked.uid)  # who got no answer asks again, perhaps before it is gone
                done[Done("deleted", Named(plural, name), own=True)] += 1
        state = self.database.state() if self.database is not None else None
        return Outcome(tuple(self.world.server.objects()), done, state)

    def go(self, steps: Iterable[ScenarioStep]) -> None:
        for step in steps:
            if self._be_here(not step.absent) and not step.absent:
                self.rest()
            workloads = self.world.workloads
            assert workloads is not None
            database = self.operator.fleet if self.database is None else self.database
            stage = Stage(self.cast.kind, self.world.namespace, self.world.person, workloads, database)
            step.act(stage)
            if step.untold and self._here:
                self.operator.restart()  # it looks at everything again
            if step.turns is None:
                self.rest()
        if self._be_here(True):
            self.rest()

    def rest(self) -> None:
        """Wait until nobody does anything any more; an operator that a fault has ended starts again."""
        since, before = time.monotonic(), -1
        while time.monotonic() - since < (QUIET if self._is_done() else self.cast.patience):
            if self.operator.crashed:
                self.operator.revive()
            moves = self._move()
            now = len(self.wrote if self._polls else self.operator.wire.asked)
            if moves or now != before or not self._told():
                since, before = time.monotonic(), now
            looked = time.monotonic()
            time.sleep(LOOK)
            if time.monotonic() - looked > 1.5 * LOOK:
                since = time.monotonic()
        self._require_safe()

    def eventually(self, differs: Callable[[], list[str]]) -> list[str]:
        """What differs in the end, after it had its time."""
        deadline = time.monotonic() + PATIENCE
        while (found := differs()) and time.monotonic() < deadline:
            self.rest()
        return found

    def writes_of_the_next(self) -> list[str]:
        """What the next process writes, though nothing is left to do."""
        before = len(self.wrote)
        self.operator.restart()
        self.rest()
        return [f"{asked.method} {asked.path}" for asked in self.wrote[before:]]

    def close(self) -> None:
        self.operator.stop()
        self.world.close()

    def _be_here(self, wanted: bool) -> bool:
        """Let there be an operator, or none; returns whether that is new."""
        if wanted == self._here:
            return False
        self._here = wanted
        (self.operator.start if wanted else self.operator.stop)()
        return True

    def _move(self) -> int:
        assert self.world.workloads is not None
        try:
            return self.world.workloads.settle() or garbage_collector.collect(self.world.server)
        except KubeError:
            return 1  # somebody was faster; it is looked at again

    def _told(self) -> bool:
        """Whether every status tells of the newest spec."""
        return not self._here or all(map(accessors.is_current, self.world.listed(self.cast.kind)))

    @property
    def _polls(self) -> bool:
        """Whether the operator looks at its database again and again, so that its reads tell nothing."""
        return self.cast.patience > QUIET

    def _is_done(self) -> bool:
        """Whether no resource waits for what a timer would bring."""
        if not self._polls or not self._here:
            return True
        return not any(accessors.is_true(found, conditions.RECONCILING) for found in self.world.listed(self.cast.kind))

    def _require_safe(self) -> None:
        """Make sure that nothing was done to the database that must not.

        Raises:
            Unsafe: it was.
        """
        if violations := getattr(self.database, "violations", None):
            raise Unsafe("; ".join(violations[:3]))


@dataclass(frozen=True)
class LiveCourse:
    """How a scenario goes on the real API server if nothing goes wrong.

    Attributes:
        writes: what the operator wrote during the steps, in order.
    """

    plane: ControlPlane
    scenario: Scenario
    reference: Reference
    writes: tuple[Asked, ...]
    cast: Cast

    @classmethod
    def learn(cls, plane: ControlPlane, scenario: Scenario, cast: Cast = MEMCACHED_CAST) -> LiveCourse:
        with ThreadPoolExecutor(2) as pool:
            (one, asked), (other, _) = pool.map(lambda seed: _undisturbed(plane, scenario, seed, cast), (0, 1))
        return cls(plane, scenario, Reference(one, other), tuple(asked), cast)

    def sweep(self, disturbance: str) -> Sweep:
        """Play it with the fault on each write."""
        done = Sweep(f"{self.cast.name}/{self.scenario} (API server)")
        before = panics()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for failures in pool.map(partial(self._disturbed, disturbance), range(len(self.writes))):
                if failures is not None:
                    done.runs += 1
                    done.failures += failures
        if panics() > before:
            done.failures.append(Failure(f"{done.name}, {disturbance}", Oracle.DEFECT, ("the log tells of it",)))
        return done

    def _disturbed(self, disturbance: str, nth: int) -> list[Failure] | None:
        """What did not hold of a run; None if it had fewer writes: how many statuses there are is a matter of time."""
        asked = self.writes[nth]
        name = f"{self.scenario}, {disturbance} {nth + 1} of {len(self.writes)} ({asked.method} {asked.path})"
        run = Run(self.plane, seed=2 + nth, cast=self.cast)
        unstable = (*UNSTABLE, *self.cast.unstable)
        try:
            run.go(self.scenario.given)
            SCRIPTS[disturbance](run.operator.wire.faults, nth)
            run.go(self.scenario.steps)
            said = {Oracle.END: run.eventually(lambda: self.reference.differences(run.outcome, unstable=unstable))}
            if run.operator.wire.faults.pending:
                return None
            if self.scenario.counted and self.scenario.name not in self.cast.uncounted:
                said[Oracle.COUNTS] = self.reference.miscounts(run.outcome)
            said[Oracle.STILL] = run.eventually(run.writes_of_the_next)
            return [Failure(name, oracle, tuple(lines)) for oracle, lines in said.items() if lines]
        finally:
            run.close()


def _undisturbed(plane: ControlPlane, scenario: Scenario, seed: int, cast: Cast) -> tuple[Outcome, list[Asked]]:
    """How it ends, and what was written on the way."""
    run = Run(plane, seed=seed, cast=cast)
    try:
        run.go(scenario.given)
        begins = len(run.wrote)
        run.go(scenario.steps)
        reasons = {accessors.condition(found, conditions.READY).get("reason") for found in run.world.listed(cast.kind)}
        assert reasons == ({scenario.ends} if scenario.ends else set()), f"{scenario} ends with {reasons}"
        return run.outcome, run.wrote[begins:]
    finally:
        run.close()
