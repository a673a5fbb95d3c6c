"""The bare client: creates resources and replays the recorded writes of an operator without any other work."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import aiohttp

from e2e.bench.audit import Call
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError

METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


class Sent(NamedTuple):
    """A request to send.

    Attributes:
        method: HTTP method.
        uri: path and query.
        body: JSON body.
        content_type: media type of the body.
    """

    method: str
    uri: str
    body: bytes
    content_type: str = "application/json"


class Bare:
    """HTTP client with a fixed number of connections; each sends one request at a time."""

    def __init__(self, session: aiohttp.ClientSession, connections: int) -> None:
        self._session = session
        self._connections = connections

    @classmethod
    @asynccontextmanager
    async def of(cls, plane: ControlPlane, connections: int, token: str = "") -> AsyncIterator[Bare]:
        """Connect as an operator does with a token, or else as administrator.

        Args:
            plane: control plane to connect to.
            connections: number of connections.
            token: bearer token; empty for the client certificate of the administrator.
        """
        context = ssl.create_default_context(cafile=str(plane.authority.pair.certificate))
        if not token:
            context.load_cert_chain(plane.admin.certificate, plane.admin.key)
        connector = aiohttp.TCPConnector(limit=connections, ssl=context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with aiohttp.ClientSession(plane.url, connector=connector, headers=headers) as session:
            yield cls(session, connections)

    async def get(self, uri: str) -> Any:
        async with self._session.get(uri) as response:
            response.raise_for_status()
            return await response.json()

    async def send(
        self, requests: Iterable[Sent], advance: Callable[[int], None] = lambda _: None
    ) -> tuple[float, list[bytes]]:
        """Send requests as fast as the connections allow.

        Args:
            requests: requests to send.
            advance: called after each response with the number of new responses.

        Returns:
            Seconds from the first request to the last response, and the bodies of the responses in any order.

        Raises:
            ClusterError: the server rejected a request.
        """
        waiting = iter(requests)
        responses: list[bytes] = []
        rejected: Counter[str] = Counter()

        async def one_connection() -> None:
            for request in waiting:
                headers = {"Content-Type": request.content_type, "Accept": "application/json"}
                async with self._session.request(
                    request.method, request.uri, data=request.body, headers=headers
                ) as response:
                    text = await response.read()
                if response.status >= 400:
                    rejected[text.decode()] += 1
                responses.append(text)
                advance(1)

        began = time.perf_counter()
        await asyncio.gather(*(one_connection() for _ in range(self._connections)))
        took = time.perf_counter() - began
        if rejected:
            reason, count = rejected.most_common(1)[0]
            raise ClusterError(
                f"the API server rejected {rejected.total()} requests of the bare client, {count} with: {reason}",
                "fix the request, which e2e/bench/bare.py builds",
            )
        return took, responses


def replay(write: Call, uids: Mapping[str, str]) -> Sent:
    """Return the request that repeats a recorded write on another API server.

    Args:
        write: successful write, with its body.
        uids: current UID of each resource, by its recorded UID.
    """
    body = write.body
    query = parse_qs(urlsplit(write.uri).query)
    if "fieldManager" in query and write.verb == "patch" and "force" not in query:
        content_type = "application/merge-patch+json"
        # The resourceVersion is a precondition that only the recorded API server can meet.
        body = {**body, "metadata": {k: v for k, v in body.get("metadata", {}).items() if k != "resourceVersion"}}
    else:
        content_type = "application/apply-patch+yaml" if write.verb == "patch" else "application/json"
    return Sent(METHODS[write.verb], write.uri, json.dumps(_with_current_uids(body, uids)).encode(), content_type)


def _with_current_uids(value: Any, uids: Mapping[str, str]) -> Any:
    """Return the JSON value with each recorded UID replaced by the current one."""
    if isinstance(value, dict):
        return {key: _with_current_uids(inner, uids) for key, inner in value.items()}
    if isinstance(value, list):
        return [_with_current_uids(inner, uids) for inner in value]
    return uids[value] if isinstance(value, str) and value in uids else value
