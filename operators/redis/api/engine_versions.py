"""Engines and versions: which are supported, their features, and which upgrades are possible. Pure.

Features were read from the sources of each tag, or from the vendor's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from shared.api import version
from shared.api.catalogue import dotted

FORM = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})(\.(0|[1-9][0-9]{0,3}))?([-_][0-9A-Za-z_.-]*)?$"
"""Pattern of a version, for Python and for CEL: 8.0.2, v8.0.2, 8.0, or 8.0.2-alpine as in image tags."""

TAGGED = rf"^[^@]*:{FORM[1:-1]}(@.*)?$"
"""An image whose tag is a version."""

NAMES_VALKEY = r"(^|/)[^/:@]*valkey[^/]*$"
"""Pattern of the image names that contain valkey."""

_MAJOR_10, _REST = r"[1-9][0-9]+\.[0-9]+", r"([^0-9/][^/]*)?$"

UNSUPPORTED = {
    "redis": rf"^([^@]*:)?v?([0-5]\.[0-9]+|6\.[01]|9\.[0-9]+|{_MAJOR_10}){_REST}",
    "valkey": rf"^([^@]*:)?v?([0-6]\.[0-9]+|7\.[01]|{_MAJOR_10}){_REST}",
}
"""Patterns of versions, and of images tagged with one, below `LEAST` or above `LAST_MAJOR`: CEL cannot compare them."""

EngineName = Literal["redis", "valkey"]


class Version(version.Version):
    """A version of an engine."""

    __slots__ = ()
    FORM, OF = FORM, "redis or valkey"


@dataclass(frozen=True, slots=True, order=True)
class Engine:
    """An engine and its version.

    Attributes:
        name: redis or valkey.
    """

    name: EngineName
    version: Version

    @classmethod
    def parse(cls, text: str) -> Engine:
        """Parse the format of `str`: `valkey 9.1.0`.

        Raises:
            ValueError: the text is not an engine with a version.
        """
        name, _, version = text.partition(" ")
        for known in LEAST:
            if name == known:
                return cls(known, Version.parse(version))
        raise ValueError(f"{text!r} is not an engine version, such as redis 8.0.2 or valkey 9.1.0")

    @property
    def program(self) -> str:
        """Name of the server program in the image."""
        return f"{self.name}-server"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def engine_named(image: str) -> EngineName:
    """Return the engine in an image, judged by the name of the image."""
    return "valkey" if re.search(NAMES_VALKEY, image) else "redis"


LEAST: dict[EngineName, tuple[int, int]] = {"redis": (6, 2), "valkey": (7, 2)}
"""Oldest supported series of each engine: users with several passwords, TLS between nodes, coordinated failover and
MIGRATE with a user (AUTH2) exist since then, with fixes in its patches.
"""

LAST_MAJOR: dict[EngineName, int] = {"redis": 8, "valkey": 9}
"""Newest supported major version of each engine: another one may have another data format, or move slots differently.
An unknown newer minor version has the features of the newest known one.
"""

_FORMATS: dict[EngineName, tuple[tuple[tuple[int, int], int], ...]] = {
    "redis": (((6, 2), 9), ((7, 0), 10), ((7, 2), 11), ((7, 4), 12), ((8, 6), 13)),
    "valkey": (((7, 2), 11), ((9, 0), 80)),
}
"""RDB_VERSION (src/rdb.h) by the first series that has it: the format of snapshots, of the AOF's base, and of
replication.

A server reads its own and older formats. The numbering of Valkey is independent above 11: that is the last common one.
"""

_SHARED_FORMAT = 11


@dataclass(frozen=True, slots=True)
class Features:
    """Features that differ between engines.

    Attributes:
        migration: how slots move. `keys`: SETSLOT and MIGRATE, key by key; `import`: CLUSTER MIGRATION IMPORT, sent to
            the destination; `export`: CLUSTER MIGRATESLOTS, sent to the source.
        forbids_replica_migration: whether cluster-allow-replica-migration exists: without it, a primary that was
            emptied becomes a replica.
        marks_stray_keys: whether a primary that starts with keys of slots of another node marks these slots as
            importing; Valkey 8.0 and later delete such keys instead.
        hostnames: whether cluster-announce-hostname exists.
        bus_port: whether cluster-port exists.
        keeps_unclaimed_marks: whether the mark that the owner of a slot does not claim it outlasts a change of the
            owner (migration/claim_renewal.py).
        takes_over_imports: whether a target takes over a slot that it imports as soon as the source does not claim it
            (migration/claim_renewal.py).
        replicates_again: whether CLUSTER REPLICATE with the present primary connects to it again; Valkey does nothing.
        hands_over: whether a primary can let a replica take over when it gets SIGTERM (`shutdown-on-sigterm failover`).
    """

    migration: Literal["keys", "import", "export"]
    forbids_replica_migration: bool
    marks_stray_keys: bool
    hostnames: bool
    bus_port: bool
    keeps_unclaimed_marks: bool
    takes_over_imports: bool
    replicates_again: bool
    hands_over: bool


@lru_cache(maxsize=64)
def features(engine: Engine) -> Features:
    """Return the features of an engine; an unknown newer version counts as the newest known one."""
    valkey, version, since_7_0 = engine.name == "valkey", engine.version, engine.version >= Version(7, 0)
    return Features(
        migration=_migration(engine),
        forbids_replica_migration=valkey or version >= Version(6, 2, 2),  # src/config.c
        marks_stray_keys=not valkey or version < Version(8, 0),  # src/cluster_legacy.c, verifyClusterConfigWithData
        hostnames=since_7_0,  # src/config.c
        bus_port=since_7_0,  # src/config.c
        keeps_unclaimed_marks=not valkey and _keeps_unclaimed_marks(version),
        takes_over_imports=valkey and version >= Version(8, 0),  # clusterUpdateSlotsConfigWith, src/cluster_legacy.c
        replicates_again=not valkey or version < Version(8, 0),  # https://github.com/valkey-io/valkey/pull/884
        hands_over=valkey and version >= Version(9, 0),  # https://github.com/valkey-io/valkey/pull/2292
    )


def _keeps_unclaimed_marks(version: Version) -> bool:
    """Source: owner_not_claiming_slot in src/cluster.c of each tag; clusterDelSlot clears it since 7.2.4."""
    return Version(7, 0, 13) <= version < Version(7, 1) or Version(7, 2, 0) <= version < Version(7, 2, 4)


def _migration(engine: Engine) -> Literal["keys", "import", "export"]:
    """Source: https://redis.io/docs/latest/commands/cluster-migration/, https://valkey.io/commands/cluster-migrateslots/."""
    if engine.name == "valkey":
        return "export" if engine.version >= Version(9, 0) else "keys"
    return "import" if engine.version >= Version(8, 4) else "keys"


def format_of(engine: Engine) -> int:
    """Return the version of the data format that an engine writes."""
    return next((number for since, number in reversed(_FORMATS[engine.name]) if engine.version.series >= since), 0)


def refusal(engine: Engine) -> str:
    """Return why an engine is not supported; empty if it is."""
    least, last = LEAST[engine.name], LAST_MAJOR[engine.name]
    if engine.version.series < least:
        return (
            f"{engine} is not supported: the operator needs {engine.name} {dotted(least)} or later (users with two "
            f"passwords, TLS between nodes, failover without lost writes). {ADVICE}"
        )
    if engine.version.major > last:
        return f"{engine} is not supported: this release of the operator knows {engine.name} up to {last}.x. {ADVICE}"
    return ""


ADVICE = "Use redis 6.2 to 8.x, or valkey 7.2 to 9.x."
"""Advice for a version that is not supported."""


def upgrade_refusal(running: Iterable[Engine], target: Engine) -> str:
    """Return why nodes must not change to another engine version; empty if they may.

    The data decides: a changed node reads what it wrote before, and its replicas read what it sends.

    Args:
        running: engines that nodes run, as far as they are known. An empty collection refuses nothing.
        target: engine to change to.

    Returns:
        A sentence with the reason and the alternatives.
    """
    for engine in sorted(set(running), key=lambda engine: (format_of(engine), engine), reverse=True):
        if reason := _refused_step(engine, target):
            return reason
    return ""


def _refused_step(engine: Engine, target: Engine) -> str:
    elsewhere = "Or create another RedisCluster with that version, and copy the data."
    if engine.name == target.name and target.version.series >= engine.version.series:
        return ""
    if engine.name == target.name:
        stay = f"Use {dotted(engine.version.series)} or later."
        if format_of(target) == format_of(engine):
            why = "downgrades to an older series are not supported"
        else:
            why = f"it cannot read the newer data format ({format_of(engine)}; its own is {format_of(target)})"
        return f"{target} is older than {engine}, which a node runs: {why}. {stay} {elsewhere}"
    if engine.name == "valkey":
        return (
            f"{target} cannot read the data of {engine}, which a node runs. Use a version of valkey, and a repository "
            f"that contains it. {elsewhere}"
        )
    if format_of(engine) > _SHARED_FORMAT:
        return (
            f"{target} cannot read the data of {engine}, which a node runs: valkey reads data of redis up to 7.2. "
            f"Keep redis. {elsewhere}"
        )
    return ""
