"""Directives of redis.conf that users set: their types, and the versions that have them. Pure.

Source: src/config.c of redis 6.2, 7.0, 7.2, 7.4, 8.0, 8.2, 8.6 and 8.10, and of valkey 7.2, 8.0, 8.1, 9.0 and 9.1; the
release notes of redis 8.4 and 8.8; sdssplitargs in src/sds.c; memtoull in src/util.c.
tests/redis/containers/test_directives.py compares the table with real servers.

`KNOWN` covers every line of the catalogue, so that a wrong value is refused for each of them. Later versions may have
directives and words that the table lacks: the server decides about them. A directive that came with a patch release
counts for the whole series, because an image tag such as 8.2 does not name the patch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from operators.redis.api.engine_versions import Engine, EngineName
from operators.redis.api.memory import parse_memory

MIN_NODE_TIMEOUT_MS = 1000
"""Least cluster-node-timeout in milliseconds. Servers accept less, even 0; then a fork, a slow command or a delayed
packet marks a healthy primary as failed.
"""

NODE_TIMEOUT_MS = 5000
"""cluster-node-timeout that the operator sets unless a user does, in milliseconds."""

KNOWN: Mapping[EngineName, tuple[int, int]] = {"redis": (8, 10), "valkey": (9, 1)}
"""Newest series of each engine whose directives are all in the table."""

_INT, _UINT, _LONG = 2**31 - 1, 2**32 - 1, 2**63 - 1


class Kind(Protocol):
    """Type of a directive."""

    @property
    def accepted(self) -> str:
        """The values that it accepts, as the end of a sentence."""

    def normal(self, value: str) -> object:
        """Return the normal form of a value: equal for values with the same meaning.

        Raises:
            ValueError: the value is not accepted.
        """


@dataclass(frozen=True, slots=True)
class Bool:
    """yes or no."""

    accepted: str = "yes or no"

    def normal(self, value: str) -> object:
        return ("no", "yes").index(value.lower())


@dataclass(frozen=True, slots=True)
class Integer:
    """A decimal integer.

    Attributes:
        low, high: least and greatest accepted value.
        clip: least and greatest value that a server uses: it replaces others by the nearest.
        note: explanation of the limits.
    """

    low: int = 0
    high: int = _INT
    clip: tuple[int, int] | None = None
    note: str = ""

    @property
    def accepted(self) -> str:
        if self.low == self.high:
            return f"only {self.low}{self.note}"
        if self.high < _INT:
            return f"an integer from {self.low} to {self.high}{self.note}"
        return f"an integer of at least {self.low}{self.note}" if self.low > -_INT else "an integer"

    def normal(self, value: str) -> object:
        if re.fullmatch(r"0|-?[1-9][0-9]*", value, re.ASCII) is None or not self.low <= int(value) <= self.high:
            raise ValueError(value)
        return int(value) if self.clip is None else min(max(int(value), self.clip[0]), self.clip[1])


@dataclass(frozen=True, slots=True)
class Memory:
    """An amount of memory, in bytes or with a unit.

    Attributes:
        low: least accepted amount in bytes.
        floor: least amount that a server uses, in bytes: it replaces smaller ones.
        percent: whether a percentage of maxmemory is accepted too.
        off: value for no limit; empty if there is none.
    """

    low: int = 0
    floor: int = 0
    percent: bool = False
    off: str = ""

    @property
    def accepted(self) -> str:
        least = f" of at least {self.low} bytes" if self.low > 1 else ""
        percent = ", or a percentage such as 5%" if self.percent else ""
        return f"an amount of memory{least}, such as 512mb or 2gb{percent}{f', or {self.off}' if self.off else ''}"

    def normal(self, value: str) -> object:
        if self.off and value == self.off:
            return value
        if self.percent and (found := re.fullmatch(r"(0|[1-9][0-9]?|100)%", value, re.ASCII)):
            return found[0] if found[1] != "0" else 0
        amount = parse_memory(value)
        if not self.low <= amount <= _LONG:
            raise ValueError(value)
        return max(amount, self.floor)


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of several words.

    Attributes:
        synonyms: words that servers report by another word.
    """

    values: tuple[str, ...]
    synonyms: tuple[tuple[str, str], ...] = ()

    @property
    def accepted(self) -> str:
        return f"one of {', '.join(self.values)}"

    def normal(self, value: str) -> object:
        word = value.lower()
        if word not in self.values:
            raise ValueError(value)
        return dict(self.synonyms).get(word, word)


@dataclass(frozen=True, slots=True)
class Words:
    """Several words, in any order; `alone` is the word for none of them, and `every` one for all of them."""

    values: tuple[str, ...]
    alone: str
    every: str = ""

    @property
    def accepted(self) -> str:
        return f"{', '.join(filter(None, (self.alone, self.every)))}, or some of {', '.join(self.values)}"

    def normal(self, value: str) -> object:
        words = {*value.lower().split()}
        if not words or not words <= {*self.values, self.alone, self.every}:
            raise ValueError(value)
        return frozenset(self.values if self.every in words else words - {self.alone})


@dataclass(frozen=True, slots=True)
class Text:
    """Text, of which the form is checked as far as `pattern` describes it."""

    pattern: str = ""
    accepted: str = "text"

    def normal(self, value: str) -> object:
        if self.pattern and re.fullmatch(self.pattern, value, re.ASCII) is None:
            raise ValueError(value)
        return value


@dataclass(frozen=True, slots=True)
class Numbers:
    """Several numbers.

    Attributes:
        form: form of each number.
        least, most: least and greatest value of each.
        count: how many there are; 0 for any number.
        accepted: the accepted values.
    """

    form: str
    least: float
    most: float
    count: int
    accepted: str

    def normal(self, value: str) -> object:
        words = value.split()
        numbers = tuple(float(word) for word in words if re.fullmatch(self.form, word, re.ASCII))
        if len(numbers) != len(words) or (self.count and len(words) != self.count):
            raise ValueError(value)
        if not all(self.least <= number <= self.most for number in numbers):
            raise ValueError(value)
        return numbers


@dataclass(frozen=True, slots=True)
class SavePoints:
    """Conditions for snapshots: pairs of seconds and changes."""

    accepted: str = 'pairs of seconds (at least 1) and changes, such as 3600 1 300 100, or "" for no snapshots'

    def normal(self, value: str) -> object:
        words = value.split()
        if len(words) % 2 or not all(re.fullmatch("[0-9]{1,9}", word, re.ASCII) for word in words):
            raise ValueError(value)
        points = tuple(zip(map(int, words[::2]), map(int, words[1::2]), strict=True))
        if any(seconds < 1 for seconds, _ in points):
            raise ValueError(value)
        return points


@dataclass(frozen=True, slots=True)
class BufferLimits:
    """Output buffer limits of client classes; classes that a value does not name keep their limits."""

    accepted: str = (
        "groups of class (normal, replica or pubsub), hard limit, soft limit and seconds, such as replica 256mb 64mb 60"
    )

    def normal(self, value: str) -> object:
        words = value.split()
        if not words or len(words) % 4:
            raise ValueError(value)
        limits: dict[str, tuple[int, int, int]] = {}
        for at in range(0, len(words), 4):
            name, hard, soft, seconds = words[at : at + 4]
            name = "replica" if name.lower() == "slave" else name.lower()
            if name not in ("normal", "replica", "pubsub") or re.fullmatch("[0-9]{1,9}", seconds, re.ASCII) is None:
                raise ValueError(value)
            limits[name] = (parse_memory(hard), parse_memory(soft), int(seconds))
        return limits


@dataclass(frozen=True, slots=True)
class Events:
    """Classes of keyspace events, one letter each.

    Attributes:
        extra: classes that only some versions have.
        every: classes for which A is short.
    """

    extra: str = ""
    every: str = "g$lshzxetd"
    accepted: str = 'letters of the classes of events, such as KEA or Ex, or "" for none'

    def normal(self, value: str) -> object:
        if not {*value} <= {*self.every, *"AKEmn", *self.extra}:
            raise ValueError(value)
        return frozenset(value.replace("A", self.every))


@dataclass(frozen=True, slots=True)
class Ignored:
    """A directive that servers accept in the file, only for compatibility, and ignore."""

    accepted: str = "any value"

    def normal(self, value: str) -> object:
        return value


Series = tuple[int, int]
Span = tuple[Series, Series | None] | None
"""First series that has a directive, and the first later one that does not; None if no version of the engine has it."""


@dataclass(frozen=True, slots=True)
class Directive:
    """A directive in a range of versions.

    Attributes:
        redis, valkey: versions of each engine.
        same_as: present name, if this is an older name of the directive.
    """

    name: str
    kind: Kind
    redis: Span
    valkey: Span
    same_as: str = ""

    def exists_in(self, engine: Engine) -> bool:
        """Return whether an engine has it."""
        span = self.redis if engine.name == "redis" else self.valkey
        if span is None:
            return False
        since, until = span
        return since <= engine.version.series and (until is None or engine.version.series < until)


_ALL: Span = ((0, 0), None)


def _since(major: int, minor: int) -> Span:
    return (major, minor), None


def _of(kind: Kind, *names: str, redis: Span = _ALL, valkey: Span = _ALL) -> Iterator[tuple[str, Directive]]:
    """Yield directives of one type; a name `old=new` is an older name of `new`."""
    for text in " ".join(names).split():
        name, _, present = text.partition("=")
        yield name, Directive(name, kind, redis, valkey, present)


def _bools() -> Iterator[tuple[str, Directive]]:
    yield from _of(
        Bool(),
        "activedefrag activerehashing always-show-logo aof-load-truncated aof-rewrite-incremental-fsync",
        "aof-use-rdb-preamble appendonly cluster-allow-reads-when-down cluster-require-full-coverage",
        "crash-log-enabled crash-memcheck-enabled disable-thp jemalloc-bg-thread lazyfree-lazy-eviction",
        "lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del lazyfree-lazy-user-flush",
        "no-appendfsync-on-rewrite rdb-del-sync-files rdb-save-incremental-fsync rdbchecksum rdbcompression",
        "repl-disable-tcp-nodelay repl-diskless-sync replica-ignore-maxmemory replica-lazy-flush",
        "replica-serve-stale-data set-proc-title slave-ignore-maxmemory=replica-ignore-maxmemory",
        "slave-lazy-flush=replica-lazy-flush slave-serve-stale-data=replica-serve-stale-data",
        "stop-writes-on-bgsave-error syslog-enabled tls-prefer-server-ciphers tls-session-caching use-exit-on-panic",
    )
    yield from _of(Bool(), "gopher-enabled", redis=((6, 2), (7, 0)), valkey=None)
    yield from _of(
        Bool(),
        "aof-disable-auto-gc aof-timestamp-enabled cluster-allow-pubsubshard-when-down latency-tracking",
        "replica-ignore-disk-write-errors",
        redis=_since(7, 0),
    )
    yield from _of(Bool(), "hide-user-data-from-log", redis=_since(7, 4), valkey=_since(8, 0))
    yield from _of(
        Bool(),
        "cluster-slot-stats-enabled dual-channel-replication-enabled enable-debug-assert extended-redis-compatibility",
        redis=None,
        valkey=_since(8, 0),
    )
    yield from _of(Bool(), "lua-enable-deprecated-api")
    yield from _of(Bool(), "lua-enable-insecure-api=lua-enable-deprecated-api", redis=None)
    yield from _of(Bool(), "repl-rdb-channel", redis=_since(8, 0), valkey=None)
    yield from _of(Bool(), "cluster-slot-stats-enabled", redis=((8, 2), (8, 6)), valkey=None)
    yield from _of(
        Bool(),
        "lazyexpire-nested-arbitrary-keys vset-force-single-threaded-execution",
        redis=_since(8, 2),
        valkey=None,
    )
    yield from _of(Bool(), "key-memory-histograms", redis=_since(8, 6), valkey=None)
    yield from _of(Bool(), "import-mode", redis=None, valkey=_since(8, 1))
    yield from _of(Bool(), "mptcp repl-mptcp", redis=None, valkey=_since(9, 0))
    yield from _of(Bool(), "io-threads-always-active", redis=None, valkey=_since(9, 1))
    yield from _of(Bool(), "dynamic-hz", valkey=((7, 2), (8, 1)))
    yield from _of(Bool(), "io-threads-do-reads", redis=((6, 2), (8, 0)), valkey=((7, 2), (8, 1)))


def _choices() -> Iterator[tuple[str, Directive]]:
    yield from _of(OneOf(("allchannels", "resetchannels")), "acl-pubsub-default")
    yield from _of(OneOf(("everysec", "always", "no")), "appendfsync")
    levels = ("debug", "verbose", "notice", "warning")
    yield from _of(OneOf(levels), "loglevel", redis=((6, 2), (7, 2)), valkey=None)
    yield from _of(OneOf((*levels, "nothing")), "loglevel", redis=_since(7, 2))
    policies = [f"{keys}-{order}" for keys in ("allkeys", "volatile") for order in ("lru", "lfu", "random")]
    policies = ["noeviction", *policies, "volatile-ttl"]
    yield from _of(OneOf((*policies,)), "maxmemory-policy", redis=((6, 2), (8, 6)))
    yield from _of(
        OneOf((*policies, "allkeys-lrm", "volatile-lrm")), "maxmemory-policy", redis=_since(8, 6), valkey=None
    )
    yield from _of(OneOf(("no", "yes", "relative", "absolute"), (("relative", "yes"),)), "oom-score-adj")
    loads = ("disabled", "on-empty-db", "swapdb")
    yield from _of(OneOf(loads), "repl-diskless-load", redis=((6, 2), (8, 6)), valkey=((7, 2), (8, 1)))
    yield from _of(OneOf((*loads, "flushdb")), "repl-diskless-load", redis=_since(8, 6), valkey=None)
    yield from _of(OneOf((*loads, "flush-before-load")), "repl-diskless-load", redis=None, valkey=_since(8, 1))
    yield from _of(OneOf(("no", "yes", "clients")), "sanitize-dump-payload", valkey=((7, 2), (9, 1)))
    syslog = ("user", *(f"local{number}" for number in range(8)))
    yield from _of(OneOf(syslog), "syslog-facility")
    yield from _of(
        OneOf(("ip", "hostname", "unknown-endpoint")),
        "cluster-preferred-endpoint-type",
        redis=_since(7, 0),
    )
    yield from _of(
        OneOf(("no", "yes", "local")),
        "enable-debug-command enable-module-command enable-protected-configs",
        redis=_since(7, 0),
    )
    yield from _of(OneOf(("ignore", "panic", "panic-on-replicas")), "propagation-error-behavior", redis=_since(7, 0))
    yield from _of(OneOf(("strict", "relaxed")), "rdb-version-check", redis=None, valkey=_since(8, 1))
    yield from _of(OneOf(("legacy", "logfmt")), "log-format", redis=None, valkey=((8, 1), (9, 1)))
    yield from _of(OneOf(("legacy", "logfmt", "json")), "log-format", redis=None, valkey=_since(9, 1))
    yield from _of(
        OneOf(("legacy", "iso8601", "milliseconds")), "log-timestamp-format", redis=None, valkey=_since(8, 1)
    )
    yield from _of(OneOf(("sync", "best-effort")), "cluster-config-save-behavior", redis=None, valkey=_since(9, 1))
    yield from _of(
        Words(("cpu", "net", "mem"), "no", every="yes"), "cluster-slot-stats-enabled", redis=_since(8, 6), valkey=None
    )
    sizes = tuple(str(1 << power) for power in range(8, 17))
    yield from _of(OneOf(sizes), "array-slice-size", redis=_since(8, 8), valkey=None)
    ways = ("save", "nosave", "now", "force")
    signals = "shutdown-on-sigint shutdown-on-sigterm"
    yield from _of(Words(ways, "default"), signals, redis=_since(7, 0), valkey=((7, 2), (9, 0)))
    yield from _of(Words((*ways, "safe", "failover"), "default"), signals, redis=None, valkey=_since(9, 0))


def _integers() -> Iterator[tuple[str, Directive]]:
    why = " (milliseconds; with less, a short pause marks a healthy primary as failed)"
    yield from _of(Integer(MIN_NODE_TIMEOUT_MS, _LONG, note=why), "cluster-node-timeout")
    yield from _of(Integer(clip=(1, 500)), "hz")
    yield from _of(
        Integer(),
        "auto-aof-rewrite-percentage cluster-replica-validity-factor lfu-decay-time lfu-log-factor list-compress-depth",
        "cluster-slave-validity-factor=cluster-replica-validity-factor min-replicas-max-lag min-replicas-to-write",
        "min-slaves-max-lag=min-replicas-max-lag min-slaves-to-write=min-replicas-to-write repl-diskless-sync-delay",
        "replica-priority slave-priority=replica-priority tcp-backlog tcp-keepalive timeout tls-session-cache-size",
        "tls-session-cache-timeout",
    )
    yield from _of(Integer(1), "databases repl-ping-replica-period repl-timeout")
    yield from _of(Integer(1), "repl-ping-slave-period=repl-ping-replica-period")
    yield from _of(Integer(0, 1000), "active-defrag-threshold-lower active-defrag-threshold-upper")
    yield from _of(Integer(1, 99), "active-defrag-cycle-max active-defrag-cycle-min")
    yield from _of(Integer(1, 10), "active-expire-effort")
    yield from _of(Integer(0, 100), "maxmemory-eviction-tenacity")
    yield from _of(Integer(1, _UINT), "maxclients")
    yield from _of(Integer(1), "maxmemory-samples", redis=((6, 2), (7, 4)), valkey=((7, 2), (8, 0)))
    yield from _of(Integer(1, 64), "maxmemory-samples", redis=_since(7, 4), valkey=_since(8, 0))
    yield from _of(Integer(1, 128), "io-threads", valkey=((7, 2), (8, 1)))
    yield from _of(Integer(1, 256), "io-threads", redis=None, valkey=_since(8, 1))
    yield from _of(Integer(-1, _LONG), "slowlog-log-slower-than")
    yield from _of(Integer(1, _LONG), "active-defrag-max-scan-fields")
    yield from _of(Integer(-(_INT + 1)), "list-max-ziplist-size=list-max-listpack-size key-load-delay")
    yield from _of(Integer(-(_INT + 1)), "rdb-key-save-delay")
    yield from _of(
        Integer(0, _LONG),
        "acllog-max-len latency-monitor-threshold lua-time-limit=busy-reply-threshold repl-backlog-ttl",
        "hash-max-ziplist-entries=hash-max-listpack-entries set-max-intset-entries slowlog-max-len",
        "stream-node-max-entries tracking-table-max-keys zset-max-ziplist-entries=zset-max-listpack-entries",
    )
    yield from _of(
        Integer(0, _LONG),
        "busy-reply-threshold hash-max-listpack-entries zset-max-listpack-entries",
        redis=_since(7, 0),
    )
    yield from _of(Integer(), "repl-diskless-sync-max-replicas shutdown-timeout watchdog-period", redis=_since(7, 0))
    yield from _of(Integer(0, _UINT), "socket-mark-id", redis=_since(7, 0))
    yield from _of(Integer(-(_INT + 1)), "list-max-listpack-size", redis=_since(7, 0))
    yield from _of(Integer(1024), "loading-process-events-interval-bytes", redis=_since(7, 0))
    yield from _of(Integer(0, _LONG), "set-max-listpack-entries set-max-listpack-value", redis=_since(7, 2))
    yield from _of(Integer(0, _LONG), "cluster-ping-interval", redis=_since(7, 2))
    yield from _of(Integer(2, 3), "client-default-resp", redis=_since(7, 2))
    yield from _of(
        Integer(1, 1000),
        "max-new-connections-per-cycle max-new-tls-connections-per-cycle",
        redis=_since(7, 4),
        valkey=_since(8, 0),
    )
    yield from _of(Integer(0, 100), "cluster-compatibility-sample-ratio", redis=_since(8, 0), valkey=None)
    yield from _of(Integer(0, 128), "prefetch-batch-max-size", redis=_since(8, 2), valkey=_since(8, 0))
    yield from _of(
        Integer(0, _LONG),
        "aof-load-corrupt-tail-max-size cluster-slot-migration-sync-buffer-drain-timeout",
        "cluster-slot-migration-write-pause-timeout",
        redis=_since(8, 4),
        valkey=None,
    )
    yield from _of(Integer(1), "cluster-slot-migration-max-archived-tasks lookahead", redis=_since(8, 4), valkey=None)
    yield from _of(Integer(1, 86_400), "stream-idmp-duration", redis=_since(8, 6), valkey=None)
    yield from _of(Integer(1, 10_000), "stream-idmp-maxsize", redis=_since(8, 6), valkey=None)
    yield from _of(Integer(0, 256), "array-sparse-kmax array-sparse-kmin", redis=_since(8, 8), valkey=None)
    yield from _of(Integer(2), "slowlog-entry-max-argc", redis=_since(8, 8), valkey=None)
    yield from _of(Integer(1, _LONG), "slowlog-entry-max-string-len", redis=_since(8, 8), valkey=None)
    yield from _of(
        Integer(0, _LONG),
        "backup-sealed-ttl hash-max-template-entries hash-min-template-entries hash-rdb-load-max-template-entries",
        "hash-rdb-load-min-template-entries hash-rdb-load-template-disassembly-threshold",
        redis=_since(8, 10),
        valkey=None,
    )
    yield from _of(Integer(0, 22), "repl-compression", redis=_since(8, 10), valkey=None)
    yield from _of(Integer(), "repl-compression-max-latency", redis=_since(8, 10), valkey=None)
    yield from _of(Integer(), "events-per-io-thread", redis=None, valkey=((8, 0), (9, 1)))
    yield from _of(Integer(0, _LONG), "cluster-blacklist-ttl", redis=None, valkey=_since(8, 0))
    yield from _of(Integer(0, 100_000), "active-defrag-cycle-us", redis=None, valkey=_since(8, 1))
    yield from _of(Integer(1), "cluster-manual-failover-timeout", redis=None, valkey=_since(8, 1))
    yield from _of(
        Integer(-1, _LONG),
        "commandlog-execution-slower-than=slowlog-log-slower-than commandlog-reply-larger-than",
        "commandlog-request-larger-than",
        redis=None,
        valkey=_since(8, 1),
    )
    yield from _of(
        Integer(0, _LONG),
        "commandlog-large-reply-max-len commandlog-large-request-max-len",
        "commandlog-slow-execution-max-len=slowlog-max-len",
        redis=None,
        valkey=_since(8, 1),
    )
    yield from _of(Integer(0, 65535), "rdma-port", redis=None, valkey=_since(8, 1))
    yield from _of(Integer(-1, 1024), "rdma-completion-vector", redis=None, valkey=_since(8, 1))
    yield from _of(Integer(65536, 16777216), "rdma-rx-size", redis=None, valkey=_since(8, 1))
    one = Integer(1, 1, note=": only the keys of database 0 move key by key, and others would be lost")
    yield from _of(one, "cluster-databases", redis=None, valkey=_since(9, 0))
    yield from _of(Integer(0, _LONG), "cluster-slot-migration-log-max-len", redis=None, valkey=_since(9, 0))
    yield from _of(Integer(), "tls-auto-reload-interval", redis=None, valkey=_since(9, 1))
    yield from _of(
        Integer(),
        "min-io-threads-avoid-copy-reply min-string-size-avoid-copy-reply min-string-size-avoid-copy-reply-threaded",
        redis=None,
        valkey=_since(9, 0),
    )
    yield from _of(Integer(1, 100), "cluster-message-gossip-perc", redis=None, valkey=_since(9, 1))


def _amounts() -> Iterator[tuple[str, Directive]]:
    yield from _of(
        Memory(),
        "auto-aof-rewrite-min-size hash-max-ziplist-value=hash-max-listpack-value hll-sparse-max-bytes maxmemory",
        "stream-node-max-bytes zset-max-ziplist-value=zset-max-listpack-value",
    )
    yield from _of(Memory(1), "active-defrag-ignore-bytes")
    yield from _of(Memory(1, floor=16 << 10), "repl-backlog-size")
    yield from _of(Memory(1 << 20), "client-query-buffer-limit proto-max-bulk-len")
    yield from _of(
        Memory(), "cluster-link-sendbuf-limit hash-max-listpack-value zset-max-listpack-value", redis=_since(7, 0)
    )
    yield from _of(Memory(percent=True), "maxmemory-clients", redis=_since(7, 0))
    yield from _of(Memory(), "replica-full-sync-buffer-limit", redis=_since(8, 0), valkey=None)
    yield from _of(Memory(), "cluster-slot-migration-handoff-max-lag-bytes", redis=_since(8, 4), valkey=None)
    yield from _of(Memory(off="-1"), "slot-migration-max-failover-repl-bytes", redis=None, valkey=_since(9, 0))


def _texts() -> Iterator[tuple[str, Directive]]:
    yield from _of(SavePoints(), "save")
    yield from _of(BufferLimits(), "client-output-buffer-limit")
    yield from _of(Events(), "notify-keyspace-events", redis=((6, 2), (8, 2)))
    yield from _of(Events("oc"), "notify-keyspace-events", redis=((8, 2), (8, 8)), valkey=None)
    yield from _of(Events("ocSTIV", "g$lshzxetda"), "notify-keyspace-events", redis=_since(8, 8), valkey=None)
    yield from _of(
        Numbers("-?[0-9]{1,4}", -2000, 2000, 3, "three integers from -2000 to 2000, such as 0 200 800"),
        "oom-score-adj-values",
    )
    yield from _of(
        Numbers(r"[0-9]{1,3}(\.[0-9]{1,9})?", 0, 100, 0, "numbers from 0 to 100, such as 50 99 99.9"),
        "latency-tracking-info-percentiles",
        redis=_since(7, 0),
    )
    title = r"(?=.*\S)([^{}]|\{\{|\{(title|listen-addr|server-mode|port|tls-port|unixsocket|config-file)\})*"
    yield from _of(Text(title, "text with placeholders such as {title} and {listen-addr}"), "proc-title-template")
    yield from _of(
        Text(),
        "ignore-warnings loadmodule syslog-ident tls-ciphers tls-ciphersuites tls-protocols",
        "aof_rewrite_cpulist=aof-rewrite-cpulist bgsave_cpulist=bgsave-cpulist bio_cpulist=bio-cpulist",
        "server_cpulist=server-cpulist",
    )
    yield from _of(Text(), "locale-collate", redis=_since(7, 2))
    yield from _of(
        Text(), "aof-rewrite-cpulist bgsave-cpulist bio-cpulist server-cpulist", redis=_since(7, 4), valkey=_since(8, 0)
    )
    yield from _of(Text(), "availability-zone debug-context", redis=None, valkey=_since(8, 0))
    yield from _of(Text(), "rdma-bind", redis=None, valkey=_since(8, 1))
    yield from _of(Text(), "hash-seed", redis=None, valkey=_since(9, 1))
    yield from _of(Ignored(), "list-max-ziplist-entries list-max-ziplist-value")
    yield from _of(Bool(), "lua-replicate-commands", redis=((6, 2), (7, 0)), valkey=None)
    yield from _of(Ignored(), "lua-replicate-commands", redis=_since(7, 0))
    yield from _of(Ignored(), "io-threads-do-reads", redis=_since(8, 0), valkey=_since(8, 1))
    yield from _of(Ignored(), "dynamic-hz", redis=None, valkey=_since(8, 1))
    yield from _of(Ignored(), "events-per-io-thread", redis=None, valkey=_since(9, 1))
    yield from _of(Ignored(), "sanitize-dump-payload", redis=None, valkey=_since(9, 1))


def _table() -> Mapping[str, tuple[Directive, ...]]:
    found: dict[str, tuple[Directive, ...]] = {}
    parts: Iterable[Callable[[], Iterator[tuple[str, Directive]]]] = (_bools, _choices, _integers, _amounts, _texts)
    for part in parts:
        for name, directive in part():
            found[name] = (*found.get(name, ()), directive)
    return found


TABLE: Mapping[str, tuple[Directive, ...]] = _table()
"""Directives by name; several if the type changed between versions."""

_OF_MODULES = re.compile(r".*\..*|(search|ts|bf|cf)-.*", re.DOTALL)
"""Names of directives that modules define: with a dot, and those of the modules in the images of redis 8."""


def find(name: str, engine: Engine) -> Directive | None:
    """Return a directive as an engine has it; None if the table has none for this version."""
    return next((each for each in TABLE.get(name, ()) if each.exists_in(engine)), None)


def present_name(name: str) -> str:
    """Return the present name of a directive: two names of one directive have the same."""
    return next((each.same_as for each in TABLE.get(name, ()) if each.same_as), name)


def refusal(name: str, value: str, engine: Engine, *, modules: bool = False) -> str:
    """Return why an engine refuses a directive, as the rest of a sentence after its name; empty if it accepts it.

    Args:
        value: all arguments, separated by spaces.
        modules: whether modules are loaded, which define directives of their own.
    """
    directive, is_newer = find(name, engine), engine.version.series > KNOWN[engine.name]
    if directive is None:
        if modules or is_newer or _OF_MODULES.fullmatch(name):
            return ""
        return f"is not a directive of {engine.name} {_dotted(engine)}"
    if is_newer and isinstance(directive.kind, OneOf | Words | Events):
        return ""
    try:
        directive.kind.normal(value)
    except ValueError:
        return f"accepts {directive.kind.accepted}"
    return ""


def same(name: str, desired: str, actual: str, engine: Engine) -> bool | None:
    """Return whether a value of a server means the desired one; None if the table does not know the directive."""
    is_short = len(desired) + len(actual) <= _REMEMBERED_BYTES
    return (_same_remembered if is_short else _same)(name, desired, actual, engine)


def _same(name: str, desired: str, actual: str, engine: Engine) -> bool | None:
    directive = find(name, engine)
    if directive is None:
        return True if desired == actual else None
    try:
        expected, found = directive.kind.normal(desired), directive.kind.normal(actual)
    except ValueError:  # of another build, or below a limit that only the operator has
        return desired == actual
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.items() <= found.items()
    return expected == found


_REMEMBERED_BYTES = 1024
"""Maximum size of values whose comparison is remembered."""

_same_remembered = lru_cache(maxsize=4096)(_same)  # the servers of a cluster report the same few values


def _dotted(engine: Engine) -> str:
    return ".".join(map(str, engine.version.series))
