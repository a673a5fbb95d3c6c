"""What clients of memcached bring, and how they find it: outside the cluster, by the names of its inside."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymemcache.client.base import Client

from e2e.cluster.pki import Authority, Pair
from e2e.scenarios.support.commands import Kubectl

TIMEOUT = 5.0


class Names:
    """The cluster's names outside of it: `socket`, but for getaddrinfo, which asks as a pod asks.

    Args:
        kubectl: in a namespace that has a pod which runs.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def address(self, host: str) -> str:
        """The address of a name; an address is its own.

        Raises:
            Refused: there is no such name.
        """
        if host.replace(".", "").isdigit() or ":" in host:
            return host
        running = self._kubectl("get", "pods", "--field-selector=status.phase=Running", "-o", "name").split()
        return self._kubectl("exec", running[0], "-c", "memcached", "--", "getent", "ahostsv4", host).split()[0]

    def getaddrinfo(self, host: str, *rest: Any, **named: Any) -> Any:
        return socket.getaddrinfo(self.address(host), *rest, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(socket, name)


@dataclass(frozen=True)
class Access:
    """What a client brings along.

    Attributes:
        login: user and password, for servers that ask.
        tls: how it speaks TLS; None: it does not.
        names: how it finds hosts.
    """

    login: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    names: Any = socket

    @contextmanager
    def client(self, server: str) -> Iterator[Client]:
        """A client of one server, given as host:port.

        Raises:
            OSError: the server is not there, or refuses the handshake.
            MemcacheError: it refuses the login.
        """
        host, _, port = server.rpartition(":")
        with closing(
            Client(
                (host.strip("[]"), int(port)),
                connect_timeout=TIMEOUT,
                timeout=TIMEOUT,
                tls_context=self.tls,
                socket_module=self.names,
                default_noreply=False,
            )
        ) as client:
            if self.login:
                client.set("login", " ".join(self.login))  # memcached takes the first set for it
            yield client

    @contextmanager
    def connection(self, server: str) -> Iterator[socket.socket]:
        """A connection to one server, on which nothing was said."""
        host, _, port = server.rpartition(":")
        address = self.names.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4]
        with socket.create_connection(address[:2], TIMEOUT) as plain:
            if self.tls is None:
                yield plain
            else:
                with self.tls.wrap_socket(plain, server_hostname=host) as wrapped:
                    yield wrapped


def tls_client(trusts: Authority, own: Pair | None = None, *, checks_names: bool = True) -> ssl.SSLContext:
    """How a client speaks TLS.

    Args:
        trusts: who must have signed the server's certificate.
        own: its own certificate.
        checks_names: off for servers that are known by addresses, which no certificate bears.
    """
    context = ssl.create_default_context(cafile=str(trusts.pair.certificate))
    context.check_hostname = checks_names
    if own:
        context.load_cert_chain(own.certificate, own.key)
    return context


def tls_secret(name: str, authority: Authority, pair: Pair) -> dict[str, Any]:
    """A Secret of a server's certificate, as cert-manager makes them."""
    files: dict[str, Path] = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.pair.certificate}
    held = {key: path.read_text() for key, path in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "stringData": held,
    }


def users(name: str, *logins: tuple[str, str]) -> dict[str, Any]:
    """A Secret of those who may use servers."""
    lines = "".join(f"{user}:{password}\n" for user, password in logins)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"users": lines}}
