"""Requests to one member of etcd, over aiohttp; whatever happens to them is told as EtcdError."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import aiohttp
from aiohttp.http_exceptions import LineTooLong

from operators.etcd.client import responses
from operators.etcd.client.errors import EtcdError, Unreachable
from operators.etcd.client.server import Access, Endpoint
from shared.observability import tracing
from shared.pki import verify

REQUEST_TIMEOUT_SECONDS = 5.0
"""Seconds until a question counts as not answered."""

STREAM_PAUSE_SECONDS = 60.0
"""Seconds between two lines of a stream."""

MAX_LINE_BYTES = 2**20
"""Bytes of a line of a stream; etcd's have 44 KiB."""

Answer = TypeVar("Answer")


class Wire:
    """Connections to one member.

    They end with it: to keep them from one look at a cluster to the next would cost some hundred kilobytes a member
    with TLS, and to make them anew costs a few milliseconds.

    Attributes:
        who: names the member in errors.
    """

    def __init__(self, endpoint: Endpoint, access: Access) -> None:
        address = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
        self.label = f"{endpoint.name} ({address}:{endpoint.port})"
        self._url = f"{'https' if access.authority else 'http'}://{address}:{endpoint.port}"
        self._metrics = f"http://{address}:{endpoint.metrics}/metrics"
        self._host = endpoint.host
        self._access = access
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Any], Answer],
        *,
        token: str = "",
        within: float = REQUEST_TIMEOUT_SECONDS,
    ) -> Answer:
        """Ask, and read the answer.

        Args:
            path: under /v3/.
            within: seconds for all of it.
        """
        whole = aiohttp.ClientTimeout(total=within)
        with self._traced(path):
            async with self._response(f"{self._url}/v3/{path}", path, whole, body, token) as answer:
                return self._parsed(path, _json(read), await answer.read())

    async def get(self, path: str, read: Callable[[Any], Answer]) -> Answer:
        """What everybody is told."""
        whole = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        with self._traced(path):
            async with self._response(f"{self._url}/{path}", path, whole) as answer:
                return self._parsed(path, _json(read), await answer.read())

    async def metrics(self, read: Callable[[str], Answer]) -> Answer:
        """What Prometheus is told."""
        whole = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        with self._traced("metrics"):
            async with self._response(self._metrics, "metrics", whole) as answer:
                return self._parsed("metrics", lambda text: read(text.decode()), await answer.read())

    async def lines(self, path: str, *, token: str = "") -> AsyncIterator[bytes]:
        """A stream's answers, one a line."""
        pauses = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_TIMEOUT_SECONDS, sock_read=STREAM_PAUSE_SECONDS)
        async with self._response(f"{self._url}/v3/{path}", path, pauses, {}, token) as answer:
            async for line in answer.content:
                yield line

    def refused(self, path: str, body: bytes) -> EtcdError:
        """What an answer says that is no success."""
        kind, text = responses.refusal(body)
        if kind is Unreachable:
            return kind(f"{self.label} gives no answer of etcd's to {path}: {text}.")
        return kind(f"{self.label} refuses {path}: {text}.")

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _traced(self, path: str) -> AbstractContextManager[object]:
        return tracing.span(f"etcd {path}", server=self.label)

    @asynccontextmanager
    async def _response(
        self,
        url: str,
        path: str,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
        body: Mapping[str, Any] | None = None,
        token: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is a success, to be read."""
        with self._translated_errors(path, timeout):
            async with self._open().request(
                "GET" if body is None else "POST",
                url,
                json=body,
                headers={"Host": self._host} | ({"Authorization": token} if token else {}),
                timeout=timeout,
                server_hostname=self._host if url.startswith("https:") else None,
                allow_redirects=False,
                read_bufsize=MAX_LINE_BYTES // 2,  # as aiohttp counts
            ) as answer:
                if answer.status != HTTPStatus.OK:
                    raise self.refused(path, await answer.read())
                yield answer

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            trust = verify.trust(self._access.authority, self._access.pair) if self._access.authority else True
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=trust), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    def _parsed(self, path: str, read: Callable[[bytes], Answer], text: bytes) -> Answer:
        try:
            return read(text)
        except responses.MALFORMED:
            shown = text[:200].decode(errors="replace")
            raise Unreachable(f"{self.label} answers {path} with what is not etcd's: {shown!r}.") from None

    @contextmanager
    def _translated_errors(self, path: str, timeout: aiohttp.ClientTimeout) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            within = timeout.total or STREAM_PAUSE_SECONDS
            why = f" gave no answer to {path} within {within:g} s: it is busy, out of reach, or without a quorum."
        except (aiohttp.ClientError, OSError) as error:
            why = _cause(path, error, uses_tls=bool(self._access.authority))
        except LineTooLong:
            why = f" answers {path} with what is not etcd's: a line of over {MAX_LINE_BYTES} bytes."
        except ValueError as error:  # of tls.trust
            why = f" cannot be asked for {path}: {error}."
        else:
            return
        raise Unreachable(self.label + why) from None


def _json(read: Callable[[Any], Answer]) -> Callable[[bytes], Answer]:
    return lambda text: read(json.loads(text))


def _cause(path: str, error: BaseException, *, uses_tls: bool) -> str:
    """What happened to a connection, to follow the member's name."""
    if (failed := verify.failure(error)) is not None:
        return f": {verify.cause(failed)}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f" broke off its answer to {path}."
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(error.os_error, ConnectionRefusedError):
            return " refuses connections: nothing listens there."
        if not isinstance(error.os_error, ConnectionError):
            return f" cannot be reached: {error.os_error.strerror or error.os_error}."
    perhaps = "it wants a client certificate, or speaks no TLS" if uses_tls else "it stopped, or expects TLS"
    return f" ended the connection without an answer to {path}: {perhaps}."
