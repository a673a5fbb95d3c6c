"""An operator of the platform's release, as its administrator sees it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from e2e.scenarios.support.commands import RELEASE, Kubectl, until

CONTAINER = "operator"

Account = Callable[..., str]
"""Makes a ServiceAccount of a name with the ClusterRoles that are named, and gives its token."""


class Operator:
    """Its pods and its Lease.

    Args:
        system: a kubectl in the release's namespace.
        of: what it operates, such as memcached.

    Attributes:
        name: of its objects.
        deployment: its Deployment, as kubectl names it.
        selector: of its pods.
        lease_name: its Lease's.
    """

    def __init__(self, system: Kubectl, of: str) -> None:
        self.system = system
        self.lease_name = f"{of}-operator"
        self.name = f"{RELEASE}-{self.lease_name}"
        self.deployment = f"deployment/{self.name}"
        self.selector = f"app.kubernetes.io/name={self.lease_name},app.kubernetes.io/instance={RELEASE}"

    @property
    def pods(self) -> list[dict[str, Any]]:
        """Its pods, without those that are on their way out."""
        return [pod for pod in self._all_pods() if "deletionTimestamp" not in pod["metadata"]]

    def _all_pods(self) -> list[dict[str, Any]]:
        return self.system.items("pods", "-l", self.selector)

    @property
    def lease(self) -> dict[str, Any]:
        """What its Lease says."""
        spec: dict[str, Any] = self.system.get("lease", self.lease_name)["spec"]
        return spec

    @property
    def authority(self) -> bytes:
        """The CA of its certificate, which the Prometheus operator takes from the same Secret, as PEM."""
        return base64.b64decode(self.system.get("secret", f"{self.name}-certificates")["data"]["ca.crt"])

    @property
    def holder(self) -> str:
        """Who leads: the pod's name and something of its process alone."""
        named: str = self.lease.get("holderIdentity", "")
        return named

    def leader(self) -> dict[str, Any]:
        """The pod that leads."""

        def look() -> dict[str, Any] | None:
            name = self.holder.partition("_")[0]
            return next((pod for pod in self.pods if pod["metadata"]["name"] == name), None)

        return until("one replica leads", look, seconds=30)

    def await_rollout(self) -> None:
        """Wait until as many replicas as wanted are ready, and no old one is left."""
        self.system("rollout", "status", self.deployment, "--timeout=120s")

    def await_end(self) -> None:
        """Wait until no replica runs."""
        until("no operator", lambda: not self._all_pods())

    def kill(self) -> None:
        """End every replica at once, without a word; others are started in their place."""
        self.system("delete", "pods", "-l", self.selector, "--grace-period=0", "--force", "--wait=false")

    @contextmanager
    def gone(self) -> Iterator[None]:
        """No replica runs within the block; afterwards as many as before."""
        replicas = self.system.get(self.deployment)["spec"]["replicas"]
        self.system("scale", self.deployment, "--replicas=0")
        try:
            self.await_end()
            yield
        finally:
            self.system("scale", self.deployment, f"--replicas={replicas}")
            self.await_rollout()
