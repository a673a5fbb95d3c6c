"""Reasons of the conditions and events of RedisClusters."""

from __future__ import annotations

from shared.status.reasons import (
    CREATING,
    DEGRADED,
    REDUNDANCY_REDUCED,
    REDUNDANT,
    SCALING,
    SECRET_MISSING,
    SERVED,
    SERVICE_UNKNOWN,
    UPGRADING,
    Catalogue,
    Severity,
)
from shared.steps import claims

REASONS = Catalogue("runbook/redis.md")

ASSIGN_REFUSED = REASONS.add(
    "AssignRefused",
    Severity.ACTION,
    "The manual slot assignments of spec.updateStrategy cannot be followed; no slot moves until the spec is corrected.",
    "{refusal} Nothing was changed.",
)
CONFIG_MAP_INVALID = REASONS.add(
    "ConfigMapInvalid",
    Severity.ACTION,
    "The redis.conf in the user's ConfigMap is invalid; an existing cluster keeps its last valid version.",
    (
        "{at}: line {number} sets {lower}, but credentials do not belong in a ConfigMap. Put the password "
        "into a Secret, set spec.auth.secretName, and remove the line."
    ),
    "{at}: line {number} sets {lower}, which is not applied: {reason}. Remove the line.",
    "{at}: line {number} {why}. Correct it, or remove the line.",
    "{at}: ConfigMap {name}: {config_key} {why}. Shorten it.",
    "{at}: ConfigMap {name}: {config_key} {why}. Shorten it. Nothing was changed.",
    "{field}: {problem} Nodes keep its last valid version.",
)
CONFIG_MAP_MISSING = REASONS.add(
    "ConfigMapMissing",
    Severity.ACTION,
    "The ConfigMap that the spec names, or its key redis.conf, does not exist.",
    "{at}: ConfigMap {name} does not exist. Create it with the key {config_key}, or change the name.",
    "{at}: ConfigMap {name} has no key {config_key}. Add it, or change the name.",
    "{field}: {problem} Nodes keep its last valid version.",
)
CONFIG_REFUSED = REASONS.add(
    "ConfigRefused",
    Severity.ACTION,
    "A setting is not accepted by the engine; nodes keep its former value, and all other work continues.",
    "Nodes keep the former values of refused settings: {problems}. Correct or remove them in spec.config{at}.",
)
CONFIGURING = REASONS.add(
    "Configuring",
    Severity.NORMAL,
    "Changed settings are being applied to running nodes without a restart.",
    "{names} are applying settings without a restart.",
)
DATA_AWAY = REASONS.add(
    "DataAway",
    Severity.ACTION,
    "No node serves some slots, and their keys may be where no pod runs, or on a volume that is not mounted.",
    (
        "No node serves {slots}: the data {places}, where their pods do not run{others}. These slots can be served "
        "again, empty; all other keys stay. To allow it, set spec.recovery.confirm to {token}{former}. If the pods can "
        "run there again, let them: then the keys are back. Nothing was changed."
    ),
    (
        "No node serves {slots}: the data {places}, where their pods do not run{others}. {older} can serve {outdated} "
        "with older keys, without later writes{empty}; all other keys stay. To allow it, set "
        "spec.recovery.confirm to {token}{former}. If the pods can run there again, let them: then the keys are back. "
        "Nothing was changed."
    ),
    (
        "No node serves {brief}, but {names} may have keys{why}. The cluster is not created again, and nothing was "
        "changed. Bring the data back; if it is lost, delete the {objects}."
    ),
    (
        "{primary} serves older keys: {name} took over from it, and has its data on {host}, where its pod does not "
        "run. Let the pod run there again. If that data is not needed, run CLUSTER FORGET {id} on every other node. "
        "Nothing was changed."
    ),
)
DENIED = REASONS.add(
    "Denied",
    Severity.ACTION,
    "Nodes reject all passwords that the operator knows, because the password was changed outside the operator.",
    (
        "{names}: {error} The password of user default was changed outside the operator. Add the current "
        "password to {secret}; or restart the node: it starts with the configured password."
    ),
)
FOREIGN_DATA = REASONS.add(
    "ForeignData",
    Severity.ACTION,
    "A StatefulSet or volume claim with a name of this cluster has another owner, and may hold its data.",
    (
        "{objects}: belongs to {owner} and may hold its data, which was not changed. To use it in this "
        "resource, hand it over: kubectl label statefulset,pvc -l {labels} {cluster_uid}={uid} --overwrite. "
        "To create an empty cluster instead, delete these objects together with the data, or rename this "
        "resource."
    ),
    *claims.MESSAGES,
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
    "Forgetting",
    Severity.NORMAL,
    "Removed nodes are being removed from the remaining nodes (CLUSTER FORGET).",
    "Waiting for all nodes to report the same cluster view before removing {names}. {conflicts}",
    "Forgetting deleted nodes (CLUSTER FORGET): {names}. They hold no data.",
)
HANDING_OVER = REASONS.add(
    "HandingOver",
    Severity.NORMAL,
    "Replicas take over from primaries whose pods are being deleted, before their servers end.",
    "Replicas take over from primaries whose pods are being deleted: {changes}.",
)
IDENTITY_LOST = REASONS.add(
    "IdentityLost",
    Severity.WARNING,
    "A node lost its nodes.conf, but not its data.",
    "{names} lost nodes.conf, but not their data: removing their former ids (CLUSTER FORGET).",
    "{names} lost nodes.conf, but not their data: claiming {slots} again, with their keys.",
    "{names} claim the slots whose keys they have; joining them again (CLUSTER MEET).",
    (
        "{names} lost nodes.conf, but not their data. Waiting for a majority of primaries to be reachable before they "
        "join again with their slots. {away}"
    ),
    (
        "{instance} lost nodes.conf, but not its data, and has keys of {slots}, which it did not own; it was not "
        "changed. If its keys are not needed, delete its volume claim and its pod."
    ),
    "{instance} lost nodes.conf, and {successor} owns its slots: recreating it with an empty volume.",
    (
        "{instance} lost nodes.conf and has outdated keys of {slots}, which {successor} owns. Its volume is shared and "
        "was not changed: delete its directory {directory}, then its pod."
    ),
)
JOINING = REASONS.add(
    "Joining",
    Severity.NORMAL,
    "New nodes are joining the cluster.",
    "Joining new nodes: {names}.",
    "Waiting before new nodes join: {trimming}.",
)
MEETING = REASONS.add(
    "Meeting",
    Severity.NORMAL,
    "Changed pod addresses are being announced to the other nodes (CLUSTER MEET).",
    "Updating the address of {names} on the other nodes (CLUSTER MEET).",
)
REPAIRING_SLOTS = REASONS.add(
    "RepairingSlots",
    Severity.NORMAL,
    "Slots whose migration was interrupted are being completed or closed.",
    "Finishing the interrupted migration of {open_slots}.",
    "Closing {open_slots}, which have arrived after an interrupted migration.",
    "Opening {open_slots} again after a failover, so that clients find the keys that have moved.",
    "Recording in status that nodes hold keys of {new} without owning them.",
    "No node owns {brief}: assigning them to {names}, where their keys are.",
)
MOVING_BLOCKED = REASONS.add(
    "MovingBlocked",
    Severity.WARNING,
    "Slots cannot move at the moment, because a primary is unreachable or a slot has no single owner.",
    "Migration paused: primary {unreachable} is unreachable.",
)
NODE_FAILING = REASONS.add(
    "NodeFailing",
    Severity.WARNING,
    "The pod of a node fails, so that the cluster is not complete.",
    "{serving} of {total} nodes serve, {primaries} of them primaries. {problems}",
)
NODE_NOT_EMPTY = REASONS.add(
    "NodeNotEmpty",
    Severity.ACTION,
    "A node that is to join or to become a replica holds keys, and is not changed.",
    (
        "{instance} is not a member of the cluster and holds {keys} keys; it was not changed. If the keys are "
        "not needed, delete its volume claim and its pod: the operator recreates both."
    ),
    (
        "Cannot configure {change}: it holds {keys} keys of slots that it does not own, and was not changed. "
        "If the keys are not needed, delete its volume claim and its pod: the operator recreates both."
    ),
    (
        "{replica} replicates {owner}, which lost its data, and holds {keys} keys of unknown age. Nothing was changed. "
        "If the keys are not needed, delete its volume claim and its pod, and confirm the loss with its new token."
    ),
)
NOT_EMPTY = REASONS.add(
    "NotEmpty",
    Severity.ACTION,
    "The cluster cannot be created, because a node already holds data.",
    (
        "Cannot create the cluster: the nodes must be empty, but {occupied}. Nothing was changed. If the data "
        "is not needed, delete this resource and its volume claims, and create the resource again."
    ),
)
PAIRING = REASONS.add(
    "Pairing",
    Severity.NORMAL,
    "Replicas are being assigned to primaries.",
    "Configuring {changed}.",
    "Waiting for {unsynced} to sync before configuring {change}.",
    "Waiting before configuring {change}: {node} {trims}.",
)
PAIRING_BLOCKED = REASONS.add(
    "PairingBlocked",
    Severity.WARNING,
    "A replica cannot change its primary, because it may hold the only copy of its data.",
    (
        "Waiting for {name_of}, which is unreachable, before configuring {change}: until then it may hold the "
        "only copy of its data."
    ),
)
PODS_OUTDATED = REASONS.add(
    "PodsOutdated",
    Severity.ACTION,
    "Pods are outdated, and the update strategy OnDelete leaves their deletion to the user.",
    "{progress}: {names}. spec.pod[0].updateStrategy is OnDelete: delete these pods to update them.",
)
PREPARING_RESTART = REASONS.add(
    "PreparingRestart",
    Severity.NORMAL,
    "The process of a node without persistence is being recorded, so that the next one gets another node id.",
    "Recording the process of {names}: without persistence, the next process must not resume as this node.",
)
PREPARING_USERS = REASONS.add(
    "PreparingUsers",
    Severity.NORMAL,
    "The Secret with the users of the nodes, or another one that nodes mount, is being created.",
    "Creating the Secret with the users of the nodes.",
    "Creating the Secrets that the nodes mount.",
)
RECORDING = REASONS.add("Recording", Severity.NORMAL, "The nodes and their volumes are being recorded in the status.")
RECOVERING = REASONS.add(
    "Recovering",
    Severity.NORMAL,
    "Lost slots are being served again, after a user confirmed the loss.",
    "No primary is left and the loss is confirmed; recording that the cluster is created again, empty.",
    "{brief} will be served again, empty, once all nodes report the same cluster view. {unclear}",
    "The loss of {names} is confirmed; removing them from all nodes (CLUSTER FORGET).",
    "{map} are taking {brief}, empty.",
    "{loss}; {instance} is taking over, {content}.",
    "{loss}. Waiting for {instance} to notice it before it takes over, {content}.",
)
REDIS_UNREACHABLE = REASONS.add(
    "RedisUnreachable",
    Severity.WARNING,
    "No node is reachable for the operator, although the kubelet reports ready pods.",
    (
        "{names}: the kubelet reports the pods as ready, but no node is reachable{detail}{rstrip}. Nothing is "
        "changed until one is. Check that NetworkPolicies allow the operator's pods to connect to port 6379 "
        "of these pods."
    ),
)
RENEWING_CERTIFICATES = REASONS.add(
    "RenewingCertificates",
    Severity.NORMAL,
    "Nodes are loading a new certificate without a restart.",
    "{names}: loading the new certificate without a restart.",
)
REPLICATING_ELSEWHERE = REASONS.add(
    "ReplicatingElsewhere",
    Severity.WARNING,
    "A replica is connected to another address than that of its primary, and is no copy until it is connected again.",
    "{problem}{more}: connecting it again (CLUSTER REPLICATE). If this lasts, delete the pod.",
    "{problem}{more}: restarting its pod, which connects it again.",
)
ROLE_CONFLICT = REASONS.add(
    "RoleConflict",
    Severity.WARNING,
    "A node replicates a primary, but its own cluster view calls it a primary without slots.",
    "{conflict}: recreating it with an empty volume. {primary} has all of its keys.",
    "{conflict}. Its volume is shared and was not changed: delete its directory there, then its pod.",
)
ROLL_BLOCKED = REASONS.add(
    "RollBlocked",
    Severity.WARNING,
    "The rolling update is blocked, because recreating the next pod could interrupt service or lose data.",
)
ROTATING_PASSWORD = REASONS.add(
    "RotatingPassword",
    Severity.NORMAL,
    "The password is being changed on all nodes without a restart.",
    "{names}: updating the valid passwords.",
    "{nodes}: must accept the new password before it is used.",
    "The password in the Secret changed: both passwords are valid during the rotation.",
    "Every node accepts the new password: switching to it.",
    "Every node has the user of replicas: they authenticate as this user.",
    "Removing the former password.",
    "Accepting previousPassword of the Secret in addition.",
    "The password change was reverted in the Secret.",
)
PRIMARIES_TOGETHER = REASONS.add(
    "PrimariesTogether",
    Severity.WARNING,
    "So many primaries share a host or a zone that its loss would stop the whole cluster.",
    (
        "{count} of {total} primaries ({names}) run on {kind} {name}: its loss would stop the whole cluster, because "
        "no majority of primaries would be left. {more}"
    ),
)
REPLICA_TOGETHER = REASONS.add(
    "ReplicaTogether",
    Severity.WARNING,
    "A replica runs on the host or in the zone of its primary, so that both can be lost together.",
    "{replica} runs on the same {kind} ({name}) as its primary {primary}. {more}",
)
SERVING = REASONS.add("Serving", Severity.NORMAL, "The node serves clients.")
SETTLING = REASONS.add(
    "Settling",
    Severity.NORMAL,
    "The operator waits until all nodes report the same cluster view.",
    "Waiting for all nodes to report the same cluster view. {conflicts}",
)
SLOTS_LOST = REASONS.add(
    "SlotsLost", Severity.ACTION, "A primary and all of its replicas lost their data; a user must confirm the recovery."
)
SLOTS_OPEN = REASONS.add(
    "SlotsOpen",
    Severity.WARNING,
    "The migration of slots was interrupted, and one of its nodes is unreachable.",
    "The migration of {open_slots} was interrupted, and nodes are unreachable: {waiting}.",
)
SLOTS_UNSERVED = REASONS.add(
    "SlotsUnserved",
    Severity.WARNING,
    "No node serves some slots, and nodes that may hold their keys are unreachable.",
    "No node serves {brief}: waiting for the nodes that may hold their keys. {why_away}",
    "No primary serves {brief}.",
    (
        "No primary can serve {brief}, empty: {names} would serve older keys of them. Delete these keys (condition "
        "ForeignKeys), or add a primary."
    ),
    (
        "No node owns {brief}, and several have keys: slot {slot} at {names}. Nothing was changed. Compare the keys "
        "(CLUSTER GETKEYSINSLOT, DUMP). On the node with the current ones, run CLUSTER BUMPEPOCH and then CLUSTER "
        "SETSLOT … NODE with its own id."
    ),
)
STARTING = REASONS.add("Starting", Severity.NORMAL, "The node is starting or loads its data.")
UNKNOWN_MEMBER = REASONS.add(
    "UnknownMember",
    Severity.ACTION,
    "The cluster has a member that belongs to none of its pods.",
    (
        "The cluster has a member that belongs to none of its pods: {unknown}. It was added manually, or a "
        "pod address was reused by another cluster. {consequence}. Find out whose it is (runbook). If it was "
        "added manually and owns slots, move them away; then remove it from every node (CLUSTER FORGET)."
    ),
)
SPREADING = REASONS.add(
    "Spreading",
    Severity.NORMAL,
    "A replica takes over so that fewer primaries share a host or a zone.",
    "Recording in status that {replica} is to take over from {primary}.",
    "{replica} is taking over from {primary}, so that fewer primaries share a host or zone.",
)
SYNCING = REASONS.add("Syncing", Severity.NORMAL, "The replica is syncing with its primary.")
TAKING_OVER = REASONS.add(
    "TakingOver",
    Severity.WARNING,
    "A primary lost its data, or restarted with older data, and a replica is taking over.",
    "{loss}. Waiting for the replication offset of {names} before a replica takes over.",
    "{loss}. Waiting for {candidate} to notice the failure before it takes over.",
    "{loss}; {candidate} is taking over.",
    "{outdated}. Waiting for {names}, which may have newer keys.",
    "{loss}. {why}",
    "{outdated}. {why}",
    "{loss}. {candidate} is to take over, but does not reach {names}: without them no majority of the primaries can "
    "elect it. Check the network between these pods.",
    "{outdated}, and {name} has newer keys; {name} is taking over.",
)
TARGET_FULL = REASONS.add(
    "TargetFull",
    Severity.WARNING,
    "Slots cannot move, because the target has too little memory for them.",
    (
        "Migration paused: with the slots that it is to receive, {name_of} would use {memory} of {max_memory} "
        "bytes (maxmemory). Raise maxmemory, or add primaries."
    ),
)
TARGET_NOT_REPLICATING = REASONS.add(
    "TargetNotReplicating",
    Severity.WARNING,
    "Slots cannot move, because no replica of the target is online and up to date.",
    (
        "Migration paused: {target} is to receive slots, and no replica of it is online and up to date: {why}. If it "
        "failed, keys that just moved would be lost. Bring the replica back; for a cache, set "
        "spec.updateStrategy.waitForReplicas to false."
    ),
)
VERSION_REFUSED = REASONS.add(
    "VersionRefused",
    Severity.ACTION,
    "The version of the spec is not supported, or could not read the data of the nodes.",
    "spec.version: {why} Nothing was changed.",
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

WRITES_REFUSED = REASONS.add(
    "WritesRefused",
    Severity.WARNING,
    "A primary serves reads and refuses writes, because it cannot write to its log.",
    "{names}: refusing writes, because the last write to the log failed (aof_last_write_status in INFO). Check the "
    "space on the volume.",
)
REASONS.extend(
    CREATING,
    "Every slot has an owner; recording in status that the cluster is created.",
    "{replaced} has a new, empty node; removing the former one from its peers (CLUSTER FORGET).",
    "All nodes are reachable and empty; recording the slot assignment in status.",
    "Recreating {names}: the server does not run, and the pod is outdated.",
    "{reachable} of {total} nodes are reachable. {problems}",
    "{serving} of {total} nodes serve, {primaries} of them primaries. {problems}",
    "{count} nodes are joining each other (CLUSTER MEET).",
    "{nodes} become primaries; assigning each a config epoch.",
    "{count} primaries are taking their slots.",
    "Waiting for all nodes to report the same slot owners. {conflicts}",
    "{work} Waiting for all nodes to report the same cluster view. {detail}",
    "{work} Updating the address of {names} on the other nodes (CLUSTER MEET).",
    "Recording the node and volume of {nodes} in status.",
)
REASONS.extend(
    DEGRADED,
    "{reachable} of {total} nodes are reachable. {problems}",
    "{serving} of {total} nodes serve, {primaries} of them primaries. {problems}",
)
REASONS.extend(
    REDUNDANCY_REDUCED,
    "{primary} has {count} of {requested} replicas in sync.",
    "{primary} has {count} of {requested} replicas in sync. {more}",
)
REASONS.extend(REDUNDANT, "Each primary has its replicas in sync, on other hosts.")
REASONS.extend(
    SCALING,
    "Recording the slot assignment of new primaries in status.",
    "Waiting for replica {name_of} to sync before moving slots to its primary.",
    "Waiting for {name_of} to accept commands (cluster_state:fail) before moving slots to it.",
    "Scaling to {count} primaries: moving {total} slots ({moved} moved); remaining: {described}.",
    "Rebalancing {total} slots over {count} primaries ({moved} moved); remaining: {described}.",
    "{instance} was removed and holds no needed data; deleting its volume.",
    "Removing {names}.",
    "{removal}: waiting for {node} to be in sync and both nodes to be reachable before the failover.",
    "{removal}: {node} is taking over.",
    "{goal}: no node is empty. Increase spec.replicas by {missing}, so that new nodes become primaries.",
    "{goal}: waiting for nodes. {away}",
    "{goal}: waiting for a node that may become one: {trimming}.",
    "{goal}: waiting for {unsynced} to sync before a replica becomes a primary.",
    "{goal}: no replica can be recreated, because each may hold the only copy of its data.",
    (
        "{goal}: recreating replica {instance} with an empty volume so that it can become a primary. Its "
        "current primary has the same data."
    ),
    "{reachable} of {total} nodes are reachable. {problems}",
    "{serving} of {total} nodes serve, {primaries} of them primaries. {problems}",
    "{work} Waiting for all nodes to report the same cluster view. {detail}",
    "{work} Updating the address of {names} on the other nodes (CLUSTER MEET).",
    "Recording the node and volume of {nodes} in status.",
    "Waiting for all nodes to be reachable before moving slots to {nodes}. {problems}",
)
REASONS.extend(
    SECRET_MISSING,
    "{field}: Secret {secret} does not exist. Create it with {keys}, or name another Secret. {consequence}",
    "{field}: Secret {secret} has no {keys}. Add it. {consequence}",
)
REASONS.extend(
    SERVED,
    "Every slot has a serving primary.",
    "The kubelet reports the last known primary of every slot as ready.",
)
REASONS.extend(
    SERVICE_UNKNOWN,
    "It is unknown whether {brief} are served: the last known primary is not ready, and a replica that the operator "
    "does not reach may have taken over.",
    "It is unknown whether {brief} are served: by the cluster's own table, their owner is {owners}, which belongs to "
    "none of its pods.",
)
REASONS.extend(
    UPGRADING,
    "Recreating {names}: the server does not run, and the pod is outdated.",
    "{progress}; {candidate} is taking over from {instance}.",
    "{reachable} of {total} nodes are reachable. {problems}",
    "{serving} of {total} nodes serve, {primaries} of them primaries. {problems}",
    "{work} Waiting for all nodes to report the same cluster view. {detail}",
    "{work} Updating the address of {names} on the other nodes (CLUSTER MEET).",
    "Recording the node and volume of {nodes} in status.",
    "Rolling update: {outdated} of {total} pods are outdated; {pod} is being recreated.",
    "Rolling update: {outdated} of {total} pods are outdated. {pod} {state}",
    (
        "Rolling update: {outdated} of {total} pods are outdated; {pod} is being recreated. It has no "
        "replica: its slots are not served until it is back."
    ),
)
