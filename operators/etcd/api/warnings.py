"""What works and is yet unwise in an EtcdCluster: warnings that kubectl shows when it is applied. Pure."""

from __future__ import annotations

from operators.etcd.api.spec import GIB, MAX_ADVISED_QUOTA_BYTES, MIB, EtcdClusterSpec
from operators.etcd.api.versions import CORRUPTING_VERSIONS, Version
from shared.api.podspec import smaller
from shared.kubernetes.quantity import parse_quantity

_MAX_ADVISED_MEMBERS = 7


def warnings_for(spec: EtcdClusterSpec) -> list[str]:
    """A sentence for each."""
    return [*_of_size(spec), *_of_storage(spec), *_of_version(spec), *_of_safety(spec)]


def data_loss_of(spec: EtcdClusterSpec, before: EtcdClusterSpec, running: Version | None) -> list[str]:
    """A sentence for each thing that a change gives up.

    Args:
        running: the lowest version that a member was last seen to run.
    """
    warnings, version = [], spec.target
    if running is not None and running.series == version.series and version < running:
        warnings.append(f"spec.version: {version} is older than {running}, which runs: its defects come back with it.")
    size, former = spec.size, before.size
    if _tolerated_failures(size) < _tolerated_failures(former):
        warnings.append(
            f"spec.size: {former} members survive the loss of {_tolerated_failures(former)}, {size} of {_tolerated_failures(size)}."
        )
    return warnings


def _tolerated_failures(size: int) -> int:
    """How many of so many members may be lost."""
    return (size - 1) // 2


def _of_size(spec: EtcdClusterSpec) -> list[str]:
    size, budget, warnings = spec.size, spec.pod_disruption_budget, []
    if size % 2 == 0:
        warnings.append(
            f"spec.size: {size} members survive the loss of {_tolerated_failures(size)}, as {size - 1} would, and one more can "
            f"fail. Give {size - 1} or {size + 1}."
        )
    if size > _MAX_ADVISED_MEMBERS:
        warnings.append(
            f"spec.size: each write waits for {size // 2 + 1} of {size} members, and survives the loss of "
            f"{_tolerated_failures(size)}; {_MAX_ADVISED_MEMBERS} are the most that etcd advises."
        )
    if budget is None:
        return warnings
    if budget.keeps_all(size):
        warnings.append(
            f"spec.podDisruptionBudget: with {size} members it lets none be evicted, so that no node of theirs can be "
            "drained. Give maxUnavailable: 1."
        )
    elif budget.evictable(size) > _tolerated_failures(size) > 0:
        warnings.append(
            f"spec.podDisruptionBudget: it lets {budget.evictable(size)} of {size} members be evicted at once, and the "
            f"cluster survives the loss of {_tolerated_failures(size)}. Give maxUnavailable: {_tolerated_failures(size)} at most."
        )
    return warnings


def _of_storage(spec: EtcdClusterSpec) -> list[str]:
    warnings = []
    storage, quota = spec.storage, spec.quota_backend_bytes
    if storage.medium == "Memory":
        if spec.size == 1:
            warnings.append(
                "spec.storage.medium: one member in Memory loses everything with its pod: at a drain, a change, a "
                "node's restart. Give three members, or medium Volume."
            )
        if smaller(spec.resources.limits.get("memory", storage.size), storage.size):
            warnings.append(
                f"spec.resources.limits: memory {spec.resources.limits['memory']} is below storage.size "
                f"{storage.size}, which is memory, too: the container would be killed before its data is large."
            )
    if quota is not None and quota > MAX_ADVISED_QUOTA_BYTES:
        warnings.append(
            f"spec.quotaBackendBytes: {quota} is above {MAX_ADVISED_QUOTA_BYTES} (8Gi), the most that etcd advises: "
            "members take minutes to start, and to be replaced."
        )
    if quota is not None and parse_quantity(storage.size) < spec.needed_storage:
        warnings.append(
            f"spec.quotaBackendBytes: with {quota} a volume needs {_rounded(spec.needed_storage)}, for its log and for "
            "a second copy while it is defragmented or sent whole to a member, and storage.size is "
            f"{storage.size}. Raise storage.size, or lower the quota."
        )
    return warnings


def _rounded(size: int) -> str:
    return f"{-(-size // GIB)}Gi" if size > GIB else f"{-(-size // MIB)}Mi"


def _of_version(spec: EtcdClusterSpec) -> list[str]:
    version, (first, last) = spec.target, CORRUPTING_VERSIONS
    if first <= version <= last:
        return [
            f"spec.version: {first} to {last} can lose acknowledged writes when a member is killed "
            "(https://github.com/etcd-io/etcd/issues/13766). Give 3.5.26 or newer."
        ]
    if version < first:
        return [
            f"spec.version: {version} compares no data among members, and members of it are not ready while the quota "
            "is used up. Go to 3.5, then to 3.6."
        ]
    return []


def _of_safety(spec: EtcdClusterSpec) -> list[str]:
    warnings = []
    if spec.auth is not None and spec.auth.enabled and spec.tls.mode == "none":
        warnings.append("spec.auth: without spec.tls, passwords cross the network in the clear. Give tls.mode.")
    if spec.auto_compaction is None:
        warnings.append(
            "spec.autoCompaction: without it every former value is kept, until a client compacts or the quota is used "
            "up; and members compare only what was compacted. Give retention, such as 1h, unless your clients compact, "
            "as Kubernetes does."
        )
    return warnings
