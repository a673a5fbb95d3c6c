"""A Memcached as a scenario sees it: its manifest, its status, and its servers through a real client."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from pymemcache.client.base import Client

from e2e.scenarios.conftest import Kubectl, until


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": name},
        "spec": spec,
    }


def conditions(resource: dict[str, Any]) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource.get("status", {}).get("conditions", ())}


def uids(kubectl: Kubectl) -> set[str]:
    """The UIDs of all pods of a namespace."""
    return {pod["metadata"]["uid"] for pod in kubectl.items("pods")}


class Memcached:
    """One Memcached in a namespace."""

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name

    @classmethod
    def create(cls, kubectl: Kubectl, name: str, **spec: Any) -> Memcached:
        kubectl.apply(manifest(name, **spec))
        return cls(kubectl, name)

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get("memcached", self.name)
        return found

    @property
    def servers(self) -> list[str]:
        listed: list[str] = self.now["status"]["servers"]
        return listed

    def await_ready(self, size: int, *, seconds: float = 90.0) -> dict[str, Any]:
        """Wait until the current spec is reality and as many servers are there as named."""

        def look() -> dict[str, Any] | None:
            now = self.now
            status = now.get("status", {})
            current = status.get("observedGeneration") == now["metadata"]["generation"]
            assert current, f"generation {now['metadata']['generation']} not observed: {status}"
            assert conditions(now)["Ready"] == "True", status
            assert len(status["servers"]) == len(status["nodes"]) == status["readyReplicas"] == size, status
            return now

        return until(f"{self.name} Ready with {size} servers", look, seconds=seconds)

    def serves(self) -> int:
        """Set and get through every address of the status.

        Returns:
            How many servers answered, each with what was set on it and nothing of another's.
        """
        servers = self.servers
        for number, server in enumerate(servers):
            with closing(client_of(server)) as client:
                client.set("who", f"server {number}".encode(), expire=60, noreply=False)
        for number, server in enumerate(servers):
            with closing(client_of(server)) as client:
                assert client.get("who") == f"server {number}".encode(), server
        return len(servers)

    def versions(self) -> set[str]:
        """The versions that the servers say they are."""
        found = set()
        for server in self.servers:
            with closing(client_of(server)) as client:
                found.add(client.version().decode())
        return found

    def events(self) -> list[str]:
        """The reasons of its events, in order."""
        listed = self.kubectl.items(
            "events", "--field-selector", f"involvedObject.kind=Memcached,involvedObject.name={self.name}"
        )
        return [found["reason"] for found in sorted(listed, key=lambda found: found["firstTimestamp"])]


def client_of(server: str) -> Client:
    host, _, port = server.rpartition(":")
    return Client((host.strip("[]"), int(port)), connect_timeout=3, timeout=3)
