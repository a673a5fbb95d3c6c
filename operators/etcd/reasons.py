"""Reasons of the conditions and events of EtcdClusters and EtcdBackups."""

from __future__ import annotations

from shared.status.reasons import (
    CREATING,
    DEGRADED,
    GENERATING_PASSWORD,
    IMAGE_PULL_FAILED,
    INVALID_SPEC,
    REDUNDANCY_REDUCED,
    REDUNDANT,
    RESTORING,
    SCALING,
    SECRET_INVALID,
    SECRET_MISSING,
    SERVED,
    UPDATING,
    Catalogue,
    Severity,
)
from shared.steps import claims

REASONS = Catalogue("runbook/etcd.md")

ACCESS_DENIED = REASONS.add(
    "AccessDenied", Severity.ACTION, "The store rejects the credentials or the permissions of a snapshot."
)
ALARM_RAISED = REASONS.add(
    "AlarmRaised",
    Severity.WARNING,
    "Members raised an alarm: NOSPACE (etcd accepts no writes), or CORRUPT (the data of a member differs).",
    "Members raised the alarm {alarms}.",
)
ANOTHER_CLUSTER = REASONS.add(
    "AnotherCluster",
    Severity.ACTION,
    "Members report the id of another cluster than the recorded one.",
    (
        "Members report cluster id {found}, but this is cluster {known}. Nothing was changed. A new cluster "
        "was created instead of this one: restore a backup, or bring back the volumes of the former members."
    ),
    "Members serve the keys of another cluster, and none of this one.",
)
BACKUP_FAILED = REASONS.add(
    "BackupFailed",
    Severity.ACTION,
    "The EtcdBackup that spec.restore names has failed and has no snapshot.",
    "{at}: EtcdBackup {name} failed and has no snapshot. Name another one.",
)
BACKUP_INVALID = REASONS.add(
    "BackupInvalid",
    Severity.ACTION,
    "The spec of the EtcdBackup that spec.restore names is invalid.",
    "{at}: EtcdBackup {name} is invalid: {wrong}",
)
BACKUP_MISSING = REASONS.add("BackupMissing", Severity.ACTION, "The EtcdBackup that spec.restore names does not exist.")
BACKUP_UNFINISHED = REASONS.add(
    "BackupUnfinished",
    Severity.WARNING,
    "The EtcdBackup that spec.restore names is not complete yet.",
    "{at}: waiting until EtcdBackup {name} is complete.",
)
BUCKET_MISSING = REASONS.add(
    "BucketMissing", Severity.ACTION, "The bucket for snapshots does not exist, or is in another region."
)
CHANGING_PASSWORD = REASONS.add(
    "ChangingPassword",
    Severity.NORMAL,
    "The operator changes the password of root, or of the user for applications, to that of the Secret.",
    ("Changing the password of {user} to that of Secret {root_secret_name}; until then the former one is valid."),
    "Setting user {user} in etcd, with the password of Secret {name}.",
)
CHECKING_AUTH = REASONS.add(
    "CheckingAuth",
    Severity.NORMAL,
    "The operator does not know yet whether authentication is enabled in etcd.",
    "Reading whether authentication is enabled in etcd, and root's password.",
)
CLIENT_USER_TAKEN = REASONS.add(
    "ClientUserTaken",
    Severity.ACTION,
    "The resource is ready, but etcd has a user client that the operator did not create and does not give to clients.",
    "etcd has a user {user} that the operator did not create (it lacks the role {role}), so its password was not "
    "changed, and Secret {name} gives no such user to applications. Delete the user (etcdctl user delete {user}), or "
    "set spec.auth.connectAs to root.",
)
CLUSTER_INVALID = REASONS.add(
    "ClusterInvalid",
    Severity.ACTION,
    "The spec of the EtcdCluster that the EtcdBackup names is invalid.",
    "spec.clusterName: EtcdCluster {name} is invalid: {wrong}",
)
CLUSTER_MISSING = REASONS.add(
    "ClusterMissing",
    Severity.ACTION,
    "The EtcdCluster that the EtcdBackup names does not exist.",
    "spec.clusterName: {message}",
)
CORRUPT_MEMBER_BLOCKED = REASONS.add(
    "CorruptMemberBlocked",
    Severity.WARNING,
    "A corrupt member is not replaced yet, because its removal would endanger the quorum.",
    "{found}. The member is not replaced yet: {refusal}.",
)
CORRUPTION_UNCLEAR = REASONS.add(
    "CorruptionUnclear",
    Severity.ACTION,
    "Members may have different data, and no majority shows which data is correct.",
    ("The CORRUPT alarm is raised. All members that could be compared agree; {names} could not be compared yet."),
    "{found} They are compared again when more members answer.",
    (
        "{found} Nothing was changed. If members are down, bring them back so that they can be compared. "
        "Otherwise compare the keys of each member, and restore a snapshot of the correct one into a new "
        "EtcdCluster."
    ),
)
DATA_IN_THE_WAY = REASONS.add("DataInTheWay", Severity.ACTION, "The volume to restore onto already has other data.")
DATA_LOST = REASONS.add(
    "DataLost",
    Severity.ACTION,
    "The quorum is permanently lost, and no member has data from which to recover.",
    (
        "{loss_text} No other member has any data, so the cluster cannot be recovered. Nothing was changed. "
        "Delete this resource and create it again: with spec.restore to start from a backup, without it to "
        "start empty."
    ),
)
DENIED = REASONS.add(
    "Denied",
    Severity.ACTION,
    "etcd rejects the credentials of the operator.",
    "etcd rejects the operator's credentials: {denied} {fix} Members keep running unchanged.",
)
DISABLING_AUTH = REASONS.add(
    "DisablingAuth",
    Severity.NORMAL,
    "The operator disables authentication, as spec.auth requests.",
    "Disabling authentication: {why}.",
)
DOWNGRADING = REASONS.add(
    "Downgrading",
    Severity.NORMAL,
    "etcd prepares the cluster for an earlier minor version, or cancels that.",
    "{change}: enabling it in etcd.",
    "{change}: waiting until the cluster runs as {series}.",
    "spec.version is {version}: cancelling the downgrade of the cluster to {series}.",
)
ENABLING_AUTH = REASONS.add(
    "EnablingAuth",
    Severity.NORMAL,
    "The operator enables authentication, as spec.auth.enabled requests.",
    "Enabling authentication; the password of {user} is in Secret {root_secret_name}.",
)
ETCD_UNREACHABLE = REASONS.add(
    "EtcdUnreachable",
    Severity.WARNING,
    "The kubelet reports members as ready, but none of them answers the operator.",
    (
        "{ready_names}: ready according to the kubelet, but no member answers the operator{why}. The operator "
        "changes nothing until a member answers. Check whether a NetworkPolicy blocks connections from the "
        "operator's pods to port 2379 of the members."
    ),
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
    (
        "{kept}: the volumes are kept since recovery {token}, with data of the former cluster that the recovery did "
        "not use. These members are not replaced before the volumes are released. If you do not need that data, set "
        "spec.recovery.release to {token}: it is deleted."
    ),
)
GROW_BLOCKED = REASONS.add(
    "GrowBlocked",
    Severity.WARNING,
    "A member is not added yet, because the cluster is not healthy enough.",
    "{goal}; {name} is not added yet: {refusal}.",
)
INTERRUPTED = REASONS.add(
    "Interrupted", Severity.WARNING, "The pod of a snapshot or a restore was terminated before it was done."
)
JOINING = REASONS.add(
    "Joining",
    Severity.WARNING,
    "A new member starts as a learner and catches up with the leader.",
    "{instance} is joining: {detail}",
    "{names} is joining: recording its volume in status.",
    "{instance} is joining: its former pod is terminating. {stuck}",
    "{instance} is joining: recreating its pod, so that etcd starts as the new member.",
)
LEARNER_STUCK = REASONS.add(
    "LearnerStuck",
    Severity.WARNING,
    "A learner made no progress for too long; it is removed and joins again.",
    ("{instance} made no progress for {allowed} s{detail}{rstrip}: removing it; it joins again with an empty volume."),
)
MEMBER_FAILING = REASONS.add(
    "MemberFailing",
    Severity.WARNING,
    "The pod of a member does not start.",
    "{healthy} of {size} members are healthy. {problems}",
)
MEMBER_REFUSED = REASONS.add("MemberRefused", Severity.WARNING, "The member rejected the request for a snapshot.")
MEMBER_UNREACHABLE = REASONS.add(
    "MemberUnreachable", Severity.WARNING, "The member that the snapshot is taken from does not answer."
)
NO_AGENT_IMAGE = REASONS.add(
    "NoAgentImage",
    Severity.ACTION,
    "The operator was started without --agent-image, which backups and restores need.",
    (
        "Snapshots need the image of the operator itself, which is not configured. Start the operator with "
        "--agent-image, as its Helm chart does. Nothing was changed."
    ),
    (
        "spec.restore: restoring needs the image of the operator itself, which is not configured. Start the "
        "operator with --agent-image, as its Helm chart does. Nothing was changed."
    ),
)
NO_MEMBER = REASONS.add(
    "NoMember",
    Severity.WARNING,
    "No member of the cluster can provide a snapshot at the moment.",
    "No member of EtcdCluster {cluster} can provide a snapshot: {rstrip}. The operator retries.",
)
NO_QUORUM = REASONS.add(
    "NoQuorum",
    Severity.WARNING,
    "Too few voters answer for a quorum, but their data is not lost.",
    (
        "No quorum: {needed} of {voters} voters must agree. {unreachable}.{lost} Nothing is permanently lost: "
        "the volumes of the other members have all writes."
    ),
    "No quorum: {needed} of {voters} voters must agree. {unreachable}.{lost} {advice}",
    "The kubelet reports {ready} of {voters} voters as ready, and no member that answers reports a leader.",
)
NO_RESULT = REASONS.add("NoResult", Severity.WARNING, "The pod of a snapshot or a restore ended without a result.")
NOT_A_SNAPSHOT = REASONS.add("NotASnapshot", Severity.ACTION, "The file is not a snapshot of etcd, or has no checksum.")
OUT_OF_SPACE = REASONS.add(
    "OutOfSpace",
    Severity.WARNING,
    "The space quota is used up; the operator compacts and defragments.",
    "Every member has free space again: disarming the NOSPACE alarm to allow writes.",
    (
        "{fullest}: etcd accepts no writes. Compacting the history before revision {revision}; then each "
        "member is defragmented in turn."
    ),
    "{fullest} Defragmenting {instance}.",
    (
        "{names} raised the NOSPACE alarm, runs and does not answer the operator: it is unknown whether its quota is "
        "still used up. The alarm is disarmed once the member answers, or does not run any more."
    ),
    "{member} has used up its quota of {quota} with a file of {size}: etcd accepts no writes. {next_step}",
)
POD_DELETED = REASONS.add(
    "PodDeleted",
    Severity.WARNING,
    "The pod of a snapshot was deleted before it was done.",
    "The pod of the attempt was deleted.",
    "The pod of the attempt was deleted. {attempt} failed; the operator retries.",
)
POD_IN_THE_WAY = REASONS.add(
    "PodInTheWay",
    Severity.WARNING,
    "Another object owns a pod with the name of the snapshot's pod.",
    (
        "Pod {name} belongs to another object. The pod of an earlier EtcdBackup of this name is deleted "
        "automatically; delete any other pod of this name, or rename this EtcdBackup."
    ),
)
POD_NOT_STARTING = REASONS.add(
    "PodNotStarting",
    Severity.WARNING,
    "The pod of a snapshot does not start, or does not finish in time.",
    "The pod did not finish within {deadline} minutes: {problem}.",
    "{message} {pod} {hindrance}.",
)
PROGRAM_FAILED = REASONS.add(
    "ProgramFailed",
    Severity.WARNING,
    "A program in the pod of a snapshot or a restore failed without a reason of its own.",
)
PROMOTING = REASONS.add(
    "Promoting",
    Severity.NORMAL,
    "A learner has caught up and is promoted to a voter.",
    "{instance} has caught up with the leader: promoting it to a voter.",
)
QUORUM_LOST = REASONS.add(
    "QuorumLost",
    Severity.ACTION,
    "The quorum is permanently lost; a user must confirm the recovery.",
    (
        "{loss_text} {unreachable}: it is unknown which member has the most data. Bring the members back, or "
        "delete their volume claims if their data is lost as well. Nothing was changed."
    ),
    (
        "{loss_text} {survivor} has its data in memory, and with spec.auth, etcd provides no snapshot without a "
        "quorum: restore the last EtcdBackup into a new EtcdCluster. Later writes are lost."
    ),
    (
        "{loss_text} {survivor} has its data in memory and would lose it if it stopped: take an EtcdBackup of "
        "it now, and restore that into a new EtcdCluster."
    ),
    (
        "{loss_text} {applying}: still applying the log, so that it is unknown which member has the most data. Nothing "
        "was changed."
    ),
    "{lost} of the {voters} voters lost their data: the quorum is permanently lost. {proposal}",
    "{loss_text} A recovery is possible once the spec is corrected: {invalid}",
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
    "Recording",
    Severity.NORMAL,
    "The operator records an id, volumes or a result in the status before it continues.",
    "The cluster has started: recording its id {found} in status.",
    "The recovery created a new cluster: recording its id {found} in status.",
    "Recording the volume of {names} in status.",
    "{snapshot} is restored: recording that in status.",
    "The status was lost: recording what the volume claims of {names} have of the members.",
)
RECOVERING = REASONS.add(
    "Recovering",
    Severity.WARNING,
    "The cluster recovers from a permanently lost quorum, as a user confirmed.",
    "The new cluster is created from the data of {record}, which starts as its only member.",
    "Deleting Pod {recovery_pod_name}, which is no longer needed.",
    "Recovery {token} is confirmed: stopping {running}, so that all data is in their files.",
    "Recovery {token}: marking the volumes that are kept.",
    "Recovery {token}: creating a new cluster from the data of {survivor}.",
    "{message} Deleting the pod of a former recovery first.",
    "{message} Its pod {problem}.",
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
)
RECOVERY_FAILED = REASONS.add(
    "RecoveryFailed",
    Severity.WARNING,
    "The pod that creates the new cluster failed; the operator retries.",
    "{message} The pod failed: {why} Nothing was changed; the operator retries.",
)
RELEASING_DATA = REASONS.add(
    "ReleasingData",
    Severity.WARNING,
    "The former data of a released recovery is being deleted from the volume of a member.",
    "Recovery {token} is released: deleting its former data on the volume of {instance}.",
)
REMOVING = REASONS.add(
    "Removing",
    Severity.NORMAL,
    "The pod and the volume of a removed member are deleted.",
    "{instance} has left the cluster: deleting its volume, which is recreated empty.",
    "{instance} has left the cluster: deleting its volume.",
    "{waiting}: removed from the cluster; waiting until the pods are deleted.",
)
REPLACEMENT_BLOCKED = REASONS.add(
    "ReplacementBlocked",
    Severity.WARNING,
    "A member that lost its data is not replaced yet, because its removal would endanger the quorum.",
    "{loss}. The member is not replaced yet: {refusal}.",
)
REPLACING = REASONS.add(
    "Replacing",
    Severity.NORMAL,
    "A member that lost its data is removed and joins again with an empty volume.",
    "{loss}: removing the member; it joins again with an empty volume.",
    "{goal}: adding {member} as a learner.",
    "{goal}; adding {member} once all voters have been connected for {seconds} s, as etcd requires.",
    "{goal}; {member} is not added yet: {remains}.",
    "{goal}; {member} is the leader and is to be removed: moving the leadership to {successor}.",
)
REPLACING_CORRUPT_MEMBER = REASONS.add(
    "ReplacingCorruptMember",
    Severity.WARNING,
    "A corrupt member is removed and joins again with an empty volume.",
    "All {voters} voters have the same data: disarming the CORRUPT alarm.",
    "{found}: removing the member; it joins again with an empty volume.",
    "{found}, and it is the leader: moving the leadership to {member}.",
)
RESTORE_TOO_LATE = REASONS.add(
    "RestoreTooLate",
    Severity.ACTION,
    "spec.restore was set after the cluster was allowed to start empty.",
    (
        "spec.restore was set after the cluster was allowed to start empty. Nothing was changed. Remove "
        "spec.restore to continue without a snapshot. Or delete this resource and PersistentVolumeClaim "
        "{volume_name}, and create the resource again."
    ),
)
RUNNING = REASONS.add(
    "Running",
    Severity.NORMAL,
    "A pod takes the snapshot.",
    "{attempt}: taking the snapshot from {member}. {caution}",
    "{attempt}: taking the snapshot from {member}.",
    "Taking the snapshot.",
)
SCALE_DOWN_BLOCKED = REASONS.add(
    "ScaleDownBlocked",
    Severity.WARNING,
    "A surplus member is not removed yet, because its removal would endanger the quorum.",
    "{goal}; {instance} is not removed yet: {refusal}.",
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
    "UnknownMember",
    Severity.ACTION,
    "etcd lists a member that belongs to no pod of this cluster.",
    (
        "etcd lists {names}, which belongs to no pod of this cluster: a user added it or changed its address. "
        "The operator changes no members until it is removed (etcdctl member remove) or has its former "
        "address."
    ),
)
UNSAFE_VERSION = REASONS.add(
    "UnsafeVersion",
    Severity.ACTION,
    "The space quota is used up, and the version of etcd has a defect that makes a defragmentation unsafe.",
    (
        "{fullest} The members are not defragmented: with {versions}, {hazard} ({source}). Set spec.version to {fixed} "
        "or later; the operator defragments the members then."
    ),
)
UPGRADE_BLOCKED = REASONS.add(
    "UpgradeBlocked",
    Severity.WARNING,
    "A restart or an upgrade waits until the other members are healthy or the log is readable.",
)
UPGRADE_REFUSED = REASONS.add(
    "UpgradeRefused",
    Severity.ACTION,
    "etcd does not support the change from the running version to that of the spec.",
    "{why} Nothing was changed.",
)
VOLUME_IN_THE_WAY = REASONS.add(
    "VolumeInTheWay",
    Severity.ACTION,
    "A volume claim with a name of this cluster has another owner.",
    *claims.MESSAGES,
)
VOLUME_MISSING = REASONS.add(
    "VolumeMissing",
    Severity.ACTION,
    "The volume claim for snapshots does not exist.",
    (
        "{at}.volume: PersistentVolumeClaim {claim_name} does not exist in this namespace. Create it, or name "
        "another one."
    ),
)
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

REASONS.extend(
    GENERATING_PASSWORD,
    "Secret {name} does not exist, and etcd may require a password that the operator does not know. If etcd answers "
    "without a password, one is generated. Otherwise create a Secret with root's password in the key password, and "
    "name it in spec.auth.rootSecretName.",
)
REASONS.extend(
    CREATING,
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
    "{goal}: adding {member} as a learner.",
    "{goal}; adding {member} once all voters have been connected for {seconds} s, as etcd requires.",
    "{goal}; {member} is not added yet: {remains}.",
    "{goal}; {member} is the leader and is to be removed: moving the leadership to {successor}.",
)
REASONS.extend(
    DEGRADED,
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
)
REASONS.extend(
    INVALID_SPEC,
    "spec.restore.from: no snapshot is set. Set backup, volume or s3.",
)
REASONS.extend(IMAGE_PULL_FAILED, "{instance} is joining: {detail}", "{message} {pod} {hindrance}.")
REASONS.extend(REDUNDANCY_REDUCED, "{healthy} of {size} voters are healthy.")
REASONS.extend(REDUNDANT, "All {size} voters are healthy.")
REASONS.extend(
    RESTORING,
    "Searching the snapshot.",
    "Restoring {location} as the initial data of the cluster.",
    "{message} Waiting until the pod of an earlier attempt is deleted.",
    "{message} {starting} {problem}.",
    "Waiting until the restore's pod is deleted; members start afterwards.",
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
)
REASONS.extend(
    SCALING,
    "{instance} is no longer needed (spec.size is {size}): removing the learner before it votes.",
    "{goal}: removing {instance}.",
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
    "{goal}: adding {member} as a learner.",
    "{goal}; adding {member} once all voters have been connected for {seconds} s, as etcd requires.",
    "{goal}; {member} is not added yet: {remains}.",
    "{goal}; {member} is the leader and is to be removed: moving the leadership to {successor}.",
)
REASONS.extend(
    SECRET_INVALID,
    (
        "{at}: Secret {name}: {certificate_key} has a common name, and with spec.auth, etcd's gateway rejects "
        "client certificates that have one. Issue it without a common name, or set spec.tls.client.auth to "
        "none."
    ),
)
REASONS.extend(
    SECRET_MISSING,
    "{field}: Secret {secret} does not exist. Create it with {keys}, or name another Secret. {consequence}",
)
REASONS.extend(
    SERVED,
    "The members have a quorum and a leader.",
    "The kubelet reports {ready} of {voters} voters as ready: they have a leader.",
    "Members report a leader, for which they need a quorum.",
)
REASONS.extend(
    UPDATING,
    "{instance} does not run, and its pod is outdated: recreating it.",
    ("{progress}; removing {instance}, because its data is deleted with its pod. It joins again with a new pod."),
    "{healthy} of {size} members are healthy.",
    "{healthy} of {size} members are healthy. {problems}",
    "{name} restarts with the changed template. {needed}: clients are not served until it is ready.",
    "Rolling update: {outdated} of {total} pods are outdated; {pod} is being recreated.",
    "Rolling update: {outdated} of {total} pods are outdated. {pod} {state}",
    (
        "Rolling update: {outdated} of {total} pods are outdated; {pod} is the leader and is recreated last: "
        "moving the leadership to {member}."
    ),
)
