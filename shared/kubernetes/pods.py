"""Pods as operators look at them: who is ready, who leaves, and why one does not start."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from shared.kubernetes import accessors, ownership
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj

NORMAL_WAITS = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that are no trouble."""

STUCK = "If its node is gone for good, say so: kubectl delete pod --force, or the taint out-of-service on the node."
"""What a person must do about a pod that does not go: nobody else knows whether a silent node still runs it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What counts of a pod.

    Attributes:
        address: its IP address; empty until it has one.
        controller: kind of what made it, such as `StatefulSet`; empty if nothing did.
        ready: it passes its readiness probe and is not on its way out.
        leaving: its deletion was asked for.
        ended: all its containers have ended for good (evicted, node shut down).
        trouble: why it does not start or keeps failing, as Kubernetes says it; empty if nothing is wrong.
    """

    name: str
    address: str
    controller: str
    ready: bool
    leaving: bool
    ended: bool
    trouble: str

    @classmethod
    def of(cls, obj: Obj, *, container: str = "") -> Pod:
        """A pod as the API server shows it.

        Args:
            container: the one whose readiness counts, where others run beside it; empty for all.
        """
        reported = obj.get("status") or {}
        leaving = bool(obj["metadata"].get("deletionTimestamp"))
        return cls(
            name=obj["metadata"]["name"],
            address=reported.get("podIP") or "",
            controller=(ownership.controller_of(obj) or {}).get("kind", ""),
            ready=_is_ready(obj, reported, container) and not leaving,
            leaving=leaving,
            ended=reported.get("phase") in ("Succeeded", "Failed"),
            trouble=_trouble(obj, reported),
        )


def container_status(pod: Obj | None, container: str) -> Obj:
    """What the kubelet says of a container; empty if it has not said anything."""
    said = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return next((known for known in said if known["name"] == container), {})


def template_digest(template: Obj, *, labels: Iterable[str], annotations: Iterable[str]) -> str:
    """Tells templates of pods apart by what a running pod would have to be made anew for.

    Args:
        labels: those that are not counted.
        annotations: likewise.
    """
    plain = copy.deepcopy(template)
    for part, untold in (("labels", labels), ("annotations", annotations)):
        for name in untold:
            plain["metadata"].get(part, {}).pop(name, None)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_outdated(pod: Obj | None, stateful_set: Obj | None, mark: str) -> bool:
    """Whether a pod runs otherwise than its StatefulSet now says.

    Args:
        mark: annotation of both with the digest of the template.
    """
    if pod is None or stateful_set is None:
        return False
    return annotation(pod, mark) != annotation(stateful_set["spec"]["template"], mark)


def _is_ready(obj: Obj, reported: Obj, container: str) -> bool:
    """Whether a pod is ready, but for containers that do not count.

    Only where containers are what it lacks: those of a pod whose node is lost still say that they are ready.
    """
    ready = accessors.condition(obj, "Ready")
    if ready.get("status") == "True":
        return True
    if not container or ready.get("reason") != "ContainersNotReady":
        return False
    return any(known["name"] == container and known.get("ready") for known in reported.get("containerStatuses") or ())


def _trouble(obj: Obj, reported: Obj) -> str:
    scheduled = accessors.condition(obj, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}".strip(": ")
    containers = [*(reported.get("initContainerStatuses") or ()), *(reported.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason not in NORMAL_WAITS:
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("reason") or ""
            because = f" (last ended: {last})" if last and last != "Completed" else ""
            return f"{reason}: {waiting.get('message', '')}".strip(": ") + because
    return ""
