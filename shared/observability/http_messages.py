"""Messages of HTTP/1.1 on asyncio streams: h11 parses heads and forms responses.

A body without Content-Length is refused, and none is decompressed. The exporter of memcached runs in every pod: this
module imports nothing that uses much memory.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

import h11

MAX_HEAD_BYTES = 16 * 1024
"""Size of request line and headers. The token of a service account is about 1 KiB."""

MAX_HEADERS = 40

MAX_QUOTED_CHARACTERS = 100
"""Length of a parser's error in a response: it quotes the request."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: GET, HEAD or POST.
        path: path of the target, without the query.
        query: the query, without the question mark.
        headers: values by lower-case name; those of a repeated header are joined by commas.
        body: the body; empty if there is none.
    """

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Response:
    """A response."""

    status: int = HTTPStatus.OK
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, status: int = HTTPStatus.OK, headers: Mapping[str, str] | None = None) -> Response:
        """Return a response with a text."""
        return cls(status, text.encode(errors="replace"), headers=headers or {})

    @classmethod
    def json(cls, content: object) -> Response:
        """Return a response with a JSON document."""
        return cls(body=json.dumps(content).encode(), content_type="application/json")


class Refused(Exception):
    """The request is not handled; the response has the reason, and the connection is closed.

    Attributes:
        response: the response.
    """

    def __init__(self, status: HTTPStatus, text: str, **headers: str) -> None:
        super().__init__(text)
        self.response = Response.text(f"{text}\n", status, {name.replace("_", "-"): headers[name] for name in headers})


class Head(NamedTuple):
    """Request line and headers, and what follows from them for body and connection."""

    request: Request
    length: int
    keep_alive: bool


async def read_head(reader: asyncio.StreamReader, wire: h11.Connection, wait: float, seconds: float) -> h11.Request:
    """Read a head that begins within `wait` seconds, and then takes at most `seconds`.

    Args:
        wire: parser of this request only. It gets the head but no body, which would be copied.

    Raises:
        Refused: the head is too large, or not one of HTTP/1.1. Its method is unknown.
        TimeoutError, EOFError, OSError: there is none.
    """
    async with asyncio.timeout(wait):
        first = await reader.readexactly(1)
    try:
        async with asyncio.timeout(min(wait, seconds)):
            wire.receive_data(first + await reader.readuntil(b"\r\n\r\n"))
        event = wire.next_event()
    except asyncio.LimitOverrunError:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too large") from None
    except h11.RemoteProtocolError as error:
        why = str(error)[:MAX_QUOTED_CHARACTERS]
        raise Refused(HTTPStatus.BAD_REQUEST, f"the request is not HTTP/1.1: {why}") from None
    if not isinstance(event, h11.Request):
        raise Refused(HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1")
    return event


def head_of(event: h11.Request, wire: h11.Connection) -> Head:
    """Return a head that this server handles.

    Raises:
        Refused: the request is one that this server does not handle.
    """
    if wire.trailing_data[0] or not event.target.startswith(b"/"):
        raise Refused(HTTPStatus.BAD_REQUEST, "the request is not HTTP/1.1")
    if len(event.headers) > MAX_HEADERS:
        raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for name, value in ((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers):
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if "transfer-encoding" in headers:
        raise Refused(HTTPStatus.LENGTH_REQUIRED, "send a body with Content-Length")
    path, _, query = event.target.decode("latin-1").partition("?")
    return Head(
        request=Request(event.method.decode("latin-1"), path, query, headers),
        length=int(headers.get("content-length", 0)),
        keep_alive=event.http_version != b"1.0" and "close" not in headers.get("connection", "").lower(),
    )


async def write(
    writer: asyncio.StreamWriter, wire: h11.Connection, response: Response, method: str, *, keeps: bool
) -> None:
    """Send a response.

    Args:
        method: method of the request; empty if its head could not be parsed. The response of HEAD has no body: h11
            raises an error for one (RFC 9110, 9.3.2).
        keeps: whether the connection stays open.
    """
    status = HTTPStatus(response.status)
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        **response.headers,
        **({} if keeps else {"Connection": "close"}),
    }
    send(writer, wire, h11.Response(status_code=status, headers=list(headers.items()), reason=status.phrase))
    if method != "HEAD":
        send(writer, wire, h11.Data(data=response.body))
    send(writer, wire, h11.EndOfMessage())
    await writer.drain()


def send(writer: asyncio.StreamWriter, wire: h11.Connection, event: h11.Event) -> None:
    if data := wire.send(event):
        writer.write(data)
