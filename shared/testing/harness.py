"""A controller at work on the in-memory API server, one reconcile at a time and without a clock of its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from shared.events import Recorder
from shared.kube import EVENT, Kube, Obj, Request
from shared.queue import Queue
from shared.reconciler import Controller, Reconciler
from shared.testing.apiserver import ApiServer
from shared.testing.workloads import Workloads

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = "default"


class Harness:
    """A controller, the server it works on, and the workloads that its objects ask for.

    What the server tells enters the cache at once, unless `server.watches` holds it back; `run` handles the keys that
    wait.
    """

    def __init__(self, controller: Controller[Any, Any], *, workloads: Workloads | None = None) -> None:
        self.controller = controller
        self.workloads = workloads or Workloads(ApiServer([controller.kind]))
        self.server = self.workloads.server
        self.person = self.server.actor("kubectl")
        self.alive = True
        kube = Kube(self.server, manager=controller.name)
        self.queue = Queue(controller.name, jitter=lambda: 0.0)
        self.recorder = Recorder(kube, component=controller.name)
        self.cache = controller.cache(self.queue.add)
        self.reconciler = Reconciler(
            controller, kube=kube, cache=self.cache, queue=self.queue, recorder=self.recorder, clock=lambda: NOW
        )
        for kind in controller.kinds:
            self.server.subscribe(lambda event, kind=kind: self._hear(kind, event), kind)  # type: ignore[misc]
        self.relist()

    def relist(self) -> None:
        """List everything, as after a restart or a broken watch."""
        for kind in self.controller.kinds:
            query = {"labelSelector": self.controller.labels_of(kind)}
            listing = self.server.handle(Request("GET", kind.path(), query)).body
            items = [{"apiVersion": kind.api_version, "kind": kind.name} | item for item in listing["items"]]
            for key in self.cache.replace(kind, None, listing | {"items": items}):
                self.queue.add(key)

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
        """Let operator and workloads take turns until both rest; failures are retried at once, not after their wait."""
        for _ in range(200):
            moved = bool(await self.run())
            for key in self.cache.keys(self.controller.kind):
                if self.queue.failures(key):
                    self.queue.add(key)
            moved |= self.workloads.step() or bool(self.server.collect_garbage())
            if not moved and not len(self.queue):
                return
        raise AssertionError("operator and workloads do not come to rest")

    async def events(self) -> list[tuple[str, int]]:
        """Reason and count of the events that were written, in order."""
        writer = asyncio.create_task(self.recorder.run())
        await self.recorder.flush(1)
        writer.cancel()
        written = [obj for _, obj in self.server.objects(EVENT)]
        written.sort(key=lambda obj: int(obj["metadata"]["resourceVersion"]))
        return [(obj["reason"], obj["count"]) for obj in written]

    def restart(self) -> Harness:
        """The operator is gone and hears nothing any more; a new one begins with an empty cache and a list."""
        self.alive = False
        self.queue.close()
        return Harness(self.controller, workloads=self.workloads)

    def _hear(self, kind: Any, event: Obj) -> None:
        if not self.alive:
            return
        obj = {"apiVersion": kind.api_version, "kind": kind.name} | event["object"]
        (self.cache.gone if event["type"] == "DELETED" else self.cache.seen)(kind, obj)
