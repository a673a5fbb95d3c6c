"""An operator's process: kopf watches, our queue works.

kopf is the shell and this is the only module that imports it. Its `on.event` handlers do nothing but enter what they
are told into the cache. kopf tells of no deletion that happened while a watch was broken; so each list that it makes
is followed by one of ours, which becomes the cache's truth. The first of these fill the cache; workers start then.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import kopf
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from shared import crd, endpoints, logs, metrics, status
from shared.events import Recorder
from shared.kube import (
    CRD,
    Forbidden,
    HttpTransport,
    Kind,
    Kube,
    KubeError,
    NotFound,
    Obj,
    Unavailable,
    load_configuration,
)
from shared.options import Options, parse_options
from shared.queue import Queue
from shared.reconciler import Controller, Reconciler

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
        sys.stdout.write("---\n".join(crd.to_yaml(resource) for resource in operator.crds))
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
    """Wires cache, queue, workers and kopf's watches, and ends them in order."""

    def __init__(
        self, controller: Controller[Any, Any], options: Options, kube: Kube, configuration: Configuration
    ) -> None:
        self._controller = controller
        self._options = options
        self._kube = kube
        self._configuration = configuration
        self._queue = Queue(controller.name)
        self._recorder = Recorder(kube, component=controller.name)
        self._cache = controller.cache(self._queue.add)
        self._reconciler = Reconciler(
            controller, kube=kube, cache=self._cache, queue=self._queue, recorder=self._recorder
        )
        self._namespaces: tuple[str | None, ...] = options.namespaces or (None,)
        self._collections = {
            kind.path(namespace): (kind, namespace) for kind in controller.kinds for namespace in self._namespaces
        }
        self._prefix = urlsplit(configuration.host).path.rstrip("/")  # of an API server behind a proxy
        self._unlisted = set(self._collections)
        self._synced = asyncio.Event()
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
        watching = self._start(self._watch(), "kopf")
        writer = self._start(self._recorder.run(), "events")
        self._start(self._resync(), "resync")
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
            await self._kube.list(kind, self._namespaces[0], limit=1)
        except NotFound:
            raise KubeError(
                f"the API server serves no {kind.plural}.{kind.group}/{kind.version}: its CRD is not installed. "
                "Install the chart, run `make install`, or start with --install-crds."
            ) from None

    # What kopf tells, and what we ask.

    async def _watch(self) -> None:
        await kopf.operator(
            registry=self._registry(),
            settings=self._settings(),
            clusterwide=not self._options.namespaces,
            namespaces=self._options.namespaces,
        )

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(self._login)
        for kind in self._controller.kinds:
            on_event = kopf.on.event(
                group=kind.group, version=kind.version, plural=kind.plural, id=kind.plural, registry=registry
            )
            on_event(self._handler(kind))
        return registry

    def _handler(self, kind: Kind) -> Callable[..., None]:
        async def enter(event: kopf.RawEvent, **_: Any) -> None:
            obj: Obj = dict(event["object"])
            obj.setdefault("apiVersion", kind.api_version)
            obj.setdefault("kind", kind.name)
            if event["type"] == "DELETED":
                self._cache.gone(kind, obj)
            else:
                self._cache.seen(kind, obj)

        return enter  # type: ignore[return-value]

    def _settings(self) -> kopf.OperatorSettings:
        settings = kopf.OperatorSettings()
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.posting.enabled = False
        settings.watching.server_timeout = 300
        settings.networking.request_timeout = 30
        settings.persistence.diffbase_storage = _NoDiffBase()
        settings.persistence.progress_storage = _NoProgress()
        for kind in self._controller.owns:
            settings.watching.label_selectors[kind.group, kind.plural] = self._controller.labels_of(kind)
        return settings

    async def _login(self, **_: Any) -> kopf.AiohttpSession:
        """The official client's credentials, in a session that tells us of kopf's lists."""
        configuration = self._configuration
        trace = aiohttp.TraceConfig()
        trace.on_request_end.append(self._on_request)
        bearer = (await configuration.auth_settings()).get("BearerToken")
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=RESTClientObject(configuration).ssl_context),
            headers={"Authorization": str(bearer["value"])} if bearer else {},
            trace_configs=[trace],
        )
        return kopf.AiohttpSession(server=configuration.host, aiohttp_session=session)

    async def _on_request(self, _: Any, __: Any, request: aiohttp.TraceRequestEndParams) -> None:
        path = request.url.path.removeprefix(self._prefix)
        listed = request.method == "GET" and request.response.status == 200 and "watch" not in request.url.query
        if listed and path in self._collections:
            self._start(self._refresh(path), f"list {path}")

    async def _refresh(self, path: str) -> None:
        """Make a list of ours the cache's truth; tries until it succeeds."""
        kind, namespace = self._collections[path]
        delay = 0.5
        while True:
            try:
                listing = await self._kube.list(kind, namespace, labels=self._controller.labels_of(kind))
                break
            except KubeError as error:
                log.warning("cannot list %s, trying again: %s", kind.plural, error)
                await asyncio.sleep(delay)
                delay = min(2 * delay, 30.0)
        for key in self._cache.replace(kind, namespace, listing):
            self._queue.add(key)
        self._unlisted.discard(path)
        if not self._unlisted and not self._synced.is_set():
            gc.freeze()  # what was listed lives long; scanning it again and again is most of gc's cost
            self._synced.set()

    async def _resync(self) -> None:
        """Now and then look at everything again: the net under all that could have been missed."""
        while True:
            await asyncio.sleep(self._options.resync * random.uniform(0.9, 1.1))
            for path in self._collections:
                await self._refresh(path)
            for key in self._cache.keys(self._controller.kind):
                self._queue.add_after(key, self._options.resync * random.uniform(0.0, 0.5))

    async def _work_when_synced(self) -> None:
        await self._synced.wait()
        await self._reconciler.work()

    # Small answers.

    def _not_stuck(self) -> str | None:
        age = self._queue.oldest_work()
        return f"a reconcile has been running for {age:.0f} s" if age > STUCK else None

    def _has_synced(self) -> str | None:
        return None if self._synced.is_set() else f"waiting for lists of {', '.join(sorted(self._unlisted))}"


class _NoDiffBase(kopf.DiffBaseStorage):
    """kopf keeps nothing on objects: with `on.event` alone it needs nothing, and every write of its costs."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


class _NoProgress(kopf.ProgressStorage):
    """As above, for the progress of handlers."""

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None

    def purge(self, **_: Any) -> None:
        return None

    def touch(self, **_: Any) -> None:
        return None

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence
