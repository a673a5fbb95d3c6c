"""Records on volume claims: the node whose data a volume has. They outlive the resource and its status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.redis.api.engine_versions import Engine, upgrade_refusal
from operators.redis.api.node_entries import PRIMARY_ROLE, REPLICA_ROLE
from operators.redis.api.resource import RedisCluster
from operators.redis.api.status import engine_of
from operators.redis.objects import names
from operators.redis.objects.names import (
    ADOPT_COPIES,
    CLAIM_UID,
    COPY_OF,
    HOST,
    NODE_ID,
    NODES,
    ORIGIN,
    PRIMARY,
    VERSION,
)
from operators.redis.objects.stateful_set import template_label
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from shared.kubernetes.accessors import annotation, label
from shared.kubernetes.kinds import Obj
from shared.kubernetes.kubectl import command


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A node, as recorded on its volume claim.

    Attributes:
        name: name of the node's pod.
        disk: UID of the claim.
        node_id: id of the node.
        primary: id of its primary; empty for a primary.
        copy_of: id of the primary that it was last fully synced with; empty if there is none.
        host: DNS name of its pod.
        engine: engine that it ran; None if that is not recorded.
        nodes: ids of all nodes of the cluster, by name.
    """

    name: str
    disk: str
    node_id: str
    primary: str
    copy_of: str
    host: str
    engine: Engine | None
    nodes: Mapping[str, str]


def records(resource: RedisCluster, claims: Sequence[Obj]) -> tuple[VolumeRecord, ...]:
    """Return the records of all claims that have one."""
    found = []
    for claim in claims:
        number = names.volume_number(resource, claim["metadata"]["name"])
        if number is None or not annotation(claim, NODE_ID):
            continue
        listed = (entry.split("=", 1) for entry in annotation(claim, NODES).split(",") if "=" in entry)
        found.append(
            VolumeRecord(
                names.node_name(resource, number),
                claim["metadata"]["uid"],
                annotation(claim, NODE_ID),
                annotation(claim, PRIMARY),
                annotation(claim, COPY_OF),
                annotation(claim, HOST),
                engine_of({"version": annotation(claim, VERSION)}),
                dict(listed),
            )
        )
    return tuple(found)


def to_record(resource: RedisCluster, seen: Observed, instance: Instance) -> Obj:
    """Return the annotations for the claim of an instance; empty unless its recorded node runs on this volume."""
    known, report = instance.recorded, instance.report
    if instance.volume is None or known is None or report is None or not resource.formed:
        return {}
    if (known.node_id, known.disk) != (report.id, instance.disk):
        return {}
    return {
        NODE_ID: known.node_id,
        PRIMARY: known.primary or None,
        COPY_OF: known.copy_of or None,
        HOST: names.host(resource, instance.name),
        VERSION: f"{report.engine} {report.version}",
        CLAIM_UID: instance.disk,
        NODES: ",".join(f"{each.name}={each.recorded.node_id}" for each in seen.instances if each.recorded),
    }


def origin(resource: RedisCluster, seen: Observed) -> str:
    """Return the UID of the resource that created the volumes, which names the file with the identity of a node.

    A copy of a volume has the node id of the original, and the addresses of its cluster. Two nodes with one id would
    take over from each other, so that a copy must not start with that file. A new cluster therefore has a file of its
    own, regardless of what its volumes have. Only volumes of a created cluster, or adopted ones, keep their file.

    Returns:
        Empty for volumes of earlier builds, and for nodes without volumes of their own: the file is nodes.conf.
    """
    if not resource.has_storage:
        return ""
    if seen.stateful_set is not None:
        return template_label(seen.stateful_set, ORIGIN)
    claims = [instance.volume for instance in seen.instances if instance.volume]
    if not claims or not (resource.formed or resource.adopted_from):
        return resource.uid
    return max(label(claim, ORIGIN) for claim in claims)


def why_copied(resource: RedisCluster, claims: Sequence[Obj]) -> str:
    """Return why these claims may be copies of others, unless a user has confirmed that the original is deleted.

    A node contacts the addresses in its nodes.conf as soon as it starts. Those on a restored claim may be the addresses
    of a running cluster, also of one in another Kubernetes cluster, which has the same names.
    """
    copies = [claim["metadata"] for claim in claims if annotation(claim, CLAIM_UID) != claim["metadata"]["uid"]]
    if not copies or annotation(resource.obj, ADOPT_COPIES) == resource.uid:
        return ""
    consent = f"{ADOPT_COPIES}={resource.uid}"
    adopt = command("annotate", f"rediscluster {resource.name}", resource.namespace, "--overwrite", consent)
    return f"{copies[0]['name']} may be a copy, whose node would join the original. If that is deleted: {adopt}."


def why_unusable(resource: RedisCluster, found: Sequence[VolumeRecord]) -> str:
    """Return why a cluster must not start from these volumes; empty if it may."""
    for record in found:
        expected = f"{record.name}.{resource.name}.{resource.namespace}.svc"
        if record.host not in ("", expected):
            return (
                f"{record.name} was {record.host}, and here it would be {expected}: it would join the nodes there. Use "
                "the same name and namespace, or copy the data."
            )
        if foreign := next((each for each in found if each.nodes and record.node_id not in each.nodes.values()), None):
            return (
                f"{foreign.name} and {record.name} have data of different clusters: {foreign.name} does not know node "
                f"{record.node_id}. Delete the claims whose data is not needed."
            )
    return upgrade_refusal((record.engine for record in found if record.engine), resource.engine)


def node_entries(found: Sequence[VolumeRecord]) -> list[Obj]:
    """Return entries of status.nodes for the nodes that these records name, with or without a volume."""
    entries: dict[str, Obj] = {}
    for record in found:
        for name, node_id in record.nodes.items():
            entries.setdefault(name, {"name": name, "nodeId": node_id, "role": PRIMARY_ROLE})
    for record in found:
        entry: Obj = {
            "name": record.name,
            "nodeId": record.node_id,
            "primaryId": record.primary or None,
            "role": REPLICA_ROLE if record.primary else PRIMARY_ROLE,
            "disk": record.disk,
            "copyOf": record.copy_of or None,
            "version": str(record.engine) if record.engine else None,
        }
        entries[record.name] = {key: value for key, value in entry.items() if value is not None}
    return [entries[name] | {"status": "False"} for name in sorted(entries)]


def restored_entries(resource: RedisCluster, claims: Sequence[Obj]) -> tuple[Obj, ...]:
    """Return entries of status.nodes for a created cluster whose status has lost all of them; empty otherwise.

    An older CRD removes status.nodes. Without records, nothing shows whether a node that is away lost its data.
    """
    if not resource.formed or any(node.node_id for node in resource.recorded_nodes):
        return ()
    own = [claim for claim in claims if not names.is_foreign(resource, claim)]
    return tuple(node_entries(records(resource, own)))
