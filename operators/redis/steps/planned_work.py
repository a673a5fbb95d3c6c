"""Describes the planned work that is in progress, for steps that wait for the nodes in between. Pure."""

from __future__ import annotations

from operators.redis.facts import migration_status
from operators.redis.facts.assessment import Assessment
from operators.redis.steps.rolling_update import outdated
from shared.status.phases import CREATING, SCALING, UPGRADING


def planned_work(seen: Assessment) -> str:
    """Return the planned step that is in progress, as a sentence; empty if there is none."""
    phase = seen.resource.phase
    if phase == UPGRADING:
        return _rolling_update(seen)
    if phase == SCALING:
        return _scaling(seen)
    return f"Creating a cluster of {seen.resource.spec.replicas} nodes." if phase == CREATING else ""


def _rolling_update(seen: Assessment) -> str:
    total, stale = len(seen.staying), [instance for instance in seen.staying if outdated(seen, instance)]
    restarting = [
        instance for instance in seen.staying if instance.leaving or (instance not in stale and not instance.ready)
    ]
    if not restarting:
        return f"Rolling update: {len(stale)} of {total} pods are outdated."
    current = restarting[0]
    done = total - len(stale) + (current in stale)
    return f"Rolling update: restarting {current.name} ({done} of {total})."


def _scaling(seen: Assessment) -> str:
    moving = migration_status.progress(seen)
    if moving is None:
        return f"Scaling to {seen.resource.spec.replicas} nodes."
    return f"Scaling to {len(seen.primaries)} primaries: moving {moving['slots']} slots ({moving['moved']} moved)."
