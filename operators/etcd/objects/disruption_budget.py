"""The PodDisruptionBudget of an EtcdCluster. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import COMPONENT
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from shared.kubernetes.ownership import Owner

MIN_MEMBERS_WITH_BUDGET = 3
"""Members from which on a budget is set by default: two of three are still a quorum."""


def disruption_budget(resource: EtcdCluster, own: Owner) -> Obj | None:
    """Return the PodDisruptionBudget: one eviction at a time unless the spec sets another; None without a budget.

    With one or two members every eviction interrupts service, and a node must still be drainable.
    """
    given = resource.spec.pod_disruption_budget
    if given is None and resource.spec.size < MIN_MEMBERS_WITH_BUDGET:
        return None
    spec = (given or PodDisruptionBudget()).disruption_budget(own.selector(COMPONENT))
    # A pod that is not ready serves no clients and may be evicted, unless its data is deleted with it.
    in_memory = resource.spec.storage.medium == "Memory"
    spec["unhealthyPodEvictionPolicy"] = "IfHealthyBudget" if in_memory else "AlwaysAllow"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)
