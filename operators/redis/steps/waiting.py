"""How long steps wait before the cluster is observed again, and the reason that they report meanwhile."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from shared.status.phases import CREATING, SCALING, UPGRADING
from shared.status.reasons import Reason

GOSSIP_SECONDS = 0.5
"""Until a change among the nodes is expected to show: no watch reports it."""

AGREEMENT_SECONDS = 1.0
"""Until nodes are expected to report the same cluster view."""

FAILOVER_SECONDS = 1.5
"""Until a requested failover is expected to be over."""

SYNC_SECONDS = 2.0
"""Until the progress of a replica's sync, or of a pod, is inspected again."""

BLOCKED_SECONDS = 10.0
"""Until a step that cannot go on is judged again."""


def phase_or(resource: RedisCluster, reason: Reason) -> Reason:
    """Return the phase as the reason while one lasts: a detail of a greater change is no change of its own."""
    return next((phase for phase in (CREATING, SCALING, UPGRADING) if phase == resource.phase), reason)
