"""The status of a RedisCluster, and the recorded state that the operator reads from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from operators.redis.api.engine_versions import Engine
from operators.redis.api.node_entries import PRIMARY_ROLE, REPLICA_ROLE, out_of_sync_since
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Doubt, RecordedJob, RecordedMove
from shared.api.spec import (
    BINDING,
    INT32,
    INT64,
    AdoptionStatus,
    Binding,
    LossObserved,
    ObservedSecrets,
    PriorConfirm,
    ProgressList,
    Reported,
    SecretsRecord,
    SpecModel,
    Time,
)
from shared.kubernetes.kinds import Obj

NodeId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
"""Id of a node."""

SlotRanges = Annotated[str, Field(max_length=65536)]
"""Slots as ranges and numbers: 0-5460 5462."""


class ClusterCondition(SpecModel):
    """A condition (Ready, Reconciling and Stalled, which kstatus reads, or another).

    Or a node (`master`, `slave`), as in the first manifests of this API: see spec.nodesInConditions.
    """

    type: Annotated[str, Field(max_length=316)] = Field(
        description="Ready, Reconciling or Stalled; Available (every slot has a serving primary); Degraded (clients "
        "are served, but with less redundancy than requested, or primaries and replicas share hosts or zones); "
        "Observed (the operator reaches the nodes); Vulnerable (a published advisory applies); ReconciliationPaused "
        "(a user paused the operator); "
        "ForeignKeys (a primary holds keys of slots that it does not own); ForeignMigration (another client migrates "
        "slots); or, with spec.nodesInConditions, the role of a node: `master` (primary) or `slave` (replica)."
    )
    status: Literal["True", "False", "Unknown"] = Field(
        description="Whether the condition holds; of a node, whether it serves clients."
    )
    reason: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="Machine-readable reason in CamelCase."
    )
    message: Annotated[str, Field(max_length=32768)] | None = Field(None, description="Human-readable explanation.")
    last_transition_time: Time | None = Field(None, description="Time of the last change of status.")
    in_sync: Literal["True", "False", "Unknown"] | None = Field(
        None, description="Of a replica: whether it is in sync."
    )
    out_of_sync_since: Time | None = Field(None, description="Of a replica: since when it was not seen in sync.")
    observed_generation: int | None = Field(
        None, description="Generation of the spec that the condition is based on.", json_schema_extra=INT64
    )
    name: str | None = Field(None, description="Of a node: name of its pod.")
    instance: str | None = Field(None, description="Of a node: address and port.")
    node_id: str | None = Field(None, description="Of a node: node id.")
    master_node_id: str | None = Field(None, description="Of a node: id of its primary; of a primary, its own id.")
    domain_name: str | None = Field(None, description="Of a node: DNS name of its pod.")
    slots: SlotRanges | None = Field(None, description="Of a primary: slots that it owns, such as 0-5460.")
    hostname: str | None = Field(
        None, description="Of a node: name of the Kubernetes node that it runs on, or last ran on."
    )
    zone: str | None = Field(
        None,
        description="Of a node: zone of the Kubernetes node that it runs on, or last ran on "
        "(topology.kubernetes.io/zone).",
    )
    host_ip: str | None = Field(None, alias="hostIP", description="Of a node: address of the Kubernetes node.")
    disk: str | None = Field(
        None,
        description="Of a node: UID of the volume claim that holds its data, or without storage of its pod. If the UID "
        "changes, the data of the node is lost.",
    )
    copy_of: str | None = Field(
        None,
        description="Of a node: id of the primary whose data it has; of a primary, the one that it took over from. It "
        "ends when a full sync begins, or when the node is connected to another server. A replica with another id than "
        "that of its primary is not promoted.",
    )
    copy_has_keys: bool | None = Field(
        None,
        description="Of a node: true if that copy had keys. A replica that has none any more has lost its copy, and is "
        "not promoted.",
    )
    version: str | None = Field(None, description="Of a node: engine and version, such as redis 8.0.2.")


class NodeStatus(SpecModel):
    """Last observed state of one node."""

    name: str = Field(description="Name of the pod.")
    role: Literal["primary", "replica"] = Field(description="Role of the node.")
    status: Literal["True", "False", "Unknown"] = Field(
        description="Whether the node serves clients; Unknown while only the operator cannot reach it."
    )
    reason: Annotated[str, Field(max_length=1024)] | None = Field(
        None, description="State of the node, in CamelCase, such as Serving, Syncing or CrashLoopBackOff."
    )
    message: Annotated[str, Field(max_length=32768)] | None = Field(
        None, description="Why the node does not serve clients; empty if it does."
    )
    last_transition_time: Time | None = Field(None, description="Time of the last change of role or status.")
    in_sync: Literal["True", "False", "Unknown"] | None = Field(
        None, description="Of a replica: whether it is in sync."
    )
    out_of_sync_since: Time | None = Field(None, description="Of a replica: since when it was not seen in sync.")
    node_id: str | None = Field(None, description="Id of the node; not set before the node was reachable.")
    primary_id: str | None = Field(None, description="Of a replica: id of its primary.")
    slots: SlotRanges | None = Field(None, description="Of a primary: slots that it owns, such as 0-5460.")
    flags: list[Literal["fail", "noaddr"]] | None = Field(
        None,
        description="Flags of CLUSTER NODES that most nodes report for this one: fail (it has failed), noaddr (its "
        "address is unknown).",
    )
    address: str | None = Field(None, description="Address and port of the node.")
    domain_name: str | None = Field(None, description="DNS name of the pod.")
    host: str | None = Field(None, description="Kubernetes node that the pod runs on, or last ran on.")
    host_ip: str | None = Field(None, alias="hostIP", description="Address of that Kubernetes node.")
    zone: str | None = Field(None, description="Zone of that Kubernetes node (topology.kubernetes.io/zone).")
    disk: str | None = Field(
        None,
        description="UID of the volume claim that holds the data, or without storage of the pod. If the UID changes, "
        "the data of the node is lost.",
    )
    copy_of: str | None = Field(
        None,
        description="Id of the primary whose data the node has; of a primary, the one that it took over from. It ends "
        "when a full sync begins, or when the node is connected to another server. A replica with another id than that "
        "of its primary is not promoted.",
    )
    copy_has_keys: bool | None = Field(
        None,
        description="True if that copy had keys. A replica that has none any more has lost its copy, and is not "
        "promoted.",
    )
    version: str | None = Field(None, description="Engine and version, such as redis 8.0.2.")


class ShardStatus(SpecModel):
    """A primary and its replicas."""

    master: str = Field(description="Pod of the primary.")
    slots: SlotRanges = Field(description="Slots of the primary, such as 0-5460.")
    replicas: list[str] = Field(default_factory=list, description="Pods of its replicas.")


class FormingStatus(SpecModel):
    """A primary of the cluster that is being created."""

    name: str = Field(description="Pod of the primary.")
    node_id: NodeId = Field(description="Id of the node.")
    epoch: int = Field(description="First config epoch of the primary.", json_schema_extra=INT64)
    slots: SlotRanges = Field(description="Slots that the primary is to own.")


class MigrationStatus(SpecModel):
    """Progress of moving slots."""

    from_: str = Field(alias="from", description="Source pods, separated by commas.")
    to: str = Field(description="Target pods, separated by commas.")
    slots: int = Field(description="Total number of slots to move.", json_schema_extra=INT32)
    moved: int = Field(description="Number of slots moved so far.", json_schema_extra=INT32)
    since: Time | None = Field(None, description="Start of the migration.")
    primaries: int | None = Field(
        None, description="Number of primaries that owned slots at the start.", json_schema_extra=INT32
    )
    keys: int | None = Field(None, description="Number of keys on the targets at the start.", json_schema_extra=INT64)
    keys_per_second: int | None = Field(
        None, description="Average number of keys moved per second.", json_schema_extra=INT64
    )


class AssignedStatus(SpecModel):
    """Slots that a new primary receives because of updateStrategy.assignStrategies."""

    from_: NodeId = Field(alias="from", description="Id of the primary that gives the slots.")
    to: NodeId = Field(description="Id of the primary that receives the slots.")
    slots: SlotRanges = Field(description="Slots to move, such as 0-99.")


DoubtText = Annotated[str, Field(pattern=r"^[0-9]{1,5}:[0-9a-f]{40}:[0-9a-f]{40}$")]
"""A key in doubt: its slot, its SHA-1, and the SHA-1 of its value."""


class MoveStatus(SpecModel):
    """Slots that the operator has opened, or is about to open; written right before."""

    from_: NodeId = Field(alias="from", description="Id of the primary that gives the slots.")
    to: NodeId = Field(description="Id of the primary that receives the slots.")
    slots: SlotRanges = Field(description="Slots to move, such as 0-99.")
    promoted: bool | None = Field(
        None,
        description="Whether a replica took over from the primary that gave the slots at first. If a key is then at "
        "both ends, neither copy is replaced.",
    )
    doubts: Annotated[list[DoubtText], Field(max_length=4096)] = Field(
        default_factory=list,
        description="Keys of which the target may get an outdated copy, because MIGRATE timed out: slot, SHA-1 of the "
        "key, and SHA-1 of its serialized value. The copies are removed before anything else happens to the slots.",
    )


class JobStatus(SpecModel):
    """A migration job of the servers that the operator started (CLUSTER MIGRATESLOTS, CLUSTER MIGRATION IMPORT)."""

    node: NodeId = Field(description="Id of the node that runs the job.")
    name: Annotated[str, Field(max_length=128)] = Field(description="Name or id of the job, as that node reports it.")


class ForeignStatus(SpecModel):
    """Keys on a primary, of slots that it does not own. They are not served, and are usually an outdated copy."""

    node_id: NodeId = Field(description="Id of the primary that holds the keys.")
    slots: SlotRanges = Field(description="Slots of the keys, such as 0-99.")


class PlacementStatus(SpecModel):
    """A failover that spreads the primaries over hosts and zones."""

    from_: NodeId = Field(alias="from", description="Id of the primary that a replica takes over from.")
    to: NodeId = Field(description="Id of the replica that takes over.")
    since: Time = Field(description="Time of the last attempt.")


class RecoveryStatus(SpecModel):
    """Possible recovery after a primary was lost together with all replicas that had its newest keys."""

    token: str = Field(
        description="Value for spec.recovery.confirm that confirms the recovery. It begins with the time at which the "
        "loss was found, and is for this occurrence of the loss only: a later loss of the same nodes has another token."
    )
    slots: SlotRanges = Field(description="Slots whose keys are lost, without those that are served again.")
    nodes: Annotated[list[NodeId], Field(max_length=1024)] = Field(
        default_factory=list, description="Ids of the nodes whose data is lost, or given up with the slots."
    )
    older: Annotated[list[NodeId], Field(max_length=1024)] = Field(
        default_factory=list,
        description="Ids of the nodes whose older keys the recovery serves, without later writes. "
        "All other lost slots are served empty.",
    )
    observed: LossObserved = None
    prior_confirm: PriorConfirm = None
    message: str = Field("", description="Lost nodes, and what the recovery does.")


class FormerStatus(SpecModel):
    """A node that all reachable nodes have forgotten."""

    name: str = Field(description="Pod of the node.")
    node_id: NodeId = Field(description="Id of the node.")


class UserStatus(SpecModel):
    """A user of spec.users."""

    name: str = Field(description="Name of the user.")
    ready: bool = Field(description="Whether every running server reports exactly the user of the spec.")
    message: str | None = Field(None, description="Why it is not ready, such as a refusal by a server.")


class RedisClusterStatus(Reported):
    """Observed state of the cluster.

    The phase is empty, Creating, Running, Scaling, Upgrading, Hibernating, Hibernated, WakingUp or Failed.
    """

    conditions: Annotated[list[ClusterCondition], Field(max_length=1024)] = Field(
        default_factory=list,
        description="Conditions Ready, Reconciling and Stalled (kstatus), Available, Degraded and Observed, and others "
        "that hold. With spec.nodesInConditions, the entries of the nodes follow.",
    )
    nodes: Annotated[list[NodeStatus], Field(max_length=1024)] = Field(
        default_factory=list,
        description="The nodes: role, slots, location, and why one does not serve. The operator depends on these "
        "records.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    nodes_in_conditions: bool | None = Field(
        None,
        description="True if an earlier build of the operator wrote entries of nodes in conditions, which stay, unless "
        "spec.nodesInConditions is false.",
    )
    reason: str | None = Field(
        None, description="Current problem or work, as a sentence; empty if the cluster matches the spec."
    )
    replicas: int | None = Field(None, description="Number of pods.", json_schema_extra=INT32)
    ready_replicas: int | None = Field(None, description="Number of nodes that serve clients.", json_schema_extra=INT32)
    masters: int | None = Field(None, description="Number of primaries that own slots.", json_schema_extra=INT32)
    formed: bool | None = Field(
        None,
        description="Whether the cluster was created. From then on, empty nodes get lost slots only after a "
        "confirmation (spec.recovery).",
    )
    forming: list[FormingStatus] = Field(
        default_factory=list, description="Primaries of the cluster that is being created."
    )
    shards: list[ShardStatus] = Field(default_factory=list, description="Primaries and their replicas.")
    migration: MigrationStatus | None = Field(None, description="Progress of moving slots.")
    assigned: list[AssignedStatus] = Field(
        default_factory=list, description="Slots that new primaries receive because of assignStrategies."
    )
    moves: Annotated[list[MoveStatus], Field(max_length=1024)] = Field(
        default_factory=list,
        description="Slots that the operator opens, recorded right before, until they are closed at both ends. Only "
        "these are finished after an interruption; slots that another client opened are not changed.",
    )
    jobs: Annotated[list[JobStatus], Field(max_length=4096)] = Field(
        default_factory=list,
        description="Migration jobs of the servers that the operator started. It cancels no others.",
    )
    foreign: Annotated[list[ForeignStatus], Field(max_length=1024)] = Field(
        default_factory=list,
        description="Keys on primaries, of slots that they do not own, such as an outdated copy after a restart. "
        "These slots do not move to that primary.",
    )
    placement: PlacementStatus | None = Field(
        None, description="Failover that spreads the primaries over hosts and zones; empty if none is needed."
    )
    former: list[FormerStatus] = Field(
        default_factory=list,
        description="Nodes that were removed permanently. A node that was unreachable then may still know them.",
    )
    adoption: AdoptionStatus | None = Field(
        None, description="Adoption of the volumes of a deleted RedisCluster of this name."
    )
    recovery: RecoveryStatus | None = Field(
        None, description="Possible recovery after a loss of a primary and of all replicas that had its newest keys."
    )
    users: list[UserStatus] = Field(default_factory=list, description="The users of spec.users.")
    observed_secrets: ObservedSecrets = Field(default_factory=list)
    progress: ProgressList = Field(default_factory=list)
    version: str | None = Field(None, description="Lowest version that a node runs, such as redis 8.0.2.")
    image: str | None = Field(None, description="Image of the spec.")
    selector: str | None = Field(None, description="Label selector of the pods.")
    endpoints: list[str] = Field(default_factory=list, description="Addresses for clients, as host:port.")
    binding: Binding | None = Field(None, description=BINDING)
    secrets: SecretsRecord = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """A node as last recorded in the status.

    Attributes:
        name: name of the pod.
        node_id: id of the node; empty if none is recorded.
        disk: UID of its volume claim or pod; empty if that is not recorded.
        primary: id of its primary; empty for a primary.
        role: `primary` or `replica`.
        slots: slots that it owned.
        engine: engine that it ran; None if that is not recorded.
        copy_of: id of the primary whose data it has (`status._copy`): its own id for a replica that was a primary and
            is not in sync yet. Of a primary, the one that it took over from. Empty if there is none.
        copy_has_keys: whether that copy had keys.
        since: time of the last change of its role or readiness; None if that is not recorded.
        out_of_sync_since: since when the replica was not seen in sync with its primary; None if it was when last seen.
        host: Kubernetes node that it ran on; empty if that is not recorded.
        zone: zone of that Kubernetes node; empty if it has none, or if that is not recorded.
    """

    name: str
    node_id: str = ""
    disk: str = ""
    primary: str = ""
    role: str = PRIMARY_ROLE
    slots: Slots = field(default_factory=Slots)
    engine: Engine | None = None
    copy_of: str = ""
    copy_has_keys: bool = False
    since: datetime | None = None
    out_of_sync_since: datetime | None = None
    host: str = ""
    zone: str = ""

    @property
    def data_of(self) -> str:
        """Id of the primary whose data the node has: of a primary itself; empty for a replica without a record."""
        return self.copy_of if self.role == REPLICA_ROLE else self.node_id

    def was_primary(self, at: datetime) -> bool:
        """Return whether it was a primary at a time, by the record: it never took over, or that was observed before."""
        return self.role == PRIMARY_ROLE and (not self.copy_of or (self.since is not None and self.since < at))


@dataclass(frozen=True, slots=True)
class FormingNode:
    """A primary of the cluster that is being created.

    Attributes:
        name: name of the pod.
        node_id: id of the node.
        epoch: first config epoch of the node.
        slots: slots that it is to own, as text.
    """

    name: str
    node_id: str
    epoch: int
    slots: str


def recorded_node(entry: Obj) -> RecordedNode:
    """Return the node that an entry of status.nodes records."""
    return RecordedNode(
        name=entry["name"],
        node_id=entry.get("nodeId") or "",
        disk=entry.get("disk") or "",
        primary=(entry.get("primaryId") or "") if entry["role"] == REPLICA_ROLE else "",
        role=entry["role"],
        slots=Slots.parse(entry.get("slots") or ""),
        copy_of=entry.get("copyOf") or "",
        copy_has_keys=entry.get("copyHasKeys") is True,
        engine=engine_of(entry),
        since=datetime.fromisoformat(entry["lastTransitionTime"]) if entry.get("lastTransitionTime") else None,
        out_of_sync_since=datetime.fromisoformat(lacking) if (lacking := out_of_sync_since(entry)) else None,
        host=entry.get("host") or "",
        zone=entry.get("zone") or "",
    )


@dataclass(frozen=True, slots=True)
class PlacementAttempt:
    """The recorded attempt of a failover that spreads the primaries.

    Attributes:
        source: id of the primary.
        target: id of the replica that takes over.
        since: time of the last attempt.
    """

    source: str
    target: str
    since: datetime


def engine_of(status: Obj) -> Engine | None:
    """Return the engine that a status, or an entry of it, records; None if it is missing or invalid."""
    try:
        return Engine.parse(status.get("version") or "")
    except ValueError:
        return None


def recorded_moves(status: Obj) -> tuple[RecordedMove, ...]:
    """Return the slot moves that a status records."""
    return tuple(
        RecordedMove(
            move["from"],
            move["to"],
            Slots.parse(move["slots"]),
            bool(move.get("promoted")),
            frozenset(map(_doubt, move.get("doubts") or ())),
        )
        for move in status.get("moves") or ()
    )


def recorded_jobs(status: Obj) -> tuple[RecordedJob, ...]:
    """Return the migration jobs of the servers that the operator started."""
    return tuple(RecordedJob(job["node"], job["name"]) for job in status.get("jobs") or ())


def job_entries(jobs: Iterable[RecordedJob]) -> list[Obj]:
    """Return status.jobs."""
    return [{"node": job.node, "name": job.name} for job in sorted(jobs)]


def _doubt(text: str) -> Doubt:
    slot, key, value = text.split(":")
    return Doubt(int(slot), key, value)


def move_entries(moves: Iterable[RecordedMove]) -> list[Obj]:
    """Return status.moves, with one entry for each pair of ends and kind of move."""
    merged: dict[tuple[str, str, bool], list[RecordedMove]] = {}
    for each in moves:
        merged.setdefault((each.source, each.target, each.promoted), []).append(each)
    return [
        {"from": source, "to": target, "slots": str(Slots.union(move.slots for move in found))}
        | ({"promoted": True} if promoted else {})
        | ({"doubts": doubts} if (doubts := _doubt_texts(found)) else {})
        for (source, target, promoted), found in sorted(merged.items(), key=lambda item: item[0])
    ]


def _doubt_texts(moves: Iterable[RecordedMove]) -> list[str]:
    found = sorted({doubt for move in moves for doubt in move.doubts})
    return [f"{doubt.slot}:{doubt.key}:{doubt.value}" for doubt in found]
