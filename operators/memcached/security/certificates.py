"""Inspection and refresh of the certificates that running servers serve, so that a renewal loses no items.

A server reads its certificate at startup and on the command `refresh_certs`. The kubelet updates the files one or two
minutes after the Secret changes, and only the server itself shows which certificate it serves. The operator inspects
and refreshes the servers until all of them serve the certificate in the Secret. Then it records the fingerprint in the
status, and does not inspect the servers again until the Secret changes. A restarted operator continues from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from operators.memcached.client.errors import MemcachedError
from operators.memcached.security.connection import Access, Connect
from operators.memcached.security.secrets import Secrets, fingerprint
from shared.pki import certs
from shared.runtime.plan import Call

log = logging.getLogger(__name__)

REFRESH_INTERVAL_SECONDS = 15.0
"""Time between two refreshes of the same server: the kubelet may not have updated the files yet."""


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """Certificate that a server serves.

    Attributes:
        fingerprint: SHA-256 of the certificate; empty if the inspection failed.
        age: seconds since the server last loaded its files; 0 if it responds to no ASCII command, which reloads them.
        error: reason why the inspection failed; empty if it succeeded.
        ends: end of the certificate's validity; None if the inspection failed.
    """

    fingerprint: str = ""
    age: float = 0.0
    error: str = ""
    ends: datetime | None = None


@dataclass(frozen=True, slots=True)
class RefreshCertificates(Call):
    """Make servers reload their certificates.

    Attributes:
        addresses: name and IP address of each pod.
        ports: port of each server, by IP address.
        secrets: credentials and certificate of the operator as a client.
        recorded: fingerprint of the certificate that all servers served last.
        hosts: DNS names of the servers.
    """

    addresses: tuple[tuple[str, str], ...]
    ports: Mapping[str, int]
    secrets: Secrets = field(repr=False)
    recorded: str = ""
    hosts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"refresh_certs on {', '.join(name for name, _ in self.addresses)}"


async def inspect_certificate(access: Access, address: str, *, handshake_only: bool = False) -> ServedCertificate:
    """Return the certificate that a server serves, or the error of the inspection."""
    try:
        async with access.connected(address, access.secrets.credentials, handshake_only=handshake_only) as server:
            stats = {"time_since_server_cert_refresh": "0"} if handshake_only else await server.stats()
            age = float(stats.get("time_since_server_cert_refresh", "inf"))
            ends = certs.parse(server.certificate).ends
            return ServedCertificate(fingerprint(server.certificate), age, ends=ends)
    except MemcachedError as error:
        return ServedCertificate(error=str(error))
    except ValueError as error:
        return ServedCertificate(error=f"{address} is not memcached: {str(error)[:200]}.")


async def refresh_certificates(connect: Connect, call: Call) -> None:
    """Make servers reload their certificates; the next inspection shows the result."""
    assert isinstance(call, RefreshCertificates)  # the only call of this operator
    access = Access(connect, call.ports, call.secrets, call.recorded, call.hosts)
    await asyncio.gather(*(_refresh_server(access, address) for _, address in call.addresses))


async def _refresh_server(access: Access, address: str) -> None:
    try:
        async with access.connected(address, access.secrets.credentials) as server:
            await server.refresh_certs()
    except MemcachedError as error:
        log.warning("Certificate not reloaded: %s", error)
