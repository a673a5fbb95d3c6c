"""Ports of the servers, and the peers that may connect to them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT, server_port, sidecar_port
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.steps.network_policy import Access


def access(resource: Memcached, own: Owner, pods: Iterable[Obj]) -> Access:
    """Return the access to the servers, on the ports of the spec and on those of pods that a change has yet to replace.

    Args:
        pods: pods of the servers.
    """
    spec, running = resource.spec, tuple(pods)
    metrics = (spec.sidecar_port,) if spec.metrics_port is not None or spec.auth is not None else ()
    clients = (spec.container_port, *spec.extra_ports)
    return Access(
        own,
        COMPONENT,
        spec.network,
        clients=_with(clients, map(server_port, running)),
        metrics=_with(metrics, map(sidecar_port, running)),
    )


def _with(ports: tuple[int, ...], former: Iterable[int | None]) -> tuple[int, ...]:
    return (*ports, *sorted({port for port in former if port} - {*ports}))
