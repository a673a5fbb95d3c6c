"""Adoption of the volumes of a deleted RedisCluster of this name, and the records that it relies on. Pure.

A node keeps its id, its slots and the cluster that it knows in nodes.conf, on its volume. So the cluster counts as
created from the start: nodes are never assigned slots as in a new cluster, and a node whose volume is missing counts as
lost, as after any loss of a volume.
"""

from __future__ import annotations

from collections.abc import Sequence

from operators.redis.api.resource import RedisCluster
from operators.redis.facts.assessment import Assessment
from operators.redis.objects.config_map import recorded_persistence
from operators.redis.objects.names import CLUSTER_UID
from operators.redis.state.volume_record import node_entries, records, why_copied, why_unusable
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.steps import adoption
from shared.steps.adoption import Adoption


def adopt_volumes(seen: Assessment) -> Step:
    """Adopt the volumes that spec.adopt names, before anything else happens."""
    resource = seen.resource
    known = {(node.node_id, node.disk) for node in resource.recorded_nodes}
    found = records(resource, seen.adoptable.claims)
    is_recorded = resource.adopted_from == resource.adopts_from and all(
        (record.node_id, record.disk) in known for record in found
    )
    has_begun = resource.formed or seen.stateful_set is not None or any(each.volume for each in seen.instances)
    return adoption.adopt(_adoption(seen), is_recorded=is_recorded, has_begun=has_begun)


def report(seen: Assessment) -> Obj:
    """Return the part of the status that is known from volumes that are to be adopted; empty otherwise."""
    made = _adoption(seen)
    adopted = adoption.report(made)
    found: Obj = {"adoption": adopted} if adopted else {}
    if made.is_permitted and (known := records(seen.resource, made.claims)):
        found |= {"formed": True, "nodes": node_entries(known)}
    return found


def _adoption(seen: Assessment) -> Adoption:
    resource = seen.resource
    given = seen.adoptable
    problem = why_unusable(resource, records(resource, given.claims)) or why_copied(resource, given.claims)
    problem = problem or _why_unknown(resource, given.claims)
    return Adoption(resource, given.claims, CLUSTER_UID, given.former, given.in_use, problem)


def _why_unknown(resource: RedisCluster, claims: Sequence[Obj]) -> str:
    """Return why servers might ignore the data on the volumes; empty if they use it, or if a user has decided."""
    if recorded_persistence(claims) or "appendonly" in resource.spec.config:
        return ""
    return (
        "nothing proves whether their servers start with an append-only file, or with snapshots, which are ignored "
        "next to it: the records on the claims are missing, differ, or were written by another client. "
        'Set spec.config.appendonly explicitly, as the former resource had it ("yes" is the default).'
    )
