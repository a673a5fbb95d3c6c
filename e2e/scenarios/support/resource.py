"""A custom resource as a scenario sees it: what it says of itself, and what is told of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from e2e.scenarios.support.commands import Kubectl, Refused, until


def conditions(resource: dict[str, Any]) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource.get("status", {}).get("conditions", ())}


def condition(resource: dict[str, Any], named: str) -> dict[str, Any]:
    """One of its conditions, whole; KeyError if it has none of that name."""
    found: dict[str, Any] = {each["type"]: each for each in resource.get("status", {}).get("conditions", ())}[named]
    return found


def uids(kubectl: Kubectl) -> set[str]:
    """The UIDs of all pods of a namespace."""
    return {pod["metadata"]["uid"] for pod in kubectl.items("pods")}


def is_evicted(kubectl: Kubectl, pod: str) -> bool:
    """Ask for a pod's eviction, as a drain does; False if a disruption budget forbids it for now."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    try:
        kubectl("create", "--raw", path, "-f", "-", given=eviction)
    except Refused as refused:
        if "disruption budget" not in refused.said:
            raise
        return False
    return True


@contextmanager
def crowded(kubectl: Kubectl, pods: int) -> Iterator[None]:
    """A namespace has room for no more pods than so many within the block: a quota keeps others from coming."""
    quota = {"hard": {"pods": str(pods)}}
    kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": quota})
    try:
        until("the quota counts", lambda: kubectl.get("resourcequota", "few").get("status", {}).get("used"))
        yield
    finally:
        kubectl("delete", "resourcequota", "few", "--ignore-not-found")


class Resource:
    """One resource in a namespace.

    Attributes:
        API_VERSION, KIND: its kind.
    """

    API_VERSION: ClassVar[str]
    KIND: ClassVar[str]

    def __init__(self, kubectl: Kubectl, name: str) -> None:
        self.kubectl = kubectl
        self.name = name

    @classmethod
    def manifest(cls, name: str, **spec: Any) -> dict[str, Any]:
        return {"apiVersion": cls.API_VERSION, "kind": cls.KIND, "metadata": {"name": name}, "spec": spec}

    @property
    def now(self) -> dict[str, Any]:
        found: dict[str, Any] = self.kubectl.get(self.KIND.lower(), self.name)
        return found

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.now.get("status", {})
        return found

    @property
    def reason(self) -> str:
        """The reason of its Ready condition; empty until the operator has looked at it."""
        told = self.status.get("conditions", ())
        return next((str(each["reason"]) for each in told if each["type"] == "Ready"), "")

    @property
    def message(self) -> str:
        """The message of its Ready condition; empty until the operator has looked at it."""
        told = self.status.get("conditions", ())
        return next((str(each["message"]) for each in told if each["type"] == "Ready"), "")

    def ready_now(self) -> dict[str, Any]:
        """The resource, Ready, with its current spec observed.

        Raises:
            AssertionError: it is not.
        """
        now = self.now
        status = now.get("status", {})
        current = status.get("observedGeneration") == now["metadata"]["generation"]
        assert current, f"generation {now['metadata']['generation']} not observed: {status}"
        assert conditions(now)["Ready"] == "True", status
        return now

    def change(self, **spec: Any) -> str:
        """Merge into its spec; what kubectl said, warnings too."""
        patch = f"--patch={json.dumps({'spec': spec})}"
        return self.kubectl("patch", self.KIND.lower(), self.name, "--type=merge", patch)

    def touch(self) -> None:
        """Have the operator look at it now: nobody watches Secrets, so a change of one waits for the next look."""
        self.kubectl("annotate", self.KIND.lower(), self.name, "--overwrite", f"touched={time.monotonic_ns()}")

    def events(self) -> list[str]:
        """The reasons of its events, in order."""
        selected = f"involvedObject.kind={self.KIND},involvedObject.name={self.name}"
        listed = self.kubectl.items("events", "--field-selector", selected)
        return [found["reason"] for found in sorted(listed, key=lambda found: found["firstTimestamp"])]
