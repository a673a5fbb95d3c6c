"""Stub of etcd's gateway with configurable replies, malformed ones included."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from operators.etcd.client.gateway import connect
from operators.etcd.client.server import Access, Endpoint, Server

Reply = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
HEADER = {"cluster_id": "1", "member_id": "2", "revision": "3", "raft_term": "4"}
STATUS = {"header": HEADER, "version": "3.6.16"}
LIST = {"header": HEADER, "members": [{"ID": "2", "name": "demo-0", "peerURLs": ["http://demo-0:2380"]}]}
ROOT = Access(user="root", password="secret")


@dataclass
class Fake:
    """HTTP server with one configured reply per path.

    Attributes:
        replies: reply per path; other paths return 404.
        requests: path, body and token of each request, in order.
    """

    port: int = 0
    replies: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, Any, str]] = field(default_factory=list)
    connections: int = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        text = await request.text()
        token = request.headers.get("Authorization", "")
        self.requests.append((request.path.removeprefix("/v3/"), json.loads(text) if text else None, token))
        reply = self.replies.get(request.path.removeprefix("/v3/"))
        if callable(reply):
            answer: web.StreamResponse = await reply(request)
            return answer
        if reply is None:
            return web.json_response({"code": 5, "message": "Not Found"}, status=404)
        return web.json_response(reply)

    def bodies(self, path: str) -> list[Any]:
        return [body for requested, body, _ in self.requests if requested == path]

    def endpoint(self) -> Endpoint:
        return Endpoint("demo-0", "127.0.0.1", f"demo-0.demo-{self.port}.test", self.port, self.port)

    @asynccontextmanager
    async def connected(self, access: Access = ROOT) -> AsyncIterator[Server]:
        server = connect(self.endpoint(), access)
        try:
            yield server
        finally:
            await server.aclose()


@asynccontextmanager
async def fake(**replies: Any) -> AsyncIterator[Fake]:
    """Run a stub; in the name of a reply, `_` means `/`, as in `maintenance_status`."""
    made = Fake(replies={path.replace("_", "/"): reply for path, reply in replies.items()})
    runner = web.ServerRunner(web.Server(made.handle), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    try:
        yield made
    finally:
        await runner.cleanup()


def refusing(text: str, code: int = 9, status: int = 400) -> Reply:
    async def reply(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"code": code, "message": text}, status=status)

    return reply


def raw(body: bytes, *, length: int | None = None, status: int = 200) -> Reply:
    """Send these bytes with `length` as their Content-Length, or their number by default."""

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(
            status=status, headers={"Content-Length": str(len(body) if length is None else length)}
        )
        await answer.prepare(request)
        await answer.write(body)
        if length is not None and request.transport is not None:
            request.transport.close()
        return answer

    return reply


async def never_replying(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


async def closing_connection(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def issuing_tokens(password: str = "secret", tokens: tuple[str, ...] = ("token.1", "token.2", "token.3")) -> Reply:
    """Check the password and return one token after the other."""
    left = iter(tokens)

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        if json.loads(await request.text())["password"] != password:
            return web.json_response({"code": 3, "message": "etcdserver: authentication failed"}, status=400)
        return web.json_response({"header": HEADER, "token": next(left)})

    return reply


def requiring_token(answer: Any, valid: set[str]) -> Reply:
    """Reply only to requests with a valid token."""

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        if token in valid:
            return web.json_response(answer)
        error = "invalid auth token" if token else "user name is empty"
        return web.json_response({"code": 16, "message": f"etcdserver: {error}"}, status=401)

    return reply


def streaming(*lines: Any, end: bool = True) -> Reply:
    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in lines:
            await answer.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        if not end and request.transport is not None:
            request.transport.close()
        return answer

    return reply


def piece(blob: bytes, left: int = 0) -> dict[str, Any]:
    encoded = base64.b64encode(blob).decode()
    return {"result": {"blob": encoded} | ({"remaining_bytes": str(left)} if left else {})}


async def snapshot(server: Server) -> bytes:
    return b"".join([piece async for piece in server.snapshot()])
