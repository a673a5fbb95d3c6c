"""Versions of etcd: the supported series, the features of each version, and the allowed changes. Pure.

The features were read from the sources of the tags; each fact names the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from operators.etcd.api.arguments import argument
from shared.api import version
from shared.api.catalogue import dotted

FORM = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})([-+][0-9A-Za-z_.+-]*)?$"
"""Pattern of a version, for Python and CEL: 3.6.16, v3.6.16, or 3.6.16-0 as some registries tag it."""


class Version(version.Version):
    """A version of etcd."""

    __slots__ = ()
    FORM, OF = FORM, "etcd"


SUPPORTED = ((3, 4), (3, 5), (3, 6), (3, 7))
"""Series whose flags, API and upgrades the operator supports, without gaps; 3.4 is the first with learners."""

MIN_VERSION_BEFORE = {(3, 6): Version(3, 5, 26), (3, 7): Version(3, 6, 11)}
"""Minimum version of every member before the first member may run this series.

3.6 reads its members from the newer one of etcd's two lists, in which earlier releases of 3.5 kept some removed
members. Earlier releases of 3.6 are not compatible with 3.7.

Source: https://etcd.io/blog/2025/zombie_members_upgrade/, https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/
"""

DOWNGRADES = {(3, 6): (3, 5), (3, 7): (3, 6)}
"""Series to which etcd supports a rolling downgrade of a running cluster (`Downgrade` in etcdserverpb/rpc.proto).

Source: https://etcd.io/docs/v3.6/downgrades/downgrade_3_6/, https://etcd.io/docs/v3.7/downgrades/downgrade_3_7/
"""


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a version of etcd, where versions differ.

    Attributes:
        exclude_alarms: whether /health accepts `exclude=ALARM`, also for an alarm that several members raised.
        serializable_health: whether /health accepts `serializable=true`, which needs no quorum.
        corruption_checks: flags that compare a member's keys with its peers before it serves, and compacted history
            periodically.
        restores_with: program in the image that restores a snapshot; each one has `snapshot restore`.
        bumps_revision: whether that program has --bump-revision and --mark-compacted.
    """

    exclude_alarms: bool
    serializable_health: bool
    corruption_checks: tuple[str, ...]
    restores_with: str
    bumps_revision: bool


def features(version: Version) -> Features:
    """Return the features of a version; a version newer than all known ones has those of the newest."""
    return Features(
        # etcdhttp/metrics.go, health.go: since 3.4.16, but only for one member's alarm until 3.4.19 and 3.5.2
        exclude_alarms=_since(version, Version(3, 4, 19), Version(3, 5, 2)),
        serializable_health=_since(version, Version(3, 4, 29), Version(3, 5, 3)),  # etcdhttp/metrics.go, health.go
        corruption_checks=_corruption_checks(version),
        restores_with="etcdutl" if version >= Version(3, 5, 0) else "etcdctl",  # etcdutl/snapshot_command.go
        # etcdutl/snapshot_command.go, etcdctl/ctlv3/command/snapshot_command.go
        bumps_revision=_since(version, Version(3, 4, 27), Version(3, 5, 10)),
    )


def _since(version: Version, *first: Version) -> bool:
    """Whether a version has a feature that was introduced by one of these in its own series, or by an earlier .0."""
    in_series = [found for found in first if found.series == version.series]
    return version >= (in_series[0] if in_series else max(first))


def _corruption_checks(version: Version) -> tuple[str, ...]:
    """Return the flags of the corruption checks; 3.4 gets none, because its only check was hardly tested then.

    Source: etcdmain/config.go of 3.5, server/features/etcd_features.go of 3.6 and 3.7, which has no --experimental-*.
    """
    if version >= Version(3, 6, 0):
        return (argument("feature-gates", "InitialCorruptCheck=true,CompactHashCheck=true"),)
    initial = argument("experimental-initial-corrupt-check", "true")
    if version >= Version(3, 5, 5):
        return (initial, argument("experimental-compact-hash-check-enabled", "true"))
    return (initial,) if version >= Version(3, 5, 0) else ()


def upgrade_refusal(current_members: Sequence[Version], cluster: Version | None, target: Version) -> str:
    """Return why members must not be changed to a version; empty if they may.

    The version that all members run together as decides. It rises only after the last member was upgraded. So an
    upgrade in progress can be reverted. A finished one is undone by a downgrade, where etcd supports it (`DOWNGRADES`).

    Args:
        current_members: version of each member that answered.
        cluster: version that all members run together as; None if unknown, then the lowest member's version counts.
        target: version that members are to run.

    Returns:
        A sentence with the reason and what to do first.
    """
    known = cluster if cluster is not None else min(current_members, default=None)
    if known is None:
        return ""
    series, following = known.series, (known.major, known.minor + 1)
    if target.series < series:
        return _downgrade_refusal(series, target)
    if target.series > following:
        return (
            f"{target} is more than one minor version above {dotted(series)}, the current version of the "
            f"cluster, and etcd upgrades one minor version at a time. Set a version of {dotted(following)} first."
        )
    least, lowest = MIN_VERSION_BEFORE.get(target.series), min(current_members, default=known)
    if target.series > series and least is not None and lowest < least:
        return (
            f"{target} requires that all members run {least} or later, but a member runs {lowest}: an upgrade "
            f"from earlier releases can bring back removed members or break the cluster. Set {least} or a later "
            f"{dotted(least.series)} first."
        )
    return ""


def _downgrade_refusal(series: tuple[int, int], target: Version) -> str:
    """Return why a cluster that runs as a series must not be downgraded to a version; empty if it may."""
    below = DOWNGRADES.get(series)
    if below is None:
        return (
            f"{target} is below {dotted(series)}, the current version of the cluster: an older etcd cannot read "
            f"its data. Set a version of {dotted(series)}. To downgrade, restore a backup taken with "
            f"{dotted(target.series)} into a new cluster."
        )
    if target.series < below:
        return (
            f"{target} is more than one minor version below {dotted(series)}, the current version of the cluster, and "
            f"etcd downgrades one minor version at a time. Set a version of {dotted(below)} first."
        )
    least = MIN_VERSION_BEFORE[series]
    if target >= least:
        return ""
    return (
        f"{target} is below {least}, the first version from which etcd can be upgraded to {dotted(series)} again. "
        f"Set {least} or a later {dotted(below)}."
    )
