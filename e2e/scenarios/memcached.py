"""A Memcached as a scenario sees it: its manifest, its status, and its servers through a real client."""

from __future__ import annotations

import time
from typing import Any

from e2e.scenarios.clients import Access, Names
from e2e.scenarios.commands import Kubectl, until


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": name},
        "spec": spec,
    }


def conditions(resource: dict[str, Any]) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource.get("status", {}).get("conditions", ())}


def condition(resource: dict[str, Any], named: str) -> dict[str, Any]:
    """One of its conditions, whole; KeyError if it has none of that name."""
    found: dict[str, Any] = {each["type"]: each for each in resource.get("status", {}).get("conditions", ())}[named]
    return found


def uids(kubectl: Kubectl) -> set[str]:
    """The UIDs of all pods of a namespace."""
    return {pod["metadata"]["uid"] for pod in kubectl.items("pods")}


class Memcached:
    """One Memcached in a namespace.

    Args:
        access: what its clients must bring; by default nothing but a way to find its servers.
    """

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        self.kubectl = kubectl
        self.name = name
        self.access = access or Access(names=Names(kubectl))

    @classmethod
    def create(cls, kubectl: Kubectl, name: str, access: Access | None = None, **spec: Any) -> Memcached:
        kubectl.apply(manifest(name, **spec))
        return cls(kubectl, name, access)

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

    def touch(self) -> None:
        """Have the operator look at it now: nobody watches Secrets, so a change of one waits for the next look."""
        self.kubectl("annotate", "memcached", self.name, "--overwrite", f"touched={time.monotonic_ns()}")

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

    def events(self) -> list[str]:
        """The reasons of its events, in order."""
        listed = self.kubectl.items(
            "events", "--field-selector", f"involvedObject.kind=Memcached,involvedObject.name={self.name}"
        )
        return [found["reason"] for found in sorted(listed, key=lambda found: found["firstTimestamp"])]
