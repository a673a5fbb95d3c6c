"""Runs a controller against the in-memory API server, one reconcile at a time, on simulated time."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Kube, Request, error_of
from shared.kubernetes.errors import KubeError
from shared.kubernetes.fair_queue import Priority
from shared.kubernetes.kinds import EVENT, Key, Kind, Obj
from shared.runtime.cache import Relist
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.plan import Call, Plan, Record
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.status.events import Recorder
from simulator.api_server.server import ApiServer
from simulator.faults import CALL, strike
from simulator.kubelet.workloads import Workloads

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "default"

TURNS = 400
"""Maximum number of turns of operator and workloads until they settle."""

TRIES = 10
"""Consecutive failures of a reconcile without any change after which it is considered to fail permanently."""

NOT_SETTLED = "operator and workloads do not settle"

View = Mapping[Kind, Obj]
"""A list response for each kind that an operator watches."""


class Harness:
    """A controller, the API server it uses, and the workloads of its objects.

    Changes on the server enter the cache immediately, unless `server.watches` or one of the attributes below delays
    them. `run` reconciles the queued keys.

    Args:
        view: result of the initial list; by default the current objects.
        patience: longest time that passes without any change, in seconds. A timer set for longer fires immediately.
        wait: lets a number of seconds pass.

    Attributes:
        broken_watches: kinds whose watch is broken. Their events are missed until `relist` or `deliver_missed_events`.
        lags: whether events arrive only when the operator is idle, so that a retry precedes them.
        failure: error of the last reconcile that failed; empty if none did.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        *,
        workloads: Workloads | None = None,
        clock: Callable[[], datetime] = lambda: NOW,
        view: View | None = None,
        patience: float = 0.0,
        wait: Callable[[float], None] = lambda _: None,
    ) -> None:
        self.controller = controller
        self.workloads = workloads or Workloads(ApiServer([controller.kind]))
        self.server = self.workloads.server
        self.user_client = self.server.actor("kubectl")
        self.alive = True
        self.broken_watches: set[Kind] = set()
        self.lags = False
        self._late: list[tuple[Kind, Obj]] = []
        self._clock = clock
        self._patience = patience
        self._wait = wait
        kube = Kube(self.server, manager=controller.operator)
        self.queue = _ManualTimerQueue(controller.name, jitter=lambda: 0.0)
        self.recorder = Recorder(kube, component=controller.operator)
        self.cache = controller.cache(self.queue.add)
        disturbed = dataclasses.replace(controller, call=self._call)
        self.reconciler = _NotingReconciler(
            disturbed, kube=kube, cache=self.cache, queue=self.queue, recorder=self.recorder, clock=clock
        )
        for kind in controller.kinds:
            self.server.subscribe(lambda event, kind=kind: self._receive(kind, event), kind)  # type: ignore[misc]
        self._listed: dict[Kind, int] = {}
        self.relist(view)

    @property
    def failure(self) -> str:
        return self.reconciler.failure

    def relist(self, view: View | None = None) -> None:
        """List every kind, as after a restart or a broken watch."""
        for kind, listing in (view or list_view(self.controller, self.server)).items():
            self.broken_watches.discard(kind)
            self._listed[kind] = resource_version(listing)
            for key in Relist(self.cache, kind, None).take(listing):
                self.queue.add(key)

    def deliver_missed_events(self) -> None:
        """Deliver all events since the last list, as a resumed watch does."""
        self.broken_watches.clear()
        for kind, event in self.server.watches.history:
            if kind in self.controller.kinds and resource_version(event["object"]) > self._listed[kind]:
                self._receive(kind, event)

    def apply(self, name: str, **spec: Any) -> Obj:
        """Apply a resource as a user."""
        kind = self.controller.kind
        metadata = {"name": name, "namespace": NAMESPACE}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        return self.user_client.apply(kind, obj, force=True)

    def resource(self, name: str) -> Obj:
        return self.user_client.get(self.controller.kind, NAMESPACE, name)

    async def run(self) -> list[str]:
        """Reconcile until the queue is empty, without waiting for timers.

        Returns:
            Results of the reconciles, in order.

        Raises:
            AssertionError: the queue never becomes empty.
        """
        results = []
        while len(self.queue):
            key = await self.queue.get()
            results.append(await self.reconciler.reconcile(key))
            self.queue.done(key)
            assert len(results) < 500, f"the queue is not empty after 500 reconciles; last results: {results[-5:]}"
        return results

    async def settle(self) -> None:
        """Let operator and workloads take turns until both are idle.

        Raises:
            AssertionError: operator and workloads do not settle.
        """
        assert await self.rests(TURNS), NOT_SETTLED

    async def rests(self, turns: int, check: Callable[[], object] = lambda: None) -> bool:
        """Let operator and workloads take turns until both are idle and no timer leads to another change.

        A failed reconcile is retried immediately. Timers fire when nothing else happens.

        Args:
            turns: maximum number of turns.
            check: called before each turn; an error that it raises ends them.

        Returns:
            Whether they settled within this number of turns.
        """
        fired_at = before = None
        waited, failed = 0.0, 0
        for _ in range(turns):
            check()
            moved = bool(await self.run())
            if self._retry():
                await self.run()
            if self._receive_late():
                continue
            moved |= self.workloads.step() or bool(self.server.collect_garbage())
            if self._progress != before:
                before, waited, failed = self._progress, 0.0, 0
            if self._retry():
                failed += 1
                if failed > TRIES:
                    return True
                continue
            if moved or len(self.queue):
                continue
            delay = self.queue.delay
            passes = delay if delay and delay <= self._patience else 0.0
            if delay is None or (fired_at == self._progress and (not passes or waited >= self._patience)):
                return True
            fired_at = self._progress
            waited += passes
            self._wait(passes)
            self.queue.ring()
        return False

    async def events(self) -> list[tuple[str, int]]:
        """Return reason and count of the recorded events, in order."""
        writer = asyncio.create_task(self.recorder.run())
        await self.recorder.flush(1)
        writer.cancel()
        written = [obj for _, obj in self.server.objects(EVENT)]
        written.sort(key=lambda obj: int(obj["metadata"]["resourceVersion"]))
        return [(obj["reason"], obj["count"]) for obj in written]

    def stop(self) -> None:
        """End the operator's process; it receives no further events."""
        self.alive = False
        self.queue.close()

    def follow(self) -> None:
        """Keep the cache up to date, but reconcile nothing, as a replica that does not lead."""
        self.queue.close()

    def lead(self) -> None:
        """Begin to reconcile every resource after `follow`."""
        self.reconciler.begin()
        self.queue.open()
        for key in self.cache.keys(self.controller.kind):
            self.queue.add(key)

    def restart(self) -> Harness:
        """End the operator's process and start a new one with an empty cache and an initial list."""
        self.stop()
        return Harness(
            self.controller, workloads=self.workloads, clock=self._clock, patience=self._patience, wait=self._wait
        )

    def resync(self) -> None:
        """Queue every resource, as the periodic resync does."""
        for key in self.cache.keys(self.controller.kind):
            self.queue.add(key)

    @property
    def _progress(self) -> tuple[int, int]:
        """A value that differs after every change."""
        return self.server.version, self.server.log.changes

    def _retry(self) -> bool:
        """Queue failed keys again; return whether there are any."""
        failed = [key for key in self.cache.keys(self.controller.kind) if self.queue.failures(key)]
        for key in failed:
            self.queue.add(key)
        return bool(failed)

    def _receive(self, kind: Kind, event: Obj) -> None:
        if not self.alive or kind in self.broken_watches:
            return
        if self.lags:
            self._late.append((kind, event))
        else:
            self._update_cache(kind, event)

    def _receive_late(self) -> bool:
        """Deliver delayed events; return whether there were any."""
        late, self._late = self._late, []
        for kind, event in late:
            self._update_cache(kind, event)
        return bool(late)

    def _update_cache(self, kind: Kind, event: Obj) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.name} | event["object"]
        (self.cache.on_deleted if event["type"] == "DELETED" else self.cache.on_changed)(kind, obj)

    async def _call(self, call: Call, record: Record) -> None:
        """Carry out a database call. Like a write, it is logged and subject to faults."""
        request = Request(CALL, str(call), body=call)
        fault = self.server.faults.next(request)
        if fault is None or fault.landed:
            await self.controller.call(call, record)
        self.server.log.record_call(call, landed=fault is None or fault.landed)
        if fault is not None:
            raise error_of(strike(fault, request), request)


def list_view(controller: Controller[Any, Any], server: ApiServer) -> View:
    """Return the list responses that an operator would receive now."""
    view = {}
    for kind in controller.kinds:
        listing = server.handle(Request("GET", kind.path(), {"labelSelector": controller.labels_of(kind)})).body
        items = [{"apiVersion": kind.api_version, "kind": kind.name} | item for item in listing["items"]]
        view[kind] = listing | {"items": items}
    return view


class _NotingReconciler(Reconciler):
    """A reconciler that notes its last failure."""

    failure = ""

    async def _converge(self, key: Key, obj: Obj) -> Plan:
        try:
            return await super()._converge(key, obj)
        except Exception as error:
            self.failure = f"{error}" if isinstance(error, KubeError | DatabaseError) else f"{error!r}"
            raise


class _ManualTimerQueue(Queue):
    """A queue whose timers fire only on request."""

    def __init__(self, name: str, *, jitter: Callable[[], float]) -> None:
        super().__init__(name, jitter=jitter)
        self._later: dict[Key, float] = {}

    def add(self, key: Key, priority: Priority = Priority.CHANGE) -> None:
        self._later.pop(key, None)
        super().add(key, priority)

    def add_after(self, key: Key, seconds: float, priority: Priority = Priority.CHANGE) -> None:
        self._later[key] = min(seconds, self._later.get(key, seconds))

    def poll(self, key: Key, seconds: float) -> None:
        self.add_after(key, seconds)

    @property
    def delay(self) -> float | None:
        """Seconds until the first timer; None if there is none."""
        return min(self._later.values(), default=None)

    def ring(self) -> None:
        """Fire all timers."""
        for key in sorted(self._later):
            self.add(key)
