"""Client of the sidecars, which attest what their servers run; `exporter.watch` describes how they know it.

The response is not encrypted, and has no secret. Only a sidecar that has the key of the resource can compute the digest
of the users file for the nonce of the request, so that no other program at the address of the pod is believed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from dataclasses import dataclass
from http import HTTPStatus

from operators.memcached.client.errors import TimedOut, UnexpectedAnswer, Unreachable
from shared.kubernetes.addresses import host_port
from shared.kubernetes.encoding import decode

TIMEOUT_SECONDS = 3.0
"""Time limit of the whole request."""

MAX_RESPONSE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Attestation:
    """State of a server, as its sidecar attests it.

    Attributes:
        serves: whether the server has responded to its sidecar lately.
        version: version that the server reports; empty if it is unknown.
        certificate: SHA-256 of the certificate that the server serves; empty without TLS, or if it is unknown.
        users: `digest` of the users file that the server has loaded; empty if that is not proven.
        error: why the sidecar gets no response from the server; empty if it does.
    """

    serves: bool
    version: str = ""
    certificate: str = ""
    users: str = ""
    error: str = ""


def digest(key: bytes, nonce: str, users: bytes) -> str:
    """Return the digest of a users file that only the holders of the key can compute or guess passwords with.

    Args:
        nonce: text that makes the digest valid for one request.
    """
    return hmac.new(key, nonce.encode() + b"\0" + users, hashlib.sha256).hexdigest()


async def fetch(host: str, port: int, nonce: str) -> Attestation:
    """Return what the sidecar at an address attests.

    Args:
        nonce: text for which the digest is computed.

    Raises:
        MemcachedError: there is no valid response; the message states the cause.
    """
    address = host_port(host, port)
    request = f"GET /attestation?nonce={nonce} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=MAX_RESPONSE_BYTES)
            try:
                writer.write(request.encode())
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                length = headers.get("content-length", "")
                body = await reader.readexactly(int(length)) if length.isdecimal() and len(length) < 5 else b""
            finally:
                writer.close()
    except TimeoutError:
        raise TimedOut(f"the sidecar at {address} does not respond within {TIMEOUT_SECONDS:g} s.") from None
    except (OSError, EOFError, asyncio.LimitOverrunError) as error:
        raise Unreachable(f"the sidecar at {address} is unreachable: {error}.") from None
    try:
        status = head.split(" ", 2)[1]
        if status != str(HTTPStatus.OK.value):
            raise ValueError(f"status {status}")
        found = decode(body)
        texts = [found[key] for key in ("version", "certificate", "users", "error")]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("a value is not a text")
        return Attestation(bool(found["serves"]), *(text[:256] for text in texts))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UnexpectedAnswer(f"{address} is not the sidecar of a server: {str(error)[:100]}.") from None
