"""Outcome of a pod that performs a piece of work. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from operators.etcd.backup.pods import STARTED
from operators.etcd.reasons import INTERRUPTED, PROGRAM_FAILED, REASONS
from shared.kubernetes.accessors import annotation, is_terminating, time_in
from shared.kubernetes.encoding import decode
from shared.kubernetes.kinds import POD, Obj
from shared.runtime.plan import Delete
from shared.status.reasons import NO_REASON, Reason


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a finished pod.

    Attributes:
        succeeded: whether every container succeeded and reported a result.
        reason: reason of the failure: of the program, or else of Kubernetes.
        message: message of the failure, as a sentence.
        result: result of the last container.
        seconds: how long the pod ran, by the clock of the kubelet; None if it did not report that.
    """

    succeeded: bool
    reason: Reason = NO_REASON
    message: str = ""
    result: Obj = field(default_factory=dict)
    seconds: float | None = None


def outcome(pod: Obj | None) -> Outcome | None:
    """Return the outcome of a pod; None while it runs, or without a pod."""
    reported = (pod or {}).get("status") or {}
    if reported.get("phase") not in ("Succeeded", "Failed"):
        return None
    containers = [*(reported.get("initContainerStatuses") or ()), *(reported.get("containerStatuses") or ())]
    ends = [ended for known in containers if (ended := (known.get("state") or {}).get("terminated"))]
    started = time(reported.get("startTime"))
    finished = max((found for end in ends if (found := time(end.get("finishedAt")))), default=None)
    failed = next((end for end in ends if end.get("exitCode")), None)
    seconds = (finished - started).total_seconds() if started and finished else None
    result = _result(ends[-1]) if ends else {}
    if reported["phase"] == "Succeeded" and failed is None and result:
        return Outcome(succeeded=True, result=result, seconds=seconds)
    reason, message = _failure(reported, failed or {})
    return Outcome(False, reason, message, seconds=seconds)


def _failure(reported: Obj, end: Obj) -> tuple[Reason, str]:
    """Return reason and message of a failure: from the program, else from the kubelet.

    If the kubelet ended the pod, its reason wins over the program's `Interrupted`.
    """
    result = _result(end)
    ended_by_kubelet = bool(reported.get("reason"))  # DeadlineExceeded, Evicted
    if result.get("reason") and not (ended_by_kubelet and result["reason"] == INTERRUPTED):
        return REASONS.named(str(result["reason"])), str(result.get("message") or "")
    if ended_by_kubelet:
        return REASONS.named(str(reported["reason"])), str(reported.get("message") or f"{reported['reason']}.")
    reason = end.get("reason") or "NoResult"
    if reason == "Error":
        reason = PROGRAM_FAILED
    lines = str(end.get("message") or "").strip().splitlines()
    code = end.get("exitCode", 0)
    message = lines[-1][-1000:] if lines else f"The container exited with code {code}, without a message."
    return REASONS.named(reason), message


def _result(end: Obj) -> Obj:
    """Return the termination message of a container as JSON; empty if program.py did not write it."""
    try:
        found = decode(end.get("message") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def removal(pod: Obj | None) -> tuple[Delete, ...]:
    """Return the deletion of a pod; nothing if there is none, or it is being deleted."""
    return () if pod is None or is_terminating(pod) else (Delete(POD, pod),)


def created(pod: Obj, now: datetime) -> datetime | None:
    """Return the time at which the operator created a pod, by its own clock or else by that of the API server.

    A text that is no time, as a user can make it of the annotation, and a time in the future do not count.
    """
    times = (time_in(str(text)) for text in (annotation(pod, STARTED), pod["metadata"].get("creationTimestamp")))
    return next((time for time in times if time and time <= now), None)


def ended_for(pod: Obj, now: datetime) -> float:
    """Return the seconds since a pod ended: those since its creation, without those for which it ran."""
    found, since = outcome(pod), created(pod, now)
    return (now - since).total_seconds() - ((found.seconds if found else None) or 0.0) if since else math.inf


def time(text: Any) -> datetime | None:
    """Parse a time of Kubernetes; None if it is empty."""
    return datetime.fromisoformat(text) if text else None
