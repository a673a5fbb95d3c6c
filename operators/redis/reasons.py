"""Reasons of the conditions and events of RedisClusters."""

from __future__ import annotations

from shared.status.reasons import (
    Catalogue,
    Severity,
)

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
    "ConfigMapMissing", Severity.ACTION, "The ConfigMap that the spec names, or its key redis.conf, does not exist."
)
CONFIG_REFUSED = REASONS.add(
    "ConfigRefused",
    Severity.ACTION,
    "A setting is not accepted by the engine; nodes keep its former value, and all other work continues.",
)
CONFIGURING = REASONS.add(
    "Configuring", Severity.NORMAL, "Changed settings are being applied to running nodes without a restart."
)
DATA_AWAY = REASONS.add(
    "DataAway",
    Severity.ACTION,
    "No node serves some slots, and their keys may be where no pod runs, or on a volume that is not mounted.",
)
DENIED = REASONS.add(
    "Denied",
    Severity.ACTION,
    "Nodes reject all passwords that the operator knows, because the password was changed outside the operator.",
)
FOREIGN_DATA = REASONS.add(
    "ForeignData",
    Severity.ACTION,
    "A StatefulSet or volume claim with a name of this cluster has another owner, and may hold its data.",
)
FOREIGN_KEYS = REASONS.add(
    "ForeignKeys",
    Severity.WARNING,
    "A primary holds keys of slots that it does not own, usually an outdated copy; they are not served.",
)
FOREIGN_MIGRATION = REASONS.add(
    "ForeignMigration",
    Severity.WARNING,
    "Slots are migrating, and the operator did not begin that; it does not change them.",
)
FORGETTING = REASONS.add(
    "Forgetting", Severity.NORMAL, "Removed nodes are being removed from the remaining nodes (CLUSTER FORGET)."
)
HANDING_OVER = REASONS.add(
    "HandingOver",
    Severity.NORMAL,
    "Replicas take over from primaries whose pods are being deleted, before their servers end.",
)
IDENTITY_LOST = REASONS.add("IdentityLost", Severity.WARNING, "A node lost its nodes.conf, but not its data.")
JOINING = REASONS.add("Joining", Severity.NORMAL, "New nodes are joining the cluster.")
MEETING = REASONS.add(
    "Meeting", Severity.NORMAL, "Changed pod addresses are being announced to the other nodes (CLUSTER MEET)."
)
REPAIRING_SLOTS = REASONS.add(
    "RepairingSlots", Severity.NORMAL, "Slots whose migration was interrupted are being completed or closed."
)
MOVING_BLOCKED = REASONS.add(
    "MovingBlocked",
    Severity.WARNING,
    "Slots cannot move at the moment, because a primary is unreachable or a slot has no single owner.",
)
NODE_FAILING = REASONS.add(
    "NodeFailing", Severity.WARNING, "The pod of a node fails, so that the cluster is not complete."
)
NODE_NOT_EMPTY = REASONS.add(
    "NodeNotEmpty", Severity.ACTION, "A node that is to join or to become a replica holds keys, and is not changed."
)
NOT_EMPTY = REASONS.add(
    "NotEmpty", Severity.ACTION, "The cluster cannot be created, because a node already holds data."
)
PAIRING = REASONS.add("Pairing", Severity.NORMAL, "Replicas are being assigned to primaries.")
PAIRING_BLOCKED = REASONS.add(
    "PairingBlocked",
    Severity.WARNING,
    "A replica cannot change its primary, because it may hold the only copy of its data.",
)
PODS_OUTDATED = REASONS.add(
    "PodsOutdated",
    Severity.ACTION,
    "Pods are outdated, and the update strategy OnDelete leaves their deletion to the user.",
)
PREPARING_RESTART = REASONS.add(
    "PreparingRestart",
    Severity.NORMAL,
    "The process of a node without persistence is being recorded, so that the next one gets another node id.",
)
PREPARING_USERS = REASONS.add(
    "PreparingUsers",
    Severity.NORMAL,
    "The Secret with the users of the nodes, or another one that nodes mount, is being created.",
)
RECORDING = REASONS.add("Recording", Severity.NORMAL, "The nodes and their volumes are being recorded in the status.")
RECOVERING = REASONS.add(
    "Recovering", Severity.NORMAL, "Lost slots are being served again, after a user confirmed the loss."
)
REDIS_UNREACHABLE = REASONS.add(
    "RedisUnreachable",
    Severity.WARNING,
    "No node is reachable for the operator, although the kubelet reports ready pods.",
)
RENEWING_CERTIFICATES = REASONS.add(
    "RenewingCertificates", Severity.NORMAL, "Nodes are loading a new certificate without a restart."
)
REPLICATING_ELSEWHERE = REASONS.add(
    "ReplicatingElsewhere",
    Severity.WARNING,
    "A replica is connected to another address than that of its primary, and is no copy until it is connected again.",
)
ROLE_CONFLICT = REASONS.add(
    "RoleConflict",
    Severity.WARNING,
    "A node replicates a primary, but its own cluster view calls it a primary without slots.",
)
ROLL_BLOCKED = REASONS.add(
    "RollBlocked",
    Severity.WARNING,
    "The rolling update is blocked, because recreating the next pod could interrupt service or lose data.",
)
ROTATING_PASSWORD = REASONS.add(
    "RotatingPassword", Severity.NORMAL, "Users or passwords are being changed on all nodes without a restart."
)
PRIMARIES_TOGETHER = REASONS.add(
    "PrimariesTogether",
    Severity.WARNING,
    "So many primaries share a host or a zone that its loss would stop the whole cluster.",
)
REPLICA_TOGETHER = REASONS.add(
    "ReplicaTogether",
    Severity.WARNING,
    "A replica runs on the host or in the zone of its primary, so that both can be lost together.",
)
SERVING = REASONS.add("Serving", Severity.NORMAL, "The node serves clients.")
SETTLING = REASONS.add("Settling", Severity.WARNING, "The operator waits until all nodes report the same cluster view.")
SLOTS_LOST = REASONS.add(
    "SlotsLost", Severity.ACTION, "A primary and all of its replicas lost their data; a user must confirm the recovery."
)
SLOTS_OPEN = REASONS.add(
    "SlotsOpen", Severity.WARNING, "The migration of slots was interrupted, and one of its nodes is unreachable."
)
SLOTS_UNSERVED = REASONS.add(
    "SlotsUnserved", Severity.WARNING, "No node serves some slots, and nodes that may hold their keys are unreachable."
)
STARTING = REASONS.add("Starting", Severity.NORMAL, "The node is starting or loads its data.")
UNKNOWN_MEMBER = REASONS.add(
    "UnknownMember", Severity.ACTION, "The cluster has a member that belongs to none of its pods."
)
SPREADING = REASONS.add(
    "Spreading", Severity.NORMAL, "A replica takes over so that fewer primaries share a host or a zone."
)
SYNCING = REASONS.add("Syncing", Severity.NORMAL, "The replica is syncing with its primary.")
TAKING_OVER = REASONS.add(
    "TakingOver",
    Severity.WARNING,
    "A primary lost its data, or restarted with older data, and a replica is taking over.",
)
TARGET_FULL = REASONS.add(
    "TargetFull", Severity.WARNING, "Slots cannot move, because the target has too little memory for them."
)
TARGET_NOT_REPLICATING = REASONS.add(
    "TargetNotReplicating",
    Severity.WARNING,
    "Slots cannot move, because no replica of the target is online and up to date.",
)
VERSION_REFUSED = REASONS.add(
    "VersionRefused",
    Severity.ACTION,
    "The version of the spec is not supported, or could not read the data of the nodes.",
)
FOREIGN_NODE_MET = REASONS.add(
    "ForeignNodeMet",
    Severity.WARNING,
    "A node of another cluster answered at the address of a pod during CLUSTER MEET; all nodes have forgotten it.",
)
UNREACHABLE = REASONS.add("Unreachable", Severity.WARNING, "A command failed, because a node did not respond.")
REFUSED = REASONS.add("Refused", Severity.WARNING, "A node rejected a command of the operator.")
LOADING = REASONS.add(
    "Loading", Severity.WARNING, "A node is temporarily unavailable, because it loads its data or runs a script."
)
SLOT_STUCK = REASONS.add(
    "SlotStuck", Severity.WARNING, "A slot cannot be moved further; the message contains the remedy."
)

USER_NOT_APPLIED = REASONS.add(
    "UserNotApplied",
    Severity.ACTION,
    "A user of spec.users cannot be applied, and keeps its former definition; all other work continues.",
)
WRITES_REFUSED = REASONS.add(
    "WritesRefused", Severity.WARNING, "A primary serves reads and refuses writes, because it cannot write to its log."
)
