"""TLS of simulated servers: certificate and authorities are read at the start, and again with CONFIG SET.

Source: tlsConfigure in tls.c of Redis 7.0, and updateTlsCfg in config.c. A connection outlasts a change of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from operators.redis.client.errors import Unreachable
from operators.redis.client.server import Access
from shared.pki.certs import Pair
from shared.pki.stores import parsed
from shared.pki.validity import signers

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis
    from simulator.redis.process import Process

FILES = ("tls-cert-file", "tls-key-file", "tls-ca-cert-file")


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificate and authorities that a server has loaded.

    Attributes:
        trusted: PEM certificates of the authorities of other nodes, and of clients.
        verifies_clients: whether clients must have a certificate of one of them.
    """

    pair: Pair
    trusted: str
    verifies_clients: bool

    def accepts(self, other: Tls) -> bool:
        """Whether a handshake with another node succeeds, as far as this side decides it."""
        return _is_signed(other.pair, self.trusted)

    def require_client(self, name: str, access: Access) -> None:
        """Complete a handshake with a client.

        Raises:
            Unreachable: one side rejects the certificate of the other.
        """
        if not _is_signed(self.pair, access.authority or ""):
            raise Unreachable(f"{name}: the certificate of the server is not trusted.", distrusts=True)
        if self.verifies_clients and (access.pair is None or not _is_signed(access.pair, self.trusted)):
            raise Unreachable(f"{name}: the server does not trust the client certificate.", distrusts=True)


def loaded(settings: Mapping[str, str], files: Mapping[str, str]) -> Tls | None:
    """Return what a server loads from its files; None if one does not exist: it refuses them."""
    texts = [files.get(settings.get(name, ""), "") for name in FILES]
    if not all(texts):
        return None
    certificate, key, trusted = texts
    return Tls(Pair(certificate, key), trusted, settings.get("tls-auth-clients", "yes") == "yes")


def connects(redis: SimulatedRedis, process: Process, other: Process) -> bool:
    """Whether a server connects to another one, or is connected. A handshake that fails is a violation by default."""
    if process.tls is None or other.tls is None:
        return True
    link = frozenset({process.run_id, other.run_id})
    if link in redis.links:
        return True
    if process.tls.accepts(other.tls) and other.tls.accepts(process.tls):
        redis.links.add(link)
        return True
    if process.cluster == other.cluster:
        redis.guard.rejected(process.pod, other.pod)
    return False


@lru_cache(maxsize=1024)  # each request is a handshake, of few certificates
def _is_signed(pair: Pair, authorities: str) -> bool:
    return bool(signers(pair, parsed(authorities)))
