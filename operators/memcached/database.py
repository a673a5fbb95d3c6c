"""The table of memcached for the steps that all databases share."""

from __future__ import annotations

from collections.abc import Iterable

from operators.memcached.api.resource import validate
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import names
from operators.memcached.objects.pod import COMPONENT, CONTAINER, METRICS, server_port, sidecar_port
from operators.memcached.security.secrets import made_secrets, spare_secrets
from operators.memcached.steps.connection_secret import connection
from shared.kubernetes.kinds import STATEFUL_SET
from shared.kubernetes.ownership import Owner
from shared.steps.database import Database
from shared.steps.network_policy import Access


def _ports(seen: Assessment) -> dict[str, int]:
    """Return the ports of the Service: servers do not share data, so that clients choose the server by the key."""
    spec = seen.resource.spec
    metrics = {} if spec.metrics_port is None else {METRICS: spec.metrics_port}
    return {CONTAINER: spec.container_port} | metrics


def _access(seen: Assessment, own: Owner) -> Access:
    """Return the access to the ports of the spec, and to those of pods that a change has yet to replace."""
    spec = seen.resource.spec
    metrics = (spec.sidecar_port,) if spec.metrics_port is not None or spec.auth is not None else ()
    return Access(
        own,
        COMPONENT,
        spec.network,
        clients=_with((spec.container_port, *spec.extra_ports), map(server_port, seen.pod_objs)),
        metrics=_with(metrics, map(sidecar_port, seen.pod_objs)),
    )


def _with(ports: tuple[int, ...], former: Iterable[int | None]) -> tuple[int, ...]:
    return (*ports, *sorted({port for port in former if port} - {*ports}))


DATABASE: Database[Assessment] = Database(
    component=COMPONENT,
    owner=names.owner,
    ports=_ports,
    before_ready=lambda seen: seen.workload.kind == STATEFUL_SET,  # resolvers would cache that a name does not exist
    budget=lambda resource: resource.spec.pod_disruption_budget,
    access=_access,
    connects=connection,
    secrets=made_secrets,
    spare=lambda seen: spare_secrets(seen.resource, seen.mounted) if seen.settings.write_secrets else {},
    publishes=lambda seen: not (seen.resource.spec.paused or validate(seen.resource)),  # the spec is applied
)
