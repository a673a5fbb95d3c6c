"""Fake memcached servers and their certificates."""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

from operators.memcached.client.attestation import Attestation, digest
from operators.memcached.client.errors import (
    AuthenticationFailed,
    NotTrusted,
    TimedOut,
    TLSFailed,
    Unreachable,
)
from operators.memcached.client.server import Section
from shared.kubernetes.kinds import POD, SECRET, Obj
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY, content_of
from shared.pki import ca, certs
from simulator.api_server.server import ApiServer
from simulator.harness import NAMESPACE

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME."""

BEGINS, ENDS = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
"""Validity: it includes the time of every world, and the real time."""


@cache
def signer(name: str) -> certs.Pair:
    return ca.authority(name, begins=BEGINS, ends=ENDS)


@cache
def certificate(
    name: str = "cache",
    *,
    by: str = "ca",
    client: bool = True,
    ended: bool = False,
    hosts: tuple[str, ...] = ("cache", f"cache.{NAMESPACE}.svc"),
) -> certs.Pair:
    ends = BEGINS + timedelta(hours=1) if ended else ENDS
    return ca.issue(signer(by), name, begins=BEGINS, ends=ends, hosts=hosts, client=client)


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


def mounted_secrets(server: ApiServer, address: str) -> dict[str, Mapping[str, str]]:
    """Return the content of the Secrets that the pod at an address mounts, by volume and key."""
    secrets = {obj["metadata"]["name"]: content_of(obj) for _, obj in server.objects(SECRET)}
    found = (pod for _, pod in server.objects(POD) if (pod.get("status") or {}).get("podIP") == address)
    volumes = [volume for pod in found for volume in pod["spec"].get("volumes", ()) if "secret" in volume]
    return {volume["name"]: secrets.get(volume["secret"]["secretName"], {}) for volume in volumes}


@dataclass
class Fleet:
    """Servers that load a certificate on the first connection, and again on refresh_certs.

    A server that verifies clients adds the authorities in its files to those that it trusts, as memcached does.

    Attributes:
        files: certificate in the files of servers that are not in `mounted`.
        mounted: content of the mounted Secret by key, by address of the server.
        trusted: authorities of clients that each server has loaded, by address; none if it verifies no client.
        unreachable: addresses that do not respond.
        impostors: addresses where another program responds, with this certificate.
        refreshed: addresses that received refresh_certs, in order.
        connections: number of connections.
        queries: number of requests over connections, without those with which a connection begins.
        served: certificate of each server, by address.
        ages: seconds since a server loaded its certificate, by address.
        users: users and passwords that servers accept; None for any: they load the mounted file at once.
        loaded_users: users file that a server has loaded, by address, if it is not the mounted one.
        versions: version of the program of a server, by address, if it is not 1.6.38.
        hung: addresses of servers that accept connections, and do not respond.
        mute: addresses of servers that complete the TLS handshake, and respond to no ASCII command.
        volumes: content of the Secrets that the pod at an address mounts, by volume and key.
        passwords: addresses that received a password.
        ports: ports to which the operator connected.
    """

    files: certs.Pair = field(default_factory=certificate)
    mounted: dict[str, Mapping[str, str]] = field(default_factory=dict)
    trusted: dict[str, str] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    impostors: dict[str, certs.Pair] = field(default_factory=dict)
    refreshed: list[str] = field(default_factory=list)
    connections: int = 0
    queries: int = 0
    served: dict[str, certs.Pair] = field(default_factory=dict)
    ages: dict[str, float] = field(default_factory=dict)
    users: set[tuple[str, str]] | None = None
    loaded_users: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    hung: set[str] = field(default_factory=set)
    mute: set[str] = field(default_factory=set)
    volumes: Callable[[str], Mapping[str, Mapping[str, str]]] = field(default=lambda _: {})
    passwords: list[str] = field(default_factory=list)
    ports: set[int] = field(default_factory=set)

    async def connect(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None = None,
        trusts: Callable[[bytes], bool] | None = None,
        auth: tuple[str, str] | None = None,
        handshake_only: bool = False,
        **_: object,
    ) -> Connected:
        self.connections += 1
        self.ports.add(port)
        if host in self.unreachable:
            raise Unreachable(f"{host}:{port} is unreachable: no route.")
        if host in self.hung:
            awaited = "TLS handshake" if tls is not None else "response to 'version'"
            message = f"{host}:{port}: no {awaited} within 3 s: the server is busy or unreachable."
            raise TimedOut(message, is_accepted=tls is None)
        if host not in self.served:
            self.load(host)
        served = self.impostors.get(host) or self.served[host]
        trusted = self.trusted.get(host, "")
        if tls is not None and (trusted or tls.verify_mode == ssl.CERT_REQUIRED):
            _shake_hands(served, tls, trusted)
        if trusts is not None and not trusts(der(served)):
            raise NotTrusted(f"{host}:{port}: the certificate of the server is not trusted.")
        if handshake_only:
            return Connected(self, host)
        if host in self.mute:
            raise TimedOut(f"{host}:{port}: no response to 'version' within 3 s.", is_accepted=True)
        if auth is not None:
            self.passwords.append(host)
        accepted: set[tuple[str, ...] | None]
        if host in self.loaded_users:
            accepted = {tuple(line.split(":", 1)) for line in self.loaded_users[host].splitlines()}
        elif self.users is not None:
            accepted = {*self.users}
        else:
            accepted = {auth}
        if auth not in accepted and (auth is not None or accepted):
            raise AuthenticationFailed(f"{host}:{port} rejects the user and password: correct them.")
        return Connected(self, host)

    async def attest(self, host: str, port: int, nonce: str) -> Attestation:
        """Attest what a server runs, as its sidecar does."""
        if host in self.unreachable:
            raise Unreachable(f"the sidecar at {host}:{port} is unreachable: no route.")
        mounted, served = self.volumes(host), self.served.get(host)
        text, key = mounted.get("auth", {}).get("users", ""), mounted.get("attestation", {}).get("key", "")
        if host in self.loaded_users:
            text = self.loaded_users[host]
        elif self.users is not None and {tuple(line.split(":", 1)) for line in text.splitlines()} != self.users:
            text = ""  # another one
        if host in self.hung:
            return Attestation(False, error="no response to 'stats' within 5 s: the server is busy or unreachable.")
        return Attestation(
            True,
            self.versions.get(host, "1.6.38"),
            hashlib.sha256(der(served)).hexdigest() if served else "",
            digest(key.encode(), nonce, text.encode()) if key and text else "",
        )

    def load(self, host: str) -> None:
        """Load the files of a server."""
        files = self.mounted.get(host)
        self.ages[host] = 0 if host in self.served else self.ages.get(host, 3600)
        self.served[host] = certs.Pair(files[CERTIFICATE_KEY], files[PRIVATE_KEY]) if files else self.files
        if authority := (files or {}).get(AUTHORITY_KEY):
            self.trusted[host] = self.trusted.get(host, "") + authority

    def age(self, host: str) -> float:
        """Return the seconds since a server loaded its files."""
        return self.ages.get(host, 3600)

    def statistics(self, _host: str) -> dict[str, str]:
        """Return the general statistics of a server."""
        return {"uptime": "3600", "get_hits": "0", "get_misses": "0"}


def _shake_hands(served: certs.Pair, tls: ssl.SSLContext, trusted: str) -> None:
    """Verify the certificate of a server as a client with this context does, and that of the client.

    Args:
        trusted: authorities by which the server verifies the client; empty if it does not.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = certs.server_context(served)
    if trusted:
        accepting.load_verify_locations(cadata=trusted)
        accepting.verify_mode = ssl.CERT_REQUIRED
        accepting.verify_flags |= NO_CHECK_TIME  # dates are those of the world
    server = accepting.wrap_bio(to_server, to_client, server_side=True)
    client = tls.wrap_bio(to_client, to_server)
    try:
        for end in (client, server, client, server):
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
        self.fleet.queries += 1
        return self.fleet.versions.get(self.address, "1.6.38")

    async def stats(self, section: Section = "") -> dict[str, str]:
        self.fleet.queries += 1
        age = {"time_since_server_cert_refresh": str(self.fleet.age(self.address))}
        return age | self.fleet.statistics(self.address)

    async def refresh_certs(self) -> None:
        self.fleet.refreshed.append(self.address)
        self.fleet.load(self.address)

    async def aclose(self) -> None:
        pass
