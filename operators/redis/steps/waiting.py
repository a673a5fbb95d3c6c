"""Intervals between reconciles of waiting steps, and the reason that they report."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from shared.status.phases import CREATING, SCALING, UPGRADING
from shared.status.reasons import Reason

GOSSIP_SECONDS = 0.5
"""Time until a change among the nodes is expected to show: no watch reports it."""

AGREEMENT_SECONDS = 1.0
"""Time until nodes are expected to report the same cluster view."""

FAILOVER_SECONDS = 1.5
"""Time until a requested failover is expected to be complete."""

SYNC_SECONDS = 2.0
"""Time until the progress of a replica's sync, or of a pod, is inspected again."""

BLOCKED_SECONDS = 10.0
"""Time until a blocked step is checked again."""


def phase_or(resource: RedisCluster, reason: Reason) -> Reason:
    """Return the phase as the reason while one lasts: details of a larger change get no reason of their own."""
    return next((phase for phase in (CREATING, SCALING, UPGRADING) if phase == resource.phase), reason)
