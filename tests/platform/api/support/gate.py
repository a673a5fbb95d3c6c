"""A reverse proxy between the operator and the API server that records requests, breaks watches and injects errors."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import aiohttp
from aiohttp import web

from shared.kubernetes.kinds import Obj
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports

EXPIRED = {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired"}}
"""Watch event of the API server for an expired resourceVersion."""


class Passed(NamedTuple):
    """A request that passed through the proxy."""

    method: str
    path: str
    watch: bool
    status: int


class Gate:
    """A proxy: plain HTTP on loopback for the operator, TLS as administrator to the API server.

    Attributes:
        passed: every request, from the start of its response.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self.passed: list[Passed] = []
        self._watches: dict[asyncio.Task[None], tuple[str, web.StreamResponse]] = {}
        self._refused: dict[str, int] = {}
        self._broken = False
        self._blocked: list[asyncio.Event] = []
        self._started = threading.Event()

    @classmethod
    @contextmanager
    def open(cls, plane: ControlPlane) -> Iterator[Gate]:
        gate = cls(plane)
        thread = threading.Thread(target=lambda: asyncio.run(gate._serve()), name="gate")
        thread.start()
        assert gate._started.wait(10), "the proxy did not start"
        try:
            yield gate
        finally:
            gate._loop.call_soon_threadsafe(gate._end.set)
            thread.join(10)

    @contextmanager
    def watches_broken(self) -> Iterator[None]:
        """Deliver no watch events while the context is open; afterwards answer every watch with 410 (expired)."""
        self._broken = True
        count = len(self._watches)
        self._loop.call_soon_threadsafe(self._cut)
        # A watch that was just being renewed is not counted, and is blocked nevertheless.
        self._wait_for(lambda: len(self._blocked) >= count, "the watches to be retried")
        yield
        self._broken = False
        self._loop.call_soon_threadsafe(self._release)

    @contextmanager
    def refused(self, part: str, status: int) -> Iterator[None]:
        """Answer reads of paths that contain `part` with an error while the context is open; their watches are cut.

        Args:
            part: part of a path; `$` at its end matches the end of the path.
        """
        self._refused[part] = status
        self._loop.call_soon_threadsafe(self._cut, part)
        try:
            self._wait_for(lambda: not self._open(part), f"the watches of {part} to end")
            yield
        finally:
            del self._refused[part]

    def inject(self, frame: Obj, part: str) -> None:
        """Send a watch event on the open watches whose path contains `part`."""
        line = json.dumps(frame).encode() + b"\n"

        async def send() -> None:
            for path, response in list(self._watches.values()):
                if part in path:
                    await response.write(line)

        asyncio.run_coroutine_threadsafe(send(), self._loop).result(10)

    def cut(self, part: str = "") -> None:
        """Break the open watches whose path contains `part`; they can be opened again at once."""
        self._loop.call_soon_threadsafe(self._cut, part)

    def wait_for_watches(self, count: int) -> None:
        self._wait_for(lambda: len(self._watches) == count, f"{count} watches")

    @staticmethod
    def _wait_for(holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 15
        while not holds():
            assert time.monotonic() < deadline, f"timed out waiting for {what}"
            time.sleep(0.02)

    def _open(self, part: str) -> list[asyncio.Task[None]]:
        """Return the open watches whose path contains `part`."""
        return [watch for watch, (path, _) in list(self._watches.items()) if part in f"{path}$"]

    def _cut(self, part: str = "") -> None:
        for watch in self._open(part):
            watch.cancel()

    def _release(self) -> None:
        for blocked in self._blocked:
            blocked.set()
        self._blocked.clear()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        context = ssl.create_default_context(cafile=str(self._plane.authority.pair.certificate))
        context.load_cert_chain(self._plane.admin.certificate, self._plane.admin.key)
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        async with aiohttp.ClientSession(self._plane.url, connector=connector, auto_decompress=False) as self._upstream:
            application = web.Application()
            application.router.add_route("*", "/{path:.*}", self._pass)
            runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            self._started.set()
            await self._end.wait()
            self._release()
            self._cut()
            await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        watch = "watch" in request.query
        if watch and self._broken:
            return await self._hold(request)
        if request.method == "GET" and (status := self._refusal(request.path)):
            self.passed.append(Passed(request.method, request.path, watch, status))
            return web.json_response(
                {"kind": "Status", "message": f"injected: {status}", "code": status}, status=status
            )
        headers = {name: request.headers[name] for name in ("Accept", "Content-Type") if name in request.headers}
        body = await request.read()
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._upstream.request(
            request.method, request.rel_url, headers=headers, data=body or None, timeout=timeout
        ) as answer:
            self.passed.append(Passed(request.method, request.path, watch, answer.status))
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers.get("Content-Type", "")}
            )
            await response.prepare(request)
            copying = asyncio.create_task(_copy(answer, response))
            if watch:
                self._watches[copying] = request.path, response
            try:
                await copying
            except asyncio.CancelledError:
                if request.transport is not None:
                    request.transport.abort()  # a broken watch ends without a final chunk
                raise
            finally:
                self._watches.pop(copying, None)
            await response.write_eof()
            return response

    def _refusal(self, path: str) -> int:
        """Return the status with which reads of a path are refused; 0 for none."""
        return next((status for part, status in self._refused.items() if part in f"{path}$"), 0)

    async def _hold(self, request: web.Request) -> web.StreamResponse:
        released = asyncio.Event()
        self._blocked.append(released)
        await released.wait()
        return web.Response(text=json.dumps(EXPIRED) + "\n", content_type="application/json")


async def _copy(answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
