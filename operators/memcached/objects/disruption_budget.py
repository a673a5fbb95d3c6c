"""PodDisruptionBudget of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from shared.kubernetes.ownership import Owner


def disruption_budget(resource: Memcached, own: Owner) -> Obj | None:
    """Return the PodDisruptionBudget of the servers; None without `spec.podDisruptionBudget`."""
    budget = resource.spec.pod_disruption_budget
    if budget is None:
        return None
    spec = budget.disruption_budget(own.selector(COMPONENT))
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)
