"""A server of `FakeRedis`: what is in a process, and gone with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from operators.redis.api.memory import parse_memory
from operators.redis.client.server import PORT
from tests.unit.redis.simulation.node import Node

TIMEOUT = 5.0
"""Default of cluster-node-timeout here, in seconds."""

BOOT = 2.0
"""Seconds after its start before a master takes writes again (CLUSTER_WRITABLE_DELAY)."""


@dataclass(slots=True)
class Election:
    """A replica's way to become a master.

    Attributes:
        at: when it asks for votes; 0 while there is no reason to.
        epoch: in which it asked.
        asked: whether it has.
        votes: ids of masters that gave theirs.
        manual: until when a failover that somebody asked for may go on; 0 if nobody did.
        forced: whether that one does without the master.
        caught_up: whether it holds all that its master held when that stopped to take writes.
    """

    at: float = 0.0
    epoch: int = 0
    asked: bool = False
    votes: set[str] = field(default_factory=set)
    manual: float = 0.0
    forced: bool = False
    caught_up: bool = False


@dataclass(slots=True)
class Migration:
    """A job of CLUSTER MIGRATESLOTS, as the source knows it."""

    name: str
    slots: int = field(repr=False)
    target: str
    state: str = "migrating"
    said: str = ""
    begun: float = 0.0
    looks: int = 0


@dataclass(slots=True)
class Process:
    """A server in a pod.

    Attributes:
        uid: the pod's.
        disk: UID of the claim or of the pod that holds its data.
        engine, version: what runs.
        began: when.
        said: its last message; empty while it runs.
        hangs: whether it answers nobody.
        settings: what CONFIG SET was told, over the defaults.
        passwords: SHA-256 of those that open the user `default`; empty where none is asked for.
        linked: whether its replication from its master is up; `since` when it was last up, None for never.
        syncing: when a full sync began; 0 while there is none.
        serves: whether it finds the cluster well (cluster_state:ok).
        alone: when it was last without a majority.
        paused: until when clients' writes wait.
        news: whether everybody is told at once of what it is by now.
        voted: when it last gave its vote for a replica of a master.
    """

    uid: str
    pod: str
    address: str
    disk: str
    node: Node
    engine: str = "redis"
    version: str = "7.0.15"
    port: int = PORT
    began: float = 0.0
    said: str = ""
    hangs: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    passwords: set[str] = field(default_factory=set)
    tls: bool = False
    run_id: str = ""
    linked: bool = False
    since: float | None = None
    syncing: float = 0.0
    serves: bool = False
    alone: float = -1e9
    paused: float = 0.0
    news: bool = False
    voted: dict[str, float] = field(default_factory=dict)
    election: Election = field(default_factory=Election)
    migrations: list[Migration] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        """Whether it takes part."""
        return not self.said and not self.hangs

    @property
    def timeout(self) -> float:
        """cluster-node-timeout, in seconds."""
        return int(self.settings.get("cluster-node-timeout", TIMEOUT * 1000)) / 1000

    @property
    def cluster(self) -> str:
        """The name of the StatefulSet that its pod is of."""
        return self.pod.rpartition("-")[0]

    @property
    def number(self) -> tuple[int, str]:
        """Orders processes by the numbers of their pods."""
        return len(self.pod), self.pod

    @property
    def max_memory(self) -> int:
        return parse_memory(self.says("maxmemory"))

    def opens(self, password: str) -> bool:
        """Whether a password lets somebody in."""
        return not self.passwords or digest(password) in self.passwords

    def says(self, setting: str) -> str:
        """What a setting is."""
        return self.settings.get(setting, DEFAULTS.get(setting, ""))


def digest(password: str) -> str:
    """Of a password, as users.acl has it."""
    return hashlib.sha256(password.encode()).hexdigest()


DEFAULTS = {
    "appendonly": "yes",
    "cluster-allow-replica-migration": "no",
    "cluster-node-timeout": str(int(TIMEOUT * 1000)),
    "cluster-require-full-coverage": "yes",
    "cluster-replica-validity-factor": "10",
    "masterauth": "",
    "masteruser": "",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
    "requirepass": "",
    "save": "",
}
"""As the operator's own redis.conf says, where the pod brings none."""
