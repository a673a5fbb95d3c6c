"""Process of an operator: watches fill the cache, workers reconcile, and everything is shut down in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import random
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from shared.api import admission
from shared.api.policy import governed
from shared.kubernetes import access_review, accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.credentials import Configuration
from shared.kubernetes.fair_queue import Priority
from shared.kubernetes.kinds import SECRET, Key, Obj
from shared.kubernetes.reachability import Reachability, Reported
from shared.kubernetes.transport import Transports
from shared.observability import endpoints, http_server, metrics, profiling
from shared.observability.http_server import Route
from shared.pki.serving import Certificates, FileCertificates, SelfSignedCertificates
from shared.pki.stores import Memory, ReplicaStore, SharedSecret
from shared.pki.trust_bundle import MUTATING, VALIDATING, Clients
from shared.pki.trust_watch import NamedObject, TrustWatch
from shared.runtime import install, queue
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.leader_election import Fence, Times
from shared.runtime.operator import Operator
from shared.runtime.options import Options
from shared.runtime.pacing import Pace
from shared.runtime.probing import probe_continuously
from shared.runtime.queue import Queue
from shared.runtime.reconciler import Reconciler
from shared.runtime.reflector import Loss
from shared.runtime.shards import Election, Shard, shard_of
from shared.runtime.supervisor import MustEnd, Supervisor
from shared.runtime.watch import Watch, Watched
from shared.status import resource_metrics
from shared.status.events import Recorder

log = logging.getLogger(__name__)

MAX_RECONCILE_SECONDS = 720.0
"""Seconds after which a running reconcile makes the liveness probe fail: it was stopped before (`runtime.reconciler`),
and its clean-up has not ended."""

SHUTDOWN_GRACE_SECONDS = 5.0
"""Seconds allowed at exit for tasks that are cancelled."""

WORKER_GRACE_SECONDS = 15.0
"""Seconds allowed at the end of a term for the clean-up of cancelled reconciles, during which the Lease is renewed. The
longest one, of a Redis migration, takes 10 s."""

RECONCILE_GRACE_SECONDS, EVENT_GRACE_SECONDS = 0.6, 0.2
"""Seconds allowed at exit for running reconciles, then for their events, until the Lease is released. A standby reads
it each 1.1 s at the latest, so that it leads within 2 s. A cancelled reconcile is continued by the next leader."""

SECONDS_PER_TURN = 0.01
"""Time for which a new leader queues resources in one turn of the event loop: it unpacks each, in some milliseconds."""

WEBHOOK_LINGER_SECONDS = 3.0
"""Seconds for which webhooks still respond at exit: a Service keeps sending requests for a moment."""


class Lane:
    """Queue and workers of one controller for one shard, closed until this replica leads the shard.

    Args:
        kube: client whose writes are rejected while another replica may lead the shard.
        loss: returns a collection that the controller needs in a namespace and that is not observed, if any.
        pace: pace of polls of all lanes.
        workers: maximum number of concurrent reconciles.
        supervisor: restarts workers.
    """

    def __init__(
        self,
        running: RunningController,
        shard: Shard,
        kube: Kube,
        recorder: Recorder,
        loss: Callable[[Controller[Any, Any], str], Loss | None],
        pace: Pace,
        workers: int,
        supervisor: Supervisor,
    ) -> None:
        self.shard = shard
        self._supervisor = supervisor
        controller = self._controller = running.controller
        self._cache, self._dependencies = running.cache, running.dependencies
        self._workers = workers
        self.queue = Queue(controller.name, pace=pace, slots=workers, memory=running.cache.memory)
        self.queue.close()
        self._reconciler = Reconciler(
            controller,
            kube=kube,
            cache=running.cache,
            queue=self.queue,
            recorder=recorder,
            permit=shard.permit,
            loss=lambda key: loss(controller, key.namespace),
            dependencies=self._dependencies,
        )

    @property
    def resources(self) -> resource_metrics.Resources:
        """Resources of the lane, for metrics; none unless this replica leads the shard."""
        kind = self._controller.kind

        def served() -> Iterable[Obj]:
            return self._cache.all(kind, of=self.shard.owns) if self.queue.is_open else ()

        return resource_metrics.Resources(kind, served, self._controller.samples, self._reconciler.certificates)

    @property
    def keys(self) -> list[Key]:
        """Keys of all known resources of the shard."""
        return [key for key in self._cache.keys(self._controller.kind) if self.shard.owns(key)]

    async def open(self) -> set[asyncio.Task[None]]:
        """Reconcile every resource of the shard, or continue where the former term ended.

        No other replica led then, and what has changed since is in the queue. Everything else is as this one left it,
        and to read the Secrets of thousands of resources again right after an outage would be the next burden.
        """
        if self.queue.is_suspended and self.shard.continues():
            self.queue.open()
        else:
            await self._begin()
        start, name = self._supervisor.start, self._controller.name
        tasks = {start(f"{name}-worker-{n}", self._reconciler.work) for n in range(self._workers)}
        if self._controller.probe is not None:
            probing = partial(probe_continuously, self._controller, self._cache, self.queue, self.shard.owns)
            tasks.add(start(f"{name}-probes", probing))
        return tasks

    async def _begin(self) -> None:
        """Queue every resource of the shard, first those whose change no event reports, because no replica led."""
        self.queue.close()
        self._dependencies.forget_all(self.shard.owns)
        self._reconciler.begin()
        self.queue.open()
        controller, due = self._controller, time.monotonic() + SECONDS_PER_TURN
        for obj in self._cache.all(controller.kind, of=self.shard.owns):
            key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
            self.queue.add(key, Priority.BACKGROUND if accessors.is_current(obj) else Priority.SPEC)
            if time.monotonic() >= due:
                await asyncio.sleep(0)
                due = time.monotonic() + SECONDS_PER_TURN

    def resync(self, seconds: float) -> None:
        """Reconcile every resource of the shard within this time."""
        if not self.queue.is_open:
            return
        for key in self.keys:
            self.queue.add_after(key, seconds * random.uniform(0.0, 1.0), Priority.BACKGROUND)


class RunningController:
    """Cache of one controller, which every shard shares, and its lanes.

    Args:
        lane: creates the lane of a shard.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        shards: Iterable[Shard],
        lane: Callable[[RunningController, Shard], Lane],
    ) -> None:
        self.controller = controller
        self.cache = controller.cache(self._add)
        self.dependencies = Dependencies(controller.reads, self._add, lambda key: self._lane_of(key).queue.is_open)
        self.lanes = [lane(self, shard) for shard in shards]
        queue.expose(controller.name, (lane.queue for lane in self.lanes))

    def _add(self, key: Key) -> None:
        """Queue a key in the lane of its shard."""
        priority = Priority.SPEC if key in self.cache.outdated else Priority.CHANGE
        self._lane_of(key).queue.add(key, priority)

    def _lane_of(self, key: Key) -> Lane:
        return self.lanes[shard_of(key, len(self.lanes))]


class Process:
    """Connects caches, queues, workers and watches, and shuts them down in order."""

    def __init__(
        self, operator: Operator, options: Options, transports: Transports, configuration: Configuration
    ) -> None:
        self._operator = operator
        self._options = options
        self._configuration = configuration
        self._streams = transports.watches
        self._reachability = Reachability(transports.lease, self._return)
        work, lease = (Reported(each, self._reachability.suspect) for each in (transports.work, transports.lease))
        self._reviews = Kube(transports.reviews, manager=options.operator_name)
        self._kube = Kube(work, manager=options.operator_name)
        self._recorder = Recorder(self._kube, component=options.operator_name)
        self._times = Times(options.lease_duration, options.renew_deadline, options.retry_period)
        self._election: Election | None = None
        self._shards: tuple[Shard, ...] = (Shard(),)
        if options.leader_elect:
            self._election = Election(
                Kube(lease, manager=options.operator_name),
                self._recorder,
                operator=options.operator_name,
                namespace=options.leader_elect_namespace,
                shards=options.shards,
                times=self._times,
            )
            self._shards = self._election.shards
        pace, workers = Pace(), math.ceil(options.workers / len(self._shards))
        supervisor = self._supervisor = Supervisor()

        def lane(running: RunningController, shard: Shard) -> Lane:
            fenced = Kube(Fence(work, shard.permit), manager=options.operator_name)
            return Lane(running, shard, fenced, self._recorder, self._loss, pace, workers, supervisor)

        self._controllers = [
            RunningController(controller, self._shards, lane) for controller in operator.controllers(options)
        ]
        self._lanes = [lane for running in self._controllers for lane in running.lanes]
        self._watch = Watch(
            [Watched(running.controller, running.cache, running.dependencies) for running in self._controllers],
            kube=self._kube,
            streams=transports.watches,
            namespaces=options.namespaces,
            suspect=self._reachability.suspect,
            supervisor=supervisor,
        )
        self._certificates: Certificates | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Run until a signal arrives; raises the error that makes it impossible to continue."""
        options = self._options
        kinds = [running.controller.kind for running in self._controllers]
        if options.install_crds:
            await install.install_crds(self._kube, self._operator.resources)
        for kind in kinds:
            await install.require_served(self._kube, kind, options.namespaces)
        async with contextlib.AsyncExitStack() as stack:
            await self._answer(stack)
            for running in self._controllers:
                metrics.show_from_the_start(running.controller.name)
                metrics.MAX_WORKERS.labels(controller=running.controller.name).set(options.workers)
            stack.enter_context(resource_metrics.shown(*(lane.resources for lane in self._lanes)))
            gc.set_threshold(50_000, 20, 50)
            gc.collect()
            gc.freeze()  # modules: scanning them would be most of the time of a full collection (0.1 s)
            self._start("kopf", partial(self._watch.run, begun=self._end_on_signals))
            self._start("reachability", self._reachability.run)
            self._start("events", self._recorder.run)
            self._start("resync", self._resync)
            if self._election is not None and len(self._shards) > 1:
                self._start("election", self._election.run)
            leading = {self._start(f"leading-{shard.index}", partial(self._lead, shard)) for shard in self._shards}
            served = ", ".join(options.namespaces) or "all namespaces"
            log.info("%s watches %s in %s", options.operator_name, ", ".join(kind.plural for kind in kinds), served)
            try:
                await self._end
            finally:
                # running reconciles, then their events, then the Leases
                await _stop(leading, WORKER_GRACE_SECONDS + SHUTDOWN_GRACE_SECONDS)
                if options.webhook_address != "0":
                    # Before kopf stops, which cancels every task, including open connections.
                    await asyncio.sleep(WEBHOOK_LINGER_SECONDS)
                await _stop(set(self._tasks), SHUTDOWN_GRACE_SECONDS)

    async def _answer(self, stack: contextlib.AsyncExitStack) -> None:
        """Serve the HTTP endpoints, on every replica, until the stack is closed."""
        options, tls = self._options, None
        probes = [
            Route("GET", "/healthz", endpoints.probe(self._not_stuck, self._configuration.untrusted, is_liveness=True)),
            Route("GET", "/readyz", endpoints.probe(self._watch.unready, self._is_trusted, note=self._note)),
        ]
        serve = partial(http_server.serve, stack, refused=endpoints.count_refusal)
        await serve(options.probe_address, probes, limits=endpoints.PROBE_LIMITS)
        if options.profiling:
            await serve(profiling.ADDRESS, profiling.Profiler().routes, limits=profiling.LIMITS)
        is_secure = options.metrics_secure and options.metrics_address != "0"
        if is_secure or options.webhook_address != "0":
            self._certificates = certificates_of(options, self._kube)
            await self._certificates.open()
            watch = TrustWatch(self._streams, objects := trusted_objects(options))
            if objects:
                self._start("certificate-watch", watch.run)
            self._start("certificates", partial(self._certificates.run, watch.wait))
            tls = self._certificates.context
        scrape = access_review.Guard(self._reviews).protect(endpoints.scrape) if is_secure else endpoints.scrape
        metrics_tls = tls if is_secure else None
        metrics_routes = [Route("GET", "/metrics", scrape)]
        await serve(options.metrics_address, metrics_routes, tls=metrics_tls, limits=endpoints.SCRAPE_LIMITS)
        webhooks = admission.routes(governed(each, options.policy) for each in self._operator.admissions_with(options))
        if options.webhook_client_ca and self._certificates is not None:
            tls = self._certificates.for_clients_of(Path(options.webhook_client_ca))
        await serve(options.webhook_address, webhooks, tls=tls, limits=admission.LIMITS)

    def _finish(self, _: object = None) -> None:
        """Start an orderly shutdown."""
        if not self._end.done():
            self._end.set_result(None)

    def _end_on_signals(self) -> None:
        """Handle signals by an orderly shutdown, instead of kopf's."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self._finish)

    def _start(self, name: str, run: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        task = self._supervisor.start(name, run)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Fail the process if a task requires it (`MustEnd`)."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._end.done():
            self._end.set_exception(error)

    async def _resync(self) -> None:
        """Relist and reconcile everything periodically while this replica leads, to recover missed events.

        The caches of other replicas are kept by their watches. What these may miss without an error is recovered when
        the replica leads: until then nothing is decided from its cache. Each lists what was left out once it has space.
        """
        await self._watch.synced.wait()
        gc.freeze()  # listed objects are long-lived: scanning them is most of the garbage collector's cost
        half = self._options.resync / 2
        while True:
            for _ in range(10):
                await asyncio.sleep(half / 10 * random.uniform(0.9, 1.1))
                await self._watch.readmit()
            if any(lane.queue.is_open for lane in self._lanes):
                for lane in self._lanes:
                    lane.resync(half)
                await self._watch.refresh(half)

    async def _return(self) -> None:
        """Try everything again that failed during an outage of the API server."""
        await self._watch.restart()
        for lane in self._lanes:
            lane.queue.retry_now()

    async def _lead(self, shard: Shard) -> None:
        """Work on a shard while this replica leads it; it joins the election when its cache is filled."""
        await self._watch.synced.wait()
        while True:
            async with shard.term() as lost:
                await self._work(shard, lost)

    async def _work(self, shard: Shard, lost: asyncio.Future[None]) -> None:
        """Reconcile until leadership is lost, another replica should lead, or the process shuts down."""
        lanes = [running.lanes[shard.index] for running in self._controllers]
        workers: set[asyncio.Task[None]] = set()
        requested = asyncio.create_task(_wait(shard.requested))
        try:
            for lane in lanes:
                workers |= await lane.open()
            await asyncio.wait({lost, requested, *workers}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            requested.cancel()
            for lane in lanes:
                (lane.queue.suspend if lost.done() else lane.queue.close)()
            if not lost.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RECONCILE_GRACE_SECONDS):
                        await asyncio.gather(*(lane.queue.rest() for lane in lanes))
            await self._end_workers(workers, lost)
            if not lost.done():
                await self._recorder.flush(EVENT_GRACE_SECONDS)
        for ended in (lost, *workers):
            if ended.done() and not ended.cancelled():
                ended.result()

    async def _end_workers(self, workers: set[asyncio.Task[None]], lost: asyncio.Future[None]) -> None:
        """Cancel workers, and wait until their clean-up has ended. Until then, the Lease is renewed.

        Raises:
            MustEnd: a worker could not be stopped in time, so that the Lease must not be released.
        """
        for worker in workers:
            worker.cancel()
        try:
            ended: asyncio.Future[Any] = asyncio.gather(*workers, return_exceptions=True)
            until: set[asyncio.Future[Any]] = {ended, lost}
            await asyncio.wait(until, timeout=WORKER_GRACE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if lost.done():  # another replica may start soon
                await asyncio.wait({ended}, timeout=self._times.notice)
        finally:
            if running := sorted(worker.get_name() for worker in workers if not worker.done()):
                raise MustEnd(f"{_listed(running)} could not be stopped, and another replica must not lead before")

    def _loss(self, controller: Controller[Any, Any], namespace: str) -> Loss | None:
        loss = self._watch.loss(controller, namespace)
        if loss is not None and self._reachability.is_down:
            return replace(loss, seconds=0.0)  # everything is lost: nothing can be reported, and need not be afterwards
        return loss

    # Probes.

    def _note(self) -> str | None:
        """Return what is wrong although the operator is ready: without it, webhooks would fail as well."""
        return "; ".join(filter(None, (self._watch.note(), self._supervisor.note()))) or None

    def _not_stuck(self) -> str | None:
        age = max(lane.queue.oldest_work() for lane in self._lanes)
        return f"a reconcile has been running for {age:.0f} s" if age > MAX_RECONCILE_SECONDS else None

    def _is_trusted(self) -> str | None:
        return self._certificates.unready() if self._certificates else None


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _stop(tasks: set[asyncio.Task[None]], seconds: float) -> None:
    """Cancel tasks, and wait up to `seconds` for them to end."""
    for task in tasks:
        task.cancel()
    running = (await asyncio.wait(tasks, timeout=seconds))[1] if tasks else set()
    if running:
        log.warning("%s did not end within %g s", _listed(sorted(task.get_name() for task in running)), seconds)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")


def certificates_of(options: Options, kube: Kube) -> Certificates:
    """Return the certificates for the options."""
    clients = Clients(kube, options.webhook_configurations) if options.webhook_configurations else None
    source, is_self_issued = options.certificates, options.certificates.startswith("self:")
    if source and not is_self_issued:
        return FileCertificates(Path(source), clients)
    store: ReplicaStore = SharedSecret(kube, *source.removeprefix("self:").split("/")) if is_self_issued else Memory()
    hosts, life = frozenset(options.certificate_hosts), timedelta(seconds=options.certificate_lifetime)
    return SelfSignedCertificates(store, clients, name=options.operator_name, hosts=hosts, life=life)


def trusted_objects(options: Options) -> list[NamedObject]:
    """Return the objects on which the trust in the certificate depends: the configurations, and the shared Secret."""
    name, source = options.webhook_configurations, options.certificates
    found: list[NamedObject] = [(MUTATING, None, name), (VALIDATING, None, name)] if name else []
    if source.startswith("self:"):
        namespace, _, secret = source.removeprefix("self:").partition("/")
        found.append((SECRET, namespace, secret))
    return found
