"""Reasons of the conditions and events of EtcdClusters and EtcdBackups."""

from __future__ import annotations

from shared.status.reasons import (
    Catalogue,
    Severity,
)

REASONS = Catalogue("runbook/etcd.md")

ACCESS_DENIED = REASONS.add(
    "AccessDenied", Severity.ACTION, "The store rejects the credentials or the permissions of a snapshot."
)
ALARM_RAISED = REASONS.add(
    "AlarmRaised",
    Severity.WARNING,
    "Members raised an alarm: NOSPACE (etcd accepts no writes), or CORRUPT (the data of a member differs).",
)
ANOTHER_CLUSTER = REASONS.add(
    "AnotherCluster", Severity.ACTION, "Members report the id of another cluster than the recorded one."
)
BACKUP_FAILED = REASONS.add(
    "BackupFailed", Severity.ACTION, "The EtcdBackup that spec.restore names has failed and has no snapshot."
)
BACKUP_INVALID = REASONS.add(
    "BackupInvalid", Severity.ACTION, "The spec of the EtcdBackup that spec.restore names is invalid."
)
BACKUP_MISSING = REASONS.add("BackupMissing", Severity.ACTION, "The EtcdBackup that spec.restore names does not exist.")
BACKUP_UNFINISHED = REASONS.add(
    "BackupUnfinished", Severity.WARNING, "The EtcdBackup that spec.restore names is not complete yet."
)
BUCKET_MISSING = REASONS.add(
    "BucketMissing", Severity.ACTION, "The bucket for snapshots does not exist, or is in another region."
)
CHANGING_PASSWORD = REASONS.add(
    "ChangingPassword",
    Severity.NORMAL,
    "The operator changes the password of root, or of the user for applications, to that of the Secret.",
)
CHECKING_AUTH = REASONS.add(
    "CheckingAuth", Severity.NORMAL, "The operator does not know yet whether authentication is enabled in etcd."
)
CLIENT_USER_TAKEN = REASONS.add(
    "ClientUserTaken",
    Severity.ACTION,
    "The resource is ready, but etcd has a user client that the operator did not create and does not give to clients.",
)
CLUSTER_INVALID = REASONS.add(
    "ClusterInvalid", Severity.ACTION, "The spec of the EtcdCluster that the EtcdBackup names is invalid."
)
CLUSTER_MISSING = REASONS.add(
    "ClusterMissing", Severity.ACTION, "The EtcdCluster that the EtcdBackup names does not exist."
)
CORRUPT_MEMBER_BLOCKED = REASONS.add(
    "CorruptMemberBlocked",
    Severity.WARNING,
    "A corrupt member is not replaced yet, because its removal would endanger the quorum.",
)
CORRUPTION_UNCLEAR = REASONS.add(
    "CorruptionUnclear",
    Severity.ACTION,
    "Members may have different data, and no majority shows which data is correct.",
)
DATA_IN_THE_WAY = REASONS.add("DataInTheWay", Severity.ACTION, "The volume to restore onto already has other data.")
DATA_LOST = REASONS.add(
    "DataLost",
    Severity.ACTION,
    "The quorum is lost, and no member has data from which to recover: it is lost, or no disk is mounted.",
)
DENIED = REASONS.add("Denied", Severity.ACTION, "etcd rejects the credentials of the operator.")
DISABLING_AUTH = REASONS.add(
    "DisablingAuth", Severity.NORMAL, "The operator disables authentication, as spec.auth requests."
)
DOWNGRADING = REASONS.add(
    "Downgrading", Severity.NORMAL, "etcd prepares the cluster for an earlier minor version, or cancels that."
)
ENABLING_AUTH = REASONS.add(
    "EnablingAuth", Severity.NORMAL, "The operator enables authentication, as spec.auth.enabled requests."
)
ETCD_UNREACHABLE = REASONS.add(
    "EtcdUnreachable", Severity.WARNING, "The kubelet reports members as ready, but none of them answers the operator."
)
FILE_UNUSABLE = REASONS.add(
    "FileUnusable", Severity.WARNING, "The pod of a snapshot or a restore cannot read or write a file."
)
FOREIGN_CLUSTER = REASONS.add(
    "ForeignCluster", Severity.ACTION, "The member that the snapshot is taken from belongs to another cluster."
)
FORMER_DATA_KEPT = REASONS.add(
    "FormerDataKept",
    Severity.WARNING,
    "Volumes with data that a recovery did not use are kept until a user releases them.",
)
GROW_BLOCKED = REASONS.add(
    "GrowBlocked", Severity.WARNING, "A member is not added yet, because the cluster is not healthy enough."
)
INTERRUPTED = REASONS.add(
    "Interrupted", Severity.WARNING, "The pod of a snapshot or a restore was terminated before it was done."
)
JOINING = REASONS.add("Joining", Severity.WARNING, "A new member starts as a learner and catches up with the leader.")
LEARNER_STUCK = REASONS.add(
    "LearnerStuck", Severity.WARNING, "A learner made no progress for too long; it is removed and joins again."
)
MEMBER_FAILING = REASONS.add("MemberFailing", Severity.WARNING, "The pod of a member does not start.")
MEMBER_REFUSED = REASONS.add("MemberRefused", Severity.WARNING, "The member rejected the request for a snapshot.")
MEMBER_UNREACHABLE = REASONS.add(
    "MemberUnreachable", Severity.WARNING, "The member that the snapshot is taken from does not answer."
)
NO_AGENT_IMAGE = REASONS.add(
    "NoAgentImage", Severity.ACTION, "The operator was started without --agent-image, which backups and restores need."
)
NO_MEMBER = REASONS.add("NoMember", Severity.WARNING, "No member of the cluster can provide a snapshot at the moment.")
NO_QUORUM = REASONS.add("NoQuorum", Severity.WARNING, "Too few voters answer for a quorum, but their data is not lost.")
NO_RESULT = REASONS.add("NoResult", Severity.WARNING, "The pod of a snapshot or a restore ended without a result.")
NOT_A_SNAPSHOT = REASONS.add("NotASnapshot", Severity.ACTION, "The file is not a snapshot of etcd, or has no checksum.")
OUT_OF_SPACE = REASONS.add(
    "OutOfSpace", Severity.WARNING, "The space quota is used up; the operator compacts and defragments."
)
POD_DELETED = REASONS.add("PodDeleted", Severity.WARNING, "The pod of a snapshot was deleted before it was done.")
POD_IN_THE_WAY = REASONS.add(
    "PodInTheWay", Severity.WARNING, "Another object owns a pod with the name of the snapshot's pod."
)
POD_NOT_STARTING = REASONS.add(
    "PodNotStarting", Severity.WARNING, "The pod of a snapshot does not start, or does not finish in time."
)
PROGRAM_FAILED = REASONS.add(
    "ProgramFailed",
    Severity.WARNING,
    "A program in the pod of a snapshot or a restore failed without a reason of its own.",
)
PROMOTING = REASONS.add("Promoting", Severity.NORMAL, "A learner has caught up and is promoted to a voter.")
QUORUM_LOST = REASONS.add(
    "QuorumLost", Severity.ACTION, "The quorum is permanently lost; a user must confirm the recovery."
)
QUOTA_EXCEEDED = REASONS.add(
    "QuotaExceeded",
    Severity.ACTION,
    "The space quota is used up, and compaction and defragmentation free no more space.",
)
RAISING_QUOTA = REASONS.add(
    "RaisingQuota",
    Severity.WARNING,
    "The former space quota is used up; the raised one takes effect when the pods are recreated.",
)
RECORDING = REASONS.add(
    "Recording", Severity.NORMAL, "The operator records an id, volumes or a result in the status before it continues."
)
RECOVERING = REASONS.add(
    "Recovering", Severity.WARNING, "The cluster recovers from a permanently lost quorum, as a user confirmed."
)
RECOVERY_FAILED = REASONS.add(
    "RecoveryFailed", Severity.WARNING, "The pod that creates the new cluster failed; the operator retries."
)
RELEASING_DATA = REASONS.add(
    "ReleasingData",
    Severity.WARNING,
    "The former data of a released recovery is being deleted from the volume of a member.",
)
REMOVING = REASONS.add("Removing", Severity.NORMAL, "The pod and the volume of a removed member are deleted.")
REPLACEMENT_BLOCKED = REASONS.add(
    "ReplacementBlocked",
    Severity.WARNING,
    "A member that lost its data is not replaced yet, because its removal would endanger the quorum.",
)
REPLACING = REASONS.add(
    "Replacing", Severity.NORMAL, "A member that lost its data is removed and joins again with an empty volume."
)
REPLACING_CORRUPT_MEMBER = REASONS.add(
    "ReplacingCorruptMember", Severity.WARNING, "A corrupt member is removed and joins again with an empty volume."
)
RESTORE_TOO_LATE = REASONS.add(
    "RestoreTooLate", Severity.ACTION, "spec.restore was set after the cluster was allowed to start empty."
)
RUNNING = REASONS.add("Running", Severity.NORMAL, "A pod takes the snapshot.")
SCALE_DOWN_BLOCKED = REASONS.add(
    "ScaleDownBlocked",
    Severity.WARNING,
    "A surplus member is not removed yet, because its removal would endanger the quorum.",
)
SNAPSHOT_CORRUPT = REASONS.add("SnapshotCorrupt", Severity.ACTION, "The checksum of the snapshot is wrong.")
SNAPSHOT_MISSING = REASONS.add(
    "SnapshotMissing", Severity.ACTION, "The snapshot file, or the database to recover, does not exist."
)
SNAPSHOT_TOO_NEW = REASONS.add(
    "SnapshotTooNew", Severity.ACTION, "A newer series of etcd wrote the snapshot than the one that is to restore it."
)
STORE_FULL = REASONS.add("StoreFull", Severity.ACTION, "The store of snapshots has no space left.")
STORE_REFUSED = REASONS.add("StoreRefused", Severity.WARNING, "The store of snapshots rejected a request.")
STORE_UNREACHABLE = REASONS.add("StoreUnreachable", Severity.WARNING, "The store of snapshots does not answer.")
UNKNOWN_MEMBER = REASONS.add(
    "UnknownMember", Severity.ACTION, "etcd lists a member that belongs to no pod of this cluster."
)
UNSAFE_VERSION = REASONS.add(
    "UnsafeVersion",
    Severity.ACTION,
    "The space quota is used up, and the version of etcd has a defect that makes a defragmentation unsafe.",
)
UPGRADE_BLOCKED = REASONS.add(
    "UpgradeBlocked",
    Severity.WARNING,
    "A restart or an upgrade waits until the other members are healthy or the log is readable.",
)
UPGRADE_REFUSED = REASONS.add(
    "UpgradeRefused", Severity.ACTION, "etcd does not support the change from the running version to that of the spec."
)
VOLUME_IN_THE_WAY = REASONS.add(
    "VolumeInTheWay", Severity.ACTION, "A volume claim with a name of this cluster has another owner."
)
VOLUME_MISSING = REASONS.add("VolumeMissing", Severity.ACTION, "The volume claim for snapshots does not exist.")
UNREACHABLE = REASONS.add("Unreachable", Severity.WARNING, "A member does not answer a request.")
REFUSED = REASONS.add("Refused", Severity.WARNING, "etcd rejected a request.")
UNHEALTHY = REASONS.add(
    "Unhealthy", Severity.WARNING, "etcd rejected a change of members, because not all voters are connected."
)
NOT_IN_SYNC = REASONS.add(
    "NotInSync", Severity.WARNING, "etcd rejected the promotion of a learner that has not caught up."
)
NO_LEADER = REASONS.add(
    "NoLeader", Severity.WARNING, "etcd has no leader, or a request timed out for lack of a quorum."
)
NO_SUCH_MEMBER = REASONS.add(
    "NoSuchMember", Severity.WARNING, "The member of a request is no longer part of the cluster."
)
NO_SPACE = REASONS.add("NoSpace", Severity.WARNING, "etcd rejected a write, because the space quota is used up.")
UNSUPPORTED = REASONS.add("Unsupported", Severity.WARNING, "The version of etcd does not support a request.")
UNAUTHENTICATED = REASONS.add("Unauthenticated", Severity.WARNING, "etcd requires a user and a password.")
