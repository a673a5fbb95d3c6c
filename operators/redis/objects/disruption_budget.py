"""The PodDisruptionBudget of the nodes. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.objects.names import CLIENTS, COMPONENT, SERVES
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import DISRUPTION_BUDGET, Obj
from shared.kubernetes.ownership import Owner


def disruption_budget(resource: RedisCluster, own: Owner) -> Obj:
    """How many nodes a drain may take at once: one, unless the spec says otherwise.

    It counts on those alone that clients are sent to. So while one that came back is not in step yet, no other goes:
    its master might be the one that has the data.
    """
    given, selector = resource.spec.pod_disruption_budget, own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec = (given or PodDisruptionBudget()).disruption_budget(selector)
    # A pod that is not ready may always be evicted, for it serves nobody; but not where it takes its data along.
    spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow" if resource.has_storage else "IfHealthyBudget"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)
