"""A client with nothing around it: it creates the resources, and replays what an operator wrote."""

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
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from e2e.cluster.pki import Pair

METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE"}


class Sent(NamedTuple):
    """A request to send.

    Attributes:
        method: of HTTP.
        uri: path and query.
        body: JSON.
        content_type: how the server should read the body.
    """

    method: str
    uri: str
    body: bytes
    content_type: str = "application/json"


class Bare:
    """Requests over a fixed number of connections, each sending one after the other."""

    def __init__(self, session: aiohttp.ClientSession, connections: int) -> None:
        self._session = session
        self._connections = connections

    @classmethod
    @asynccontextmanager
    async def of(cls, plane: ControlPlane, connections: int, user: Pair | None = None) -> AsyncIterator[Bare]:
        """A client by certificate, as the operator is one too.

        Args:
            user: who it is; None for the administrator.
        """
        pair = user or plane.admin
        context = ssl.create_default_context(cafile=str(plane.authority.pair.certificate))
        context.load_cert_chain(pair.certificate, pair.key)
        connector = aiohttp.TCPConnector(limit=connections, ssl=context)
        async with aiohttp.ClientSession(plane.url, connector=connector) as session:
            yield cls(session, connections)

    async def get(self, uri: str) -> Any:
        async with self._session.get(uri) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def send(
        self, requests: Iterable[Sent], advance: Callable[[int], None] = lambda _: None
    ) -> tuple[float, list[bytes]]:
        """Send all as fast as the connections take them.

        Args:
            advance: told of each answer.

        Returns:
            Seconds from the first request to the last answer, and the answers, in no order.

        Raises:
            ClusterError: the server refused one.
        """
        waiting = iter(requests)
        answers: list[bytes] = []
        refused: Counter[str] = Counter()

        async def one_connection() -> None:
            for request in waiting:
                headers = {"Content-Type": request.content_type, "Accept": "application/json"}
                async with self._session.request(
                    request.method, request.uri, data=request.body, headers=headers
                ) as answer:
                    text = await answer.read()
                if answer.status >= 400:
                    refused[text.decode()] += 1
                answers.append(text)
                advance(1)

        began = time.perf_counter()
        await asyncio.gather(*(one_connection() for _ in range(self._connections)))
        took = time.perf_counter() - began
        if refused:
            why, _ = refused.most_common(1)[0]
            raise ClusterError(f"{refused.total()} requests of the bare client were refused, such as: {why}", "see it")
        return took, answers


def replay(write: Call, uids: Mapping[str, str]) -> Sent:
    """A recorded write as it is sent to another API server, about the same resources.

    Args:
        write: one that succeeded, with its body.
        uids: by a resource's UID when it was recorded, its UID now.
    """
    body = write.body
    query = parse_qs(urlsplit(write.uri).query)
    if "fieldManager" in query and write.verb == "patch" and "force" not in query:
        content_type = "application/merge-patch+json"
        # What a status tells of was seen at a version that only the recorded server had.
        body = {**body, "metadata": {k: v for k, v in body.get("metadata", {}).items() if k != "resourceVersion"}}
    else:
        content_type = "application/apply-patch+yaml" if write.verb == "patch" else "application/json"
    return Sent(METHODS[write.verb], write.uri, json.dumps(_renewed(body, uids)).encode(), content_type)


def _renewed(value: Any, uids: Mapping[str, str]) -> Any:
    """The same JSON with each recorded UID as it is now."""
    if isinstance(value, dict):
        return {key: _renewed(inner, uids) for key, inner in value.items()}
    if isinstance(value, list):
        return [_renewed(inner, uids) for inner in value]
    return uids[value] if isinstance(value, str) and value in uids else value
