"""Process of an operator: watches fill the cache, workers reconcile, and everything is shut down in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import signal
import threading
from collections.abc import Callable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from shared.api import admission
from shared.kubernetes import access_review
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.kinds import Key
from shared.kubernetes.transport import Bounded, Transports
from shared.observability import endpoints, http_server, metrics, profiling
from shared.pki.serving import Certificates, FileCertificates, SelfSignedCertificates
from shared.pki.stores import Memory, ReplicaStore, SharedSecret
from shared.pki.trust_bundle import Clients
from shared.runtime import install
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.executor import Permit, always
from shared.runtime.leader_election import Fence, Leadership, Term, Times, unopposed
from shared.runtime.operator import Operator
from shared.runtime.options import Options
from shared.runtime.probing import probe_continuously
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.runtime.reflector import Loss
from shared.runtime.watch import Watch, Watched
from shared.status import resource_metrics
from shared.status.events import Recorder

log = logging.getLogger(__name__)

MAX_RECONCILE_SECONDS = 600.0
"""Seconds after which a running reconcile makes the liveness probe fail: no step takes that long."""

SHUTDOWN_GRACE_SECONDS = 5.0
"""Seconds allowed at exit for tasks that are cancelled."""

RECONCILE_GRACE_SECONDS, EVENT_GRACE_SECONDS = 0.6, 0.2
"""Seconds allowed at exit for running reconciles, then for their events, until the Lease is released. A standby reads
it each 1.1 s at the latest, so that it leads within 2 s. A cancelled reconcile is continued by the next leader."""

WEBHOOK_LINGER_SECONDS = 3.0
"""Seconds for which webhooks still respond at exit: a Service keeps sending requests for a moment."""


class RunningController:
    """Cache, queue and workers of one controller, closed until this replica leads.

    Args:
        permit: called before each database call.
        loss: returns a collection that the controller needs in a namespace and that is not observed, if any.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        kube: Kube,
        recorder: Recorder,
        permit: Permit,
        loss: Callable[[Controller[Any, Any], str], Loss | None],
    ) -> None:
        self.controller = controller
        self.queue = Queue(controller.name)
        self.queue.close()
        self.cache = controller.cache(self.queue.add)
        self.dependencies = Dependencies(controller.reads, self.queue.add)
        self._reconciler = Reconciler(
            controller,
            kube=kube,
            cache=self.cache,
            queue=self.queue,
            recorder=recorder,
            permit=permit,
            loss=lambda key: loss(controller, key.namespace),
            dependencies=self.dependencies,
        )

    @property
    def keys(self) -> list[Key]:
        """Keys of all known resources."""
        return self.cache.keys(self.controller.kind)

    @property
    def resources(self) -> resource_metrics.Resources:
        """Resources of the controller, for metrics."""
        kind, seen = self.controller.kind, self._reconciler.certificate_expiry
        return resource_metrics.Resources(kind, lambda: self.cache.all(kind), self.controller.states, seen)

    def open(self, workers: int) -> set[asyncio.Task[None]]:
        """Reconcile every resource, with this number of workers."""
        self._reconciler.begin()
        self.queue.open()
        for key in self.keys:
            self.queue.add(key)
        name = self.controller.name
        tasks = {asyncio.create_task(self._reconciler.work(), name=f"{name}-worker-{n}") for n in range(workers)}
        if self.controller.probe is not None:
            probing = probe_continuously(self.controller, self.cache, self.queue)
            tasks.add(asyncio.create_task(probing, name=f"{name}-probes"))
        return tasks


class Process:
    """Connects caches, queues, workers and watches, and shuts them down in order."""

    def __init__(
        self, operator: Operator, options: Options, transports: Transports, configuration: Configuration
    ) -> None:
        self._operator = operator
        self._options = options
        self._configuration = configuration
        self._reviews = Kube(transports.reviews, manager=options.operator_name)
        self._kube = Kube(transports.work, manager=options.operator_name)
        self._recorder = Recorder(self._kube, component=options.operator_name)
        self._times = Times(options.lease_duration, options.renew_deadline, options.retry_period)
        self._term: Term = unopposed
        permit: Permit = always
        work = transports.work
        if options.leader_elect:
            leadership = Leadership(
                Kube(transports.lease, manager=options.operator_name),
                self._recorder,
                name=options.operator_name,
                namespace=options.leader_elect_namespace,
                times=self._times,
            )
            self._term, work, permit = leadership.term, Fence(work, leadership), leadership.permit
        fenced = Kube(Bounded(work), manager=options.operator_name)
        controllers = operator.controllers(options)
        self._lanes = [
            RunningController(controller, fenced, self._recorder, permit, self._loss) for controller in controllers
        ]
        self._watch = Watch(
            [Watched(lane.controller, lane.cache, lane.dependencies) for lane in self._lanes],
            kube=self._kube,
            streams=transports.watches,
            configuration=configuration,
            namespaces=options.namespaces,
        )
        self._certificates: Certificates | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Run until a signal arrives; raises the error that makes it impossible to continue."""
        options = self._options
        kinds = [lane.controller.kind for lane in self._lanes]
        if options.install_crds:
            await install.install_crds(self._kube, self._operator.resources)
        for kind in kinds:
            await install.require_served(self._kube, kind, next(iter(options.namespaces), None))
        async with contextlib.AsyncExitStack() as stack:
            await self._answer(stack)
            for lane in self._lanes:
                metrics.show_from_the_start(lane.controller.name)
                metrics.MAX_WORKERS.labels(controller=lane.controller.name).set(options.workers)
            gc.set_threshold(50_000, 20, 50)
            self._start(self._watch.run(begun=self._end_on_signals), "watch").add_done_callback(self._finish)
            self._start(self._recorder.run(), "events")
            self._start(self._resync(), "resync")
            self._start(self._settle_memory(), "gc")
            leading = self._start(self._lead(), "leading")
            served = ", ".join(options.namespaces) or "all namespaces"
            log.info("%s watches %s in %s", options.operator_name, ", ".join(kind.plural for kind in kinds), served)
            try:
                await self._end
            finally:
                await _stop(
                    {leading}, 3 * SHUTDOWN_GRACE_SECONDS
                )  # running reconciles, then their events, then the Lease
                if options.webhook_address != "0":
                    await asyncio.sleep(
                        WEBHOOK_LINGER_SECONDS
                    )  # before kopf stops, which cancels every task, including open connections
                await _stop(set(self._tasks), SHUTDOWN_GRACE_SECONDS)

    async def _answer(self, stack: contextlib.AsyncExitStack) -> None:
        """Serve the HTTP endpoints, on every replica, until the stack is closed."""
        options, tls = self._options, None
        probes = [
            web.get("/healthz", endpoints.probe(self._not_stuck, self._configuration.untrusted, is_liveness=True)),
            web.get("/readyz", endpoints.probe(self._watch.unready, self._is_trusted, note=self._watch.note)),
        ]
        await http_server.serve(stack, options.probe_address, probes)
        if options.profiling:
            await http_server.serve(stack, profiling.ADDRESS, profiling.Profiler().routes, limits=profiling.LIMITS)
        is_secure = options.metrics_secure and options.metrics_address != "0"
        if is_secure or options.webhook_address != "0":
            self._certificates = certificates_of(options, self._kube)
            await self._certificates.open()
            self._start(self._certificates.run(), "certificates")
            tls = self._certificates.context
        scrape = access_review.Guard(self._reviews).protect(endpoints.scrape) if is_secure else endpoints.scrape
        metrics_tls = tls if is_secure else None
        await http_server.serve(stack, options.metrics_address, [web.get("/metrics", scrape)], tls=metrics_tls)
        webhooks = admission.routes(self._operator.admissions)
        await http_server.serve(stack, options.webhook_address, webhooks, tls=tls, limits=admission.LIMITS)

    def _finish(self, _: object = None) -> None:
        """Start an orderly shutdown."""
        if not self._end.done():
            self._end.set_result(None)

    def _end_on_signals(self) -> None:
        """Handle signals by an orderly shutdown, instead of kopf's."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._finish)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fail the process if a background task fails: the operator would otherwise run without it."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._end.done():
            self._end.set_exception(error)

    async def _resync(self) -> None:
        """Relist and reconcile everything periodically, to recover missed events."""
        while True:
            await asyncio.sleep(self._options.resync * random.uniform(0.9, 1.1))
            self._watch.refresh()
            for lane in self._lanes:
                for key in lane.keys:
                    lane.queue.add_after(key, self._options.resync * random.uniform(0.0, 0.5))

    async def _settle_memory(self) -> None:
        """Freeze listed objects, which are long-lived: scanning them is most of the garbage collector's cost."""
        await self._watch.synced.wait()
        gc.freeze()

    async def _lead(self) -> None:
        """Work while this replica leads; it joins the election when its cache is filled."""
        await self._watch.synced.wait()
        while True:
            async with self._term() as lost:
                await self._work(lost)

    async def _work(self, lost: asyncio.Future[None]) -> None:
        """Reconcile until leadership is lost or the process shuts down."""
        workers = {task for lane in self._lanes for task in lane.open(self._options.workers)}
        try:
            with resource_metrics.shown(*(lane.resources for lane in self._lanes)):
                await asyncio.wait({lost, *workers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for lane in self._lanes:
                lane.queue.close()
            if lost.done():  # another replica may start soon: cancel running reconciles
                if running := await _stop(workers, self._times.notice):
                    raise TimeoutError(f"leadership was lost, and {running} could not be stopped")
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        asyncio.gather(*(lane.queue.rest() for lane in self._lanes)), RECONCILE_GRACE_SECONDS
                    )
                await _stop(workers, SHUTDOWN_GRACE_SECONDS)
                await self._recorder.flush(EVENT_GRACE_SECONDS)
        for ended in (lost, *workers):
            if ended.done() and not ended.cancelled():
                ended.result()

    def _loss(self, controller: Controller[Any, Any], namespace: str) -> Loss | None:
        return self._watch.loss(controller, namespace)

    # Probes.

    def _not_stuck(self) -> str | None:
        age = max(lane.queue.oldest_work() for lane in self._lanes)
        return f"a reconcile has been running for {age:.0f} s" if age > MAX_RECONCILE_SECONDS else None

    def _is_trusted(self) -> str | None:
        return self._certificates.unready() if self._certificates else None


async def _stop(tasks: set[asyncio.Task[None]], seconds: float) -> str:
    """Cancel tasks, and wait up to `seconds` for them to end.

    Returns:
        The names of tasks that still run, at most three.
    """
    for task in tasks:
        task.cancel()
    running = (await asyncio.wait(tasks, timeout=seconds))[1] if tasks else set()
    names = ", ".join(sorted(task.get_name() for task in running)[:3])
    if len(running) > 3:
        names += f" and {len(running) - 3} others"
    if names:
        log.warning("%s did not end within %g s", names, seconds)
    return names


def certificates_of(options: Options, kube: Kube) -> Certificates:
    """Return the certificates for the options."""
    clients = Clients(kube, options.webhook_configurations) if options.webhook_configurations else None
    source, is_self_issued = options.certificates, options.certificates.startswith("self:")
    if source and not is_self_issued:
        return FileCertificates(Path(source), clients)
    store: ReplicaStore = SharedSecret(kube, *source.removeprefix("self:").split("/")) if is_self_issued else Memory()
    hosts, life = frozenset(options.certificate_hosts), timedelta(seconds=options.certificate_lifetime)
    return SelfSignedCertificates(store, clients, name=options.operator_name, hosts=hosts, life=life)
