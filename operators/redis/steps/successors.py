"""Lets replicas take over from primaries where no election does, one after another. Pure."""

from __future__ import annotations

from operators.redis.facts.assessment import Assessment
from operators.redis.steps.failover import replace_failed
from operators.redis.steps.old_snapshot import replace_outdated
from shared.runtime.plan import PASS, Step


def replace_primaries(seen: Assessment) -> Step:
    """Replace the first primary whose successor can take over now; a shard whose successor cannot delays no other."""
    if not seen.resource.formed:
        return PASS
    found = (*replace_failed(seen), *replace_outdated(seen))
    return next((step for step in found if step.actions), found[0] if found else PASS)
