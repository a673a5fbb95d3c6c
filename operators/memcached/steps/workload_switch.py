"""The step that ends a change of spec.workload. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.reasons import SWITCHING_WORKLOAD
from shared.runtime.plan import PASS, Delete, Step


def delete_former_workload(_resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Delete the workload that the spec no longer asks for, once the other one serves."""
    former = facts.observed.former
    if former is None or former.obj is None or not facts.settled:
        return PASS
    message = f"{facts.summary} in the {facts.observed.workload.kind}; the {former.kind} goes."
    return Step.wait(SWITCHING_WORKLOAD, message, Delete(former.kind, former.obj))
