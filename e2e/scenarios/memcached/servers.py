"""A Memcached in a scenario: manifest, status, and servers through a real client."""

from __future__ import annotations

import base64
import hashlib
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pymemcache.exceptions import MemcacheError

from e2e.scenarios.support.clients import Access, Names
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource, conditions

Login = tuple[str, str]
"""User and password."""


class Memcached(Resource):
    """A Memcached in a namespace.

    Args:
        kubectl: client of the namespace.
        name: name of the resource.
        access: credentials and name resolution of clients; by default only name resolution.
    """

    API_VERSION = "cache.example.com/v1alpha1"
    KIND = "Memcached"

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        super().__init__(kubectl, name)
        self.access = access or Access(names=Names(kubectl))
        self._logins = set[Login]()
        """Users of the Secret, now and before."""

    @classmethod
    def create(cls, kubectl: Kubectl, name: str, access: Access | None = None, **spec: Any) -> Memcached:
        kubectl.apply(cls.manifest(name, **spec))
        return cls(kubectl, name, access)

    @classmethod
    def manifest(cls, name: str, **spec: Any) -> dict[str, Any]:
        """Return a manifest; without another `updateStrategy`, a change waits for no client to fill the servers."""
        return super().manifest(name, **{"updateStrategy": {"pauseSeconds": 0}} | spec)

    @property
    def servers(self) -> list[str]:
        listed: list[str] = self.now["status"]["servers"]
        return listed

    def await_ready(self, size: int, *, seconds: float = 90.0) -> dict[str, Any]:
        """Wait until the resource is ready with this number of servers, and its status is true; return it."""

        def ready_with_all_servers() -> dict[str, Any]:
            now = self.ready_now()
            status = now["status"]
            assert len(status["servers"]) == len(status["nodes"]) == status["readyReplicas"] == size, status
            self.judge(now)
            return now

        return until(f"{self.name} Ready with {size} servers", ready_with_all_servers, seconds=seconds)

    def serves(self) -> int:
        """Set and get a different value on every server in the status.

        Returns:
            Number of servers, all of which returned their own value.
        """
        servers = self.servers
        for number, server in enumerate(servers):
            with self.access.client(server) as client:
                client.set("server", f"server {number}".encode(), expire=60)
        for number, server in enumerate(servers):
            with self.access.client(server) as client:
                assert client.get("server") == f"server {number}".encode(), server
        return len(servers)

    def judge(self, now: dict[str, Any]) -> None:
        """Compare what the status of a resource that is Ready claims with what its servers do.

        Raises:
            AssertionError: a claim is not true, or not yet.
        """
        spec, status = now["spec"], now["status"]
        pods = {pod["metadata"]["name"]: pod["status"].get("podIP", "") for pod in self.kubectl.items("pods")}
        servers = []
        for listed in status["servers"]:  # by address: no client has to resolve the names of the cluster
            host, _, port = listed.rpartition(":")
            servers.append(f"{pods.get(host.partition('.')[0], host)}:{port}")
        assert len(set(servers)) == status["readyReplicas"] == spec.get("size", 1), status
        assert conditions(now)["Available"] == "True", status
        tls = spec.get("tls") or {"mode": "none"}
        is_encrypted = tls.get("mode") != "none"
        if is_encrypted:
            served = {_served(Access(tls=_unverified()), server) for server in servers}
            assert served <= {status.get("certificate")}, f"{served} are served: {status}"
        is_verified = is_encrypted and tls.get("clientAuth") == "required"
        if is_verified and tls.get("mode") not in ("self", "certManager"):
            return  # only the test has a certificate that the servers accept
        context = _unverified() if is_encrypted else None
        if is_verified and context is not None:
            self._present(context, f"{self.name}-client-tls")
        logins = self._users(spec, status)
        if logins is None:
            return
        for server in servers:
            for login in logins:
                assert _accepts(Access(login, context), server), f"{server} rejects {login and login[0]}"
            for removed in self._logins.difference(logins) if None not in logins else ():
                assert not _accepts(Access(removed, context), server), f"{server} accepts the removed user {removed[0]}"
        if servers and "serverVersion" in status:
            found = [_version(Access(logins[0], context), server) for server in servers]
            assert min(found, key=_numbers) == status["serverVersion"], found

    def _users(self, spec: dict[str, Any], status: dict[str, Any]) -> list[Login | None] | None:
        """Return the users that every server accepts: [None] without authentication.

        None if that is unknown: the Secret has changed since the operator read it, of which nothing notifies it.
        """
        if spec.get("auth") is None:
            return [None]
        name = spec["auth"].get("secretName") or f"{self.name}-auth"
        secret = self.kubectl.get("secret", name)
        observed = {each["name"]: each["resourceVersion"] for each in status.get("observedSecrets", ())}
        version = secret["metadata"]["resourceVersion"]
        if observed.get(name, version) != version:
            return None
        lines = base64.b64decode(secret["data"]["users"]).decode().splitlines()
        present = [(user, password) for user, _, password in (line.partition(":") for line in lines) if user]
        self._logins.update(present)
        return [*present]

    def _present(self, context: ssl.SSLContext, secret: str) -> None:
        """Let a client present the certificate of a Secret."""
        data = self.kubectl.get("secret", secret)["data"]
        with TemporaryDirectory() as directory:
            certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
            for file in (certificate, key):
                file.write_bytes(base64.b64decode(data[file.name]))
            context.load_cert_chain(certificate, key)

    def versions(self) -> set[str]:
        """Return the versions that the servers report."""
        found = set()
        for server in self.servers:
            with self.access.client(server) as client:
                found.add(client.version().decode())
        return found


def _unverified() -> ssl.SSLContext:
    """Return the TLS context of a client that only reads which certificate a server has."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _served(access: Access, server: str) -> str:
    """Return the SHA-256 of the certificate that a server presents, which needs no certificate of the client."""
    with access.connection(server) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        return hashlib.sha256(connection.getpeercert(binary_form=True) or b"").hexdigest()


def _accepts(access: Access, server: str) -> bool:
    """Return whether a server responds to a client.

    Raises:
        OSError: the server does not respond at all.
    """
    try:
        with access.client(server) as client:
            return bool(client.version())
    except MemcacheError:
        return False


def _version(access: Access, server: str) -> str:
    with access.client(server) as client:
        return str(client.version().decode())


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]
