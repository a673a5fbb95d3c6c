"""Reasons of the conditions and events of RedisClusters."""

from __future__ import annotations

from shared.status.reasons import Catalogue, Severity

REASONS = Catalogue("runbook/redis.md")

ASSIGN_REFUSED = REASONS.add(
    "AssignRefused",
    Severity.ACTION,
    "The manual slot assignments of spec.updateStrategy cannot be followed; no slot moves until the spec is corrected.",
)
CONFIG_MAP_INVALID = REASONS.add(
    "ConfigMapInvalid",
    Severity.ACTION,
    "The redis.conf in the user's ConfigMap is invalid; an existing cluster keeps its last valid version.",
)
CONFIG_MAP_MISSING = REASONS.add(
    "ConfigMapMissing",
    Severity.ACTION,
    "The ConfigMap that the spec names, or its key redis.conf, does not exist.",
)
CONFIGURING = REASONS.add(
    "Configuring",
    Severity.NORMAL,
    "Changed settings are being applied to running nodes without a restart.",
)
DENIED = REASONS.add(
    "Denied",
    Severity.ACTION,
    "Nodes reject all passwords that the operator knows, because the password was changed outside the operator.",
)
FOREIGN_DATA = REASONS.add(
    "ForeignData",
    Severity.ACTION,
    "A StatefulSet or volume of another RedisCluster of this name exists, and may hold its data.",
)
FORGETTING = REASONS.add(
    "Forgetting",
    Severity.NORMAL,
    "Removed nodes are being removed from the remaining nodes (CLUSTER FORGET).",
)
JOINING = REASONS.add(
    "Joining",
    Severity.NORMAL,
    "New nodes are joining the cluster.",
)
MEETING = REASONS.add(
    "Meeting",
    Severity.NORMAL,
    "Changed pod addresses are being announced to the other nodes (CLUSTER MEET).",
)
REPAIRING_SLOTS = REASONS.add(
    "MendingSlots",
    Severity.NORMAL,
    "Slots whose migration was interrupted are being completed or closed.",
)
MOVING_BLOCKED = REASONS.add(
    "MovingHeld",
    Severity.WARNING,
    "Slots cannot move at the moment, because a primary is unreachable or a slot has no single owner.",
)
NODE_FAILING = REASONS.add(
    "NodeFailing",
    Severity.WARNING,
    "The pod of a node fails, so that the cluster is not complete.",
)
NODE_NOT_EMPTY = REASONS.add(
    "NodeNotEmpty",
    Severity.ACTION,
    "A node that is to join or to become a replica holds keys, and is not changed.",
)
NOT_ANSWERING = REASONS.add(
    "NotAnswering",
    Severity.WARNING,
    "The pod of the node is ready, but its server is unreachable for the operator.",
)
NOT_EMPTY = REASONS.add(
    "NotEmpty",
    Severity.ACTION,
    "The cluster cannot be created, because a node already holds data.",
)
PAIRING = REASONS.add(
    "Pairing",
    Severity.NORMAL,
    "Replicas are being assigned to primaries.",
)
PAIRING_BLOCKED = REASONS.add(
    "PairingHeld",
    Severity.WARNING,
    "A replica cannot change its primary, because it may hold the only copy of its data.",
)
PODS_OUTDATED = REASONS.add(
    "PodsOutdated",
    Severity.ACTION,
    "Pods are outdated, and the update strategy OnDelete leaves their deletion to the user.",
)
PREPARING_USERS = REASONS.add(
    "PreparingUsers",
    Severity.NORMAL,
    "The Secret with the users of the nodes is being created.",
)
RECORDING = REASONS.add(
    "Recording",
    Severity.NORMAL,
    "The nodes and their volumes are being recorded in the status.",
)
RECOVERING = REASONS.add(
    "Recovering",
    Severity.NORMAL,
    "Lost slots are being assigned to other primaries after a user confirmed the loss.",
)
REDIS_UNREACHABLE = REASONS.add(
    "RedisUnreachable",
    Severity.WARNING,
    "No node is reachable for the operator, although the kubelet reports ready pods.",
)
RENEWING_CERTIFICATES = REASONS.add(
    "RenewingCertificates",
    Severity.NORMAL,
    "Nodes are loading a new certificate without a restart.",
)
REPLACING_CERTIFICATES = REASONS.add(
    "ReplacingCertificates",
    Severity.NORMAL,
    "The certificates that nodes mount are being updated.",
)
ROLL_BLOCKED = REASONS.add(
    "RollHeld",
    Severity.WARNING,
    "The rolling update is blocked, because recreating the next pod could interrupt service or lose data.",
)
ROTATING_PASSWORD = REASONS.add(
    "RotatingPassword",
    Severity.NORMAL,
    "The password is being changed on all nodes without a restart.",
)
SERVING = REASONS.add(
    "Serving",
    Severity.NORMAL,
    "The node serves clients.",
)
SETTLING = REASONS.add(
    "Settling",
    Severity.NORMAL,
    "The operator waits until all nodes report the same cluster view.",
)
SLOTS_LOST = REASONS.add(
    "SlotsLost",
    Severity.ACTION,
    "A primary and all of its replicas lost their data; a user must confirm the recovery.",
)
SLOTS_OPEN = REASONS.add(
    "SlotsOpen",
    Severity.WARNING,
    "The migration of slots was interrupted, and one of its nodes is unreachable.",
)
SLOTS_UNSERVED = REASONS.add(
    "SlotsUnserved",
    Severity.WARNING,
    "No node serves some slots, and the nodes that may hold their keys are unreachable.",
)
STARTING = REASONS.add(
    "Starting",
    Severity.NORMAL,
    "The node is starting or loads its data.",
)
UNKNOWN_MEMBER = REASONS.add(
    "StrangerInCluster",
    Severity.ACTION,
    "The cluster has a member that belongs to none of its pods.",
)
SYNCING = REASONS.add(
    "Syncing",
    Severity.NORMAL,
    "The replica is syncing with its primary.",
)
TAKING_OVER = REASONS.add(
    "TakingOver",
    Severity.WARNING,
    "A primary lost its data, and a replica is taking over.",
)
TARGET_FULL = REASONS.add(
    "TargetFull",
    Severity.WARNING,
    "Slots cannot move, because the target has too little memory for them.",
)
VERSION_REFUSED = REASONS.add(
    "VersionRefused",
    Severity.ACTION,
    "The version of the spec is not supported, or could not read the data of the nodes.",
)
UNREACHABLE = REASONS.add(
    "Unreachable",
    Severity.WARNING,
    "A command failed, because a node did not respond.",
)
REFUSED = REASONS.add(
    "Refused",
    Severity.WARNING,
    "A node rejected a command of the operator.",
)
LOADING = REASONS.add(
    "Loading",
    Severity.WARNING,
    "A node is temporarily unavailable, because it loads its data or runs a script.",
)
SLOT_STUCK = REASONS.add(
    "SlotStuck",
    Severity.WARNING,
    "A slot cannot be moved further; the message contains the remedy.",
)
