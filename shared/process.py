"""An operator's process: watches fill the cache, the queue's workers reconcile, and all of it ends in order."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from kubernetes.aio.client import Configuration

from shared import crd, endpoints, logs, metrics, reference, status
from shared.events import Recorder
from shared.kube import (
    CRD,
    Forbidden,
    HttpTransport,
    Kind,
    Kube,
    KubeError,
    NotFound,
    Unavailable,
    load_configuration,
)
from shared.options import Options, parse_options
from shared.queue import Queue
from shared.reconciler import Controller, Reconciler
from shared.watch import Watch

log = logging.getLogger(__name__)

STUCK = 600.0
"""Seconds after which one reconcile under way makes the liveness probe fail: no step waits that long."""

FAREWELL = 5.0
"""Seconds that work under way and unwritten events get at exit."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as its `__main__` describes it.

    Attributes:
        name: its default name, such as `memcached-operator`.
        image_repository: its operand's default image repository.
        crds: the resources it serves.
        controller: makes its controller from the options.
    """

    name: str
    image_repository: str
    crds: tuple[crd.Resource, ...]
    controller: Callable[[Options], Controller[Any, Any]]


def main(operator: Operator) -> None:
    """Run an operator until it is told to stop; the process's exit code says whether it could."""
    options = parse_options(operator.name, operator.image_repository)
    if options.command == "crd":
        sys.stdout.write("---\n".join(map(crd.to_yaml, operator.crds)))
        return
    if options.command == "reference":
        sys.stdout.write("\n".join(map(reference.to_markdown, operator.crds)))
        return
    logs.configure(options.log_level, options.log_format)
    try:
        asyncio.run(_run(operator, options))
    except (KubeError, OSError, ValueError) as error:
        log.error("%s cannot run: %s", options.operator_name, error)
        sys.exit(1)


async def _run(operator: Operator, options: Options) -> None:
    configuration = await load_configuration(options.kubeconfig)
    transport = HttpTransport(configuration)
    kube = Kube(transport, manager=options.operator_name)
    try:
        if options.install_crds:
            await install_crds(kube, operator.crds)
        process = Process(operator.controller(options), options, kube, configuration)
        await process.run()
    finally:
        await transport.close()


async def install_crds(kube: Kube, resources: Iterable[crd.Resource]) -> None:
    """Apply CRDs and wait until the API server serves them."""
    for resource in resources:
        applied = await kube.apply(CRD, crd.to_dict(resource))
        name = applied["metadata"]["name"]
        for _ in range(100):
            if status.is_true(applied, "Established") and await _is_served(kube, resource.kind):
                log.info("CRD %s is served", name)
                break
            await asyncio.sleep(0.1)
            applied = await kube.get(CRD, None, name)
        else:
            raise Unavailable(f"CRD {name} was applied, but the API server does not serve it")


async def _is_served(kube: Kube, kind: Kind) -> bool:
    """An established CRD's storage still starts for a moment: 404 first, then 429 (to a list without a limit)."""
    try:
        await kube.list(kind)
    except (NotFound, Unavailable):
        return False
    except Forbidden:
        pass  # served, though not to us
    return True


class Process:
    """Wires cache, queue, workers and watches, and ends them in order."""

    def __init__(
        self, controller: Controller[Any, Any], options: Options, kube: Kube, configuration: Configuration
    ) -> None:
        self._controller = controller
        self._options = options
        self._kube = kube
        self._queue = Queue(controller.name)
        self._recorder = Recorder(kube, component=controller.name)
        self._cache = controller.cache(self._queue.add)
        self._reconciler = Reconciler(
            controller, kube=kube, cache=self._cache, queue=self._queue, recorder=self._recorder
        )
        self._watch = Watch(
            controller,
            self._cache,
            kube=kube,
            configuration=configuration,
            namespaces=options.namespaces,
            changed=self._queue.add,
            start=self._start,
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until a signal comes; raises what made going on impossible."""
        await self._require_served()
        servers = [
            await endpoints.serve(self._options.metrics_address, {"/metrics": endpoints.scrape}),
            await endpoints.serve(
                self._options.probe_address,
                {"/healthz": endpoints.probe(self._not_stuck), "/readyz": endpoints.probe(self._has_synced)},
            ),
        ]
        metrics.show_from_the_start(self._controller.name)
        metrics.MAX_WORKERS.labels(controller=self._controller.name).set(self._options.workers)
        gc.set_threshold(50_000, 20, 50)
        watching = self._start(self._watch.run(), "watch")
        writer = self._start(self._recorder.run(), "events")
        self._start(self._resync(), "resync")
        self._start(self._settle_memory(), "gc")
        for number in range(self._options.workers):
            self._start(self._work_when_synced(), f"worker-{number}")
        served = ", ".join(self._options.namespaces) or "all namespaces"
        log.info("%s serves %s in %s", self._controller.name, self._controller.kind.plural, served)
        try:
            await asyncio.wait({watching, self._failure}, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
        finally:
            others = self._tasks - {writer}
            for task in others:
                task.cancel()
            if others:
                await asyncio.wait(others, timeout=FAREWELL)
            await self._recorder.flush(FAREWELL)
            writer.cancel()
            self._queue.close()
            for server in servers:
                if server is not None:
                    await server.cleanup()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A background task that failed fails the process: what it did would be missing silently."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)

    async def _require_served(self) -> None:
        kind = self._controller.kind
        try:
            await self._kube.list(kind, next(iter(self._options.namespaces), None), limit=1)
        except NotFound:
            raise KubeError(
                f"the API server serves no {kind.plural}.{kind.group}/{kind.version}: its CRD is not installed. "
                "Install the chart, run `make install`, or start with --install-crds."
            ) from None

    async def _resync(self) -> None:
        """Now and then look at everything again: the net under all that could have been missed."""
        while True:
            await asyncio.sleep(self._options.resync * random.uniform(0.9, 1.1))
            await self._watch.refresh()
            for key in self._cache.keys(self._controller.kind):
                self._queue.add_after(key, self._options.resync * random.uniform(0.0, 0.5))

    async def _settle_memory(self) -> None:
        """What was listed lives long: scanning it again and again is most of gc's cost."""
        await self._watch.synced.wait()
        gc.freeze()

    async def _work_when_synced(self) -> None:
        await self._watch.synced.wait()
        await self._reconciler.work()

    # Small answers.

    def _not_stuck(self) -> str | None:
        age = self._queue.oldest_work()
        return f"a reconcile has been running for {age:.0f} s" if age > STUCK else None

    def _has_synced(self) -> str | None:
        return None if self._watch.synced.is_set() else f"waiting for lists of {', '.join(self._watch.awaited)}"
