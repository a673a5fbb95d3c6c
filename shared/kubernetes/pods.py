"""Pods as operators read them: readiness, termination, and the reason why a pod does not start."""

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
"""Reasons of a waiting container that are expected during startup."""

STUCK = "If its node is permanently lost, run kubectl delete pod --force or add the taint out-of-service to the node."
"""Advice for a pod that stays terminating: only a user knows whether an unreachable node still runs it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The observed state of a pod.

    Attributes:
        address: IP address; empty until there is one.
        controller: kind of the controller, such as `StatefulSet`; empty if there is none.
        ready: whether the pod passes its readiness probe and is not terminating.
        leaving: whether the pod is terminating.
        ended: whether all containers have permanently ended (evicted, node shut down).
        problem: reason why the pod does not start or keeps failing, from Kubernetes; empty if there is none.
    """

    name: str
    address: str
    controller: str
    ready: bool
    leaving: bool
    ended: bool
    problem: str

    @classmethod
    def of(cls, obj: Obj, *, container: str = "") -> Pod:
        """Read a pod.

        Args:
            container: container whose readiness counts if the pod has several; empty for all.
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
            problem=_problem(obj, reported),
        )


def container_status(pod: Obj | None, container: str) -> Obj:
    """Return the status of a container; empty if the kubelet has not reported it."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return next((known for known in statuses if known["name"] == container), {})


def template_digest(template: Obj, *, labels: Iterable[str], annotations: Iterable[str]) -> str:
    """Return a digest of a pod template; pods with a different digest are outdated.

    Args:
        labels: labels to ignore.
        annotations: annotations to ignore.
    """
    plain = copy.deepcopy(template)
    for part, ignored in (("labels", labels), ("annotations", annotations)):
        for name in ignored:
            plain["metadata"].get(part, {}).pop(name, None)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def is_outdated(pod: Obj | None, stateful_set: Obj | None, mark: str) -> bool:
    """Whether a pod differs from the current template of its StatefulSet.

    Args:
        mark: annotation of pod and template with the digest of the template.
    """
    if pod is None or stateful_set is None:
        return False
    return annotation(pod, mark) != annotation(stateful_set["spec"]["template"], mark)


def _is_ready(obj: Obj, reported: Obj, container: str) -> bool:
    """Whether a pod is ready, ignoring containers that do not count.

    Containers are ignored only if they are the reason: on a lost node they still report that they are ready.
    """
    ready = accessors.condition(obj, "Ready")
    if ready.get("status") == "True":
        return True
    if not container or ready.get("reason") != "ContainersNotReady":
        return False
    return any(known["name"] == container and known.get("ready") for known in reported.get("containerStatuses") or ())


def _problem(obj: Obj, reported: Obj) -> str:
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
