"""Warnings about valid but risky specs of an EtcdCluster, which kubectl shows when the resource is applied. Pure."""

from __future__ import annotations

from operators.etcd.api.catalogue import ETCD, features_of
from operators.etcd.api.spec import GIB, MAX_ADVISED_QUOTA_BYTES, MIB, EtcdClusterSpec
from operators.etcd.api.versions import Version
from shared.api.podspec import smaller, warnings_of_size
from shared.api.spec import as_object
from shared.kubernetes.quantity import parse_quantity

_MAX_ADVISED_MEMBERS = 7


def warnings_for(spec: EtcdClusterSpec) -> list[str]:
    """Return the warnings about a spec."""
    stops = spec.short_stop(spec.stop_seconds, "clients of a leader wait for an election")
    return [*_of_size(spec), *_of_storage(spec), *_of_version(spec), *_of_safety(spec), *stops]


def warnings_of_root(spec: EtcdClusterSpec, connect_as: str) -> list[str]:
    """Return the warning about applications that have root although the spec does not request it.

    Args:
        connect_as: user for applications, by the spec or the status.
    """
    auth = spec.auth
    if auth is None or not auth.enabled or auth.connect_as is not None or connect_as != "root":
        return []
    return [
        "spec.auth.connectAs: is not set, and the Secret NAME-connection still gives root to applications. Set client, "
        "and then rotate root's password; or set root, if they manage users, members or snapshots."
    ]


def notes_for(spec: EtcdClusterSpec) -> list[str]:
    """Return a clause for each setting that many plain clusters lack, and for advisories."""
    # Without compaction, every former value is kept, and members compare only compacted data.
    uncompacted = ["no compaction, unless clients compact (autoCompaction)"] if spec.auto_compaction is None else []
    return [*uncompacted, *ETCD.notes(str(spec.target), features_of(as_object(spec)))]


def data_loss_of(spec: EtcdClusterSpec, before: EtcdClusterSpec, running: Version | None) -> list[str]:
    """Return the warnings about a change.

    Args:
        running: lowest version that a member was last observed to run.
    """
    warnings, version = _of_disabled_auth(spec, before), spec.target
    if running is not None and running.series == version.series and version < running:
        warnings.append(
            f"spec.version: {version} is older than the running version {running}: fixes of later releases are missing."
        )
    if running is not None and version.series < running.series:
        warnings.append(
            f"spec.version: {version} is below the running version {running}: etcd converts the data of every member, "
            "and features of later versions end. Take an EtcdBackup first."
        )
    if spec.storage.medium == "Volume":
        warnings += warnings_of_size(spec.storage.size, before.storage.size)
    size, former = spec.size, before.size
    if _tolerated_failures(size) < _tolerated_failures(former):
        warnings.append(
            f"spec.size: {former} members tolerate the failure of {_tolerated_failures(former)}, but {size} only "
            f"of {_tolerated_failures(size)}."
        )
    return warnings


def _of_disabled_auth(spec: EtcdClusterSpec, before: EtcdClusterSpec) -> list[str]:
    was_enabled = before.auth is not None and before.auth.enabled
    if not was_enabled or (spec.auth is not None and spec.auth.enabled):
        return []
    return [
        "spec.auth: authentication is disabled now, without a restart: every client that reaches the members can read "
        "and change all keys. To keep it enabled, revert the change."
    ]


def _tolerated_failures(size: int) -> int:
    """Return the number of members that may fail without the loss of the quorum."""
    return (size - 1) // 2


def _of_size(spec: EtcdClusterSpec) -> list[str]:
    size, budget, warnings = spec.size, spec.pod_disruption_budget, []
    tolerated = _tolerated_failures(size)
    if size % 2 == 0:
        warnings.append(
            f"spec.size: {size} members tolerate the failure of {tolerated}, as {size - 1} would, and have one "
            f"more member that can fail. Set {size - 1} or {size + 1}."
        )
    if size > _MAX_ADVISED_MEMBERS:
        warnings.append(
            f"spec.size: each write waits for {size // 2 + 1} of {size} members, which tolerate the failure of "
            f"{tolerated}. etcd recommends at most {_MAX_ADVISED_MEMBERS} members."
        )
    if budget is None:
        return warnings
    if budget.blocks_every_eviction(size):
        warnings.append(
            f"spec.podDisruptionBudget: allows no eviction with {size} members, so that their nodes cannot be "
            "drained. Set maxUnavailable: 1."
        )
    elif budget.evictable(size) > tolerated > 0:
        warnings.append(
            f"spec.podDisruptionBudget: allows the eviction of {budget.evictable(size)} of {size} members at "
            f"once, but the cluster tolerates the failure of {tolerated}. Set maxUnavailable to at most "
            f"{tolerated}."
        )
    return warnings


def _of_storage(spec: EtcdClusterSpec) -> list[str]:
    warnings = []
    storage, quota = spec.storage, spec.quota_backend_bytes
    if storage.medium == "Memory":
        if spec.size == 1:
            warnings.append(
                "spec.storage.medium: a single member with medium Memory loses all data with its pod: on a "
                "drain, a change of the spec or a restart of the node. Set size to 3, or medium to Volume."
            )
        if smaller(spec.resources.limits.get("memory", storage.size), storage.size):
            warnings.append(
                f"spec.resources.limits: memory {spec.resources.limits['memory']} is below storage.size "
                f"{storage.size}, which is also memory: the container would be killed before storage.size is used "
                "up."
            )
    if quota is not None and quota > MAX_ADVISED_QUOTA_BYTES:
        warnings.append(
            f"spec.quotaBackendBytes: {quota} is above {MAX_ADVISED_QUOTA_BYTES} (8Gi), the maximum that etcd "
            "recommends: members take minutes to start and to be replaced."
        )
    if quota is not None and parse_quantity(storage.size) < spec.needed_storage:
        warnings.append(
            f"spec.quotaBackendBytes: with {quota} a volume needs {_rounded(spec.needed_storage)}, for the log "
            "and for a second copy during a defragmentation or a transfer to another member, but storage.size is "
            f"{storage.size}. Raise storage.size, or lower the quota."
        )
    return warnings


def _rounded(size: int) -> str:
    return f"{-(-size // GIB)}Gi" if size > GIB else f"{-(-size // MIB)}Mi"


def _of_version(spec: EtcdClusterSpec) -> list[str]:
    version = spec.target
    warnings = ETCD.warnings(str(version), features_of(as_object(spec)))
    if version < Version(3, 5, 0):
        warnings.append(
            f"spec.version: {version} does not compare data between members, and its members are not ready while "
            "the quota is used up. Upgrade to 3.5, then to 3.6."
        )
    return warnings


def _of_safety(spec: EtcdClusterSpec) -> list[str]:
    issuer = spec.tls.issuer
    warnings = spec.network.without_effect(has_metrics=True)
    warnings += issuer.warnings("members accept each of them from peers") if issuer else []
    if spec.auth is not None and spec.auth.enabled and spec.tls.mode == "none":
        warnings.append("spec.auth: without TLS, passwords are sent over the network in plain text. Set tls.mode.")
    return warnings
