"""A Memcached as a scenario sees it: its manifest, its status, and its servers through a real client."""

from __future__ import annotations

from typing import Any

from e2e.scenarios.support.clients import Access, Names
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource


class Memcached(Resource):
    """One Memcached in a namespace.

    Args:
        access: what its clients must bring; by default nothing but a way to find its servers.
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

    @property
    def servers(self) -> list[str]:
        listed: list[str] = self.now["status"]["servers"]
        return listed

    def await_ready(self, size: int, *, seconds: float = 90.0) -> dict[str, Any]:
        """Wait until the current spec is reality and as many servers are there as named."""

        def ready_with_all_servers() -> dict[str, Any]:
            now = self.ready_now()
            status = now["status"]
            assert len(status["servers"]) == len(status["nodes"]) == status["readyReplicas"] == size, status
            return now

        return until(f"{self.name} Ready with {size} servers", ready_with_all_servers, seconds=seconds)

    def serves(self) -> int:
        """Set and get through every address of the status.

        Returns:
            How many servers answered, each with what was set on it and nothing of another's.
        """
        servers = self.servers
        for number, server in enumerate(servers):
            with self.access.client(server) as client:
                client.set("who", f"server {number}".encode(), expire=60)
        for number, server in enumerate(servers):
            with self.access.client(server) as client:
                assert client.get("who") == f"server {number}".encode(), server
        return len(servers)

    def versions(self) -> set[str]:
        """The versions that the servers say they are."""
        found = set()
        for server in self.servers:
            with self.access.client(server) as client:
                found.add(client.version().decode())
        return found
