"""The status of a RedisCluster, and what the operator reads from it when it goes on: what it once wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from operators.redis.api.engine_versions import Engine
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.api.spec import INT32, INT64, Reported, SpecModel, Time
from shared.kubernetes.kinds import Obj

NodeId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
"""An id of a node, as it gave itself."""

SlotRanges = Annotated[str, Field(max_length=65536)]
"""Slots as people write them: 0-5460 5462."""


class ClusterCondition(SpecModel):
    """One of the conditions that kstatus reads (type Ready, Reconciling, Stalled), or one node (type master, slave)."""

    type: Literal["master", "slave", "Ready", "Reconciling", "Stalled"] = Field(
        description="master or slave: what the node is. Else which condition."
    )
    status: Literal["True", "False", "Unknown"] = Field(
        description="Of a node: whether it serves. Else whether the condition holds."
    )
    reason: Annotated[str, Field(max_length=1024)] | None = Field(None, description="Why, in one word for machines.")
    message: Annotated[str, Field(max_length=32768)] | None = Field(None, description="Why, in a sentence for people.")
    last_transition_time: Time | None = Field(None, description="When status last changed.")
    observed_generation: int | None = Field(
        None, description="The generation of the spec that a condition tells of.", json_schema_extra=INT64
    )
    name: str | None = Field(None, description="Of a node: its pod.")
    instance: str | None = Field(None, description="Of a node: its address and port.")
    node_id: str | None = Field(None, description="Of a node: its id.")
    master_node_id: str | None = Field(None, description="Of a node: the id of its master; of a master, its own.")
    domain_name: str | None = Field(None, description="Of a node: its pod's name in DNS.")
    slots: SlotRanges | None = Field(None, description="Of a master: the slots that it owns, such as 0-5460.")
    hostname: str | None = Field(None, description="Of a node: the node of Kubernetes that it runs on.")
    host_ip: str | None = Field(None, alias="hostIP", description="Of a node: the address of that.")
    disk: str | None = Field(
        None,
        description="Of a node: UID of what holds its data, a volume claim or else the pod. On another one, its data "
        "is lost.",
    )
    copy_of: str | None = Field(
        None,
        description="Of a node: the id of the master whose data it last had all of. Without it, a replica has yet to "
        "get any, and takes nobody's place.",
    )
    version: str | None = Field(None, description="Of a node: what it runs, such as redis 8.0.2.")


class ShardStatus(SpecModel):
    """One master and its replicas."""

    master: str = Field(description="The master's pod.")
    slots: SlotRanges = Field(description="The slots that it owns, such as 0-5460.")
    replicas: list[str] = Field(default_factory=list, description="Its replicas' pods.")


class FormingStatus(SpecModel):
    """A master of the cluster that is about to begin."""

    name: str = Field(description="Its pod.")
    node_id: NodeId = Field(description="Its id.")
    epoch: int = Field(description="The configuration epoch that it begins with.", json_schema_extra=INT64)
    slots: SlotRanges = Field(description="The slots that it is to own.")


class MigrationStatus(SpecModel):
    """Slots on their way."""

    from_: str = Field(alias="from", description="Pods that give, separated by commas.")
    to: str = Field(description="Pods that take, separated by commas.")
    slots: int = Field(description="How many slots move in all.", json_schema_extra=INT32)
    moved: int = Field(description="How many of these have arrived.", json_schema_extra=INT32)
    since: Time | None = Field(None, description="When the first moved.")
    keys: int | None = Field(None, description="How many keys those that take had then.", json_schema_extra=INT64)
    keys_per_second: int | None = Field(
        None, description="How many keys moved in a second, where they move one by one.", json_schema_extra=INT64
    )


class AssignedStatus(SpecModel):
    """Slots that a new master takes because updateStrategy.assignStrategies say so."""

    from_: NodeId = Field(alias="from", description="Id of the master that gives them.")
    to: NodeId = Field(description="Id of the one that takes them.")
    slots: SlotRanges = Field(description="Which.")


class RecoveryStatus(SpecModel):
    """What can be done after a master was lost together with all of its replicas."""

    token: str = Field(description="What spec.recovery.confirm must say to allow it.")
    slots: SlotRanges = Field(description="The slots whose keys are lost.")
    message: str = Field("", description="Which nodes are lost, and what would be done.")


class FormerStatus(SpecModel):
    """A node that all who answered have forgotten."""

    name: str = Field(description="The pod that it was in.")
    node_id: NodeId = Field(description="Its id.")


class RedisClusterStatus(Reported):
    """What cluster there is.

    The phase is empty, Creating, Running, Scaling, Upgrading or Failed.
    """

    conditions: Annotated[list[ClusterCondition], Field(max_length=1024)] = Field(
        default_factory=list,
        description="An entry for each node, and Ready, Reconciling and Stalled, as kstatus reads them.",
    )
    reason: str | None = Field(None, description="What is wrong, or under way, in a sentence; empty if nothing is.")
    replicas: int | None = Field(None, description="Pods there are.", json_schema_extra=INT32)
    ready_replicas: int | None = Field(None, description="Nodes that serve.", json_schema_extra=INT32)
    masters: int | None = Field(None, description="Masters that own slots.", json_schema_extra=INT32)
    formed: bool | None = Field(
        None, description="Whether it ever was a cluster. Then no slot is ever again given to a node that is empty."
    )
    forming: list[FormingStatus] = Field(default_factory=list, description="Masters of the cluster that is to begin.")
    shards: list[ShardStatus] = Field(default_factory=list, description="Masters and their replicas.")
    migration: MigrationStatus | None = Field(None, description="Slots on their way.")
    assigned: list[AssignedStatus] = Field(
        default_factory=list, description="Slots that new masters take because assignStrategies say so."
    )
    former: list[FormerStatus] = Field(
        default_factory=list,
        description="Nodes that are gone for good. Who was away when the others forgot them may speak of them yet.",
    )
    recovery: RecoveryStatus | None = Field(
        None, description="After a master was lost together with all of its replicas: what can be done."
    )
    version: str | None = Field(None, description="The lowest that a node runs, such as redis 8.0.2.")
    image: str | None = Field(None, description="The image that the spec asks for.")
    selector: str | None = Field(None, description="Selector of the nodes' pods.")
    endpoints: list[str] = Field(default_factory=list, description="Where clients find the cluster, host:port.")


@dataclass(frozen=True, slots=True)
class RecordedNode:
    """A node as the status last told of it.

    Attributes:
        name: its pod.
        node_id: its id; empty if none is recorded.
        disk: UID of what held its data; empty if that is not recorded.
        master: id of its master; empty for a master.
        type: master or slave.
        slots: what it owned.
        engine: what it ran; None if that is not recorded.
        copy_of: id of the master whose data it last had all of; empty if of none.
        since: when it began or ceased to serve, or to be a master; None if that is not recorded.
    """

    name: str
    node_id: str = ""
    disk: str = ""
    primary: str = ""
    type: str = "master"
    slots: Slots = field(default_factory=Slots)
    engine: Engine | None = None
    copy_of: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class FormingNode:
    """A master of the cluster that is about to begin.

    Attributes:
        name: its pod.
        node_id: its id.
        epoch: the configuration epoch that it begins with.
        slots: the slots that it is to own, as text.
    """

    name: str
    node_id: str
    epoch: int
    slots: str


def recorded_nodes(status: Obj) -> tuple[RecordedNode, ...]:
    """The nodes that a status names, by their pods."""
    return tuple(
        RecordedNode(
            name=entry["name"],
            node_id=entry.get("nodeId") or "",
            disk=entry.get("disk") or "",
            primary=(entry.get("masterNodeId") or "") if entry["type"] == "slave" else "",
            type=entry["type"],
            slots=Slots.parse(entry.get("slots") or ""),
            copy_of=entry.get("copyOf") or "",
            engine=engine_of(entry),
            since=datetime.fromisoformat(entry["lastTransitionTime"]) if entry.get("lastTransitionTime") else None,
        )
        for entry in status.get("conditions") or ()
        if entry.get("type") in ("master", "slave") and entry.get("name")
    )


def engine_of(status: Obj) -> Engine | None:
    """What a status, or an entry of it, says that a node runs; None if that is not told, or no engine."""
    try:
        return Engine.parse(status.get("version") or "")
    except ValueError:
        return None


def forming_nodes(status: Obj) -> tuple[FormingNode, ...]:
    """The masters of the cluster that is about to begin, as they were written down."""
    return tuple(
        FormingNode(name=node["name"], node_id=node["nodeId"], epoch=node["epoch"], slots=node["slots"])
        for node in status.get("forming") or ()
    )


def former_nodes(status: Obj) -> Mapping[str, str]:
    """Names of the pods that nodes were in that are gone for good, by the nodes' ids."""
    return {node["nodeId"]: node["name"] for node in status.get("former") or ()}


def assigned_moves(status: Obj) -> tuple[Move, ...]:
    """What new masters were to take, as it was written down."""
    return tuple(Move(move["from"], move["to"], Slots.parse(move["slots"])) for move in status.get("assigned") or ())
