"""An EtcdCluster in a scenario: its status, its members, and the failures to inject."""

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
        access: credentials of the clients.
    """

    API_VERSION = "etcd.ydzs.io/v1alpha1"
    KIND = "EtcdCluster"

    def __init__(self, kubectl: Kubectl, name: str, access: Access | None = None) -> None:
        super().__init__(kubectl, name)
        self.access = access or Access()

    @classmethod
    def create(cls, kubectl: Kubectl, name: str = "demo", access: Access | None = None, **spec: Any) -> EtcdCluster:
        kubectl.apply(cls.manifest(name, **{"resources": SMALL, "storage": {"size": "256Mi"}, **spec}))
        return cls(kubectl, name, access)

    def await_ready(self, size: int, *, seconds: float = 180.0) -> dict[str, Any]:
        """Wait until the current spec is applied and `size` members are healthy voters."""

        def check() -> dict[str, Any]:
            now = self.ready_now()
            status = now["status"]
            assert len(status["members"]) == status["readyMembers"] == status["size"] == size, status
            assert all(member["healthy"] and member.get("role") != "learner" for member in status["members"]), status
            return now

        return until(f"{self.name} Ready with {size} members", check, seconds=seconds)

    def await_reason(self, *reasons: str, seconds: float = 90.0) -> str:
        """Wait until the Ready condition has one of these reasons and return its message."""

        def check() -> str:
            reason = self.reason
            assert reason in reasons, f"{reason}: {self.message}"
            return self.message

        return until(f"{self.name} reports {' or '.join(reasons)}", check, seconds=seconds)

    @property
    def members(self) -> dict[str, dict[str, Any]]:
        """Members in the status, by name."""
        return {member["name"]: member for member in self.status.get("members", ())}

    def is_unhealthy(self, name: str) -> bool:
        """Return whether the status reports a member as unhealthy, or not at all."""
        return not self.members.get(name, {}).get("healthy")

    @property
    def leader(self) -> str:
        """Name of the leader."""
        return str(self.status["leader"])

    @property
    def cluster_id(self) -> str:
        return str(self.status["clusterID"])

    @property
    def selector(self) -> str:
        return str(self.status["selector"])

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the pods of the members, by name."""
        return {pod["metadata"]["name"]: pod for pod in self.kubectl.items("pods", "-l", self.selector)}

    def addresses(self) -> Sequence[str]:
        """Return the addresses of all pods whose members are not learners."""
        learners = {member["name"] for member in self.members.values() if member.get("role") == "learner"}
        return [
            pod["status"]["podIP"]
            for name, pod in sorted(self.pods().items())
            if pod["status"].get("podIP") and name not in learners
        ]

    def load(self, clients: int = 3, prefix: str = "") -> AbstractContextManager[Load]:
        """Run clients that write and read within the block."""
        return Load.running(self.addresses, self.access, clients=clients, prefix=prefix)

    def lose(self, *names: str) -> None:
        """Delete pods of members and their volumes."""
        claims = [f"persistentvolumeclaim/data-{name}" for name in names]
        self.kubectl("delete", *claims, "--wait=false")
        self.kubectl("delete", *(f"pod/{name}" for name in names), "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def down(self, name: str) -> Iterator[None]:
        """Keep the pod of a member deleted within the block: a quota of the namespace prevents a new one."""
        with crowded(self.kubectl, len(self.kubectl.items("pods")) - 1):
            self.kubectl("delete", "pod", name, "--grace-period=0", "--force")
            yield

    def versions(self) -> set[str]:
        """Return the versions that the members run."""
        return {str(member["version"]) for member in self.members.values()}
