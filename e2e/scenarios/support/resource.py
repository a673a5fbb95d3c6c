"""Custom resources in scenarios: status, conditions, events and changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, ClassVar

from e2e.plans import planning, recording
from e2e.scenarios.support.commands import Kubectl, Refused, until


def conditions(resource: dict[str, Any]) -> dict[str, str]:
    return {found["type"]: found["status"] for found in resource.get("status", {}).get("conditions", ())}


def condition(resource: dict[str, Any], named: str) -> dict[str, Any]:
    """Return a condition by type; raises AssertionError if the resource does not have it."""
    found = {each["type"]: each for each in resource.get("status", {}).get("conditions", ())}
    assert named in found, f"the resource has no condition {named}: {sorted(found)}"
    known: dict[str, Any] = found[named]
    return known


def uids(kubectl: Kubectl) -> set[str]:
    """Return the UIDs of all pods of a namespace."""
    return {pod["metadata"]["uid"] for pod in kubectl.items("pods")}


def owned_claims(kubectl: Kubectl, uid_label: str) -> dict[str, str]:
    """Return the UID of the resource that owns each volume claim, by the UID of the claim.

    Args:
        uid_label: label of claims with the UID of the resource.
    """
    found = [claim["metadata"] for claim in kubectl.items("persistentvolumeclaims")]
    return {claim["uid"]: claim["labels"][uid_label] for claim in found}


def is_evicted(kubectl: Kubectl, pod: str) -> bool:
    """Evict a pod, as a drain does; return False if a disruption budget does not allow it now."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
    try:
        kubectl("create", "--raw", path, "-f", "-", given=eviction)
    except Refused as refused:
        if "disruption budget" not in refused.output:
            raise
        return False
    return True


@contextmanager
def crowded(kubectl: Kubectl, pods: int) -> Iterator[None]:
    """Limit the number of pods in a namespace with a ResourceQuota until the end of the context."""
    quota = {"hard": {"pods": str(pods)}}
    kubectl.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": quota})
    try:
        until("the quota is in effect", lambda: kubectl.get("resourcequota", "few").get("status", {}).get("used"))
        yield
    finally:
        kubectl("delete", "resourcequota", "few", "--ignore-not-found")
        with suppress(Refused):  # creations that the quota refused are delayed; a change of the owner repeats them
            owners = ["statefulsets,replicasets", "--all", "--overwrite"]
            kubectl("annotate", *owners, f"example.com/touched={time.monotonic_ns()}")


class Resource:
    """A resource in a namespace.

    Attributes:
        API_VERSION: API version of the kind.
        KIND: name of the kind.
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
        """Reason of the Ready condition; empty before the first reconcile."""
        reported = self.status.get("conditions", ())
        return next((str(each["reason"]) for each in reported if each["type"] == "Ready"), "")

    @property
    def message(self) -> str:
        """Message of the Ready condition; empty before the first reconcile."""
        reported = self.status.get("conditions", ())
        return next((str(each["message"]) for each in reported if each["type"] == "Ready"), "")

    def ready_now(self) -> dict[str, Any]:
        """Return the resource if it is Ready and its current generation was observed.

        Raises:
            AssertionError: the resource is not Ready, or its current generation was not observed.
        """
        now = self.now
        status = now.get("status", {})
        current = status.get("observedGeneration") == now["metadata"]["generation"]
        assert current, f"generation {now['metadata']['generation']} was not observed: {status}"
        assert conditions(now)["Ready"] == "True", status
        return now

    def change(self, **spec: Any) -> str:
        """Merge fields into the spec; return the output of kubectl, including warnings."""
        patch = f"--patch={json.dumps({'spec': spec})}"
        return self.kubectl("patch", self.KIND.lower(), self.name, "--type=merge", patch)

    @contextmanager
    def planned(self, apply: Callable[[], object] | None = None, **spec: Any) -> Iterator[None]:
        """Plan a change of the spec, apply it, and compare the plan with what happens until the end of the context.

        Args:
            apply: applies the change in another way than `change`.
            spec: changed fields of the spec.

        Raises:
            AssertionError: there is no plan, or something else happens; the message has both sides.
        """
        found = until("the change has a plan", lambda: planning.known(self, spec), seconds=60, every=2)
        with recording.recorded(self) as begin:
            record = begin()
            (apply or partial(self.change, **spec))()
            yield
            planning.require_executed(found, record, spec)

    def touch(self) -> None:
        """Trigger a reconcile with an annotation: the operator reads Secrets at each reconcile, without a watch."""
        self.kubectl("annotate", self.KIND.lower(), self.name, "--overwrite", f"touched={time.monotonic_ns()}")

    def events(self) -> list[str]:
        """Return the reasons of the resource's events, in order."""
        selected = f"involvedObject.kind={self.KIND},involvedObject.name={self.name}"
        listed = self.kubectl.items("events", "--field-selector", selected)
        return [found["reason"] for found in sorted(listed, key=lambda found: found["firstTimestamp"])]
