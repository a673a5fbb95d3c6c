"""Step that completes a change of `spec.workload`. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.reasons import SWITCHING_WORKLOAD
from shared.runtime.plan import PASS, Delete, Step


def delete_former_workload(seen: Assessment) -> Step:
    """Delete the former workload when all servers of the new one are ready."""
    former = seen.former
    if former is None or former.obj is None or not seen.settled:
        return PASS
    kind = seen.workload.kind
    message = f"Deleting the {former.kind}: {seen.summary} in the {kind}."
    if (
        seen.resource.reported.get("workload") != kind.name
    ):  # recorded first: a spec that sets none again keeps the new one
        return Step.wait(SWITCHING_WORKLOAD, message, requeue=1.0)
    return Step.wait(SWITCHING_WORKLOAD, message, Delete(former.kind, former.obj))
