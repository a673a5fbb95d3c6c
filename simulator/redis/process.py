"""Server process of `SimulatedRedis`: state that is lost when the process ends."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache

from operators.redis.api.memory import parse_memory
from operators.redis.client.server import BUS_PORT, PORT
from simulator.redis.client import Entry
from simulator.redis.node import Node
from simulator.redis.tls import Tls

TIMEOUT = 5.0
"""Default of cluster-node-timeout here, in seconds."""

BOOT = 2.0
"""Seconds after its start until a primary accepts writes (CLUSTER_WRITABLE_DELAY)."""


@dataclass(slots=True)
class Election:
    """Election of a replica.

    Attributes:
        at: time of the vote request; 0 without an election.
        epoch: epoch of the vote request.
        requested: whether votes were requested.
        votes: ids of primaries that granted their vote.
        manual: time until which a manual failover may complete; 0 without one.
        forced: whether the manual failover proceeds without the primary.
        caught_up: whether the replica has all writes of the paused primary.
    """

    at: float = 0.0
    epoch: int = 0
    requested: bool = False
    votes: set[str] = field(default_factory=set)
    manual: float = 0.0
    forced: bool = False
    caught_up: bool = False


@dataclass(slots=True)
class Migration:
    """Job of CLUSTER MIGRATESLOTS, as the source knows it, or of CLUSTER MIGRATION IMPORT, as the target knows it."""

    name: str
    source: str
    slots: int = field(repr=False)
    target: str
    state: str = "migrating"
    message: str = ""
    begun: float = 0.0
    polls: int = 0
    updated: float = 0.0
    retries: int = 0


@dataclass(slots=True)
class Process:
    """Server process in a pod.

    Attributes:
        uid: UID of the pod.
        disk: UID of the claim or pod that stores the data.
        engine, version: engine and version of the server.
        began: start time.
        exit_message: last message; empty while the process runs.
        hangs: whether it does not respond.
        resumed: whether it hung until now: it answers what waits in its sockets before it finds that a link has ended
            (aeProcessEvents in ae.c).
        settings: settings of the command line and CONFIG SET, over the defaults.
        passwords: SHA-256 of the passwords of the user `default`; empty if no password is required.
        users: SHA-256 of the passwords of each other user.
        rules: state and rules of each other user, by name; the canonical form of a rule is the rule.
        tls: certificate and authorities that it has loaded; None without TLS.
        files: content of its files as the kubelet last wrote them, by path.
        is_hostile: whether replicas need no password: a server of another program accepts any.
        source: address and port that it replicates from (master_host); empty until it knows one. Gossip that changes
            the address of its primary does not change it.
        peer: run id of the server that it is connected to.
        linked: whether the replication link is up; `since` is when it was last up, None for never.
        requested: time of its request for a full sync; 0 without one. A diskless transfer begins after a delay.
        syncing: start of a full sync; 0 without one.
        serves: whether the cluster state is ok.
        alone: time at which a majority was last missing.
        paused: time until which client writes are paused.
        broadcast_pending: whether all nodes are informed of a change at once.
        voted: time of the last vote for a replica, by its primary.
        unclaimed: mask of slots that their owner did not claim in its last message.
        rewrites_until: time at which the append-only file that CONFIG SET switched on is complete; 0 without one. Until
            then a server that starts with it has no data (startAppendOnly in aof.c, AOF_WAIT_REWRITE).
        snapshot: snapshot that it writes: the time at which it is complete, its keys, and its history and offset.
        saved: time of its last snapshot; 0 without one.
        trimmed: number of keys that it deletes as their slots moved away at once, and until when; INFO counts them.
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
    exit_message: str = ""
    hangs: bool = False
    resumed: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    passwords: set[str] = field(default_factory=set)
    users: dict[str, set[str]] = field(default_factory=dict)
    rules: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_hostile: bool = False
    tls: Tls | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    run_id: str = ""
    source: tuple[str, int] = ("", 0)
    peer: str = ""
    linked: bool = False
    since: float | None = None
    requested: float = 0.0
    syncing: float = 0.0
    serves: bool = False
    alone: float = -1e9
    paused: float = 0.0
    broadcast_pending: bool = False
    voted: dict[str, float] = field(default_factory=dict)
    election: Election = field(default_factory=Election)
    migrations: list[Migration] = field(default_factory=list)
    unclaimed: int = 0
    rewrites_until: float = 0.0
    snapshot: tuple[float, dict[bytes, Entry], tuple[str, int]] | None = None
    saved: float = 0.0
    trimmed: tuple[int, float] = (0, 0.0)

    @property
    def runs(self) -> bool:
        """Whether the process runs and responds."""
        return not self.exit_message and not self.hangs

    @property
    def persistent(self) -> bool:
        """Whether the data set survives the end of the process.

        With `appendfsync everysec` as well: the server writes to its log before it answers (flushAppendOnlyFile in
        aof.c), so only the end of the whole machine loses the last second.
        """
        return self.config("appendonly") == "yes" and not self.rewrites_until

    @property
    def saves(self) -> bool:
        """Whether it writes snapshots instead: when it is terminated, and long after a write."""
        return not self.persistent and self.has_save_points

    @property
    def has_save_points(self) -> bool:
        """Whether it writes a snapshot when it is terminated, also in addition to a log."""
        return self.settings.get("save", "3600 1") != ""

    def save_last(self) -> None:
        """Write the snapshot of a shutdown; while it writes its first log, it refuses one (prepareForShutdown)."""
        if self.has_save_points and not self.rewrites_until:
            self.node.save()

    @property
    def continues_snapshots(self) -> bool:
        """Whether a primary continues the replication history of the snapshot that it loads (Redis 7.0)."""
        return self.engine == "valkey" or not self.version.startswith("6.")

    @property
    def replicates_slots(self) -> bool:
        """Whether MIGRATING and IMPORTING are replicated (Valkey 8, clusterCommandSetSlot)."""
        return self.engine == "valkey" and int(self.version.partition(".")[0]) >= 8

    @property
    def imports_slots(self) -> bool:
        """Whether it has CLUSTER MIGRATION, and counts only keys of slots that it owns or imports (Redis 8.4)."""
        return self.engine == "redis" and _series(self.version) >= (8, 4)

    @property
    def marks_unclaimed(self) -> bool:
        """Whether a slot that its owner does not claim goes to the next one that does (owner_not_claiming_slot)."""
        return self.engine == "valkey" or not self.version.startswith("6.")

    @property
    def keeps_unclaimed_marks(self) -> bool:
        """Whether that mark outlasts SETSLOT NODE (clusterDelSlot clears it since Redis 7.2.4, and in all Valkey)."""
        return self.engine == "redis" and self.version.startswith(("7.0.", "7.2.0", "7.2.1", "7.2.2", "7.2.3"))

    @property
    def sync_delay(self) -> float:
        """Time until a diskless transfer begins, in seconds (shouldStartChildReplication in replication.c)."""
        return float(self.config("repl-diskless-sync-delay")) if self.config("repl-diskless-sync") == "yes" else 0.0

    @property
    def follows_gossip(self) -> bool:
        """Whether a new address of the primary moves the link wherever it comes from (valkey#965).

        Such a server ignores CLUSTER REPLICATE for its present primary (valkey#884).
        """
        return self.engine == "valkey" and _series(self.version) >= (8, 1)

    @property
    def meets_again(self) -> bool:
        """Whether it sends MEET to a node from which it has no link for longer than the node timeout (valkey#1307)."""
        return self.follows_gossip

    @property
    def bus(self) -> int:
        """Port of the cluster bus."""
        return int(self.config("cluster-port") or 0) or self.port + BUS_PORT - PORT

    @property
    def timeout(self) -> float:
        """cluster-node-timeout in seconds."""
        return int(self.settings.get("cluster-node-timeout", TIMEOUT * 1000)) / 1000

    @property
    def cluster(self) -> str:
        """Name of the pod's StatefulSet."""
        return self.pod.rpartition("-")[0]

    @property
    def number(self) -> tuple[int, str]:
        """Sort key: pod number."""
        return len(self.pod), self.pod

    @property
    def max_memory(self) -> int:
        return parse_memory(self.config("maxmemory"))

    def opens(self, password: str) -> bool:
        """Whether a password is accepted."""
        return not self.passwords or digest(password) in self.passwords

    def admits(self, other: Process) -> bool:
        """Whether a server accepts another one that authenticates with masteruser and masterauth.

        Without masterauth, that one sends no AUTH (REPL_STATE_SEND_HANDSHAKE in replication.c).
        """
        user, password = other.config("masteruser") or "default", other.config("masterauth")
        if self.is_hostile or not password:
            return self.is_hostile or not self.passwords
        return self.opens(password) if user == "default" else digest(password) in self.users.get(user, ())

    def config(self, setting: str) -> str:
        """Return the value of a setting."""
        return self.settings.get(setting, DEFAULTS.get(setting, ""))


@cache
def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


@lru_cache(maxsize=1024)  # each connection authenticates
def digest(password: str) -> str:
    """Return the SHA-256 of a password, as in users.acl."""
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
    "min-replicas-to-write": "0",
    "repl-diskless-sync": "yes",
    "repl-diskless-sync-delay": "0",
    "requirepass": "",
    "save": "",
}
"""Defaults of the operator's redis.conf, for pods without one."""
