"""Pods as operators look at them: who is ready, who leaves, and why one does not start."""

from __future__ import annotations

from dataclasses import dataclass

from shared.kube import Obj

NORMAL_WAITS = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that are no trouble."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What counts of a pod.

    Attributes:
        address: its IP address; empty until it has one.
        ready: it passes its readiness probe and is not on its way out.
        leaving: its deletion was asked for.
        ended: all its containers have ended for good (evicted, node shut down).
        trouble: why it does not start or keeps failing, as Kubernetes says it; empty if nothing is wrong.
        restarts: restarts of its containers so far.
    """

    name: str
    uid: str
    address: str
    node: str
    ready: bool
    leaving: bool
    ended: bool
    trouble: str
    restarts: int

    @classmethod
    def of(cls, obj: Obj) -> Pod:
        status = obj.get("status") or {}
        conditions = {found["type"]: found for found in status.get("conditions") or ()}
        leaving = bool(obj["metadata"].get("deletionTimestamp"))
        ready = conditions.get("Ready", {}).get("status") == "True"
        return cls(
            name=obj["metadata"]["name"],
            uid=obj["metadata"]["uid"],
            address=status.get("podIP") or "",
            node=obj.get("spec", {}).get("nodeName") or "",
            ready=ready and not leaving,
            leaving=leaving,
            ended=status.get("phase") in ("Succeeded", "Failed"),
            trouble=_trouble(status, conditions),
            restarts=sum(found.get("restartCount", 0) for found in status.get("containerStatuses") or ()),
        )


def _trouble(status: Obj, conditions: dict[str, Obj]) -> str:
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return f"{scheduled.get('reason', 'Unschedulable')}: {scheduled.get('message', '')}".strip(": ")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason = waiting.get("reason") or ""
        if reason not in NORMAL_WAITS:
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("reason") or ""
            because = f" (last ended: {last})" if last and last != "Completed" else ""
            return f"{reason}: {waiting.get('message', '')}".strip(": ") + because
    return ""
