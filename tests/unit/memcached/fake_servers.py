"""Fake memcached servers and their certificates."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

from operators.memcached.client.errors import AuthenticationFailed, NotTrusted, TLSFailed, Unreachable
from operators.memcached.client.server import Section
from shared.kubernetes.kinds import Obj
from shared.pki import ca, certs
from shared.testing.harness.harness import NAMESPACE

BEGINS, ENDS = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""Validity: it includes the time of every world, and the real time."""


@cache
def signer(name: str) -> certs.Pair:
    return ca.authority(name, begins=BEGINS, ends=ENDS)


@cache
def certificate(name: str = "cache", *, by: str = "ca", client: bool = True, ended: bool = False) -> certs.Pair:
    ends = BEGINS + timedelta(hours=1) if ended else ENDS
    return ca.issue(signer(by), name, begins=BEGINS, ends=ends, hosts=["cache"], client=client)


def der(pair: certs.Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(certs.read(pair.certificate)[0].pem)


def secret(name: str, **data: str) -> Obj:
    """Return a Secret; the argument `tls_crt` sets the key tls.crt."""
    encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": encoded,
    }


def tls_secret(pair: certs.Pair, name: str = "cache-tls", *, by: str = "ca") -> Obj:
    return secret(name, tls_crt=pair.certificate, tls_key=pair.key, ca_crt=signer(by).certificate)


@dataclass
class Fleet:
    """Servers that load a certificate on the first connection, and again on refresh_certs.

    Attributes:
        files: certificate in the servers' files.
        unreachable: addresses that do not respond.
        impostors: addresses where another program responds, with this certificate.
        refreshed: addresses that received refresh_certs, in order.
        connections: number of connections.
        served: certificate of each server, by address.
        ages: seconds since a server loaded its certificate, by address.
        users: users and passwords that servers accept; None for any.
        passwords: addresses that received a password.
    """

    files: certs.Pair = field(default_factory=certificate)
    unreachable: set[str] = field(default_factory=set)
    impostors: dict[str, certs.Pair] = field(default_factory=dict)
    refreshed: list[str] = field(default_factory=list)
    connections: int = 0
    served: dict[str, certs.Pair] = field(default_factory=dict)
    ages: dict[str, float] = field(default_factory=dict)
    users: set[tuple[str, str]] | None = None
    passwords: list[str] = field(default_factory=list)

    async def connect(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        trusts: Callable[[bytes], bool] | None = None,
        auth: tuple[str, str] | None = None,
        **_: object,
    ) -> Connected:
        self.connections += 1
        if host in self.unreachable:
            raise Unreachable(f"{host}:{port} is unreachable: no route.")
        served = self.impostors.get(host) or self.served.setdefault(host, self.files)
        if tls is not None and tls.verify_mode == ssl.CERT_REQUIRED:
            _shake_hands(served, tls)
        if trusts is not None and not trusts(der(served)):
            raise NotTrusted(f"{host}:{port}: the certificate of the server is not trusted.")
        if auth is not None:
            self.passwords.append(host)
            if self.users is not None and auth not in self.users:
                raise AuthenticationFailed(f"{host}:{port} rejects the user and password: correct them.")
        return Connected(self, host)


def _shake_hands(served: certs.Pair, tls: ssl.SSLContext) -> None:
    """Verify the certificate of a server as a client with this context does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = certs.server_context(served).wrap_bio(to_server, to_client, server_side=True)
    client = tls.wrap_bio(to_client, to_server)
    try:
        for end in (client, server, client):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLError as error:
        raise TLSFailed(str(error)) from None


@dataclass
class Connected:
    fleet: Fleet
    address: str

    @property
    def certificate(self) -> bytes:
        return der(self.fleet.impostors.get(self.address) or self.fleet.served[self.address])

    async def version(self) -> str:
        return "1.6.38"

    async def stats(self, section: Section = "") -> dict[str, str]:
        return {"time_since_server_cert_refresh": str(self.fleet.ages.get(self.address, 3600))}

    async def refresh_certs(self) -> None:
        self.fleet.refreshed.append(self.address)
        self.fleet.served[self.address] = self.fleet.files
        self.fleet.ages[self.address] = 0

    async def aclose(self) -> None:
        pass
