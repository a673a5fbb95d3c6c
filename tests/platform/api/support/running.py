"""The memcached operator in a thread of the test process, with its own event loop."""

from __future__ import annotations

import asyncio
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from operators.memcached.operator import OPERATOR, controller
from shared.cli.options import parse_options
from shared.kubernetes.client import Request, Response, Transport
from shared.kubernetes.credentials import load_configuration
from shared.kubernetes.errors import Unavailable
from shared.kubernetes.kinds import Kind
from shared.kubernetes.transport import Transports
from shared.runtime import operator
from shared.runtime.process import Process
from simulator.faults import WRITES, Crash, Faults, strike
from simulator.memcached.fake_servers import Fleet
from tools.local.machine.network import free_ports

NAME = "memcached-operator"


class SentRequest(NamedTuple):
    """A request of the operator and the server's response, even if a fault dropped it.

    Attributes:
        status: HTTP status; 0 if the request did not arrive.
        uid: UID of the object in the response. The response to a DELETE also has it, whether the object is removed or
            only terminating.
    """

    method: str
    path: str
    status: int
    query: Mapping[str, str]
    uid: str


class Wire:
    """Records the requests of an operator to the API server, and injects faults.

    Attributes:
        log: every request, in order.
        cut: whether a fault has ended the operator. Further requests fail, although the thread takes a while to end.
    """

    def __init__(self) -> None:
        self.cut = False
        self.faults = Faults()
        self.sent: list[SentRequest] = []

    def over(self, transports: Transports) -> Transports:
        """Return transports whose requests pass through this wire. Watches do not."""
        work, lease, reviews = (_Wired(self, each) for each in (transports.work, transports.lease, transports.reviews))
        return Transports(work, lease, reviews, transports.watches)

    async def request(self, request: Request, transport: Transport) -> Response:
        if self.cut:
            raise Crash(f"after the end: {request}", request)
        fault = self.faults.next(request)
        answer = None
        if fault is None or fault.landed:
            try:
                answer = await transport.request(request)
            except Unavailable:
                self._record(request, None)
                raise
        self._record(request, answer)
        if fault is not None:
            self.cut = self.cut or fault.crash
            return strike(fault, request)
        assert answer is not None
        return answer

    def _record(self, request: Request, answer: Response | None) -> None:
        body = (answer.body if answer else None) or {}
        about = (body.get("metadata") or {}) | (body.get("details") or {})  # metadata of an object, details of a Status
        status = answer.status if answer else 0
        self.sent.append(SentRequest(request.method, request.path, status, request.query, about.get("uid", "")))

    @property
    def writes(self) -> list[SentRequest]:
        return [sent for sent in self.sent if sent.method in WRITES]

    @property
    def created(self) -> Counter[str]:
        """Number of creations by the operator per object, without events."""
        return Counter(sent.path for sent in self.writes if sent.status == 201 and "/events" not in sent.path)


@dataclass(frozen=True)
class _Wired:
    """A transport that passes through a wire."""

    wire: Wire
    transport: Transport

    async def request(self, request: Request) -> Response:
        return await self.wire.request(request, self.transport)


class Operator:
    """The operator, started and stopped like a process. Each start has an empty cache.

    Args:
        kubeconfig: credentials of the operator.
        namespaces: namespaces to watch; all by default.
        host: address of a proxy in front of the API server.
        name: name of the operator. Two operators of one name would compete for the same objects.
        flags: further command-line flags.
        of: operator to run, by default memcached's.

    Attributes:
        fleet: fake memcached servers behind the pods.
    """

    def __init__(
        self,
        kubeconfig: Path,
        *namespaces: str,
        host: str = "",
        name: str = NAME,
        resync: float = 3600,
        flags: Sequence[str] = (),
        of: operator.Operator | None = None,
    ) -> None:
        self.wire = Wire()
        self.fleet = Fleet()
        (served,) = OPERATOR.kinds
        with_fleet = replace(
            served, controller=lambda options: controller(options, self.fleet.connect, self.fleet.attest)
        )
        self._operator = of or replace(OPERATOR, kinds=(with_fleet,))
        self._kubeconfig = str(kubeconfig)
        self._host = host
        (port,) = free_ports(1)
        self._ready = f"http://127.0.0.1:{port}/readyz"
        arguments = ["--watch-namespace", ",".join(namespaces), "--resync", str(resync), "--operator-name", name]
        addresses = ["--metrics-bind-address", "0", "--health-probe-bind-address", f"127.0.0.1:{port}"]
        arguments += ["--agent-image", "memcached-operator:test"]
        arguments += ["--allow-host-path", "--operator-peers", '[{"podSelector":{"matchLabels":{"app":"operator"}}}]']
        self._options = parse_options(NAME, "memcached", [*arguments, *addresses, *flags], {})
        self._thread: threading.Thread | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kinds that the operator watches."""
        (served,) = self._operator.controllers(self._options)
        return (*served.kinds, *served.reads)

    def start(self) -> None:
        """Start, and wait until the cache is filled or a fault has ended the operator."""
        self.wire.cut, self._error = False, None
        self._started.clear()
        self._thread = threading.Thread(target=self._run, name="operator")
        self._thread.start()
        deadline = time.monotonic() + 20
        while not self.crashed and not self._answers_ready():
            if self._error:
                raise self._error
            assert time.monotonic() < deadline, "the operator did not become ready"
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the operator as a signal does; do nothing if it does not run."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._started.wait(5) and not self._loop.is_closed():
            with suppress(RuntimeError):  # the loop may close concurrently
                self._loop.call_soon_threadsafe(self._task.cancel)
        with suppress(Crash):
            self._join(thread)

    @property
    def crashed(self) -> bool:
        """Whether a fault has ended the operator, and it was not stopped or started since."""
        return self.wire.cut and self._thread is not None

    def revive(self) -> None:
        """Start the operator again after a crash."""
        assert self.crashed
        with suppress(Crash):
            self.ended()
        self.start()

    def ended(self) -> None:
        """Wait until the operator ends without being stopped, and raise its exception."""
        thread, self._thread = self._thread, None
        assert thread is not None, "the operator does not run"
        self._join(thread)

    def _join(self, thread: threading.Thread) -> None:
        thread.join(15)
        assert not thread.is_alive(), "the operator did not end"
        if self._error:
            raise self._error

    def restart(self) -> None:
        self.stop()
        self.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            self._error = error

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._process())
        self._started.set()
        await self._task

    async def _process(self) -> None:
        configuration = await load_configuration(self._kubeconfig)
        configuration.host = self._host or configuration.host
        async with Transports.open(configuration) as transports:
            await Process(self._operator, self._options, self.wire.over(transports), configuration).run()

    def _answers_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False
