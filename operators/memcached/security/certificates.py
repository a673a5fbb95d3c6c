"""Which certificate a running server shows, and making it read a renewed one, so that it keeps its items.

A server reads its files at the start and when it is told `refresh_certs`. A renewal reaches them through the kubelet, a
minute or two after the Secret changed; only the server itself knows which one it shows. So servers are asked, and told,
until all of them show the Secret's; its fingerprint then stands in the status, and nobody is asked again before the
Secret has another. Wherever the operator's life ends in this, the next one asks the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from operators.memcached.client.errors import MemcachedError
from operators.memcached.client.server import Server
from operators.memcached.security.secrets import Secrets, fingerprint
from shared.pki.secret_checks import unverifying
from shared.runtime.plan import Call

log = logging.getLogger(__name__)

REFRESH_INTERVAL_SECONDS = 15.0
"""Seconds between two tellings of the same server: the kubelet may not have brought the files yet."""

TIMEOUT_SECONDS = 3.0
"""Seconds that a server gets to answer."""

Connect = Callable[..., Awaitable[Server]]
"""`database.connect`, or what stands in for it in a test."""


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """What a server said.

    Attributes:
        fingerprint: SHA-256 of the certificate that it shows.
        age: seconds since it last read its files.
        error: why it could not be asked; empty if it could.
    """

    fingerprint: str = ""
    age: float = 0.0
    error: str = ""


@dataclass(frozen=True, slots=True)
class RefreshCertificates(Call):
    """Tell servers to read their certificates anew.

    Attributes:
        addresses: each server's pod and IP address.
        secrets: what lets the operator in.
    """

    addresses: tuple[tuple[str, str], ...]
    port: int
    secrets: Secrets = field(repr=False)

    def __str__(self) -> str:
        return f"refresh_certs on {', '.join(name for name, _ in self.addresses)}"


async def inspect_certificate(connect: Connect, address: str, port: int, secrets: Secrets) -> ServedCertificate:
    """Ask a server which certificate it shows; a failure is an answer too."""
    try:
        async with _connected(connect, address, port, secrets) as server:
            stats = await server.stats()
            age = float(stats.get("time_since_server_cert_refresh", "inf"))
            return ServedCertificate(fingerprint(server.certificate), age)
    except MemcachedError as error:
        return ServedCertificate(error=str(error))


async def refresh_certificates(connect: Connect, call: RefreshCertificates) -> None:
    """Tell servers to read their certificates; what comes of it, each says when it is asked again."""
    await asyncio.gather(*(_refresh_server(connect, address, call) for _, address in call.addresses))


async def _refresh_server(connect: Connect, address: str, call: RefreshCertificates) -> None:
    try:
        async with _connected(connect, address, call.port, call.secrets) as server:
            await server.refresh_certs()
    except MemcachedError as error:
        log.warning("certificate not taken up: %s", error)


@asynccontextmanager
async def _connected(connect: Connect, address: str, port: int, secrets: Secrets) -> AsyncIterator[Server]:
    assert secrets.pair is not None
    tls = unverifying(secrets.pair)
    server = await connect(address, port, tls=tls, auth=secrets.credentials, timeout=TIMEOUT_SECONDS)
    try:
        yield server
    finally:
        await server.aclose()
