"""A controller at work on the in-memory API server, one reconcile at a time and without a clock of its own."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from shared.kubernetes.accessors import resource_version
from shared.kubernetes.client import Kube, Request, error_of
from shared.kubernetes.kinds import EVENT, Key, Kind, Obj
from shared.runtime.controller import Controller
from shared.runtime.plan import Call
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.status.events import Recorder
from shared.testing.api_server.server import ApiServer
from shared.testing.faults import CALL, strike
from shared.testing.kubelet.workloads import Workloads

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "default"

TURNS = 200
"""Turns of operator and workloads within which they come to rest."""

TRIES = 10
"""How often in a row a reconcile fails, and nothing changes meanwhile, before it is taken to fail for good."""

RESTLESS = "operator and workloads do not come to rest"

View = Mapping[Kind, Obj]
"""A list of each kind that an operator watches."""


class Harness:
    """A controller, the server it works on, and the workloads that its objects ask for.

    What the server tells enters the cache at once, unless `server.watches` or one of the attributes below holds it
    back; `run` handles the keys that wait.

    Args:
        view: what it lists when it starts; without one it lists what there is.
        patience: seconds that may pass without anything happening; a timer that is set for longer rings at once.
        wait: lets so many seconds pass.

    Attributes:
        deaf: kinds whose watch is broken: nothing of them is heard, until `relist` or `catch_up`.
        lags: whether news come only when the operator has nothing else to do: a retry comes before them.
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
        self.person = self.server.actor("kubectl")
        self.alive = True
        self.deaf: set[Kind] = set()
        self.lags = False
        self._late: list[tuple[Kind, Obj]] = []
        self._clock = clock
        self._patience = patience
        self._wait = wait
        kube = Kube(self.server, manager=controller.operator)
        self.queue = _TimelessQueue(controller.name, jitter=lambda: 0.0)
        self.recorder = Recorder(kube, component=controller.operator)
        self.cache = controller.cache(self.queue.add)
        tried = dataclasses.replace(controller, call=self._call)
        self.reconciler = Reconciler(
            tried, kube=kube, cache=self.cache, queue=self.queue, recorder=self.recorder, clock=clock
        )
        for kind in controller.kinds:
            self.server.subscribe(lambda event, kind=kind: self._hear(kind, event), kind)  # type: ignore[misc]
        self._listed: dict[Kind, int] = {}
        self.relist(view)

    def relist(self, view: View | None = None) -> None:
        """List everything, as after a restart or a broken watch."""
        for kind, listing in (view or look(self.controller, self.server)).items():
            self.deaf.discard(kind)
            self._listed[kind] = resource_version(listing)
            for key in self.cache.replace(kind, None, listing):
                self.queue.add(key)

    def catch_up(self) -> None:
        """Hear of everything since the last list, as a watch that begins there tells it."""
        self.deaf.clear()
        for kind, event in self.server.watches.history:
            if kind in self.controller.kinds and resource_version(event["object"]) > self._listed[kind]:
                self._hear(kind, event)

    def apply(self, name: str, **spec: Any) -> Obj:
        """A person applies a resource."""
        kind = self.controller.kind
        metadata = {"name": name, "namespace": NAMESPACE}
        obj = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec}
        return self.person.apply(kind, obj, force=True)

    def resource(self, name: str) -> Obj:
        return self.person.get(self.controller.kind, NAMESPACE, name)

    async def run(self) -> list[str]:
        """Reconcile until nobody waits, without waiting for timers.

        Returns:
            The results, in order.

        Raises:
            AssertionError: the operator keeps itself busy for ever.
        """
        results = []
        while len(self.queue):
            key = await self.queue.get()
            results.append(await self.reconciler.reconcile(key))
            self.queue.done(key)
            assert len(results) < 500, f"500 reconciles and no end; the last: {results[-5:]}"
        return results

    async def settle(self) -> None:
        """Let operator and workloads take turns until both rest.

        Raises:
            AssertionError: they do not come to rest.
        """
        assert await self.rests(TURNS), RESTLESS

    async def rests(self, turns: int) -> bool:
        """Let operator and workloads take turns until both rest, and what waits for a time finds nothing new to do.

        Failures are retried at once, not after their wait; timers ring when nothing else happens.

        Returns:
            Whether they came to rest within so many turns.
        """
        rung = before = None
        waited, failed = 0.0, 0
        for _ in range(turns):
            moved = bool(await self.run())
            if self._retry():
                await self.run()
            if self._hear_late():
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
            if delay is None or (rung == self._progress and (not passes or waited >= self._patience)):
                return True
            rung = self._progress
            waited += passes
            self._wait(passes)
            self.queue.ring()
        return False

    async def events(self) -> list[tuple[str, int]]:
        """Reason and count of the events that were written, in order."""
        writer = asyncio.create_task(self.recorder.run())
        await self.recorder.flush(1)
        writer.cancel()
        written = [obj for _, obj in self.server.objects(EVENT)]
        written.sort(key=lambda obj: int(obj["metadata"]["resourceVersion"]))
        return [(obj["reason"], obj["count"]) for obj in written]

    def stop(self) -> None:
        """The operator is gone and hears nothing any more."""
        self.alive = False
        self.queue.close()

    def restart(self) -> Harness:
        """The operator is gone; a new one begins with an empty cache and a list."""
        self.stop()
        return Harness(
            self.controller, workloads=self.workloads, clock=self._clock, patience=self._patience, wait=self._wait
        )

    @property
    def _progress(self) -> tuple[int, int]:
        """Differs when anything was changed in between."""
        return self.server.version, len(self.server.log.writes(changed=True))

    def _retry(self) -> bool:
        """Let keys that failed be tried again; returns whether there are any."""
        failed = [key for key in self.cache.keys(self.controller.kind) if self.queue.failures(key)]
        for key in failed:
            self.queue.add(key)
        return bool(failed)

    def _hear(self, kind: Kind, event: Obj) -> None:
        if not self.alive or kind in self.deaf:
            return
        if self.lags:
            self._late.append((kind, event))
        else:
            self._enter(kind, event)

    def _hear_late(self) -> bool:
        """Hear what was late; returns whether there was anything."""
        late, self._late = self._late, []
        for kind, event in late:
            self._enter(kind, event)
        return bool(late)

    def _enter(self, kind: Kind, event: Obj) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.name} | event["object"]
        (self.cache.gone if event["type"] == "DELETED" else self.cache.seen)(kind, obj)

    async def _call(self, call: Call) -> None:
        """A step on the database is a write like any other: it is logged, and struck by faults."""
        request = Request(CALL, str(call), body=call)
        fault = self.server.faults.next(request)
        if fault is None or fault.landed:
            await self.controller.call(call)
        self.server.log.enter_call(call, landed=fault is None or fault.landed)
        if fault is not None:
            raise error_of(strike(fault, request), request)


def look(controller: Controller[Any, Any], server: ApiServer) -> View:
    """What an operator would list now."""
    view = {}
    for kind in controller.kinds:
        listing = server.handle(Request("GET", kind.path(), {"labelSelector": controller.labels_of(kind)})).body
        items = [{"apiVersion": kind.api_version, "kind": kind.name} | item for item in listing["items"]]
        view[kind] = listing | {"items": items}
    return view


class _TimelessQueue(Queue):
    """A queue whose timers ring when they are told to."""

    def __init__(self, name: str, *, jitter: Callable[[], float]) -> None:
        super().__init__(name, jitter=jitter)
        self._later: dict[Key, float] = {}

    def add(self, key: Key) -> None:
        self._later.pop(key, None)
        super().add(key)

    def add_after(self, key: Key, seconds: float) -> None:
        self._later[key] = min(seconds, self._later.get(key, seconds))

    @property
    def delay(self) -> float | None:
        """Seconds for which the first timer is set; None if there is none."""
        return min(self._later.values(), default=None)

    def ring(self) -> None:
        """Let all timers ring."""
        for key in sorted(self._later):
            self.add(key)
