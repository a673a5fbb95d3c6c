"""Runs the scenarios of the crash harness on a real API server, with the operator started and stopped as a process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.errors import KubeError
from shared.kubernetes.kinds import NETWORK_POLICY, POD, REPLICA_SET, Kind
from shared.runtime import operator as process_operator
from shared.status import conditions
from simulator.api_server import garbage_collector
from simulator.faults import Faults, writes
from simulator.kubelet.kubelet import Processes
from tests.harness.outcome import HISTORY, ObjectName, Operation, Outcome, Reference
from tests.harness.reference_run import panics
from tests.harness.scenario import Scenario, ScenarioStep, Stage, Unsafe
from tests.harness.sweep import Failure, Oracle, Sweep
from tests.platform.api.support.live import LiveServer
from tests.platform.api.support.running import Operator, SentRequest
from tests.platform.api.support.world import EVERYTHING, MEMCACHED, World
from tools.local.controlplane import ControlPlane

QUIET = 0.5
"""Seconds without a request or an action after which a run counts as settled. Events and first retries come sooner."""

CHECK_INTERVAL = 0.08
"""Seconds between two checks for a settled run. If a check takes 50% longer, the machine is overloaded; the operator
may be delayed, and the absence of requests proves nothing.
"""

PATIENCE = 20.0
"""Seconds within which a run must reach the same end as the undisturbed one."""

AT_ONCE = 6
"""Number of concurrent runs; most of their time is waiting."""

UNSTABLE = (*HISTORY, "currentRevision", "updateRevision")

Script = Callable[[Faults, int], None]


def counts(method: str, path: str) -> bool:
    """Match the writes of reconciles. Writes of events are excluded, as their timing varies."""
    return writes(method, path) and "/events" not in path


SCRIPTS: dict[str, Script] = {
    "crash after a write": lambda faults, nth: faults.crash_after(nth + 1, when=counts),
    "lost response": lambda faults, nth: faults.lose_answer(skip=nth, when=counts),
    "crash before a write": lambda faults, nth: faults.crash_before(nth + 1, when=counts),
    "409": lambda faults, nth: faults.answer(409, skip=nth, when=counts),
    "429": lambda faults, nth: faults.answer(429, skip=nth, when=counts, retry_after=0.1),
    "500": lambda faults, nth: faults.answer(500, skip=nth, when=counts),
}


@dataclass(frozen=True)
class Cast:
    """The operator under test and its environment.

    Attributes:
        name: name in the summary.
        kind: kind of the resource.
        kinds: all kinds of objects, which are compared at the end.
        database: builds the database of a new world; None if the operator creates its own.
        operator: builds the operator for a database; by default memcached's.
        patience: seconds without a write after which a run counts as settled although the resource is not in its
            desired state. Timers up to this length are awaited.
        unstable: fields that a disturbance may change at the end.
        nodes: number of nodes over which pods are spread.
        uncounted: scenarios in which real time may cause one more recreation of a pod, such as a learner's pod that
            started before the learner was a known member.
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


MEMCACHED_CAST = Cast("memcached", MEMCACHED, (MEMCACHED, *EVERYTHING, NETWORK_POLICY, REPLICA_SET, POD))


class Run:
    """One run in its own namespace."""

    def __init__(
        self, plane: ControlPlane, *, seed: int = 0, cast: Cast = MEMCACHED_CAST, live: type[LiveServer] = LiveServer
    ) -> None:
        self.cast = cast
        self.database = cast.database()
        processes = self.database if isinstance(self.database, Processes) else None
        created = 1000 * seed
        self.world = World(plane, created=created, kinds=cast.kinds, processes=processes, nodes=cast.nodes, live=live)
        of = cast.operator(self.database) if cast.operator else None
        self.operator = Operator(plane.kubeconfig, self.world.namespace, of=of)
        self.operator.start()
        self._running = True

    @property
    def wrote(self) -> list[SentRequest]:
        return [sent for sent in self.operator.wire.writes if counts(sent.method, sent.path)]

    @property
    def outcome(self) -> Outcome:
        done: Counter[Operation] = Counter()
        deleted: set[str] = set()
        for sent in self.wrote:
            evicts = sent.path.endswith("/eviction")
            *_, plural, name = sent.path.removesuffix("/eviction").split("/")
            if sent.status == 201 and not evicts:
                done[Operation("created", ObjectName(plural, name), own=True)] += 1
            elif evicts and sent.status == 201:
                done[Operation("deleted", ObjectName(plural, name), own=True)] += 1
            elif sent.method == "DELETE" and sent.status == 200 and sent.uid not in deleted:
                # A deletion without a response is repeated, perhaps before the object is removed.
                deleted.add(sent.uid)
                done[Operation("deleted", ObjectName(plural, name), own=True)] += 1
        state = self.database.state() if self.database is not None else None
        return Outcome(tuple(self.world.server.objects()), done, state)

    def run_steps(self, steps: Iterable[ScenarioStep]) -> None:
        for step in steps:
            if self._set_operator(not step.absent) and not step.absent:
                self.rest()
            workloads = self.world.workloads
            assert workloads is not None
            database = self.operator.fleet if self.database is None else self.database
            stage = Stage(self.cast.kind, self.world.namespace, self.world.user_client, workloads, database)
            step.act(stage)
            if step.unobserved and self._running:
                self.operator.restart()  # a restart also observes everything
            if step.turns is None:
                self.rest()
        if self._set_operator(True):
            self.rest()

    def rest(self) -> None:
        """Wait until neither operator nor workloads act any more; restart an operator that a fault has ended."""
        since, before = time.monotonic(), -1
        while time.monotonic() - since < (QUIET if self._is_done() else self.cast.patience):
            if self.operator.crashed:
                self.operator.revive()
            moves = self._move()
            now = len(self.wrote if self._polls else self.operator.wire.sent)
            if moves or now != before or not self._statuses_are_current():
                since, before = time.monotonic(), now
            slept_since = time.monotonic()
            time.sleep(CHECK_INTERVAL)
            if time.monotonic() - slept_since > 1.5 * CHECK_INTERVAL:
                since = time.monotonic()
        self._require_safe()

    def eventually(self, differs: Callable[[], list[str]]) -> list[str]:
        """Return the differences at the end, after the run had time to converge."""
        deadline = time.monotonic() + PATIENCE
        while (found := differs()) and time.monotonic() < deadline:
            self.rest()
        return found

    def writes_of_the_next(self) -> list[str]:
        """Return the writes of a restarted operator in a settled world."""
        before = len(self.wrote)
        self.operator.restart()
        self.rest()
        return [f"{sent.method} {sent.path}" for sent in self.wrote[before:]]

    def close(self) -> None:
        self.operator.stop()
        self.world.close()

    def _set_operator(self, must_run: bool) -> bool:
        """Start or stop the operator as required; return whether its state changed."""
        if must_run == self._running:
            return False
        self._running = must_run
        (self.operator.start if must_run else self.operator.stop)()
        return True

    def _move(self) -> int:
        assert self.world.workloads is not None
        self.world.refresh()
        try:
            return self.world.workloads.settle() or garbage_collector.collect(self.world.server)
        except KubeError:
            return 1  # a conflict with another writer: try again

    def _statuses_are_current(self) -> bool:
        """Whether the status of every resource is up to date with its spec."""
        return not self._running or all(map(accessors.is_current, self.world.listed(self.cast.kind)))

    @property
    def _polls(self) -> bool:
        """Whether the operator polls its database, so that its reads are no sign of activity."""
        return self.cast.patience > QUIET

    def _is_done(self) -> bool:
        """Whether no resource waits for a timer."""
        if not self._polls or not self._running:
            return True
        return not any(accessors.is_true(found, conditions.RECONCILING) for found in self.world.listed(self.cast.kind))

    def _require_safe(self) -> None:
        """Require that no unsafe operation was carried out on the database.

        Raises:
            Unsafe: there was an unsafe operation.
        """
        if violations := getattr(self.database, "violations", None):
            raise Unsafe("; ".join(violations[:3]))


@dataclass(frozen=True)
class LiveReferenceRun:
    """An undisturbed run on the real API server.

    Attributes:
        writes: writes of the operator during the steps, in order.
    """

    plane: ControlPlane
    scenario: Scenario
    reference: Reference
    writes: tuple[SentRequest, ...]
    cast: Cast

    @classmethod
    def record(cls, plane: ControlPlane, scenario: Scenario, cast: Cast = MEMCACHED_CAST) -> LiveReferenceRun:
        with ThreadPoolExecutor(2) as pool:
            (one, sent), (other, _) = pool.map(lambda seed: _undisturbed(plane, scenario, seed, cast), (0, 1))
        return cls(plane, scenario, Reference(one, other), tuple(sent), cast)

    def sweep(self, disturbance: str) -> Sweep:
        """Run the scenario once per write, with the fault at that write."""
        done = Sweep(f"{self.cast.name}/{self.scenario} (API server)")
        before = panics()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for failures in pool.map(partial(self._disturbed, disturbance), range(len(self.writes))):
                if failures is not None:
                    done.runs += 1
                    done.failures += failures
        if panics() > before:
            run = f"{done.name}, disturbance '{disturbance}'"
            done.failures.append(Failure(run, Oracle.DEFECT, ("see the log of the test",)))
        return done

    def _disturbed(self, disturbance: str, nth: int) -> list[Failure] | None:
        """Return the failures of a run; None if it had fewer writes, as timing decides the number of status updates."""
        sent = self.writes[nth]
        point = f"write {nth + 1} of {len(self.writes)} ({sent.method} {sent.path})"
        name = f"{self.scenario}, disturbance '{disturbance}', {point}"
        run = Run(self.plane, seed=2 + nth, cast=self.cast)
        unstable = (*UNSTABLE, *self.cast.unstable)
        try:
            run.run_steps(self.scenario.given)
            SCRIPTS[disturbance](run.operator.wire.faults, nth)
            run.run_steps(self.scenario.steps)
            details = {Oracle.END: run.eventually(lambda: self.reference.differences(run.outcome, unstable=unstable))}
            if run.operator.wire.faults.pending:
                return None
            if self.scenario.exact_counts and self.scenario.name not in self.cast.uncounted:
                details[Oracle.COUNTS] = self.reference.miscounts(run.outcome, inexact=self.scenario.inexact)
            details[Oracle.STILL] = run.eventually(run.writes_of_the_next)
            return [Failure(name, oracle, tuple(lines)) for oracle, lines in details.items() if lines]
        finally:
            run.close()


def _undisturbed(plane: ControlPlane, scenario: Scenario, seed: int, cast: Cast) -> tuple[Outcome, list[SentRequest]]:
    """Return the outcome and the writes of an undisturbed run."""
    run = Run(plane, seed=seed, cast=cast)
    try:
        run.run_steps(scenario.given)
        begins = len(run.wrote)
        run.run_steps(scenario.steps)
        reasons = {accessors.condition(found, conditions.READY).get("reason") for found in run.world.listed(cast.kind)}
        expected = {scenario.ends} if scenario.ends else set()
        assert reasons == expected, f"{scenario}: expected final reasons {expected}, found {reasons}"
        return run.outcome, run.wrote[begins:]
    finally:
        run.close()
