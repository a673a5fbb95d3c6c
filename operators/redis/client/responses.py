"""Parses responses of servers. Pure.

Source: https://redis.io/docs/latest/commands/cluster-nodes/, …/cluster-info/, …/info/; Valkey has the same pages.

Every parser raises one of `MALFORMED` if the response is not of a server in cluster mode.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from functools import cached_property, lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any

from operators.redis.api.engine_versions import Engine, Features, features
from operators.redis.slots.hash_slots import SLOTS, Slots

MALFORMED = (LookupError, TypeError, ValueError, AttributeError)

MAX_INFO_BYTES = 128 * 1024
"""Maximum size of INFO; that of a server with modules and 100 replicas has 20 KiB."""

MAX_NODES, MAX_OTHERS = 500, 500
"""Maximum number of nodes of a cluster (`api.spec`), and of others that they may know, such as those of another one."""

MAX_WORD_BYTES, MAX_VALUE_BYTES = 128, 16 * 1024
"""Maximum size of a version or an id, and of the value of a directive."""

MAX_VALUES = 64
"""Maximum number of values and passwords in a report, beyond four for each directive and user that was queried."""

_REMEMBERED_BYTES = 1024
"""Maximum size of a line that is remembered."""

_START_SECONDS = 2
"""Time within which a server that starts has read its nodes.conf, and precision of its uptime."""

_DATABASE, _FOLLOWER = re.compile(r"db\d+"), re.compile(r"slave\d+")
_OPEN = re.compile(r"\[(\d+)-([<>])-([0-9a-f]+)\]")


@dataclass(frozen=True, slots=True)
class Node:
    """A line of CLUSTER NODES: the entry of one node about another, or about itself.

    Attributes:
        id: permanent node id; 40 hexadecimal digits.
        address: last known IP address; empty if unknown.
        port: port for clients.
            flags: flags of CLUSTER NODES: `myself`, `master`, `slave`, `fail?`, `fail`, `handshake`, `noaddr`,
            `nofailover`.
        primary: id of the node that it replicates; empty for a primary.
        epoch: config epoch; among claims to a slot, the highest one wins.
        linked: whether the reporting node has a connection to it.
        slots: slots that it owns.
        migrating: target of each migrating slot; only in the entry of a node about itself.
        importing: source of each importing slot; only in the entry of a node about itself.
        host: announced hostname, if any (since Redis 7.0).
        bus: port of the cluster bus.
    """

    id: str
    address: str = ""
    port: int = 0
    flags: frozenset[str] = frozenset()
    primary: str = ""
    epoch: int = 0
    linked: bool = True
    slots: Slots = field(default_factory=Slots)
    migrating: Mapping[int, str] = field(default_factory=dict)
    importing: Mapping[int, str] = field(default_factory=dict)
    host: str = ""
    bus: int = 0

    @property
    def location(self) -> str:
        """Address and port for clients, in the form of `Facts.replicates`."""
        return f"{self.address}:{self.port}"

    @property
    def is_me(self) -> bool:
        """Whether the entry is about the reporting node itself."""
        return "myself" in self.flags

    @property
    def is_primary(self) -> bool:
        return "master" in self.flags

    @property
    def is_replica(self) -> bool:
        return "slave" in self.flags

    @property
    def failing(self) -> bool:
        """Whether a majority of primaries agreed that the node has failed."""
        return "fail" in self.flags

    @property
    def suspected(self) -> bool:
        """Whether the node does not respond to the reporting node."""
        return "fail?" in self.flags

    @property
    def handshake(self) -> bool:
        """Whether the node is being met: the id is provisional."""
        return "handshake" in self.flags

    @property
    def noaddr(self) -> bool:
        return "noaddr" in self.flags


@dataclass(frozen=True, slots=True)
class Follower:
    """A replica as its primary reports it.

    Attributes:
        online: whether it completed its sync and is connected.
        offset: acknowledged replication offset.
    """

    address: str
    port: int
    online: bool
    offset: int


@dataclass(frozen=True, slots=True)
class AclUser:
    """A user of a server, from ACL GETUSER.

    Attributes:
        passwords: SHA-256 of each password, in order.
        rights: digest of everything else, in the canonical form of this server.
    """

    enabled: bool
    passwords: tuple[str, ...] = field(repr=False)
    rights: str

    @classmethod
    def of(cls, answer: Sequence[Any]) -> AclUser:
        """Parse the response to ACL GETUSER."""
        found = mapping(answer)
        flags, passwords = {*found.pop("flags")}, tuple(sorted(found.pop("passwords")))
        return cls("on" in flags, passwords, digest(repr((sorted(flags - {"on", "off"}), sorted(found.items())))))


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Values of INFO.

    Attributes:
        engine: redis or valkey.
        version: version, such as 7.0.15.
        run_id: id of the process, which changes with each start.
        keys: number of keys in all databases.
        memory: used memory in bytes.
        max_memory: maxmemory in bytes; 0 for no limit.
        loading: whether the server loads its data, and serves no requests until then.
        replicates: address and port of the primary that the server replicates; empty if it replicates none. After an
            error of the server, it differs from the role in CLUSTER NODES.
        link_up: whether a replica is connected to its primary; true for a primary.
        unlinked_seconds: time for which a replica has not been connected to its primary; infinite if it never was since
            it started, 0 while it is, and for a primary.
        syncing: whether a replica runs a full sync.
        offset: replication offset: sent by a primary, applied by a replica.
        history: replication id: which writes the offset counts.
        former_history: replication id that this history continues: of the former primary, or of the snapshot that a
            primary loaded when it started (Redis 7.0 and later).
        forked_at: offset of the first write that is not of that one; -1 without one.
        replicas: replicas that a primary sees.
        evicts: whether the server evicts keys if its memory is full (maxmemory-policy).
        refuses_writes: whether the last write to the append-only file failed, upon which a primary refuses all writes
            (MISCONF) until a later one succeeds.
        saves: whether the server writes a snapshot now.
        save_failed: whether the last snapshot failed.
        snapshot_age: seconds since the process wrote its last snapshot; infinite if it wrote none.
        shuts_down: whether the server got SIGTERM or SHUTDOWN, and waits for its replicas before it ends (Redis 7.0).
        rewrites_log: whether a rewrite of the append-only file runs, is due, or failed, or the file is off, as during a
            full sync. While it is the first one since CONFIG SET appendonly, a server that starts with the file has no
            data (AOF_WAIT_REWRITE in aof.c).
        rewrite_failed: whether the last rewrite failed.
        log_pending: whether the append-only file is off, or a rewrite runs or is due. A failed first one is due again
            at once (backgroundRewriteDoneHandler in aof.c): without any, the file has all data.
    """

    engine: str = "redis"
    version: str = ""
    run_id: str = ""
    keys: int = 0
    memory: int = 0
    max_memory: int = 0
    loading: bool = False
    replicates: str = ""
    link_up: bool = True
    unlinked_seconds: float = 0.0
    syncing: bool = False
    offset: int = 0
    history: str = ""
    former_history: str = ""
    forked_at: int = -1
    replicas: tuple[Follower, ...] = ()
    evicts: bool = False
    refuses_writes: bool = False
    saves: bool = False
    save_failed: bool = False
    snapshot_age: float = math.inf
    shuts_down: bool = False
    rewrites_log: bool = False
    rewrite_failed: bool = False
    log_pending: bool = False

    @property
    def features(self) -> Features:
        """Capabilities of the running version, which is not that of the spec during an upgrade."""
        return features(Engine.parse(f"{self.engine} {self.version}"))


@dataclass(frozen=True)
class NodeReport(Facts):
    """The report of one node at one moment.

    Attributes:
        id: node id.
        nodes: all nodes that it knows, itself included.
        state_ok: whether it accepts commands (cluster_state); it need not know all slots for that.
        epoch: highest epoch that it knows (cluster_current_epoch).
        gives: SHA-256 of the password for its primary, in hexadecimal; empty if there is none.
        takes: SHA-256 of the passwords of user `default`, in order; empty if none is required.
        gives_as: user as which it authenticates at its primary.
        admits: SHA-256 of the passwords of user `replication`, in order; empty if there is none, or if it is off
            or needs no password.
        strays: number of keys of slots that it does not own, by slot: of importing slots, and of those that the status
            records as foreign (`node_inspection.count_strays`); slots without keys are omitted.
        trimming: number of its keys that it may be deleting, because their slots moved away at once (Redis 8.4 and
            later): `keys` counts them. Until it is 0, it is unknown whether the node has other keys of such slots.
        answered: seconds since failed nodes last answered it, or a node that informed it, by node id; without nodes
            that did not since it started.
        settings: values of directives, by the name that was queried; without those that the server does not have.
        users: users of the spec, and their revisions, by name; without those that the server does not have.
    """

    id: str
    nodes: tuple[Node, ...] = ()
    state_ok: bool = True
    epoch: int = 0
    gives: str = field(default="", repr=False)
    takes: tuple[str, ...] = field(default=(), repr=False)
    gives_as: str = "default"
    admits: tuple[str, ...] = field(default=(), repr=False)
    strays: Mapping[int, int] = field(default_factory=dict)
    trimming: int = 0
    answered: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    users: Mapping[str, AclUser] = field(default_factory=dict)

    @property
    def has_log(self) -> bool:
        """Whether the process has an append-only file with all of its data; false while it may be incomplete."""
        return self.settings.get("appendonly") == "yes" and not self.rewrites_log

    @cached_property
    def me(self) -> Node:
        """Entry of the node about itself."""
        return next(node for node in self.nodes if node.is_me)

    @cached_property
    def by_id(self) -> Mapping[str, Node]:
        """Entries by node id."""
        return {node.id: node for node in reversed(self.nodes)}

    @cached_property
    def handshakes(self) -> tuple[Node, ...]:
        """Entries of nodes that it is meeting."""
        return tuple(node for node in self.nodes if node.handshake)

    def node(self, node_id: str) -> Node | None:
        """Return its entry about another node; None if it does not know it."""
        return self.by_id.get(node_id)

    def finds_failed(self, node_id: str) -> bool:
        """Return whether this node finds that another one failed, by itself or together with a majority.

        A node whose address was reused by another one (`noaddr`) is no longer contacted, and so never found failing.
        """
        node = self.node(node_id)
        return node is not None and _is_failed(node)

    @cached_property
    def missing_voters(self) -> tuple[Node, ...]:
        """Primaries that this node does not reach, if the others have no majority to elect it; else empty.

        Only primaries with slots vote, and failed ones count for the majority. A node requests the votes of all that it
        is connected to. Source: clusterHandleSlaveFailover in cluster.c of Redis 7.0.
        """
        voters = [node for node in self.nodes if node.is_primary and node.slots]
        unreached = [node for node in voters if not node.linked or node.failing or node.suspected or node.noaddr]
        return tuple(unreached) if len(voters) - len(unreached) <= len(voters) // 2 else ()


class Entries:
    """Entries of the reports of one observation. Equal ones are one object: n nodes report n², nearly all alike.

    The others are bounded together: the author of a resource chooses the image of all its servers. One server may use
    half of them, so that what answers at the address of a former node hides no other node.

    Args:
        nodes: number of nodes of the cluster.
    """

    def __init__(self, nodes: int = MAX_NODES) -> None:
        self.most_of_one = MAX_OTHERS + 2 * nodes  # outdated entries differ from current ones
        self._left, self._slots_left = 2 * self.most_of_one, 4 * SLOTS
        self._known: dict[tuple[str, ...], Node] = {}

    def parse(self, node_id: str, instance: str, flags: str, primary: str, rest: str) -> Node:
        """Return the entry of a line of CLUSTER NODES, without the times of ping and pong.

        Raises:
            ValueError: the servers together report more different entries than those of a cluster.
        """
        line = node_id, instance, flags, primary, rest
        if (known := self._known.get(line)) is not None:
            return known
        self.use(rest.count(" ") - 1, entries=1)
        is_short = sum(map(len, line)) <= _REMEMBERED_BYTES
        found = self._known[line] = (_node if is_short else _parsed)(*line)
        return found

    def use(self, slots: int, entries: int = 0) -> None:
        """Count ranges of slots, slots with foreign keys, and different entries that a server reports; see `parse`."""
        self._left -= entries
        self._slots_left -= slots
        if min(self._left, self._slots_left) < 0:
            raise ValueError(f"more than {2 * self.most_of_one:,} different entries, or {4 * SLOTS:,} ranges of slots")


def own_followers(report: NodeReport, followers: Iterable[Follower]) -> tuple[Follower, ...]:
    """Return the followers that are members of the cluster and replicate the node, by its CLUSTER NODES.

    Any client can replicate a server: a tool that copies its data, or a node of another cluster that has an outdated
    address. None of them keeps a copy for this cluster.
    """
    addresses = {(node.address, node.port) for node in report.nodes if node.primary == report.id}
    return tuple(each for each in followers if (each.address, each.port) in addresses)


def report_of(
    information: str,
    count: int,
    cluster: str,
    nodes: str,
    given: Sequence[str],
    user: Sequence[Any],
    gives_as: Sequence[str] = (),
    replication: Sequence[Any] | None = None,
    *,
    settings: Sequence[Sequence[str]] = (),
    users: Mapping[str, Sequence[Any] | None] = MappingProxyType({}),
    entries: Entries | None = None,
) -> NodeReport:
    """Parse the responses to INFO, DBSIZE, CLUSTER INFO, CLUSTER NODES, CONFIG GET masterauth and ACL GETUSER default.

    Args:
        gives_as: response to CONFIG GET masteruser.
        replication: response to ACL GETUSER replication; None if there is no such user.
        settings: responses to further CONFIG GET.
        users: responses to further ACL GETUSER, by name.
        entries: entries of the other reports of the observation, if there are any.
    """
    facts, parsed, state = parse_facts(information), parse_nodes(nodes, entries), fields(cluster)
    (me,) = (node for node in parsed if node.is_me)
    report = NodeReport(
        me.id,
        nodes=parsed,
        state_ok=state["cluster_state"] == "ok",
        epoch=int(state["cluster_current_epoch"]),
        gives=digest(given[1]),
        takes=_passwords(user),
        trimming=_trimming(facts, int(count), state),
        answered=_answered(nodes, parsed, fields(information)) if any(map(_is_failed, parsed)) else {},
        gives_as=(gives_as[1] if gives_as else "")[:MAX_WORD_BYTES] or "default",  # as which it authenticates then
        admits=_passwords(replication) if replication and "on" in mapping(replication)["flags"] else (),
        settings={
            name: _short(value, MAX_VALUE_BYTES) for answer in settings for name, value in mapping(answer).items()
        },
        users={name: AclUser.of(answer) for name, answer in users.items() if answer},
        **{each.name: getattr(facts, each.name) for each in fields_of(Facts)},
    )
    passwords = chain(report.takes, report.admits, *(each.passwords for each in report.users.values()))
    values = [*report.settings, *report.settings.values(), *passwords]
    if len(values) > MAX_VALUES + 4 * (len(settings) + len(users)):
        raise ValueError(f"{len(values):,} values of directives, and passwords")
    _short("".join(values), MAX_VALUE_BYTES + MAX_WORD_BYTES * len(values))
    report.me, report.by_id, report.handshakes  # noqa: B018 - cached here, node by node, not all at once in the plan
    return report


def _trimming(facts: Facts, count: int, state: Mapping[str, str]) -> int:
    """Return the number of keys that a server may be deleting, because their slots moved away at once.

    While a deletion runs or waits, DBSIZE leaves such keys out, and INFO does not. Source: src/db.c and
    src/cluster_asm.c of Redis 8.4. In Valkey, DBSIZE counts one of several databases.
    """
    runs = state.get("cluster_slot_migration_active_trim_running", "0") != "0"
    return max(int(runs), facts.keys - count) if facts.engine == "redis" else 0


def digest(password: str) -> str:
    """Return the SHA-256 of a password in hexadecimal, as the server stores it; empty for none."""
    return hashlib.sha256(password.encode()).hexdigest() if password else ""


def mapping(answer: Sequence[Any]) -> dict[str, Any]:
    """Parse a map, which RESP2 sends as alternating names and values."""
    return dict(zip(answer[::2], answer[1::2], strict=True))


def parse_nodes(text: str, entries: Entries | None = None) -> tuple[Node, ...]:
    """Parse CLUSTER NODES, in its order.

    Fields of a line: id, address, flags, primary, times of the last ping and pong, epoch, link, slots.

    Args:
        entries: entries of the other reports of the observation, if there are any.

    Raises:
        ValueError: there are more nodes, or more ranges of slots, than a cluster can have.
    """
    count, entries = text.count("\n") + 1, entries or Entries()
    if count > entries.most_of_one + 1 or text.count(" ") > 16 * count + 2 * SLOTS:
        raise ValueError(f"{count:,} nodes with {text.count(' '):,} words are more than a cluster has")
    found = []
    for line in text.splitlines():
        if line:
            node_id, instance, flags, primary, _, _, rest = line.split(" ", 6)
            found.append(entries.parse(_short(node_id), instance, flags, primary, rest))
    return tuple(found)


_IDLE = "aof_rewrite_in_progress", "aof_rewrite_scheduled", "loading", "async_loading"
_REWRITTEN = dict.fromkeys(_IDLE, "0") | {"aof_enabled": "1"}
"""Fields of INFO with their values once a rewrite of the append-only file has ended.

A replica switches its log off while it loads a full sync, although CONFIG GET has `yes` (readSyncBulkPayload).
"""


def parse_facts(text: str) -> Facts:
    """Parse INFO."""
    found = fields(_short(text, MAX_INFO_BYTES))
    valkey = found.get("server_name") == "valkey" or "valkey_version" in found
    is_replica = found["role"] == "slave"
    link_up = not is_replica or found["master_link_status"] == "up"
    log_pending = any(found.get(name, done) != done for name, done in _REWRITTEN.items())
    rewrite_failed = found.get("aof_last_bgrewrite_status") == "err"
    return Facts(
        engine="valkey" if valkey else "redis",
        version=_short(found["valkey_version" if valkey else "redis_version"]),
        run_id=_short(found["run_id"]),
        keys=sum(int(_pairs(value)["keys"]) for name, value in found.items() if _DATABASE.fullmatch(name)),
        memory=int(found["used_memory"]),
        max_memory=int(found["maxmemory"]),
        loading="1" in (found["loading"], found.get("async_loading")),
        replicates=f"{found.get('master_host', '')}:{found.get('master_port', 0)}" if is_replica else "",
        link_up=link_up,
        unlinked_seconds=0.0 if link_up else _unlinked_seconds(found),
        syncing=found.get("master_sync_in_progress") == "1",
        offset=int(found["slave_repl_offset" if is_replica else "master_repl_offset"]),
        history=_short(found.get("master_replid", "")),
        former_history=_short(found.get("master_replid2", "")),
        forked_at=int(found.get("second_repl_offset", -1)),
        replicas=_followers(found),
        evicts=found.get("maxmemory_policy", "noeviction") != "noeviction",
        refuses_writes=found.get("aof_enabled") == "1" and found.get("aof_last_write_status") == "err",
        saves=found.get("rdb_bgsave_in_progress") == "1",
        save_failed=found.get("rdb_last_bgsave_status") == "err",
        snapshot_age=_snapshot_age(found),
        shuts_down="shutdown_in_milliseconds" in found,
        rewrites_log=log_pending or rewrite_failed,
        rewrite_failed=rewrite_failed,
        log_pending=log_pending,
    )


def _unlinked_seconds(found: Mapping[str, str]) -> float:
    """Parse for how long a replica has had no link.

    If it had none since it started, INFO has -1, or before Redis 6.2.2 the time since 1970. It is by the wall clock: a
    step back makes it shorter, also for Redis' own elections. Source: repl_down_since in replication.c and server.c.
    """
    seconds = int(found.get("master_link_down_since_seconds", -1))
    return seconds if 0 <= seconds <= int(found.get("uptime_in_seconds", 0)) else math.inf


def _snapshot_age(found: Mapping[str, str]) -> float:
    """Parse how long ago the process wrote its last snapshot, by the clock of the server; infinite if it wrote none.

    A process that starts takes the present time for that of the last one (lastsave in server.c). Of a snapshot that it
    wrote before its clock was set back, the age is unknown: infinite.
    """
    now, uptime = int(found.get("server_time_usec", 0)) // 1_000_000, int(found.get("uptime_in_seconds", 0))
    age = now - int(found.get("rdb_last_save_time", 0))
    return age if age >= -_START_SECONDS and abs(age - uptime) > _START_SECONDS else math.inf


def _is_failed(node: Node) -> bool:
    return node.failing or node.suspected or node.noaddr


def _answered(text: str, nodes: Iterable[Node], found: Mapping[str, str]) -> dict[str, float]:
    """Parse how long ago failed nodes last answered, from CLUSTER NODES and INFO.

    A server that starts takes the present time for that of the last answers (clusterLoadConfig): that shows nothing.
    """
    if "server_time_usec" not in found:  # times of the server are compared with its own clock only; 6.2.0 has it
        return {}
    failed = {node.id for node in nodes if _is_failed(node)}
    now, uptime = int(found["server_time_usec"]) / 1e6, int(found.get("uptime_in_seconds", 0))
    answers = (line.split(" ", 6) for line in text.splitlines() if line)
    ago = {words[0]: now - int(words[5]) / 1000 for words in answers if words[0] in failed}
    return {node_id: seconds for node_id, seconds in ago.items() if seconds < uptime - _START_SECONDS}


def parse_followers(text: str) -> tuple[int, tuple[Follower, ...]]:
    """Parse INFO of a primary: its replication offset, and the clients that replicate it."""
    found = fields(_short(text, MAX_INFO_BYTES))
    return int(found["master_repl_offset"]), _followers(found)


def fields(text: str) -> dict[str, str]:
    """Parse INFO and CLUSTER INFO: lines of `name:value`."""
    parted = (line.strip().partition(":") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in parted if colon}


def _passwords(user: Sequence[Any]) -> tuple[str, ...]:
    """Parse the SHA-256 of the passwords of a user from ACL GETUSER, in order; empty if none is required."""
    found = mapping(user)
    return () if "nopass" in found["flags"] else tuple(sorted(found["passwords"]))


def _short(text: str, most: int = MAX_WORD_BYTES) -> str:
    """Return a text of the server; raise ValueError if it is longer than any of a real one."""
    if len(text) > most:
        raise ValueError(f"{len(text):,} characters instead of at most {most:,}")
    return text


def _parsed(node_id: str, instance: str, flags: str, primary: str, more: str) -> Node:
    """Parse a line of CLUSTER NODES without the times of ping and pong."""
    epoch, link, *rest = more.split(" ")
    address, port, bus, host = _parse_address(instance)
    opened = [_OPEN.fullmatch(word) for word in rest]
    arrows = [(int(found[1]), found[2], found[3]) for found in opened if found]
    return Node(
        id=node_id,
        address=address,
        port=port,
        bus=bus,
        flags=frozenset(flags.split(",")) - {"noflags"},
        primary="" if primary == "-" else primary,
        epoch=int(epoch),
        linked=link == "connected",
        slots=Slots.parse(" ".join(word for word in rest if not word.startswith("["))),
        migrating={slot: other for slot, arrow, other in arrows if arrow == ">"},
        importing={slot: other for slot, arrow, other in arrows if arrow == "<"},
        host=host,
    )


_node = lru_cache(maxsize=4096)(_parsed)


def _parse_address(text: str) -> tuple[str, int, int, str]:
    """Parse `address:port@bus,host,name=value…`; unknown parts are empty or 0."""
    bus_address, _, more = text.partition(",")
    client_address, _, bus = bus_address.partition("@")
    address, _, port = client_address.rpartition(":")
    host = more.partition(",")[0]
    return address, int(port or 0), int(bus or 0), "" if host == "?" or "=" in host else host


def _pairs(text: str) -> dict[str, str]:
    """Parse `name=value,name=value`."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(","))}


def _followers(found: Mapping[str, str]) -> tuple[Follower, ...]:
    return tuple(_follower(value) for name, value in found.items() if _FOLLOWER.fullmatch(name))


def _follower(text: str) -> Follower:
    found = _pairs(text)
    return Follower(found["ip"], int(found["port"]), found["state"] == "online", int(found["offset"]))
