"""The port of the cluster bus: each cluster has one of its own. Pure.

The bus has no authentication without TLS, and pod addresses are reused. Since 8.1, Valkey sends MEET by itself to the
last address of a node that sent it nothing for the node timeout, and a node of another cluster that answers there
becomes a member: both clusters merge. At the port of this cluster, no node of another one answers.
https://github.com/valkey-io/valkey/pull/4286

What runs is the record: a cluster that began with another port, or with an engine without the directive, keeps it.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from operators.redis.api.engine_versions import features
from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import BUS_PORT
from operators.redis.facts.assessment import Assessment
from operators.redis.objects.names import BUS, CONTAINER
from operators.redis.state.observed import Observed
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pods import container_of

PORTS = range(20000, 30000)
"""Ports of new clusters: below those of NodePorts (30000) and of outgoing connections (32768)."""


def bus_port(seen: Assessment) -> int:
    """Return the port of the bus: that of most pods and of their template, or of a new cluster one by its UID."""
    template = [seen.stateful_set["spec"]["template"]] if seen.stateful_set else []
    found = Counter(map(_port_of, (*_pods(seen), *template)))
    return found.most_common(1)[0][0] if found else _drawn(seen.resource)


def admitted_ports(seen: Assessment) -> tuple[int, ...]:
    """Return the ports that nodes must reach: those of the next pods, and of present ones."""
    return tuple(sorted({bus_port(seen), *map(_port_of, _pods(seen))}))


def _pods(seen: Observed) -> list[Obj]:
    return [instance.pod_obj for instance in seen.instances if instance.pod_obj]


def _port_of(pod: Obj) -> int:
    """Return the port of the bus of a pod or a template; the default if it declares none."""
    ports = container_of(pod, CONTAINER).get("ports") or ()
    return next((int(port["containerPort"]) for port in ports if port.get("name") == BUS), BUS_PORT)


def _drawn(resource: RedisCluster) -> int:
    """Return a port by the UID of the resource, and none of its extra containers."""
    if not features(resource.engine).bus_port:
        return BUS_PORT
    first, taken = int(hashlib.sha256(resource.uid.encode()).hexdigest(), 16), resource.spec.extra_ports
    ports = (PORTS[(first + step) % len(PORTS)] for step in range(len(PORTS)))
    return next(port for port in ports if port not in taken)
