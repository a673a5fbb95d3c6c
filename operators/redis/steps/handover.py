"""Lets replicas take over from primaries whose pods are being deleted, before their servers end. Pure.

An eviction, a drain or a user may have deleted the pod. A coordinated failover takes milliseconds and loses no write.
An election begins only when the nodes find that the primary has failed, after cluster-node-timeout. The kubelet delays
SIGTERM for that (`pod.STOP_DELAY_SECONDS`).

Without the operator, a server of Valkey 9 hands over when it gets SIGTERM, and of other engines the election remains.
Two handovers at the same time would delay each other: https://github.com/valkey-io/valkey/issues/3996. So the operator
leaves such a server alone from then on.
"""

from __future__ import annotations

from operators.redis.client.responses import NodeReport
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import HANDING_OVER
from operators.redis.steps.failover import take_over
from operators.redis.steps.rolling_update import successor_in_sync
from operators.redis.steps.waiting import FAILOVER_SECONDS
from shared.runtime.plan import PASS, Step


def hand_over_deleted(seen: Assessment) -> Step:
    """Fail over each primary whose pod is being deleted, if it has a replica in sync whose pod stays."""
    reachable = ((primary, seen.reachable.get(primary.id)) for primary in seen.view.primaries)
    leaving = [
        primary
        for primary, each in reachable
        if each and each.leaving and seen.view.slots_of(primary.id) and not _hands_over_itself(each.report)
    ]
    pairs = [(primary, found) for primary in leaving if (found := successor_in_sync(seen, primary.id))]
    if not pairs:
        return PASS
    changes = ", ".join(f"{candidate.name} from {primary.name}" for primary, candidate in pairs)
    message = f"Replicas take over from primaries whose pods are being deleted: {changes}."
    calls = (take_over(seen, candidate.id) for _, candidate in pairs)
    return Step.wait(HANDING_OVER, message, *calls, requeue=FAILOVER_SECONDS)


def _hands_over_itself(report: NodeReport | None) -> bool:
    """Return whether a server has got SIGTERM, by its own report, and hands over because of it."""
    return report is not None and report.shuts_down and report.features.hands_over
