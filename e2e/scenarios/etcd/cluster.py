"""An EtcdCluster as a scenario sees it: what it says of itself, its members, and what can happen to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from e2e.scenarios.etcd.clients import Access, Load
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import Resource, crowded

SMALL = {"requests": {"cpu": "10m", "memory": "32Mi"}}


class EtcdCluster(Resource):
    """One EtcdCluster in a namespace.

    Args:
        access: what its clients must bring.
    """

    API_VERSION = "etcd.ydzs.io/v1alpha1"
    KIND = "EtcdCluster"

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        super().__init__(kubectl, name)
        self.access = access or Access()

    @classmethod
    def create(cls, kubectl: Kubectl, name: str = "demo", access: Access | None = None, **spec: Any) -> EtcdCluster:
        kubectl.apply(cls.manifest(name, resources=SMALL, storage={"size": "256Mi"}, **spec))
        return cls(kubectl, name, access)

    def await_ready(self, size: int, *, seconds: float = 180.0) -> dict[str, Any]:
        """Wait until the current spec is reality, and so many members are voters and healthy."""

        def look() -> dict[str, Any]:
            now = self.ready_now()
            status = now["status"]
            assert len(status["members"]) == status["readyMembers"] == status["size"] == size, status
            assert all(member["healthy"] and member.get("role") != "learner" for member in status["members"]), status
            return now

        return until(f"{self.name} Ready with {size} members", look, seconds=seconds)

    def await_reason(self, *reasons: str, seconds: float = 90.0) -> str:
        """Wait until its Ready condition gives one of these reasons; the message that comes with it."""

        def look() -> str:
            reason = self.reason
            assert reason in reasons, f"{reason}: {self.message}"
            return self.message

        return until(f"{self.name} says {' or '.join(reasons)}", look, seconds=seconds)

    @property
    def members(self) -> dict[str, dict[str, Any]]:
        """Its members as its status lists them, by name."""
        return {member["name"]: member for member in self.status.get("members", ())}

    def misses(self, name: str) -> bool:
        """Whether its status says that a member does not answer, or is none any more."""
        return not self.members.get(name, {}).get("healthy")

    @property
    def leader(self) -> str:
        """The name of the member that leads."""
        return str(self.status["leader"])

    @property
    def cluster_id(self) -> str:
        return str(self.status["clusterID"])

    @property
    def selector(self) -> str:
        return str(self.status["selector"])

    def pods(self) -> dict[str, dict[str, Any]]:
        """Its members' pods, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.kubectl.items("pods", "-l", self.selector)}

    def addresses(self) -> Sequence[str]:
        """Where clients may try: members that have voted before, by the addresses of their pods."""
        learners = {member["name"] for member in self.members.values() if member.get("role") == "learner"}
        return [
            pod["status"]["podIP"]
            for name, pod in sorted(self.pods().items())
            if pod["status"].get("podIP") and name not in learners
        ]

    def load(self, clients: int = 3, prefix: str = "") -> AbstractContextManager[Load]:
        """Clients that write and read within the block."""
        return Load.going_on(self.addresses, self.access, clients=clients, prefix=prefix)

    def lose(self, *names: str) -> None:
        """Pods of members and their volumes are gone for good."""
        claims = [f"persistentvolumeclaim/data-{name}" for name in names]
        self.kubectl("delete", *claims, "--wait=false")
        self.kubectl("delete", *(f"pod/{name}" for name in names), "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def down(self, name: str) -> Iterator[None]:
        """A member's pod is gone within the block, and its namespace's quota keeps it from coming back."""
        with crowded(self.kubectl, len(self.kubectl.items("pods")) - 1):
            self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
            yield

    def versions(self) -> set[str]:
        """The versions that its members run."""
        return {str(member["version"]) for member in self.members.values()}
