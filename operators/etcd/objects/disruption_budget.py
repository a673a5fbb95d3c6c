"""The PodDisruptionBudget of an EtcdCluster. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import COMPONENT
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from shared.kubernetes.ownership import Owner

MIN_MEMBERS_WITH_BUDGET = 3
"""Members from which on one may be missing without a person having allowed it: two of three still agree."""


def disruption_budget(resource: EtcdCluster, own: Owner) -> Obj | None:
    """How many members a drain may take at once: one, unless the spec says otherwise; None where nobody must be kept.

    Of one or two members none may be missing, and a node must be drainable all the same.
    """
    given = resource.spec.pod_disruption_budget
    if given is None and resource.spec.size < MIN_MEMBERS_WITH_BUDGET:
        return None
    spec = (given or PodDisruptionBudget()).disruption_budget(own.selector(COMPONENT))
    # A pod that is not ready may always be evicted, for it serves nobody; but not where it takes its data along.
    in_memory = resource.spec.storage.medium == "Memory"
    spec["unhealthyPodEvictionPolicy"] = "IfHealthyBudget" if in_memory else "AlwaysAllow"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)
