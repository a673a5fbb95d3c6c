"""Ports of the nodes, and the peers that may connect to them. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.objects.names import COMPONENT, METRICS_PORT
from shared.kubernetes.ownership import Owner
from shared.steps.network_policy import Access


def access(resource: RedisCluster, own: Owner) -> Access:
    """Return the access to the nodes.

    Without TLS the bus has no authentication: a node of another cluster that gets the former address of a pod would be
    met, and both clusters would merge.
    """
    metrics = (METRICS_PORT,) if resource.spec.exporter_image else ()
    clients = (PORT, *resource.spec.extra_ports)
    return Access(own, COMPONENT, resource.spec.network, clients=clients, metrics=metrics, peers=(BUS_PORT,))
