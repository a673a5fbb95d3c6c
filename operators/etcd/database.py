"""The table of etcd for the steps that all databases share."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.volume_record import to_record
from operators.etcd.objects import names, pod
from operators.etcd.objects.names import (
    BACKUP,
    CLIENT,
    CLIENT_PORT,
    CLIENTS,
    COMPONENT,
    CONTAINER,
    METRICS,
    METRICS_PORT,
    PEER,
    PEER_PORT,
    SERVES,
)
from operators.etcd.security.secrets import made_secrets
from operators.etcd.steps.availability import may_stop
from operators.etcd.steps.backup_schedule import why_unfinished
from operators.etcd.steps.connection_secret import connection
from operators.etcd.steps.credentials import lasting_secrets
from operators.etcd.steps.provisioning import apply_stateful_set, ensure_secrets
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.ownership import MANAGED_BY, NAME
from shared.steps.database import StoredDatabase
from shared.steps.hibernation import Hibernation
from shared.steps.network_policy import Access

MIN_MEMBERS_WITH_BUDGET = 3
"""Members from which on a budget is set by default: two of three are still a quorum. With fewer, every eviction
interrupts service, and a node must still be drainable.
"""


def _budget(resource: EtcdCluster) -> PodDisruptionBudget | None:
    default = PodDisruptionBudget() if resource.spec.size >= MIN_MEMBERS_WITH_BUDGET else None
    return resource.spec.pod_disruption_budget or default


DATABASE: StoredDatabase[Assessment] = StoredDatabase(
    component=COMPONENT,
    container=CONTAINER,
    template=pod.TEMPLATE,
    owner=names.owner,
    ports=lambda seen: (
        {CLIENT: CLIENT_PORT, PEER: PEER_PORT} | ({METRICS: METRICS_PORT} if seen.resource.spec.metrics.enabled else {})
    ),
    serving={SERVES: CLIENTS},
    budget=_budget,
    evicts_unready=lambda resource: resource.spec.storage.medium == "Volume",
    access=lambda seen, own: Access(
        own,
        COMPONENT,
        seen.resource.spec.network,
        clients=(CLIENT_PORT, *seen.resource.spec.extra_ports),
        metrics=(METRICS_PORT,),
        peers=(PEER_PORT,),
        helpers=({"podSelector": {"matchLabels": {NAME: BACKUP, MANAGED_BY: own.operator}}},),  # they take snapshots
    ),
    amounts=lambda seen: seen.resource.spec.container_resources(),
    connects=connection,
    secrets=made_secrets,
    lasting=lasting_secrets,
    issue=ensure_secrets,
    is_created=lambda seen: bool(seen.resource.recorded_cluster_id),
    is_at_rest=lambda seen: seen.members is not None and bool(seen.resource.recorded_cluster_id),
    storage=lambda resource: resource.spec.storage if resource.spec.storage.medium == "Volume" else None,
    record=lambda seen, instance: to_record(seen.resource, seen, instance),
    refusal="etcd.ydzs.io/growth-refused",
    modification="etcd.ydzs.io/modification-tried",
)

HIBERNATION: Hibernation[Assessment] = Hibernation(("size",), why_unfinished, apply_stateful_set, may_stop=may_stop)
