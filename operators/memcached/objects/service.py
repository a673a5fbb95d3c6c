"""Headless Service of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT, CONTAINER, METRICS
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET, Kind, Obj
from shared.kubernetes.objects import service_port
from shared.kubernetes.ownership import Owner


def service(resource: Memcached, own: Owner, workload: Kind) -> Obj:
    """Return a headless Service: one DNS name for all servers, without load balancing.

    Servers do not share data, so that a client must choose the server by the key: there is no cluster IP. With a
    StatefulSet, each server has its own DNS name, which is published even while the server is not ready. Otherwise
    resolvers would cache that the name does not exist.
    """
    spec: Obj = {"clusterIP": "None", "selector": own.selector(COMPONENT), "ports": _ports(resource)}
    if workload == STATEFUL_SET:
        spec["publishNotReadyAddresses"] = True
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=spec)


def _ports(resource: Memcached) -> list[Obj]:
    ports = [service_port(CONTAINER, resource.spec.container_port)]
    if (port := resource.spec.metrics_port) is not None:
        ports.append(service_port(METRICS, port))
    return ports
