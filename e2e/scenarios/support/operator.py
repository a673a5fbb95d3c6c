"""An operator of the platform's release: its pods, Lease and certificates."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.scenarios.support.commands import RELEASE, Kubectl, until

CONTAINER = "operator"

Account = Callable[..., str]
"""Function that creates a ServiceAccount with the given name and ClusterRoles, and returns its token."""


@contextmanager
def accounts(kubectl: Kubectl) -> Iterator[Account]:
    """Yield a factory of ServiceAccounts in a namespace; their role bindings are deleted at the end of the context."""
    bound: list[str] = []

    def make(name: str, *roles: str) -> str:
        kubectl("create", "serviceaccount", name)
        for role in roles:
            bound.append(f"{kubectl.namespace}-{name}-{role}")
            subject = f"--serviceaccount={kubectl.namespace}:{name}"
            kubectl("create", "clusterrolebinding", bound[-1], f"--clusterrole={role}", subject)
        return kubectl("create", "token", name).strip()

    try:
        yield make
    finally:
        for binding in bound:
            kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")


class Operator:
    """An installed operator.

    Args:
        system: kubectl in the release's namespace.
        of: name of the operator, such as memcached.

    Attributes:
        name: name of the operator's objects.
        deployment: Deployment, in the notation of kubectl.
        selector: label selector of the pods.
        lease_name: name of the Lease.
    """

    def __init__(self, system: Kubectl, of: str) -> None:
        self.system = system
        self.lease_name = f"{of}-operator"
        self.name = f"{RELEASE}-{self.lease_name}"
        self.deployment = f"deployment/{self.name}"
        self.selector = f"app.kubernetes.io/name={self.lease_name},app.kubernetes.io/instance={RELEASE}"

    @property
    def pods(self) -> list[dict[str, Any]]:
        """Pods of the operator, except terminating ones."""
        return [pod for pod in self._all_pods() if "deletionTimestamp" not in pod["metadata"]]

    def _all_pods(self) -> list[dict[str, Any]]:
        return self.system.items("pods", "-l", self.selector)

    @property
    def lease(self) -> dict[str, Any]:
        """Spec of the Lease."""
        spec: dict[str, Any] = self.system.get("lease", self.lease_name)["spec"]
        return spec

    @property
    def authority(self) -> bytes:
        """CA certificate as PEM, from the Secret that the Prometheus operator reads too."""
        return base64.b64decode(self.system.get("secret", f"{self.name}-certificates")["data"]["ca.crt"])

    @property
    def holder(self) -> str:
        """Identity of the leader: name of the pod and an ID of its process."""
        named: str = self.lease.get("holderIdentity", "")
        return named

    def leader(self) -> dict[str, Any]:
        """Wait until there is a leader, and return its pod."""

        def find() -> dict[str, Any] | None:
            name = self.holder.partition("_")[0]
            return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

        return until("a replica is the leader", find, seconds=30)

    def await_rollout(self) -> None:
        """Wait until the rollout of the Deployment is complete."""
        self.system("rollout", "status", self.deployment, "--timeout=120s")

    def await_end(self) -> None:
        """Wait until no replica is running."""
        until(f"no replica of {self.name} is running", lambda: not self._all_pods())

    def kill(self) -> None:
        """Delete every pod without a grace period; the Deployment creates new ones."""
        self.system("delete", "pods", "-l", self.selector, "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def scaled_to_zero(self) -> Iterator[None]:
        """Scale the operator to zero replicas until the end of the context."""
        replicas = self.system.get(self.deployment)["spec"]["replicas"]
        self.system("scale", self.deployment, "--replicas=0")
        try:
            self.await_end()
            yield
        finally:
            self.system("scale", self.deployment, f"--replicas={replicas}")
            self.await_rollout()
