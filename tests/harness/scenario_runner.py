"""Runs scenarios in memory."""

from __future__ import annotations

import contextlib
import copy
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from shared.kubernetes.errors import AlreadyExists, Conflict, NotFound
from shared.kubernetes.kinds import DISRUPTION_BUDGET, EVENT, Kind, Obj
from shared.runtime.controller import Controller
from shared.runtime.steady_clock import SteadyClock
from simulator.api_server.server import ApiServer
from simulator.clock import Clock
from simulator.faults import CALL, Crash
from simulator.harness import NAMESPACE, NOT_SETTLED, NOW, TURNS, Harness, View
from simulator.kubelet.disruption import STALE_AFTER
from simulator.kubelet.workloads import Workloads
from tests.harness.outcome import ObjectName, Operation, Outcome
from tests.harness.scenario import (
    Judging,
    ScenarioStep,
    Simulated,
    Stage,
    Subject,
    Timed,
    Unsafe,
    Watching,
    later,
)

FIRST_VERSION = 1000
_VERBS = {"ADDED": "created", "DELETED": "deleted"}

MAX_OUTAGE_TURNS = 40
"""Longest outage of a watch, in turns."""


async def _do_nothing(*_: object) -> bool:
    """Do nothing: the default of the hooks."""
    return False


async def _outdated(_: object) -> None:
    """Refuse what a process that is no longer the leader records."""
    raise Conflict("the resource has changed")


class World:
    """Everything that outlives an operator's process: the API server, Kubernetes' controllers, the database, the time.

    Args:
        seed: worlds of different seeds differ in details on which nothing may depend: UIDs, versions, names of pods,
            addresses and the time.

    Attributes:
        namespace: namespace of all objects.
    """

    namespace = NAMESPACE

    def __init__(self, subject: Subject, *, seed: int = 0) -> None:
        self.subject = subject
        self.database = subject.database()
        self.clock = Clock(NOW + timedelta(days=seed))
        kinds = [subject.controller(self.database).kind, *subject.serves]
        self.server = ApiServer(kinds, clock=self.clock, version=FIRST_VERSION * (1 + seed))
        self.workloads = Workloads(
            self.server, processes=self._simulated, created=FIRST_VERSION * seed, nodes=subject.nodes
        )
        self._before = 0
        self._connect_database()

    def fork(self) -> World:
        """Return an independent copy of this world."""
        world = World.__new__(World)
        shared_parts = {id(self.server): self.server}
        world.subject, world.database = self.subject, copy.deepcopy(self.database, shared_parts)
        world.clock = copy.copy(self.clock)
        world.server = self.server.fork(world.clock)
        world.workloads = self.workloads.fork(world.server, world._simulated)
        world._before = self._before
        world._connect_database()
        return world

    def require_safe(self) -> None:
        """Require that no unsafe operation was carried out on the database.

        Raises:
            Unsafe: there was an unsafe operation.
        """
        if self._simulated is not None and self._simulated.violations:
            raise Unsafe("; ".join(self._simulated.violations[:3]))

    def judge(self) -> None:
        """Judge what the operator reports, which is at rest.

        Raises:
            Unsafe: some of it is not true.
        """
        if isinstance(self.database, Judging):
            self.database.judge(self.server.objects())

    def start_counting(self) -> None:
        """Exclude everything up to now from the counts."""
        self._before = len(self.server.watches.history)
        self.server.log.reset()

    @property
    def history(self) -> list[tuple[Kind, Obj]]:
        """Every change since the steps began, in order."""
        return self.server.watches.history[self._before :]

    def operator(self, view: View | None = None) -> Harness:
        """Start a process of the operator."""
        return self.harness(self.subject.controller(self.database), self.subject.patience, view)

    def harness(self, controller: Controller[Any, Any], patience: float, view: View | None = None) -> Harness:
        """Start a controller in this world."""
        clock = SteadyClock(self.clock.wall, self.clock.monotonic)
        return Harness(
            controller, workloads=self.workloads, clock=clock, view=view, patience=patience, wait=self.clock.wait
        )

    def settle_workloads(self) -> None:
        """Let Kubernetes' controllers settle without an operator."""
        while self.workloads.step() or self.server.collect_garbage():
            pass

    @property
    def has_pending_evictions(self) -> bool:
        """Whether a disruption budget counts an evicted pod that still exists.

        That remains of an eviction that arrives late: the API server charges the budget before it compares the UID.
        """
        budgets = self.server.objects(DISRUPTION_BUDGET)
        return any((budget.get("status") or {}).get("disruptedPods") for _, budget in budgets)

    @property
    def _simulated(self) -> Simulated | None:
        return self.database if isinstance(self.database, Simulated) else None

    def _connect_database(self) -> None:
        if self._simulated is not None:
            self.server.check_write = self._simulated.check_write
        if isinstance(self.database, Timed):
            self.database.clock = self.clock
        if isinstance(self.database, Watching):
            self.database.objects = self.server.objects

    @property
    def outcome(self) -> Outcome:
        objects = tuple((kind, obj) for kind, obj in self.server.objects() if kind != EVENT)
        counts = Counter(
            Operation(_VERBS[event["type"]], ObjectName.of(kind, event["object"]), own=False)
            for kind, event in self.history
            if event["type"] in _VERBS and kind != EVENT
        )
        for write in self.server.log.writes(changed=True):
            if write.status == HTTPStatus.CREATED or write.verb == "DELETE":
                verb = "deleted" if write.verb in ("DELETE", "EVICT") else "created"
                counts[Operation(verb, ObjectName(write.kind, write.name), own=True)] += 1
        for what, count in self.database.counts().items():
            counts[Operation("done", ObjectName("database", what), own=True)] = count
        return Outcome(objects, counts, self.database.state())


class ScenarioRun:
    """One run of a scenario.

    Args:
        world: world at the start.

    Attributes:
        operator: current process of the operator; None while there is none.
        lags: whether events reach the operator only when it is idle.
        on_crash: called after a crash, when the next process has started.
        after_step: called when the world has settled after a step, and when a step waits for the operator; returns
            whether the world must settle again.
        contended: whether an operator with a broken watch kept writing against another client until it relisted.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.operator: Harness | None = None
        self.on_crash: Callable[[Crash], Awaitable[object]] = _do_nothing
        self.after_step: Callable[[], Awaitable[bool]] = _do_nothing
        self.contended = False
        self._lags = False
        self._kind = world.subject.controller(world.database).kind

    @property
    def lags(self) -> bool:
        return self._lags

    @lags.setter
    def lags(self, lags: bool) -> None:
        self._lags = lags
        if self.operator is not None:
            self.operator.lags = lags

    @property
    def stage(self) -> Stage:
        world = self.world
        user = world.server.actor("kubectl")
        return Stage(self._kind, world.namespace, user, world.workloads, world.database, clock=world.clock)

    async def run_steps(self, steps: Iterable[ScenarioStep]) -> None:
        """Carry out the steps. At the end an operator runs, its watches work, and the world is settled.

        Raises:
            AssertionError: the world does not settle.
        """
        for step in steps:
            await self.step(step)
        if self.operator is None:
            self.begin()
        await self.settle()
        if self.operator is not None and self.operator.broken_watches:
            self.operator.relist()
            await self.settle()

    async def outlast_evictions(self) -> None:
        """Let Kubernetes forget evictions that ended no pod: until then, their disruption budgets are charged."""
        if self.world.has_pending_evictions:
            self.world.clock.wait(STALE_AFTER.total_seconds() + 1)
            await self.settle()

    async def step(self, step: ScenarioStep) -> None:
        if step.absent:
            self.end()
        elif self.operator is None:
            self.begin()
            await self.settle()
        try:
            step.act(self.stage)
        except (NotFound, AlreadyExists):  # a user would wait for the operator; without one, for other controllers
            if self.operator is not None and self.operator.broken_watches:
                self.operator.relist()
            elif self.operator is not None and not await self.after_step():
                raise
            await self.settle()
            step.act(self.stage)
        if step.unobserved:
            self.resync()
        if step.turns is None:
            await self.settle()
            if await self.after_step():
                await self.settle()
        else:
            await self._turn(step.turns)
            await self._judge_midway()

    async def settle(self) -> None:
        """Settle in spite of crashes."""
        while self.operator is not None:
            was_broken = bool(self.operator.broken_watches)
            if await self._turn(MAX_OUTAGE_TURNS if was_broken else TURNS):
                break
            assert was_broken or self.operator.broken_watches, NOT_SETTLED
            if self.operator.broken_watches:  # a watch may break or recover in between
                self.operator.relist()  # no watch stays broken
                self.contended = True
        if self.operator is None:
            self.world.settle_workloads()
            self.world.require_safe()
        elif not self.operator.broken_watches:
            self.world.judge()

    async def _judge_midway(self) -> None:
        """Judge what the operator reports in the middle of a change: a new process reconciles in a copy of the world.

        The status of the world itself may be older than its last change.
        """
        if not isinstance(self.world.database, Judging):
            return
        world = self.world.fork()
        world.settle_workloads()  # nothing runs in a pod that was deleted, although the operator has not seen it
        operator = world.operator()
        await operator.run()
        operator.stop()
        world.require_safe()
        world.judge()

    async def _turn(self, turns: int) -> bool:
        """Let operator and workloads take a number of turns, also after a crash; return whether they settled."""
        while self.operator is not None:
            try:
                return await self.operator.rests(turns)
            except Crash as crash:
                self.end()
                self.begin()
                await self.on_crash(crash)
            finally:
                self.world.require_safe()
        return True

    def begin(self, view: View | None = None) -> None:
        """Start a process of the operator."""
        self.operator = self.world.operator(view)
        self.operator.lags = self._lags

    def end(self) -> None:
        """End the operator's process; it receives no further events."""
        if self.operator is not None:
            self.operator.stop()
        self.operator = None

    async def carry_out(self, crash: Crash) -> None:
        """Carry out the last request of a crashed process. A running process observes the result at its next resync."""
        if crash.request.method == CALL:
            with contextlib.suppress(Exception):  # the process that would receive the error has ended
                await self.world.subject.controller(self.world.database).call(crash.request.body, _outdated)
        else:
            await self.world.server.request(crash.request)
        self.resync()

    async def wait(self, seconds: float, *, times: int = 1) -> None:
        """Let time pass, and the operator reconcile every resource, a number of times."""
        for _ in range(times):
            later(seconds).act(self.stage)
            self.resync()
            await self.settle()

    def resync(self) -> None:
        """Queue every resource, as the periodic resync does."""
        if self.operator is not None:
            for key in self.operator.cache.keys(self._kind):
                self.operator.queue.add(key)
