"""The status of a resource: kstatus conditions, observedGeneration, and the smallest patch that says what is new.

kstatus reads three conditions: Ready (the spec is reality), Reconciling (work is under way) and Stalled (only a person
mends it). An absent Ready reads as done, so the first status says Unknown.

A resource may have entries of its own in the list (an instance each, as the redis operator's seed has it): those come
first, and whoever looks for a condition by its type passes over them.

Source: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
"""

from __future__ import annotations

import dataclasses
from typing import Any

from shared.kubernetes.client import Obj
from shared.runtime.plan import Progress, Step, Verdict

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"

_OURS = frozenset({READY, RECONCILING, STALLED})


def compose(resource: Obj, status: Obj, verdict: Verdict, now: str) -> Obj:
    """The whole status to report.

    Args:
        resource: the resource as observed; its generation and earlier conditions count.
        status: what the operator reports beside these conditions; other entries under `conditions` are its own.
        verdict: how far the resource is, and why.
        now: RFC 3339 time of a transition.
    """
    generation = resource["metadata"].get("generation", 0)
    earlier = (resource.get("status") or {}).get("conditions") or []
    own = [entry for entry in status.get("conditions") or () if entry.get("type") not in _OURS]
    conditions = [*own, *_conditions(earlier, verdict, generation, now)]
    return {**status, "observedGeneration": generation, "conditions": conditions}


def change(resource: Obj, status: Obj) -> Obj | None:
    """JSON merge patch from the observed status to another; None if they are equal."""
    patch = _merge_patch(resource.get("status") or {}, status)
    return {"status": patch} if patch else None


def condition(resource: Obj, name: str) -> Obj:
    """A condition of a resource by its type; empty if it has none."""
    return _named((resource.get("status") or {}).get("conditions") or [], name)


def is_true(resource: Obj, name: str) -> bool:
    return condition(resource, name).get("status") == "True"


def is_current(resource: Obj) -> bool:
    """Whether a resource's status tells of its present spec."""
    observed = (resource.get("status") or {}).get("observedGeneration")
    return bool(observed == resource["metadata"].get("generation"))


def announced(resource: Obj, step: Step) -> Step:
    """A step that is said before it is done: without its actions until its reason stands in the status.

    For what people would want to know of even if the operator stopped right after it: the status, and the event that
    goes with it, are written only when nothing is left to do for the moment.
    """
    said = condition(resource, READY)
    told = said.get("reason") == step.reason or str(said.get("message", "")).startswith(step.message)
    return step if told else dataclasses.replace(step, actions=(), requeue=0)


def _conditions(earlier: list[Obj], verdict: Verdict, generation: int, now: str) -> list[Obj]:
    progress = verdict.progress
    moving = progress in (Progress.UNDERWAY, Progress.WAITING)
    ready = str(progress is Progress.DONE if verdict.ready is None else verdict.ready)
    before = _named(earlier, READY)
    if moving and (not before or (before["status"], before["reason"]) == ("Unknown", verdict.reason)):
        ready = "Unknown"
    said = {
        READY: (ready, verdict.message),
        RECONCILING: (str(moving), verdict.message if moving else ""),
        STALLED: (str(progress is Progress.STALLED), verdict.message if progress is Progress.STALLED else ""),
    }
    conditions = []
    for name, (value, message) in said.items():
        before = _named(earlier, name)
        since = before["lastTransitionTime"] if before.get("status") == value else now
        conditions.append(
            {
                "type": name,
                "status": value,
                "reason": verdict.reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return conditions


def _named(conditions: list[Obj], name: str) -> Obj:
    return next((found for found in conditions if found.get("type") == name), {})


def _merge_patch(before: Obj, after: Obj) -> Obj:
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := _merge_patch(old, value):
                patch[key] = inner
        elif value != old:
            patch[key] = value
    return patch
