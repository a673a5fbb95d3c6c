"""Engines and their versions: which there are, what each can do, and which may follow which. Pure.

What a version can do was looked up in the sources of its tags, and of what has none at hand in its maker's documents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

FORM = r"^v?(0|[1-9][0-9]{0,3})\.(0|[1-9][0-9]{0,3})(\.(0|[1-9][0-9]{0,3}))?([-_][0-9A-Za-z_.-]*)?$"
"""What a version looks like, for Python and for CEL alike: 8.0.2, v8.0.2, 8.0, or 8.0.2-alpine as images are tagged."""

TAGGED = rf"^[^@]*:{FORM[1:-1]}(@.*)?$"
"""An image whose tag is a version."""

NAMES_VALKEY = r"(^|/)[^/:@]*valkey[^/]*$"
"""An image of valkey, as far as its name tells."""

TOO_OLD = {
    "redis": r"^([^@]*:)?v?([0-5]\.[0-9]+|6\.[01])([^0-9].*)?$",
    "valkey": r"^([^@]*:)?v?([0-6]\.[0-9]+|7\.[01])([^0-9].*)?$",
}
"""Versions, and images tagged with one, below `LEAST`: for CEL, which cannot compare them."""

EngineName = Literal["redis", "valkey"]


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version of an engine; what follows a hyphen says how an image was built, and is not compared.

    Attributes:
        major, minor, patch: 8, 0 and 2 of 8.0.2; the patch is 0 where only 8.0 is said.
    """

    major: int
    minor: int
    patch: int = 0

    @classmethod
    def parse(cls, text: str) -> Version:
        """A version as an image's tag, a spec, or a server itself says it.

        Raises:
            ValueError: it is none.
        """
        found = re.fullmatch(FORM, text)
        if found is None:
            raise ValueError(f"{text!r} is no version of redis or valkey")
        return cls(int(found[1]), int(found[2]), int(found[4] or 0))

    @property
    def series(self) -> tuple[int, int]:
        """What abilities and upgrades are about: the major and the minor version."""
        return self.major, self.minor

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@dataclass(frozen=True, slots=True, order=True)
class Engine:
    """What a server is.

    Attributes:
        name: whose program it is.
    """

    name: EngineName
    version: Version

    @classmethod
    def parse(cls, text: str) -> Engine:
        """An engine as `str` writes it: `valkey 9.1.0`.

        Raises:
            ValueError: it is none.
        """
        name, _, version = text.partition(" ")
        for known in LEAST:
            if name == known:
                return cls(known, Version.parse(version))
        raise ValueError(f"{text!r} is no engine: write it as redis 8.0.2 or valkey 9.1.0")

    @property
    def program(self) -> str:
        """The server in its image."""
        return f"{self.name}-server"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def engine_named(image: str) -> EngineName:
    """Whose program an image holds, as far as its name tells."""
    return "valkey" if re.search(NAMES_VALKEY, image) else "redis"


LEAST: dict[EngineName, tuple[int, int]] = {"redis": (6, 2), "valkey": (7, 2)}
"""The first series of each that the operator works with: users with several passwords, TLS among nodes, coordinated
failover and MIGRATE with a user (AUTH2) are all there, and were fixed in its patches."""

_FORMATS: dict[EngineName, tuple[tuple[tuple[int, int], int], ...]] = {
    "redis": (((6, 2), 9), ((7, 0), 10), ((7, 2), 11), ((7, 4), 12), ((8, 6), 13)),
    "valkey": (((7, 2), 11), ((9, 0), 80)),
}
"""RDB_VERSION (src/rdb.h) by the first series that has it: of snapshots, of the AOF's base, of what replicas are sent.

A server reads its own and older ones. Valkey's went on from 11 by itself: what it shares with redis ends there.
"""

_SHARED_FORMAT = 11


@dataclass(frozen=True, slots=True)
class Features:
    """What an engine can do, where engines differ.

    Attributes:
        migration: how slots move. `keys`: SETSLOT and MIGRATE, key by key; `import`: CLUSTER MIGRATION IMPORT, asked
            of the destination; `export`: CLUSTER MIGRATESLOTS, asked of the source.
        forbids_replica_migration: whether it has cluster-allow-replica-migration: without it a master that was emptied
            makes itself a replica.
        slot_ranges: whether it has CLUSTER ADDSLOTSRANGE, and CLUSTER SHARDS and LINKS, which came with it.
        hostnames: whether it has cluster-announce-hostname.
        sets_many: whether one CONFIG SET takes several directives.
        reloads_certificates: whether CONFIG SET tls-cert-file reads the file anew where its name stays the same.
    """

    migration: Literal["keys", "import", "export"]
    forbids_replica_migration: bool
    slot_ranges: bool
    hostnames: bool
    sets_many: bool
    reloads_certificates: bool


def features(engine: Engine) -> Features:
    """What an engine can do; one that is newer than all known is taken for the newest."""
    valkey, version = engine.name == "valkey", engine.version
    since_7_0 = version >= Version(7, 0)
    return Features(
        migration=_migration(engine),
        forbids_replica_migration=valkey or version >= Version(6, 2, 2),  # src/config.c
        slot_ranges=since_7_0,  # src/commands/cluster-addslotsrange.json, cluster-shards.json
        hostnames=since_7_0,  # src/config.c
        sets_many=since_7_0,  # src/config.c, configSetCommand
        reloads_certificates=since_7_0,  # src/config.c, VOLATILE_CONFIG
    )


def _migration(engine: Engine) -> Literal["keys", "import", "export"]:
    """Source: https://redis.io/docs/latest/commands/cluster-migration/, https://valkey.io/commands/cluster-migrateslots/."""
    if engine.name == "valkey":
        return "export" if engine.version >= Version(9, 0) else "keys"
    return "import" if engine.version >= Version(8, 4) else "keys"


def format_of(engine: Engine) -> int:
    """The version of the format in which it writes its data."""
    return next((number for since, number in reversed(_FORMATS[engine.name]) if engine.version.series >= since), 0)


def refusal(engine: Engine) -> str:
    """Why the operator does not work with an engine; empty if it does. A sentence that says what to give."""
    if engine.version.series >= LEAST[engine.name]:
        return ""
    return (
        f"{engine} is older than {engine.name} {_dotted(LEAST[engine.name])}, the first that has what the operator "
        f"rests on (users with two passwords, TLS among nodes, failover without a lost write). {ADVICE}"
    )


ADVICE = "Give redis 6.2 or newer, or valkey 7.2 or newer."
"""What mends a version that is too old."""


def upgrade_refusal(running: Iterable[Engine], target: Engine) -> str:
    """Why nodes must not be changed to an engine; empty if they may.

    What decides is the data: a node that is changed reads what it wrote before, and its replicas read what it sends.

    Args:
        running: what nodes run; those that nobody could ask are left out. None at all refuses nothing.
        target: what they are to run.

    Returns:
        A sentence that says why, and what to do instead.
    """
    for engine in sorted(set(running), key=lambda engine: (format_of(engine), engine), reverse=True):
        if report := _refused_step(engine, target):
            return report
    return ""


def _refused_step(engine: Engine, target: Engine) -> str:
    elsewhere = "Or make another RedisCluster of it, and copy the data there."
    if engine.name == target.name and target.version.series >= engine.version.series:
        return ""
    if engine.name == target.name:
        stay = f"Give {_dotted(engine.version.series)} or newer."
        if format_of(target) == format_of(engine):
            why = "no older series is made to read what a newer one writes"
        else:
            why = f"it does not read what that writes (format {format_of(engine)}, and its own is {format_of(target)})"
        return f"{target} is older than {engine}, which a node runs: {why}. {stay} {elsewhere}"
    if engine.name == "valkey":
        return (
            f"{target} does not read what {engine} writes, which a node runs. Give a version of valkey, and a "
            f"repository that holds it. {elsewhere}"
        )
    if format_of(engine) > _SHARED_FORMAT:
        return (
            f"{target} does not read what {engine} writes, which a node runs: valkey takes data of redis up to 7.2. "
            f"Stay with redis. {elsewhere}"
        )
    return ""


def _dotted(series: tuple[int, int]) -> str:
    return ".".join(map(str, series))
