"""What a pod that did a piece of work came to. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from operators.etcd.reasons import INTERRUPTED, PROGRAM_FAILED, REASONS
from shared.kubernetes.kinds import Obj
from shared.status.reasons import NO_REASON, Reason

"""Reason of a program that was told to end: by whom, it does not know."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pod ended.

    Attributes:
        succeeded: whether every container did its work and said what it came to.
        reason: why it failed, in one word: the program's own, else Kubernetes'.
        message: the same as a sentence.
        said: what the last container said of its work.
        started, finished: when; None where the kubelet did not tell.
    """

    succeeded: bool
    reason: Reason = NO_REASON
    message: str = ""
    result: Obj = field(default_factory=dict)
    started: datetime | None = None
    finished: datetime | None = None


def outcome(pod: Obj | None) -> Outcome | None:
    """How a pod ended; None while it has not, or where there is none."""
    reported = (pod or {}).get("status") or {}
    if reported.get("phase") not in ("Succeeded", "Failed"):
        return None
    containers = [*(reported.get("initContainerStatuses") or ()), *(reported.get("containerStatuses") or ())]
    ends = [ended for known in containers if (ended := (known.get("state") or {}).get("terminated"))]
    started = time(reported.get("startTime"))
    finished = max((found for end in ends if (found := time(end.get("finishedAt")))), default=None)
    failed = next((end for end in ends if end.get("exitCode")), None)
    result = _result(ends[-1]) if ends else {}
    if reported["phase"] == "Succeeded" and failed is None and result:
        return Outcome(succeeded=True, result=result, started=started, finished=finished)
    reason, message = _failure(reported, failed or {})
    return Outcome(False, reason, message, started=started, finished=finished)


def _failure(reported: Obj, end: Obj) -> tuple[Reason, str]:
    """Why a pod failed: in the program's own words, else in the kubelet's; and always in its own if it ended it."""
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
    message = lines[-1][-1000:] if lines else f"It ended with code {code}, and said nothing."
    return REASONS.named(reason), message


def _result(end: Obj) -> Obj:
    """What a container left as its termination message; empty if that is not of program.py."""
    try:
        found = json.loads(end.get("message") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def time(text: Any) -> datetime | None:
    """A time as Kubernetes writes it; None for none."""
    return datetime.fromisoformat(text) if text else None
