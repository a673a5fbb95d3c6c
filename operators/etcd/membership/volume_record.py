"""Records on volume claims: the member whose data a volume has. They outlive the resource. Pure.

The status of a resource is deleted with it, and its volumes are not. So each claim has the ids of cluster and member,
the peer URL by which other members know it, the version of etcd that last wrote the data, and all voters of the
cluster: if volumes are missing later, their number decides whether the others are a majority.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from operators.etcd.api.resource import ID, EtcdCluster
from operators.etcd.api.spec import MAX_SIZE
from operators.etcd.api.versions import Version
from operators.etcd.objects import names
from operators.etcd.objects.names import CLUSTER_ID, CLUSTER_UID, MEMBER_ID, PEER_URL, VERSION, VOTERS
from operators.etcd.state.observed import Instance, Observed
from shared.kubernetes.accessors import annotation, label
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ordinals import ordinal


@dataclass(frozen=True, slots=True)
class VolumeRecord:
    """A member, as recorded on its volume claim.

    Attributes:
        name: name of the member and of its pod.
        volume: UID of the claim.
        member_id: id of the member, as 16 hexadecimal digits; empty if it is not recorded.
        peer_url: URL of the member for other members; empty if it is not recorded.
        version: version of etcd that last ran; None if it is not recorded.
        voters: ids of the voters of the cluster's pods, by name; empty if they are not recorded.
        outside: ids of its other voters.
    """

    name: str
    volume: str
    cluster_id: int
    member_id: str
    peer_url: str
    version: Version | None
    voters: Mapping[str, str]
    outside: tuple[str, ...] = ()


def own_records(resource: EtcdCluster, instances: Iterable[Instance]) -> tuple[VolumeRecord, ...]:
    """Return the records of the volume claims that belong to this resource, by its UID."""
    own = (each for each in instances if label(each.volume, CLUSTER_UID) == resource.uid)
    return tuple(record for each in own if (record := _record(each)) is not None)


def records(seen: Observed) -> tuple[VolumeRecord, ...]:
    """Return the records of all volume claims that have one."""
    return tuple(record for instance in seen.instances if (record := _record(instance)) is not None)


def lost_records(resource: EtcdCluster, seen: Observed) -> tuple[VolumeRecord, ...]:
    """Return the records of the resource's own claims if its status was lost and no list of members replaces it.

    A pod or a volume of the cluster never counts as new then. Records of several clusters decide nothing.
    """
    if resource.recorded_cluster_id or seen.members is not None:
        return ()
    found = own_records(resource, seen.instances)
    if seen.cluster_id:
        found = tuple(record for record in found if record.cluster_id == seen.cluster_id)
    return found if len({record.cluster_id for record in found}) == 1 else ()


def _record(instance: Instance) -> VolumeRecord | None:
    """Return the record of a claim; None if it is unreadable: without one of its voters, a minority is a majority."""
    claim, prefix = instance.volume, instance.name.rpartition("-")[0]
    cluster_id, member_id = annotation(claim, CLUSTER_ID), annotation(claim, MEMBER_ID)
    voters = [entry.partition("=")[::2] for entry in annotation(claim, VOTERS).split(",") if entry]
    try:
        version = Version.parse(text) if (text := annotation(claim, VERSION)) else None
    except ValueError:
        return None
    ids, numbers = [voter for _, voter in voters], [ordinal(name, prefix) for name, _ in voters if name]
    are_ids = all(re.fullmatch(ID, each) and int(each, 16) for each in (cluster_id, member_id or cluster_id, *ids))
    are_different = len({*ids}) == len(ids) and len({*numbers} & {*range(MAX_SIZE)}) == len(numbers)
    own = {(name, voter) for name, voter in voters if name == instance.name or voter == member_id}
    if not (are_ids and are_different and own <= {(instance.name, member_id)}) or claim is None or instance.kept_by:
        return None  # kept: of a former cluster
    return VolumeRecord(
        instance.name,
        claim["metadata"]["uid"],
        int(cluster_id, 16),
        member_id,
        annotation(claim, PEER_URL),
        version,
        {name: voter for name, voter in voters if name},
        tuple(voter for name, voter in voters if not name),
    )


def to_record(resource: EtcdCluster, seen: Observed, instance: Instance) -> Obj:
    """Return the annotations for the claim of an instance; empty unless its member is healthy on this volume."""
    member, status = instance.member, instance.status
    is_known = seen.cluster_id and seen.cluster_id == resource.recorded_cluster_id
    if instance.volume is None or member is None or status is None or not is_known or not seen.healthy(instance):
        return {}
    known = {each.member.id: each.name for each in seen.instances if each.member}
    return {
        CLUSTER_ID: f"{seen.cluster_id:016x}",
        MEMBER_ID: f"{member.id:016x}",
        PEER_URL: names.peer_url(resource, instance.number),
        VERSION: status.version,
        VOTERS: ",".join(sorted(f"{known.get(voter.id, '')}={voter.id:016x}" for voter in seen.voters)),
    }


def recorded_members(found: Sequence[VolumeRecord]) -> tuple[Obj, ...]:
    """Return entries of status.members for the members that these records name, with or without a volume."""
    members: dict[str, Obj] = {}
    for record in found:
        for name, member_id in record.voters.items():
            members.setdefault(name, {"name": name, "id": member_id})
    for record in found:
        known = {"id": record.member_id} if record.member_id else {}
        members[record.name] = {"name": record.name, **known, "volume": record.volume}
    return tuple(members[name] for name in sorted(members))


def why_unusable(resource: EtcdCluster, seen: Observed, found: Sequence[VolumeRecord]) -> str:
    """Return why a cluster must not start from these volumes; empty if it may.

    Args:
        found: records of the volumes.
    """
    if not found:
        claims = ", ".join(instance.volume["metadata"]["name"] for instance in seen.instances if instance.volume)
        return (
            f"none of them records its cluster (annotation {CLUSTER_ID}). If all are volumes of one cluster, in this "
            f"namespace, annotate {claims} with its id in 16 hexadecimal digits, as in the records of its backups."
        )
    if len({record.cluster_id for record in found}) > 1:
        ids = ", ".join(f"{record.name}: {record.cluster_id:016x}" for record in found)
        return f"they have data of different clusters ({ids}). Delete the claims whose data is not needed."
    for record in found:
        number = names.number_of(resource, record.name)
        expected = names.peer_url(resource, number) if number is not None else ""
        if record.peer_url not in ("", expected):
            return (
                f"the other members know {record.name} as {record.peer_url}, and here it would be {expected}. Use the "
                "same name, namespace and spec.tls.mode, or restore a backup."
            )
    series = {record.version.series for record in found if record.version}
    if series and max(series) != resource.version.series:
        newest = max(record.version for record in found if record.version)
        return (
            f"etcd {newest} wrote the data, and spec.version is {resource.version}. Set spec.version to {newest}, and "
            "upgrade afterwards."
        )
    return ""
