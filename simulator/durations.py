"""How long the effects of a step take: measured on the pods of the resource that run now, else defaults.

| what | default | source of the default |
|---|---|---|
| a pod, until its containers run | 1.5 s | to schedule it, mount volumes and start it; images are there; measured |
| then, until it is ready | 1 s | the startup probes have a period of one second, and the readiness probe follows |
| a pod, until it is removed | 1 s | a server without clients ends within a second, after the sleep of preStop hooks |
| a pod of etcd, the same | 5.5 s | it waits up to 7 s for streams of clients (embed/etcd.go); measured |
| a call on the database | 0.1 s | a pass of the operator, which inspects all servers, and the call itself |
| a write to the API server | 0.1 s | the same for a write, until the controllers of Kubernetes act on it |
| slots that move | 2500 per second | docs/performance.md: Redis 7.0 moves 4,096 slots, with 18 keys each, in 1.6 s |

Everything else that a step waits for passes in the simulation itself: the operator's timers, minReadySeconds, elections
and the synchronization of replicas.

The operator has no histogram of single steps, and a user of the plugin may not read its metrics. The status of each pod
has the times, in whole seconds: when it was created, when its containers started, since when it is ready.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from statistics import median

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj

MAX_READY_SECONDS = 900.0
"""Longest time that a startup probe of any kind allows: a pod that is ready for less time than that was not just
started, but lost its readiness in between."""


@dataclass(frozen=True)
class Durations:
    """Seconds that the effects of steps take.

    Attributes:
        start: from the creation of a pod until its containers run.
        ready: from then until the pod is ready.
        stop: from the end of its preStop hooks until a deleted pod is removed.
        call: a call on the database.
        write: a write to the API server.
        slots: number of slots that move within a second.
        pods: number of pods on which `start` and `ready` were measured; 0 if both are defaults.
    """

    start: float = 1.5
    ready: float = 1.0
    stop: float = 1.0
    call: float = 0.1
    write: float = 0.1
    slots: float = 2500.0
    pods: int = 0

    @property
    def source(self) -> str:
        """Where these durations come from, as an assumption of a plan."""
        if not self.pods:
            return "Durations are defaults: this resource has no pod on which they could be measured."
        taken = f"{self.start + self.ready:g} s from its creation until it is ready"
        return f"A new pod takes as long as the {self.pods} pods that run now: {taken}. Other durations are defaults."


DEFAULT = Durations()


def measured(pods: Iterable[Obj], default: Durations = DEFAULT) -> Durations:
    """Return the durations of a resource with these pods.

    Args:
        default: durations of its kind.
    """
    found = [times for pod in pods if (times := _times(pod)) is not None]
    if not found:
        return default
    start, ready = (median(each) for each in zip(*found, strict=True))
    return dataclasses.replace(default, start=start, ready=ready, pods=len(found))


def _times(pod: Obj) -> tuple[float, float] | None:
    """Return the seconds until the containers of a pod ran, and from then until it was ready; None if unknown.

    A container that was restarted has the time of its last start.
    """
    status = pod.get("status") or {}
    containers = status.get("containerStatuses") or ()
    ready, created = accessors.condition(pod, "Ready"), pod["metadata"].get("creationTimestamp")
    running = [str(((each.get("state") or {}).get("running") or {}).get("startedAt") or "") for each in containers]
    if ready.get("status") != "True" or not (created and running and all(running)):
        return None
    if any(each.get("restartCount") for each in containers):
        return None
    began, started, is_ready = map(datetime.fromisoformat, (created, max(running), ready["lastTransitionTime"]))
    until_started, until_ready = (started - began).total_seconds(), (is_ready - started).total_seconds()
    return (until_started, max(0.0, until_ready)) if until_ready <= MAX_READY_SECONDS else None
