"""Ports of the nodes, and the peers that may connect to them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import PORT
from operators.redis.objects.names import COMPONENT, METRICS_PORT
from shared.kubernetes.ownership import Owner
from shared.steps.network_policy import Access


def access(resource: RedisCluster, own: Owner, bus_ports: Sequence[int]) -> Access:
    """Return the access to the nodes.

    Without TLS the bus has no authentication: any client that reaches it can become a member.
    """
    metrics = (METRICS_PORT,) if resource.spec.exporter_image else ()
    clients = (PORT, *resource.spec.extra_ports)
    return Access(own, COMPONENT, resource.spec.network, clients=clients, metrics=metrics, peers=tuple(bus_ports))
