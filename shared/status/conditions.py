"""Status of a resource: kstatus conditions, observedGeneration, and the smallest patch that updates them.

All messages are bounded here, regardless of what a step, a database or Kubernetes reports. That of Ready is the
shortest, because it is a column of kubectl; the other conditions and the event have more of it.

kstatus reads three conditions: Ready (the resource matches its spec), Reconciling (the operator is working on it) and
Stalled (a user must change something). kstatus treats a missing Ready condition as done, so the first status has
Ready=Unknown. Available, Degraded and Observed are the health of a resource (`shared.status.health`).

A resource may have other entries under `conditions`, such as those of nodes in the first API of redis. They follow, so
that `kubectl describe` begins with the conditions, and a lookup by type skips them.

Source: https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.kubernetes import accessors
from shared.kubernetes.accessors import condition_in
from shared.kubernetes.kinds import Obj
from shared.status.health import Health
from shared.status.messages import MAX_COLUMN_CHARACTERS, MAX_CONDITION_CHARACTERS, settled
from shared.status.reasons import KNOWN_ADVISORY, RECONCILIATION_PAUSED
from shared.status.reconciliation_pause import NOTICE, is_paused
from shared.status.verdict import Progress, Verdict

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
AVAILABLE = "Available"
"""Clients can read and write all their data."""

DEGRADED = "Degraded"
"""Served, but with less redundancy than requested, or on too few hosts or zones."""

OBSERVED = "Observed"
"""The operator reaches what it manages."""

VULNERABLE = "Vulnerable"
"""A published advisory applies to the running version in this configuration; absent if none is known."""

PAUSED = "ReconciliationPaused"
"""A user paused the reconciliation, since lastTransitionTime; absent otherwise."""

COMPOSED = (READY, RECONCILING, STALLED, AVAILABLE, DEGRADED, OBSERVED, VULNERABLE, PAUSED)


def compose(
    resource: Obj, status: Obj, verdict: Verdict, now: str, weaknesses: str = "", health: Health | None = None
) -> Obj:
    """Return the whole status to report.

    Args:
        resource: the resource as observed; provides the generation and the earlier conditions.
        status: everything else that the operator reports; other entries of `conditions` are kept.
        verdict: progress of the resource, with the reason.
        now: time of a transition, in RFC 3339.
        weaknesses: message of the condition Vulnerable; empty if no advisory is known to apply.
        health: Available, Degraded and Observed; what is None stays as last reported.
    """
    generation = resource["metadata"].get("generation", 0)
    earlier = accessors.conditions_of(accessors.status_of(resource))
    given = accessors.conditions_of(status)
    own = [_bounded(entry, {}) for entry in given if entry.get("type") not in COMPOSED]
    conditions = [
        *_conditions(earlier, verdict, generation, now),
        *_health(earlier, health or Health(), generation, now),
    ]
    if weaknesses:
        conditions.append(_condition(earlier, VULNERABLE, "True", KNOWN_ADVISORY, weaknesses, generation, now))
    if is_paused(resource):
        message = verdict.message if verdict.reason == RECONCILIATION_PAUSED else NOTICE
        conditions.append(_condition(earlier, PAUSED, "True", RECONCILIATION_PAUSED, message, generation, now))
    return {
        **_bounded(status, accessors.status_of(resource)),
        "observedGeneration": generation,
        "conditions": [*conditions, *own],
    }


def change(resource: Obj, status: Obj) -> Obj | None:
    """Return the JSON merge patch from the observed status to `status`; None if they are equal."""
    patch = _merge_patch(accessors.status_of(resource), status)
    return {"status": patch} if patch else None


def _conditions(earlier: list[Obj], verdict: Verdict, generation: int, now: str) -> list[Obj]:
    progress = verdict.progress
    moving = progress in (Progress.PROGRESSING, Progress.WAITING)
    ready = str(progress is Progress.DONE if verdict.ready is None else verdict.ready)
    before = condition_in(earlier, READY)
    if moving and (not before or (before.get("status"), before.get("reason")) == ("Unknown", verdict.reason)):
        ready = "Unknown"
    values = {
        READY: (ready, verdict.message),
        RECONCILING: (str(moving), verdict.message if moving else ""),
        STALLED: (str(progress is Progress.BLOCKED), verdict.message if progress is Progress.BLOCKED else ""),
    }
    return [
        _condition(earlier, name, value, verdict.reason, message, generation, now)
        for name, (value, message) in values.items()
    ]


def _health(earlier: list[Obj], health: Health, generation: int, now: str) -> Iterator[Obj]:
    findings = {AVAILABLE: health.available, DEGRADED: health.degraded, OBSERVED: health.observed}
    for name, found in findings.items():
        if found is not None:
            yield _condition(earlier, name, found.status, found.reason, found.message, generation, now)
        elif before := condition_in(earlier, name):
            yield _bounded(before, {})


def _bounded(entry: Obj, former: Obj) -> Obj:
    """Return a status, or an entry of its conditions, with texts of a bounded length."""
    texts = {key: entry[key] for key in ("reason", "message") if isinstance(entry.get(key), str)}
    former = former if former.get("reason") == entry.get("reason") else {}
    return {**entry, **{key: settled(text, str(former.get(key, ""))) for key, text in texts.items()}}


def _condition(earlier: list[Obj], name: str, value: str, reason: str, message: str, generation: int, now: str) -> Obj:
    before = condition_in(earlier, name)
    is_same = (before.get("status"), before.get("reason")) == (value, reason)
    limit = MAX_COLUMN_CHARACTERS if name == READY else MAX_CONDITION_CHARACTERS
    message = settled(message, str(before.get("message", "")) if is_same else "", limit)
    since = before.get("lastTransitionTime") if before.get("status") == value else None
    return {
        "type": name,
        "status": value,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": since or now,
        "observedGeneration": generation,
    }


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
