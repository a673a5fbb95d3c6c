"""Ports of the servers, and the peers that may connect to them. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.ownership import Owner
from shared.steps.network_policy import Access


def access(resource: Memcached, own: Owner) -> Access:
    """Return the access to the servers."""
    spec = resource.spec
    metrics = (spec.sidecar_port,) if spec.metrics_port is not None or spec.auth is not None else ()
    clients = (spec.container_port, *spec.extra_ports)
    return Access(own, COMPONENT, spec.network, clients=clients, metrics=metrics)
