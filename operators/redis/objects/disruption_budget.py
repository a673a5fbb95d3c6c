"""The PodDisruptionBudget of the nodes. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLIENTS, COMPONENT, SERVES
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from shared.kubernetes.ownership import Owner


def disruption_budget(resource: RedisCluster, own: Owner) -> Obj:
    """Return the PodDisruptionBudget: one eviction at a time, unless the spec defines another limit.

    It counts only pods that serve clients. So while a restarted node is not in sync, no other pod is evicted: its
    primary might have the only copy of the data.
    """
    given, selector = resource.spec.pod_disruption_budget, own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec = (given or PodDisruptionBudget()).disruption_budget(selector)
    # A pod that is not ready serves no client and may be evicted, but not if its data is deleted with it.
    spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow" if resource.has_storage else "IfHealthyBudget"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)
