"""The table of memcached for the steps that all databases share."""

from __future__ import annotations

from operators.memcached.api.resource import validate
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import names, network_policy, service
from operators.memcached.objects.pod import COMPONENT
from operators.memcached.security.secrets import made_secrets, spare_secrets
from operators.memcached.steps.connection_secret import connection
from shared.steps.database import Database

DATABASE: Database[Assessment] = Database(
    component=COMPONENT,
    owner=names.owner,
    service=lambda seen, own: service.service(seen.resource, own, seen.workload.kind),
    budget=lambda resource: resource.spec.pod_disruption_budget,
    access=lambda seen, own: network_policy.access(seen.resource, own, seen.pod_objs),
    connects=connection,
    secrets=made_secrets,
    spare=lambda seen: spare_secrets(seen.resource) - seen.mounted if seen.settings.write_secrets else frozenset(),
    publishes=lambda seen: not (seen.resource.spec.paused or validate(seen.resource)),  # the spec is applied
)
