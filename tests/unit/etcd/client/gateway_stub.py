"""As much of etcd's gateway as its client needs: it answers as it is told, wrongly, too."""

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
    """A server that answers as it is told.

    Attributes:
        replies: by path; what is not in it is not known to it.
        asked: what came: path, body and token, in order.
    """

    port: int = 0
    replies: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, Any, str]] = field(default_factory=list)
    connections: int = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        text = await request.text()
        token = request.headers.get("Authorization", "")
        self.asked.append((request.path.removeprefix("/v3/"), json.loads(text) if text else None, token))
        reply = self.replies.get(request.path.removeprefix("/v3/"))
        if callable(reply):
            answer: web.StreamResponse = await reply(request)
            return answer
        if reply is None:
            return web.json_response({"code": 5, "message": "Not Found"}, status=404)
        return web.json_response(reply)

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body, _ in self.asked if asked == path]

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
    """A server; of a path, `_` stands for `/`, as in `maintenance_status`."""
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
    """Sends these bytes, and says that there are so many."""

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


async def silent(_: web.BaseRequest) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


async def hanging_up(request: web.BaseRequest) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def letting_in(password: str = "secret", tokens: tuple[str, ...] = ("token.1", "token.2", "token.3")) -> Reply:
    """Gives one token after the other."""
    left = iter(tokens)

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        if json.loads(await request.text())["password"] != password:
            return web.json_response({"code": 3, "message": "etcdserver: authentication failed"}, status=400)
        return web.json_response({"header": HEADER, "token": next(left)})

    return reply


def asking(answer: Any, valid: set[str]) -> Reply:
    """Answers those who bear a valid token."""

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        token = request.headers.get("Authorization", "")
        if token in valid:
            return web.json_response(answer)
        said = "invalid auth token" if token else "user name is empty"
        return web.json_response({"code": 16, "message": f"etcdserver: {said}"}, status=401)

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
