"""Adoption of the volumes of a deleted EtcdCluster of this name, and the records that it relies on. Pure.

With adopted volumes, no member bootstraps or joins by itself (`Closed`): etcd ignores its bootstrap flags if its data
directory has data, and exits if it has none. The cluster id of the claims is in the status before the first member
starts. If members then report another id, `record_cluster` blocks.
"""

from __future__ import annotations

from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.volume_record import VolumeRecord, records, why_unusable
from operators.etcd.objects.names import CLUSTER_UID
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.steps import adoption
from shared.steps.adoption import Adoption


def adopt_volumes(seen: Assessment) -> Step:
    """Adopt the volumes that spec.adopt names, before anything else happens."""
    resource = seen.resource
    found = records(seen)
    is_same = resource.recorded_cluster_id in {record.cluster_id for record in found}
    is_recorded = resource.adopted_from == resource.adopts_from and is_same
    has_begun = bool(resource.recorded_cluster_id or seen.cluster_id) or seen.stateful_set is not None
    return adoption.adopt(_adoption(seen), is_recorded=is_recorded, has_begun=has_begun)


def report(seen: Assessment) -> Obj | None:
    """Return status.adoption."""
    return adoption.report(_adoption(seen))


def adopted(seen: Assessment) -> tuple[VolumeRecord, ...]:
    """Return the members to record in the status because their volumes are to be adopted; empty otherwise."""
    return records(seen) if is_adopting(seen) else ()


def is_adopting(seen: Assessment) -> bool:
    """Whether volumes of a deleted resource may be adopted now; nothing runs then that could use them."""
    return _adoption(seen).is_permitted


def _adoption(seen: Assessment) -> Adoption:
    resource = seen.resource
    made = (seen.stateful_set, *(instance.pod_obj for instance in seen.instances))
    return Adoption(
        resource,
        [instance.volume for instance in seen.instances if instance.volume],
        CLUSTER_UID,
        seen.former_resource,
        [obj for obj in made if obj is not None],
        why_unusable(resource, seen, records(seen)) if resource.adopts_from else "",
    )
