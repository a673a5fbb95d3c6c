"""HorizontalPodAutoscaler of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import API, Memcached
from operators.memcached.objects.pod import COMPONENT, CONTAINER
from shared.kubernetes.kinds import AUTOSCALER, Obj
from shared.kubernetes.ownership import Owner


def autoscaler(resource: Memcached, own: Owner) -> Obj | None:
    """Return an autoscaler of the resource's own size, through its scale subresource; None without autoscaling.

    The target is the CPU of the memcached containers alone, without sidecars.
    """
    settings = resource.spec.autoscaling
    if settings is None:
        return None
    target = {"type": "Utilization", "averageUtilization": settings.target_cpu_utilization}
    cpu = {"name": "cpu", "container": CONTAINER, "target": target}
    spec = {
        "scaleTargetRef": {"apiVersion": API.kind.api_version, "kind": API.kind.name, "name": resource.name},
        "minReplicas": settings.min_replicas,
        "maxReplicas": settings.max_replicas,
        "metrics": [{"type": "ContainerResource", "containerResource": cpu}],
    }
    return own.object(AUTOSCALER, resource.name, component=COMPONENT, spec=spec)
