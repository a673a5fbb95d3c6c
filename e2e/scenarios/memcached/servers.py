"""A Memcached in a scenario: manifest, status, and servers through a real client."""

from __future__ import annotations

from typing import Any

from e2e.scenarios.support.clients import Access, Names
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource


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
        """Wait until the resource is ready with this number of servers, and return it."""

        def ready_with_all_servers() -> dict[str, Any]:
            now = self.ready_now()
            status = now["status"]
            assert len(status["servers"]) == len(status["nodes"]) == status["readyReplicas"] == size, status
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

    def versions(self) -> set[str]:
        """Return the versions that the servers report."""
        found = set()
        for server in self.servers:
            with self.access.client(server) as client:
                found.add(client.version().decode())
        return found
