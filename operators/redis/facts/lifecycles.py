"""The lifecycles in a RedisCluster that can lose data: of a node, and of a hash slot that moves key by key. Pure.

A node is classified by `Assessment.node_state`, a slot by `migration.key_by_key`; both take every dangerous transition
from the table, so that an illegal one raises instead of being sent.
"""

from __future__ import annotations

from enum import Enum

from shared.status.lifecycle import Lifecycle


class NodeState(Enum):
    """State of a node in the cluster."""

    NEW = "new, not a member, holds nothing"
    EMPTY = "empty member, without slot, key or primary"
    REPLICA = "replica"
    PRIMARY = "primary, owns slots"
    STRANDED = "holds keys, and owns no slot"
    DETACHED = "lost its nodes.conf, and has the data of a recorded node"
    LOST_PRIMARY = "primary whose data is lost by evidence"
    REMOVED = "removed permanently, holds no needed data"
    FORGOTTEN = "forgotten by all members"


class NodeEvent(Enum):
    """Change of a node's state."""

    MEET = "CLUSTER MEET"
    REPLICATE = "CLUSTER REPLICATE"
    RECEIVE_SLOTS = "receive slots"
    GIVE_LAST_SLOT = "move the last slot away"
    FAIL_OVER = "take over from its primary"
    STEP_DOWN = "a replica of it took over"
    RECREATE = "recreate with an empty volume"
    LOSE_DATA = "lose its volume"
    LOSE_IDENTITY = "lose its nodes.conf"
    TAKE_BACK = "take its recorded slots again, with their keys"
    REMOVE = "scale down, or lose its volume"
    REPLACE = "a replica is elected to replace it"
    GIVE_UP = "a user confirms the loss (spec.recovery)"
    FORGET = "CLUSTER FORGET"


NODE = Lifecycle(
    "redis node",
    NodeState.NEW,
    {
        NodeState.NEW: {NodeEvent.MEET: NodeState.EMPTY},
        NodeState.EMPTY: {
            NodeEvent.REPLICATE: NodeState.REPLICA,
            NodeEvent.RECEIVE_SLOTS: NodeState.PRIMARY,
            NodeEvent.REMOVE: NodeState.REMOVED,
        },
        NodeState.REPLICA: {
            NodeEvent.REPLICATE: NodeState.REPLICA,
            NodeEvent.FAIL_OVER: NodeState.PRIMARY,
            NodeEvent.RECREATE: NodeState.NEW,
            NodeEvent.LOSE_IDENTITY: NodeState.DETACHED,
            NodeEvent.REMOVE: NodeState.REMOVED,
        },
        NodeState.PRIMARY: {
            NodeEvent.RECEIVE_SLOTS: NodeState.PRIMARY,
            NodeEvent.GIVE_LAST_SLOT: NodeState.EMPTY,
            NodeEvent.STEP_DOWN: NodeState.REPLICA,
            NodeEvent.LOSE_DATA: NodeState.LOST_PRIMARY,
            NodeEvent.LOSE_IDENTITY: NodeState.DETACHED,
        },
        NodeState.DETACHED: {NodeEvent.TAKE_BACK: NodeState.PRIMARY, NodeEvent.RECREATE: NodeState.NEW},
        NodeState.STRANDED: {NodeEvent.RECREATE: NodeState.NEW},
        NodeState.LOST_PRIMARY: {NodeEvent.REPLACE: NodeState.REMOVED, NodeEvent.GIVE_UP: NodeState.FORGOTTEN},
        NodeState.REMOVED: {NodeEvent.FORGET: NodeState.FORGOTTEN},
        NodeState.FORGOTTEN: {},
    },
)


class SlotState(Enum):
    """Progress of a hash slot that moves from a source to a target."""

    OWNED = "owned by one node, and closed"
    IMPORTING = "importing at the target"
    INHERITED = "importing at the target, from a node that its owner replaced"
    MIGRATING = "migrating at the source alone"
    OPEN = "open at both ends"
    EMPTY = "open, and the source has no key of it"
    HANDED_OVER = "owned by the target, and the source does not know it"


class SlotEvent(Enum):
    """Step in the migration of a hash slot."""

    IMPORT = "SETSLOT IMPORTING at the target"
    MIGRATE = "SETSLOT MIGRATING at the source"
    MOVE_LAST_KEY = "GETKEYSINSLOT at the source lists no key"
    ASSIGN_AT_TARGET = "SETSLOT NODE at the target"
    ASSIGN_AT_SOURCE = "SETSLOT NODE at the source"


SLOT = Lifecycle(
    "redis hash slot",
    SlotState.OWNED,
    {
        SlotState.OWNED: {SlotEvent.IMPORT: SlotState.IMPORTING},
        SlotState.IMPORTING: {SlotEvent.MIGRATE: SlotState.OPEN},
        SlotState.INHERITED: {SlotEvent.MIGRATE: SlotState.MIGRATING},
        SlotState.MIGRATING: {SlotEvent.IMPORT: SlotState.OPEN},
        SlotState.OPEN: {SlotEvent.MOVE_LAST_KEY: SlotState.EMPTY},
        SlotState.EMPTY: {SlotEvent.ASSIGN_AT_TARGET: SlotState.HANDED_OVER},
        SlotState.HANDED_OVER: {SlotEvent.ASSIGN_AT_SOURCE: SlotState.OWNED},
    },
)

LIFECYCLES = (NODE, SLOT)
"""Lifecycles with a diagram in docs/reference/lifecycles.md."""
