"""Pure builders of the Kubernetes objects a Memcached owns; the servers' pod is in template.py."""

from __future__ import annotations

from operators.memcached.api.resource import API, Memcached
from operators.memcached.objects.pod import COMPONENT, CONTAINER, METRICS
from shared.kubernetes.kinds import AUTOSCALER, DEPLOYMENT, DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Kind, Obj
from shared.kubernetes.objects import service_port
from shared.kubernetes.ownership import Owner

WORKLOADS: dict[str, Kind] = {"Deployment": DEPLOYMENT, "StatefulSet": STATEFUL_SET}
"""What spec.workload names."""


def owner(resource: Memcached, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "memcached", operator)


def service(resource: Memcached, own: Owner) -> Obj:
    """A headless Service: a name for all servers' addresses, never a balancer.

    Servers do not share data: a client must choose the server by the key. So there is no cluster IP. With a StatefulSet
    each server has a name of its own, which stays known while the server is not ready: clients wait for it rather than
    for their resolver to forget that the name was unknown.
    """
    spec: Obj = {"clusterIP": "None", "selector": own.selector(COMPONENT), "ports": _ports(resource)}
    if resource.spec.workload == STATEFUL_SET.name:
        spec["publishNotReadyAddresses"] = True
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=spec)


def _ports(resource: Memcached) -> list[Obj]:
    ports = [service_port(CONTAINER, resource.spec.container_port)]
    if (port := resource.spec.metrics_port) is not None:
        ports.append(service_port(METRICS, port))
    return ports


def workload(resource: Memcached, own: Owner, template: Obj) -> Obj:
    """The servers, as many as spec.size: a Deployment or a StatefulSet."""
    if resource.spec.workload == STATEFUL_SET.name:
        return _stateful_set(resource, own, template)
    return _deployment(resource, own, template)


def _deployment(resource: Memcached, own: Owner, template: Obj) -> Obj:
    """Servers that are replaced one by one, the new one first."""
    spec = {
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": template,
    }
    return own.object(DEPLOYMENT, resource.name, component=COMPONENT, spec=spec)


def _stateful_set(resource: Memcached, own: Owner, template: Obj) -> Obj:
    """Servers with names that stay; they start and end together, and are replaced one by one."""
    spec = {
        "serviceName": resource.name,
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "template": template,
    }
    return own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)


def server_name(resource: Memcached, number: int) -> str:
    """The pod of a StatefulSet by its number."""
    return f"{resource.name}-{number}"


def server_address(resource: Memcached, number: int) -> str:
    """The name and port by which clients know a server of a StatefulSet."""
    name = f"{server_name(resource, number)}.{resource.name}.{resource.namespace}.svc"
    return f"{name}:{resource.spec.container_port}"


def disruption_budget(resource: Memcached, own: Owner) -> Obj | None:
    """How many servers a drain may take at once; None if nothing is asked."""
    budget = resource.spec.pod_disruption_budget
    if budget is None:
        return None
    spec = budget.disruption_budget(own.selector(COMPONENT))
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)


def autoscaler(resource: Memcached, own: Owner) -> Obj | None:
    """Sets this resource's own size, through its scale subresource; None if nothing is asked.

    It counts the servers' own CPU, not that of what runs beside them.
    """
    given = resource.spec.autoscaling
    if given is None:
        return None
    target = {"type": "Utilization", "averageUtilization": given.target_cpu_utilization}
    cpu = {"name": "cpu", "container": CONTAINER, "target": target}
    spec = {
        "scaleTargetRef": {"apiVersion": API.kind.api_version, "kind": API.kind.name, "name": resource.name},
        "minReplicas": given.min_replicas,
        "maxReplicas": given.max_replicas,
        "metrics": [{"type": "ContainerResource", "containerResource": cpu}],
    }
    return own.object(AUTOSCALER, resource.name, component=COMPONENT, spec=spec)
