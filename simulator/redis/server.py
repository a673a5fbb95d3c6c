"""Connection of the operator to one server of `SimulatedRedis`."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from operators.redis.client.errors import Denied, Loading, Refused, Unreachable
from operators.redis.client.server import Access, Command, Endpoint
from simulator.faults import Crash
from simulator.redis import cluster, data, tls
from simulator.redis.client import Entry
from simulator.redis.node import database_of, slot_of
from simulator.redis.process import DEFAULTS, Process, digest

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

Words = Sequence[bytes]

LATENCY = 0.02
"""Seconds that a round trip with write commands takes."""

REWRITE_SECONDS = 3.0
"""Time in which a server writes its first append-only file, or a snapshot."""

HANDSHAKE_POLL = 0.1
"""Seconds between inspections of a handshake, which tests do not wait for."""

_DENIED, _LATER = ("NOAUTH", "NOPERM", "WRONGPASS"), ("LOADING", "BUSY", "MASTERDOWN")

_CLUSTER_READS = (
    "NODES",
    "INFO",
    "MYID",
    "SLOTS",
    "SHARDS",
    "KEYSLOT",
    "COUNTKEYSINSLOT",
    "GETKEYSINSLOT",
    "GETSLOTMIGRATIONS",
    "MIGRATION STATUS",
)

READS = frozenset(
    {"PING", "INFO", "DBSIZE", "CONFIG GET", "ACL LIST", "ACL WHOAMI", "ACL GETUSER", "ROLE", "GET", "EXISTS", "TYPE"}
    | {"ASKING", "READONLY", "WAIT", "DUMP", "MEMORY USAGE", "FUNCTION LIST", "FUNCTION RESTORE"}
    | {"CLIENT LIST", "CLIENT KILL", "SELECT", "TIME", "MULTI", "EXEC"}
    | {f"CLUSTER {word}" for word in _CLUSTER_READS}
)
"""Commands that change nothing."""


class Life:
    """Lifetime of one process of the operator: after a crash its requests fail.

    Attributes:
        crash: exception that ended the process.
    """

    def __init__(self) -> None:
        self.crash: Crash | None = None


class FakeServer:
    """`operators.redis.client.server.Server` of a fake."""

    def __init__(self, redis: SimulatedRedis, life: Life, endpoint: Endpoint, access: Access) -> None:
        self._redis = redis
        self._life = life
        self._endpoint = endpoint
        self._access = access
        self._redirected = False
        self._database = 0
        self._offset = 0
        self._counts: Counter[tuple[int, int]] | None = None

    async def execute(self, *command: str | int | bytes) -> Any:
        (answer,) = await self.pipe((command,))
        if isinstance(answer, Refused):
            raise answer
        return answer

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        await asyncio.sleep(0)  # yields to other tasks, as a real request does
        if self._life.crash is not None:
            raise self._life.crash
        self._redis.advance()
        process = self._reached()
        self._enter(process)
        batch = [_parsed(command) for command in commands]
        self._counts = None
        try:
            self._redis.batch += 1
            answers: list[Any] = []
            for name, words in batch:
                if name == "EXEC":
                    answers.append(answers[max(at for at, (each, _) in enumerate(batch) if each == "MULTI") + 1 :])
                else:
                    answers.append(self._answer(process, name, words))
            data.arrive(self._redis, process)
        except Crash as crash:
            self._life.crash = crash
            raise
        finally:
            if any(name not in READS for name, _ in batch):
                self._redis.pass_by(LATENCY)
            late = self._redis.pass_stall()
        if late:
            raise Unreachable(f"{self._endpoint.name} gave no answer in time.")
        return answers

    async def aclose(self) -> None:
        pass

    def _reached(self) -> Process:
        """Return the server at the address.

        Raises:
            Unreachable: no server answers there, or one that uses TLS differently.
        """
        redis, endpoint = self._redis, self._endpoint
        process = redis.at(endpoint.address, endpoint.port) if endpoint.address else None
        if redis.cut_off or process is None or process.pod in redis.hidden:
            raise Unreachable(f"{endpoint.name} cannot be reached.")
        if self._access.authority == "":
            raise Unreachable(f"{endpoint.name} is not contacted.")
        if process.tls and process.pod == endpoint.name and self._access.authority is None:
            redis.guard.fail(f"{endpoint.name} is contacted without TLS")
        if bool(process.tls) != bool(self._access.authority):
            raise Unreachable(f"{endpoint.name}: TLS {'is' if process.tls else 'is not'} spoken here.")
        if process.tls is not None:
            process.tls.require_client(endpoint.name, self._access)
        return process

    def _enter(self, process: Process) -> None:
        given = [password for password in (self._access.password, *self._access.former) if password]
        if not process.passwords or any(process.opens(password) for password in given):
            return
        if given:
            raise Denied("WRONGPASS invalid username-password pair or user is disabled.")
        raise Denied("NOAUTH Authentication required.")

    def _answer(self, process: Process, name: str, words: Words) -> Any:
        lost, writes = None, name not in READS
        if writes:
            self._counts = None
            lost = self._redis.strike(f"{name} at {process.pod}")
            if lost is not None and not lost:
                raise Unreachable(f"{self._endpoint.name} gave no answer to {name} in time.")
        if not process.runs:
            raise Unreachable(f"{self._endpoint.name} closed the connection.")
        try:
            answer = self._carry_out(process, name, words)
        except Refused as refused:
            kind = Denied if refused.code in _DENIED else Loading if refused.code in _LATER else Refused
            answer = kind(f"{self._endpoint.name} refuses {name}: {refused}", refused.code)
        self._offset = process.node.offset
        if writes:
            self._redis.after(f"{name} at {process.pod}")
        if lost or not process.runs:
            raise Unreachable(f"{self._endpoint.name} gave no answer to {name} in time.")
        return answer

    def _carry_out(self, process: Process, name: str, words: Words) -> Any:
        redis = self._redis
        if name == "CLUSTER COUNTKEYSINSLOT":
            return self._count(process, cluster.slot_number(words[2]))
        if name.startswith("CLUSTER "):
            if name == "CLUSTER NODES" and any(known.in_handshake for known in process.node.others):
                redis.pass_by(HANDSHAKE_POLL)
            return cluster.carry_out(redis, process, name.partition(" ")[2], words[2:], self._database)
        if name == "SELECT":
            return self._select(process, int(words[1]))
        redirected, self._redirected = self._redirected, False
        if name == "ASKING":
            self._redirected = True
            return "OK"
        if name == "EVAL":
            if words[2] != b"0":
                data.route(redis, process, words[3:4], redirected=redirected)
            return _evaluate(redis, process, words)
        if name in ("GET", "SET", "DEL", "EXISTS"):
            return self._data(process, name, words[1:], redirected=redirected)
        if name == "MIGRATE":
            answer = data.migrate(redis, process, words[1:])
            redis.touch(words[3:], f"{name} at {process.pod}")
            return answer
        if name == "WAIT":
            return data.wait(redis, process, self._offset)
        known = _COMMANDS.get(name)
        if known is None:
            raise Refused(f"ERR unknown command '{name}' (the fake does not know it)")
        return known(redis, process, words)

    def _count(self, process: Process, slot: int) -> int:
        """Return the number of keys of a slot: an inspection counts those of thousands of slots, one by one."""
        if not process.node.me.slots >> slot & 1 and slot not in process.node.importing and process.imports_slots:
            return 0  # clusterCanAccessKeysInSlot in cluster.c of Redis 8.4
        if self._counts is None:
            self._counts = Counter((slot_of(key), database_of(key)) for key in process.node.keys)
        return self._counts[slot, self._database]

    def _select(self, process: Process, database: int) -> str:
        """Select a database: a node of a cluster has one, unless it is a Valkey 9 with several."""
        if database >= int(process.config("cluster-databases") or 1):
            raise Refused("ERR DB index is out of range")
        self._database = database
        return "OK"

    def _data(self, process: Process, name: str, words: Words, *, redirected: bool) -> Any:
        redis, keys = self._redis, process.node.keys
        data.route(redis, process, words[:1] if name == "SET" else words, redirected=redirected)
        if name == "GET":
            return keys[words[0]].text if words[0] in keys else None
        if name == "SET":
            keys[words[0]] = Entry(0, text=words[1])
            data.wrote(process)
            return "OK"
        found = [word for word in words if word in keys]
        if name == "DEL":
            for word in found:
                del keys[word]
            data.wrote(process)
            redis.guard.inspect(redis, f"the operator deletes keys at {process.pod}", found)
        return len(found)


def _evaluate(redis: SimulatedRedis, process: Process, words: Words) -> Any:
    """Carry out one of the operator's scripts: the digests of keys, or the deletion of a key if it has a digest."""
    script, count, *more = words[1:]
    if b"GETKEYSINSLOT" in script:
        slot, *digests = more
        in_slot = {hashlib.sha1(key, usedforsecurity=False).hexdigest(): key for key in process.node.in_slot(int(slot))}
        return [in_slot[each.decode()].hex() for each in digests if each.decode() in in_slot]
    if count == b"0":
        slot, *keys = more
        if not process.node.in_slot(int(slot), 0):
            return []
        return [_digest_of(process.node.keys.get(key)) or "" for key in keys]
    key, *digests = more
    found = _digest_of(process.node.keys.get(key))
    if b"'DEL'" not in script:
        return found
    if found is None or found.encode() != digests[0]:
        return 0
    del process.node.keys[key]
    data.wrote(process)
    redis.guard.inspect(redis, f"the operator deletes a key at {process.pod}", [key])
    return 1


def _restore_functions(redis: SimulatedRedis, process: Process, _: Words) -> Any:
    if process.pod in redis.full:
        raise Refused("OOM command not allowed when used memory > 'maxmemory'.")
    return "OK"


def _digest_of(value: Entry | None) -> str | None:
    return None if value is None else hashlib.sha1(repr(value).encode(), usedforsecurity=False).hexdigest()


@lru_cache(maxsize=1 << 15)  # more than one for each slot: an inspection sends the same commands to every server
def _parsed(command: Command) -> tuple[str, Words]:
    """Return the name and the words of a command."""
    words = tuple(word if isinstance(word, bytes) else str(word).encode() for word in command)
    return name_of(words), words


def name_of(words: Words) -> str:
    """Return the name of a command, with its subcommand if it has one."""
    first = words[0].decode().upper()
    if [word.upper() for word in words[:2]] == [b"CLUSTER", b"MIGRATION"]:
        return f"CLUSTER MIGRATION {words[2].decode().upper()}"
    if first in ("ACL", "CLIENT", "CLUSTER", "CONFIG", "MEMORY", "DEBUG", "SCRIPT", "FUNCTION") and len(words) > 1:
        return f"{first} {words[1].decode().upper()}"
    return first


def _info(redis: SimulatedRedis, process: Process, _: Words) -> str:
    node = process.node
    valkey = process.engine == "valkey"
    lines: dict[str, object] = {
        "redis_version": "7.2.4" if valkey else process.version,
        **({"server_name": "valkey", "valkey_version": process.version} if valkey else {}),
        "redis_mode": "cluster",
        "run_id": process.run_id,
        "tcp_port": process.port,
        "server_time_usec": int(redis.now * 1_000_000),
        "uptime_in_seconds": int(redis.now) - int(process.began),
        "loading": 0,
        "async_loading": 0,
        "used_memory": 1 << 20 if process.pod not in redis.full else max(process.max_memory, 1 << 30),
        "maxmemory": process.max_memory,
        "maxmemory_policy": process.config("maxmemory-policy"),
        "rdb_bgsave_in_progress": int(process.snapshot is not None),
        "rdb_last_save_time": int(process.saved or process.began),
        "rdb_last_bgsave_status": "ok",
        "aof_enabled": int(process.config("appendonly") == "yes"),
        "aof_rewrite_in_progress": int(bool(process.rewrites_until)),
        "aof_rewrite_scheduled": 0,
        "aof_last_bgrewrite_status": "ok",
        "role": "slave" if node.me.primary else "master",
    }
    if node.me.primary:
        lines |= {
            "master_host": process.source[0],
            "master_port": process.source[1],
            "master_link_status": "up" if process.linked else "down",
            "master_link_down_since_seconds": -1 if process.since is None else int(redis.now - process.since),
            "master_last_io_seconds_ago": 0 if process.linked else -1,
            "master_sync_in_progress": int(bool(process.syncing)),
            "slave_repl_offset": node.offset,
            "slave_read_only": 1,
        }
    followers = redis.connected_to(process)
    lines["connected_slaves"] = len(followers)
    for number, other in enumerate(followers):
        state = "online" if other.linked else "wait_bgsave"
        fields = f"ip={other.address},port={other.port},state={state}"
        lines[f"slave{number}"] = f"{fields},offset={other.node.offset if other.linked else 0},lag=0"
    lines |= {"master_replid": node.history, "master_repl_offset": node.offset, "cluster_enabled": 1}
    lines["master_replid2"] = node.former or "0" * 40
    lines["second_repl_offset"] = node.forked_at + 1 if node.former else -1
    counts = Counter(map(database_of, node.keys))
    if redis.now < process.trimmed[1]:
        counts[0] += process.trimmed[0]
    for database, count in sorted(counts.items()):
        lines[f"db{database}"] = f"keys={count},expires=0,avg_ttl=0"
    return "".join(f"{name}:{value}\r\n" for name, value in lines.items())


_WILDCARDS = frozenset("*?[")


def _config_get(_: SimulatedRedis, process: Process, words: Words) -> list[str]:
    if len(words) == 3 and _WILDCARDS.isdisjoint(name := words[2].decode().lower()):
        value = process.settings.get(name, DEFAULTS.get(name))
        return [] if value is None else [name, value]
    settings, found = DEFAULTS | process.settings, set[str]()
    for pattern in (word.decode().lower() for word in words[2:]):
        if _WILDCARDS.isdisjoint(pattern):
            found |= {pattern} & settings.keys()
        else:
            found |= {name for name in settings if fnmatchcase(name, pattern)}
    return [text for name in sorted(found) for text in (name, settings[name])]


def _config_set(redis: SimulatedRedis, process: Process, words: Words) -> str:
    pairs = [word.decode() for word in words[2:]]
    if process.tls is not None and any(name in tls.FILES for name in pairs[::2]):
        found = tls.loaded({**process.settings, **dict(zip(pairs[::2], pairs[1::2], strict=True))}, process.files)
        if found is None:
            raise Refused("ERR CONFIG SET failed (possibly related to argument 'tls-ca-cert-file') - no such file")
        process.tls = found
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if (name.lower(), value) in redis.refused:
            raise Refused(f"ERR CONFIG SET failed (possibly related to argument '{name}') - not on this machine")
        if name.lower() == "appendonly" and value != process.config("appendonly"):
            if value == "no":
                redis.guard.ends_log(redis, process)
            process.node.logged = False
            process.rewrites_until = redis.now + REWRITE_SECONDS if value == "yes" else 0.0
        process.settings[name.lower()] = value
        if name.lower() == "save":
            process.node.covered &= process.has_save_points
        if name.lower() == "requirepass":
            process.passwords = {digest(value)} if value else set()
    redis.settle(f"the operator sets {', '.join(pairs[::2])} at {process.pod}")
    return "OK"


def _save(redis: SimulatedRedis, process: Process, _: Words) -> str:
    """Begin a snapshot of the present keys (BGSAVE)."""
    if process.snapshot:
        raise Refused("ERR Background save already in progress")
    node = process.node
    process.snapshot = redis.now + REWRITE_SECONDS, dict(node.keys), (node.history, node.offset)
    return "Background saving started"


def _set_user(redis: SimulatedRedis, process: Process, words: Words) -> str:
    """Carry out ACL SETUSER: all rules, or none. Permissions are not simulated."""
    name = words[2].decode()
    passwords = set(process.passwords if name == "default" else process.users.get(name, ()))
    rules = process.rules.get(name, ("off",))
    for rule in (word.decode() for word in words[3:]):
        if ("acl", rule) in redis.refused:
            raise Refused(f"ERR Error in ACL SETUSER modifier '{rule}': Unknown command or category name in ACL")
        if rule in ("resetpass", "reset", "nopass"):
            passwords.clear()
            rules = ("off",) if rule == "reset" else rules
        elif rule in ("on", "off"):
            rules = (rule, *rules[1:])
        elif rule[:1] in "><#!" and rule:
            hashed = digest(rule[1:]) if rule[0] in "><" else rule[1:]
            (passwords.add if rule[0] in ">#" else passwords.discard)(hashed)
        else:
            rules = (*rules, rule)
    if name == "default":
        process.passwords = passwords
    else:
        process.users[name], process.rules[name] = passwords, rules
    redis.settle(f"the operator sets the user of {process.pod}")
    return "OK"


def _delete_users(redis: SimulatedRedis, process: Process, words: Words) -> int:
    found = [name for word in words[2:] if (name := word.decode()) in process.users]
    for name in found:
        del process.users[name], process.rules[name]
    redis.settle(f"the operator deletes a user of {process.pod}")
    return len(found)


def _list_users(_: SimulatedRedis, process: Process, __: Words) -> list[str]:
    users = {"default": process.passwords, **process.users}
    opens = {name: " ".join(f"#{hashed}" for hashed in sorted(passwords)) for name, passwords in users.items()}
    return [f"user {name} on {opens[name] or 'nopass'} sanitize-payload ~* &* +@all" for name in users]


def _user(_: SimulatedRedis, process: Process, words: Words) -> list[Any] | None:
    name = words[2].decode()
    passwords = process.passwords if name == "default" else process.users.get(name)
    if passwords is None:
        return None
    state, *rules = process.rules.get(name, ("on", "+@all"))
    flags = [state, "sanitize-payload", *([] if passwords or name != "default" else ["nopass"])]
    pairs = {"flags": flags, "passwords": sorted(passwords), "commands": " ".join(rules), "keys": "~*"}
    return [part for pair in (pairs | {"channels": "&*", "selectors": []}).items() for part in pair]


def _clients(redis: SimulatedRedis, process: Process, _: Words) -> str:
    """Return the connections of servers whose MIGRATE was not executed yet; the id is the number of the list."""
    found = enumerate(data.connections(redis, process), 1)
    return "".join(f"id={number} addr={address}:40000 cmd=restore-asking\n" for number, address in found)


def _kill(redis: SimulatedRedis, process: Process, words: Words) -> int:
    if words[2] == b"USER":
        return 0
    data.disconnect(redis, process, data.connections(redis, process)[int(words[3]) - 1])
    return 1


def _shut_down(redis: SimulatedRedis, process: Process, _: Words) -> None:
    redis.shut_down(process)


def _flush(redis: SimulatedRedis, process: Process, words: Words) -> str:
    redis.guard.fail(f"{name_of(words)} at {process.pod}")
    return ""


_COMMANDS: dict[str, Callable[[SimulatedRedis, Process, Words], Any]] = {
    "PING": lambda *_: "PONG",
    "MULTI": lambda *_: "OK",
    "TIME": lambda redis, *_: [str(int(redis.now)), "0"],
    "INFO": _info,
    "DBSIZE": lambda _, process, __: len(process.node.keys),
    "CONFIG GET": _config_get,
    "CONFIG SET": _config_set,
    "BGSAVE": _save,
    "CONFIG REWRITE": lambda *_: "OK",
    "ACL SETUSER": _set_user,
    "ACL DELUSER": _delete_users,
    "ACL LIST": _list_users,
    "ACL GETUSER": _user,
    "FUNCTION LIST": lambda *_: [],
    "ACL LOAD": lambda *_: "OK",
    "ACL WHOAMI": lambda *_: "default",
    "FUNCTION RESTORE": _restore_functions,
    "CLIENT LIST": _clients,
    "CLIENT KILL": _kill,
    "MEMORY USAGE": lambda _, process, words: len(process.node.keys.get(words[2], Entry(0)).text) + 50,
    "READONLY": lambda *_: "OK",
    "SHUTDOWN": _shut_down,
    "FLUSHALL": _flush,
    "FLUSHDB": _flush,
}
