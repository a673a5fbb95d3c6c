"""The table of Redis for the steps that all databases share."""

from __future__ import annotations

from operators.redis.client.server import PORT
from operators.redis.facts.assessment import Assessment
from operators.redis.facts.bus_port import admitted_ports, bus_port
from operators.redis.objects import names, pod
from operators.redis.objects.names import BUS, CLIENT, CLIENTS, COMPONENT, CONTAINER, METRICS, METRICS_PORT, SERVES
from operators.redis.security.secrets import made_secrets
from operators.redis.state.volume_record import to_record
from operators.redis.steps.connection_secret import connection, of_users, spare
from operators.redis.steps.hibernation import stop_replicas, why_running
from operators.redis.steps.provisioning import ensure_secrets, ensure_stateful_set
from operators.redis.steps.rolling_update import permitted
from shared.api.podspec import PodDisruptionBudget
from shared.steps.database import StoredDatabase
from shared.steps.hibernation import Hibernation
from shared.steps.network_policy import Access

DATABASE: StoredDatabase[Assessment] = StoredDatabase(
    component=COMPONENT,
    container=CONTAINER,
    template=pod.TEMPLATE,
    owner=names.owner,
    ports=lambda seen: (
        {CLIENT: PORT, BUS: bus_port(seen)} | ({METRICS: METRICS_PORT} if seen.resource.spec.exporter_image else {})
    ),
    serving={SERVES: CLIENTS},
    budget=lambda resource: resource.spec.pod_disruption_budget or PodDisruptionBudget(),
    # While a restarted node is not in sync, no other pod is evicted: its primary may have the only copy of the data.
    counted={SERVES: CLIENTS},
    evicts_unready=lambda resource: resource.has_storage,
    limits=lambda seen: (
        ({"maxUnavailable": 0} if seen.lacks_copies else {})
        | ({"unhealthyPodEvictionPolicy": "IfHealthyBudget"} if seen.lacks_copies or not seen.is_persistent else {})
    ),
    access=lambda seen, own: Access(
        own,
        COMPONENT,
        seen.resource.spec.network,
        clients=(PORT, *seen.resource.spec.extra_ports),
        metrics=(METRICS_PORT,) if seen.resource.spec.exporter_image else (),
        # Without TLS the bus has no authentication: any client that reaches it can become a member.
        peers=admitted_ports(seen),
    ),
    amounts=lambda seen: pod.amounts(permitted(seen).resource),
    connects=connection,
    secrets=made_secrets,
    spare=spare,
    of_users=of_users,
    issue=ensure_secrets,
    is_created=lambda seen: seen.resource.formed,
    is_at_rest=lambda seen: seen.resource.formed,
    storage=lambda resource: resource.spec.storage,
    record=lambda seen, instance: to_record(seen.resource, seen, instance),
    refusal="redis.middleware.hc.cn/growth-refused",
    modification="redis.middleware.hc.cn/modification-tried",
)

SIZE = "replicas", "replicas_per_master"
HIBERNATION: Hibernation[Assessment] = Hibernation(SIZE, why_running, ensure_stateful_set, stop_replicas)
