"""Connections of the operator to running servers: a password is sent only to a server whose certificate is verified."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from operators.memcached.client.errors import NotTrusted, Unreachable
from operators.memcached.client.server import Server
from operators.memcached.objects.pod import CONTAINER
from operators.memcached.security.secrets import Secrets, fingerprint
from shared.pki import certs
from shared.pki.secret_checks import unverifying, verifying_signatures

TIMEOUT_SECONDS = 3.0
"""Time limit of a response."""

MAX_CONNECTIONS = 64
"""Maximum number of connections at once to the servers of a resource, whose author chooses what they send.

1,000 servers that do not respond then prolong an observation by 48 seconds.
"""

Connect = Callable[..., Awaitable[Server]]
"""Type of `client.server.connect`, or of a fake in tests."""


@dataclass(frozen=True)
class Access:
    """How the operator connects to the servers of a resource.

    Attributes:
        connect: opens a connection.
        ports: port of each server, by the IP address of its pod.
        secrets: certificate and passwords of the operator as a client.
        recorded: fingerprint of the certificate that all servers served last; empty if none is recorded. During a
            renewal, a server still serves it.
        hosts: DNS names of the servers (`names.server_hosts`).
        turn: semaphore that each connection holds, also one to a sidecar.
    """

    connect: Connect
    ports: Mapping[str, int]
    secrets: Secrets = field(repr=False)
    recorded: str = ""
    hosts: tuple[str, ...] = ()
    turn: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MAX_CONNECTIONS), compare=False)

    def without_tls(self) -> Access:
        """Return the access to servers without TLS: with TLS in the spec, it sends no password."""
        return self if self.secrets.pair is None else replace(self, secrets=Secrets())

    @cached_property
    def _unverifying(self) -> ssl.SSLContext | None:
        return unverifying(self.secrets.pair) if self.secrets.pair is not None else None

    @cached_property
    def _verifying(self) -> ssl.SSLContext | None:
        pair = self.secrets.pair
        return verifying_signatures(pair, self.secrets.issuers) if pair is not None else None

    @asynccontextmanager
    async def connected(
        self, address: str, credentials: tuple[str, str] | None, **options: bool
    ) -> AsyncIterator[Server]:
        """Connect to a server and authenticate.

        Args:
            address: IP address of the server's pod.
            options: see `client.server.connect`.

        Raises:
            MemcachedError: NotTrusted if there is a password to send, and the certificate of the server is neither that
                of the Secret, nor the recorded one, nor one with a name of the resource and signed by a CA in the
                Secret. Its dates do not count: a server with an expired certificate must load the next one.
        """
        async with self.turn:
            server = await self._connect(address, credentials, **options)
            try:
                yield server
            finally:
                await server.aclose()

    async def _connect(self, address: str, credentials: tuple[str, str] | None, **options: bool) -> Server:
        port = self.ports.get(address)
        if port is None:  # a user edited the workload
            raise Unreachable(f"the pod with the address {address} has no port named {CONTAINER}")
        if self._unverifying is None:
            return await self.connect(address, port, auth=credentials, timeout=TIMEOUT_SECONDS)
        known = {self.secrets.fingerprint, self.recorded} - {""}

        def trusts(certificate: bytes) -> bool:
            return credentials is None or fingerprint(certificate) in known

        connect = partial(self.connect, address, port, auth=credentials, timeout=TIMEOUT_SECONDS, **options)
        try:
            return await connect(tls=self._unverifying, trusts=trusts)
        except NotTrusted:
            if self._verifying is None:
                raise
        try:
            return await connect(tls=self._verifying, trusts=self._is_named)
        except NotTrusted as error:  # another certificate of the CA, which may serve all tenants
            raise NotTrusted(f"{error} It is not the one in the Secret, and has no DNS name {self.hosts[0]}.") from None

    def _is_named(self, certificate: bytes) -> bool:
        """Whether a certificate in DER form has one of the names of the servers."""
        try:
            found = certs.parse(certificate)
        except ValueError:
            return False
        return any(map(found.serves, self.hosts))
