"""memcached clients outside the cluster: credentials, TLS, and resolution of the cluster's DNS names."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymemcache.client.base import Client

from e2e.scenarios.support.commands import Kubectl
from tools.local.pki import Authority, Pair

TIMEOUT = 5.0


class Names:
    """Replacement for the `socket` module whose `getaddrinfo` resolves the cluster's DNS names, through a pod.

    Args:
        kubectl: kubectl in a namespace that has a running memcached pod.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        self._kubectl = kubectl

    def address(self, host: str) -> str:
        """Return the address of a host name; an address is returned unchanged.

        Raises:
            Refused: the name does not exist.
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
    """Settings of a client.

    Attributes:
        login: user and password; None for no authentication.
        tls: TLS context; None for plain text.
        names: module that resolves host names: `socket` or a `Names`.
    """

    login: tuple[str, str] | None = None
    tls: ssl.SSLContext | None = None
    names: Any = socket

    @contextmanager
    def client(self, server: str) -> Iterator[Client]:
        """Connect to a server, given as host:port.

        Raises:
            OSError: the server is unreachable or rejects the TLS handshake.
            MemcacheError: the server rejects the login.
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
                client.set("login", " ".join(self.login))  # memcached reads the first set as the login
            yield client

    @contextmanager
    def connection(self, server: str) -> Iterator[socket.socket]:
        """Open a connection to a server without sending anything."""
        host, _, port = server.rpartition(":")
        address = self.names.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4]
        with socket.create_connection(address[:2], TIMEOUT) as plain:
            if self.tls is None:
                yield plain
            else:
                with self.tls.wrap_socket(plain, server_hostname=host) as wrapped:
                    yield wrapped


def tls_client(trusts: Authority, own: Pair | None = None, *, checks_names: bool = True) -> ssl.SSLContext:
    """Return the TLS context of a client.

    Args:
        trusts: CA that must have signed the server's certificate.
        own: client certificate, if any.
        checks_names: verify host names; off for servers that are addressed by IP, which no certificate contains.
    """
    context = ssl.create_default_context(cafile=str(trusts.pair.certificate))
    context.check_hostname = checks_names
    if own:
        context.load_cert_chain(own.certificate, own.key)
    return context


def tls_secret(name: str, authority: Authority, pair: Pair) -> dict[str, Any]:
    """Return a Secret with a server's certificate, in the format of cert-manager."""
    files: dict[str, Path] = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.pair.certificate}
    content = {key: path.read_text() for key, path in files.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/tls",
        "stringData": content,
    }


def users(name: str, *logins: tuple[str, str]) -> dict[str, Any]:
    """Return a Secret with users and their passwords."""
    lines = "".join(f"{user}:{password}\n" for user, password in logins)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"users": lines}}
