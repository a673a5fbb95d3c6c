"""etcd's versions: which there are, what each can do, and which may follow which. Pure.

What a version can do was looked up in the sources of its tags; each fact names the file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

FORM = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})([-+][0-9A-Za-z_.+-]*)?$"
"""What a version looks like, for Python and for CEL alike: 3.6.16, v3.6.16, or 3.6.16-0 as some registries tag it."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of etcd; what follows a hyphen says how an image was built, and is not compared.

    Attributes:
        major, minor, patch: 3, 6 and 16 of 3.6.16.
    """

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: str) -> Version:
        """A version as an image's tag, a spec, or etcd itself says it.

        Raises:
            ValueError: it is none.
        """
        found = re.fullmatch(FORM, text)
        if found is None:
            raise ValueError(f"{text!r} is no version of etcd")
        return cls(*map(int, found.groups()[:3]))

    @property
    def series(self) -> tuple[int, int]:
        """What upgrades are about: the major and the minor version."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


SUPPORTED = ((3, 4), (3, 5), (3, 6), (3, 7))
"""Series whose flags, API and upgrades the operator knows, none left out; 3.4 is the first that has learners."""

MIN_VERSION_BEFORE = {(3, 6): Version(3, 5, 26), (3, 7): Version(3, 6, 11)}
"""What every member must run, at least, before the first may run this series.

3.6 takes its members from the newer of etcd's two lists, in which earlier 3.5 kept some that were removed; and earlier
3.6 may not go together with 3.7.

Source: https://etcd.io/blog/2025/zombie_members_upgrade/, https://etcd.io/docs/v3.7/upgrades/upgrade_3_7/
"""

CORRUPTING_VERSIONS = (Version(3, 5, 0), Version(3, 5, 2))
"""The first and the last version that may lose a write when it is killed (etcd#13766)."""


@dataclass(frozen=True, slots=True)
class Features:
    """What a version of etcd can do, where versions differ.

    Attributes:
        exclude_alarms: whether /health takes `exclude=ALARM`, for an alarm that several members raised, too.
        serializable_health: whether /health takes `serializable=true`, which asks no quorum.
        corruption_checks: flags by which a member compares its keys with others' before it serves, and the leader
            compares compacted history from time to time; as far as the version has them.
        restores_with: the program in its image that restores a snapshot; each takes `snapshot restore`.
        bumps_revision: whether that program takes --bump-revision and --mark-compacted.
        asks_auth_status: whether /v3/auth/status tells if passwords are asked for.
        hashes_keys: whether the gateway has /v3/maintenance/hashkv; before, its path was another call's, too.
    """

    exclude_alarms: bool
    serializable_health: bool
    corruption_checks: tuple[str, ...]
    restores_with: str
    bumps_revision: bool
    has_auth_status: bool
    has_hash_kv: bool


def features(version: Version) -> Features:
    """What a version can do; one that is newer than all known is taken for the newest."""
    return Features(
        # etcdhttp/metrics.go, health.go: there since 3.4.16, forgot an alarm's second member until 3.4.19 and 3.5.2
        exclude_alarms=_since(version, Version(3, 4, 19), Version(3, 5, 2)),
        serializable_health=_since(version, Version(3, 4, 29), Version(3, 5, 3)),  # etcdhttp/metrics.go, health.go
        corruption_checks=_corruption_checks(version),
        restores_with="etcdutl" if version >= Version(3, 5, 0) else "etcdctl",  # etcdutl/snapshot_command.go
        # etcdutl/snapshot_command.go, etcdctl/ctlv3/command/snapshot_command.go
        bumps_revision=_since(version, Version(3, 4, 27), Version(3, 5, 10)),
        has_auth_status=version >= Version(3, 5, 0),  # etcdserverpb/rpc.proto
        has_hash_kv=version >= Version(3, 5, 10),  # etcdserverpb/rpc.proto
    )


def _since(version: Version, *first: Version) -> bool:
    """Whether a version has what came with one of these in its own series, or with an earlier series' .0."""
    in_series = [found for found in first if found.series == version.series]
    return version >= (in_series[0] if in_series else max(first))


def _corruption_checks(version: Version) -> tuple[str, ...]:
    """3.4 has the first of them, too, yet of an age in which it was hardly tried: it gets none.

    Source: etcdmain/config.go of 3.5, server/features/etcd_features.go of 3.6 and 3.7, which has no --experimental-*.
    """
    if version >= Version(3, 6, 0):
        return ("--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",)
    initial = "--experimental-initial-corrupt-check=true"
    if version >= Version(3, 5, 5):
        return (initial, "--experimental-compact-hash-check-enabled=true")
    return (initial,) if version >= Version(3, 5, 0) else ()


def upgrade_refusal(current_members: Sequence[Version], cluster: Version | None, target: Version) -> str:
    """Why members must not be changed to a version; empty if they may.

    What decides is the version that the cluster runs as: it rises only when the last member has risen. So an upgrade
    that is under way can be taken back, and one that is over cannot.

    Args:
        current_members: what each member runs; those that nobody could ask are left out.
        cluster: what all run as together, as etcd says; None where nobody said: the lowest member's then counts.
        target: what they are to run.

    Returns:
        A sentence that says why, and what to do first.
    """
    known = cluster if cluster is not None else min(current_members, default=None)
    if known is None:
        return ""
    series, following = known.series, (known.major, known.minor + 1)
    if target.series < series:
        return (
            f"{target} is below {_dotted(series)}, which the cluster runs as: no older etcd takes its data. Give a "
            f"version of {_dotted(series)}; to go back, restore a backup that {_dotted(target.series)} took into a new "
            "cluster."
        )
    if target.series > following:
        return (
            f"{target} is more than one minor version above {_dotted(series)}, which the cluster runs as, and etcd "
            f"goes up one at a time. Give a version of {_dotted(following)} first."
        )
    least, lowest = MIN_VERSION_BEFORE.get(target.series), min(current_members, default=known)
    if target.series > series and least is not None and lowest < least:
        return (
            f"{target} may follow {least} and newer ones only, and a member runs {lowest}: after earlier ones, "
            f"members that were removed can come back, or the cluster breaks. Give {least} or a newer "
            f"{_dotted(least.series)} first."
        )
    return ""


def _dotted(series: tuple[int, int]) -> str:
    return ".".join(map(str, series))
