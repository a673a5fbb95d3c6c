"""Keys of `SimulatedRedis`: routing, writes, replication and migration.

Replication is asynchronous: a replica receives what was written before, when time passes or a client waits for it
(WAIT), never with the write itself.

Source: replication.c, migrateCommand and getNodeByQuery in cluster.c of Redis 7.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from operators.redis.client.errors import Refused
from simulator.redis.client import Entry, apply
from simulator.redis.node import Known, Node, slot_of
from simulator.redis.process import Process

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis


def route(
    redis: SimulatedRedis, process: Process, keys: Sequence[bytes], *, redirected: bool, read: bool = False
) -> None:
    """Require that a node may serve keys of one slot.

    Raises:
        Refused: another node serves them, or none does.
    """
    node = process.node
    slot = slot_of(keys[0])
    if len(keys) > 1 and any(slot_of(key) != slot for key in keys):
        raise Refused("CROSSSLOT Keys in request don't hash to the same slot")
    owner = node.owner(slot)
    if owner is None:
        raise Refused("CLUSTERDOWN Hash slot not served")
    if not process.serves:
        raise Refused("CLUSTERDOWN The cluster is down")
    missing = sum(key not in node.keys for key in keys)
    if owner.id == node.id and slot in node.migrating and missing:
        if missing < len(keys):
            raise Refused("TRYAGAIN Multiple keys request during rehashing of slot")
        raise Refused(_redirection("ASK", slot, node.known.get(node.migrating[slot])))
    if slot in node.importing and redirected:
        if len(keys) > 1 and missing:
            raise Refused("TRYAGAIN Multiple keys request during rehashing of slot")
        return
    if owner.id != node.id:
        raise Refused(_redirection("MOVED", slot, owner))


def write(
    redis: SimulatedRedis, process: Process, key: bytes, operation: str, number: int, *, redirected: bool = False
) -> tuple[Entry | None, Entry | None]:
    """Carry out a client's write; return the value before and after it.

    Raises:
        Refused: the node does not accept the write now.
    """
    before = expire(redis, process.node, key)
    route(redis, process, [key], redirected=redirected)
    if process.paused > redis.now:
        raise Refused("BUSY the client waits: writes are paused")
    least = int(process.config("min-replicas-to-write"))
    if least and sum(other.linked for other in redis.connected_to(process)) < least:
        raise Refused("NOREPLICAS Not enough good replicas to write.")
    after = apply(operation, number, before, redis.now)
    store(process.node, key, after)
    wrote(process)
    return before, after


def put(redis: SimulatedRedis, process: Process, key: bytes, text: bytes) -> None:
    """Set a key as a client of which the guard knows nothing.

    Raises:
        Refused: the node does not accept the write now.
    """
    route(redis, process, [key], redirected=False)
    process.node.keys[key] = Entry(0, text=text)
    wrote(process)


def store(node: Node, key: bytes, value: Entry | None) -> None:
    """Set or delete a key."""
    if value is None:
        node.keys.pop(key, None)
    else:
        node.keys[key] = value


def expire(redis: SimulatedRedis, node: Node, key: bytes) -> Entry | None:
    """Return the value of a key, which is deleted if it has expired."""
    value = node.keys.get(key)
    if value is not None and value.expires and value.expires <= redis.now:
        del node.keys[key]
        return None
    return value


def wrote(process: Process) -> None:
    """Advance the offset after a write."""
    process.node.offset += 1


def wait(redis: SimulatedRedis, process: Process, offset: int) -> int:
    """Wait until the replicas have everything up to an offset; return how many have.

    Args:
        offset: replication offset after the last command of the connection *before* WAIT (`client->woff`). A connection
            that sent nothing since others wrote waits for nothing.
    """
    linked = [other for other in redis.connected_to(process) if other.linked and other.pod not in redis.lagging]
    for other in linked:
        if other.node.offset < offset:
            redis.replicate(other)
    return sum(other.node.offset >= offset for other in linked)


def replicate(redis: SimulatedRedis, process: Process) -> None:
    """Copy the data set of the server at the address that the replica has; a full resync discards what it has.

    The server may belong to another cluster: no id is compared (syncWithMaster in replication.c of Redis 7.0).
    """
    primary = _connected(redis, process)
    if primary is None:
        if process.linked:
            process.linked, process.since = False, redis.now
        process.requested = process.syncing = 0.0
        return
    node, source = process.node, primary.node
    if process.pod in redis.lagging:
        if process.linked:
            redis.guard.connected(redis, node)
        elif not process.syncing:
            process.syncing = redis.now
        return
    if not process.linked and not _continues(node, source):
        if not _begins_transfer(redis, process, primary):
            return
        redis.guard.may_overwrite(redis, node, primary)
        node.backlog = source.offset
    redis.guard.may_copy(process, primary)
    process.linked, process.since, process.requested, process.syncing = True, redis.now, 0.0, 0.0
    if (node.history, node.offset) != (source.history, source.offset):
        node.keys, node.history, node.offset = dict(source.keys), source.history, source.offset
    redis.guard.replicated(node, source)
    redis.guard.connected(redis, node)
    if primary.replicates_slots:  # a full sync has them as well
        node.migrating, node.importing = dict(source.migrating), dict(source.importing)


def _connected(redis: SimulatedRedis, process: Process) -> Process | None:
    """Return the server that a replica is connected to; None if there is none, or if it refuses."""
    lead = process.node.lead
    if lead is None:
        return None
    if not process.source[0]:  # clusterCron
        process.source = lead.address, lead.port
    primary = redis.reached(process, *process.source)
    if primary is None or not _serves_replicas(primary) or not _accepts(process, primary):
        return None
    if process.peer != primary.run_id:  # the connection to the former server broke
        process.peer, process.linked, process.requested, process.syncing = primary.run_id, False, 0.0, 0.0
    return primary


def _begins_transfer(redis: SimulatedRedis, process: Process, primary: Process) -> bool:
    """Whether a full sync is complete that a replica has requested, and that takes no time after its delay."""
    process.requested = process.requested or redis.now
    if redis.now - process.requested < primary.sync_delay:
        return False
    process.syncing = process.syncing or redis.now
    return process.syncing != redis.now


def _serves_replicas(primary: Process) -> bool:
    """Whether a server has data to replicate: a replica without its own primary refuses (NOMASTERLINK)."""
    return not primary.node.me.primary or primary.linked


def _accepts(process: Process, primary: Process) -> bool:
    """Whether the primary accepts the replica now, as if it connected again at any moment."""
    return primary.admits(process)


def _continues(node: Node, source: Node) -> bool:
    """Whether the history of a node is a prefix of that of the source (partial resync)."""
    if node.offset < source.backlog:
        return False
    if node.history == source.history:
        return node.offset <= source.offset
    return bool(node.history) and node.history == source.former and node.offset <= source.forked_at


def _redirection(kind: str, slot: int, to: Known | None) -> str:
    """Return the text of a `MOVED` or `ASK` error."""
    return f"{kind} {slot} {to.address}:{to.port}" if to else f"{kind} {slot} :0"


@dataclass(frozen=True)
class Transfer:
    """Arguments of MIGRATE."""

    host: str
    port: int
    keys: list[bytes]
    replace: bool
    password: str

    @classmethod
    def of(cls, words: Sequence[bytes]) -> Transfer:
        host, port, key, _, _, *options = words
        keys, password, replace = [key] if key else [], b"", False
        while options:
            word = options.pop(0).upper()
            if word == b"KEYS":
                keys, options = options, []
            elif word == b"AUTH":
                password = options.pop(0)
            elif word == b"AUTH2":
                _, password = options.pop(0), options.pop(0)
            replace = replace or word == b"REPLACE"
        return cls(host.decode(), int(port), keys, replace, password.decode())


def migrate(redis: SimulatedRedis, process: Process, words: Sequence[bytes]) -> str:
    """MIGRATE host port key|"" db timeout [REPLACE] [AUTH password] [AUTH2 user password] [KEYS key …].

    Raises:
        Refused: some of the keys may have moved.
    """
    transfer = Transfer.of(words)
    keys, target = transfer.keys, redis.reached(process, transfer.host, transfer.port)
    node = process.node
    slot = slot_of(keys[0])
    if any(slot_of(other) != slot for other in keys):
        raise Refused("CROSSSLOT Keys in request don't hash to the same slot")
    owner = node.owner(slot)
    if slot not in node.migrating and slot not in node.importing and (owner is None or owner.id != node.id):
        raise Refused(_redirection("MOVED", slot, owner) if owner else "CLUSTERDOWN Hash slot not served")
    found = [each for each in keys if each in node.keys]
    if not found:
        return "NOKEY"
    if target is None:
        raise Refused("IOERR error or timeout connecting to the client")
    if target.passwords and not target.opens(transfer.password):
        raise Refused("ERR Target instance replied with error: NOAUTH Authentication required.")
    moving = {each: node.keys[each] for each in found}
    if target.pod in redis.stalled:  # it receives the command, and executes it after the timeout
        redis.stalled.discard(target.pod)
        redis.done["timed out"] += 1
        redis.late += [Late(target.pod, process.address, each, value, redis.now) for each, value in moving.items()]
        raise Refused("IOERR error or timeout reading to target instance")
    failure, moved = restore(redis, target, moving, replace=transfer.replace)
    for each in moved:
        del node.keys[each]
    wrote(process)
    redis.guard.moved(redis, process, target, moved)
    if failure:
        raise Refused(f"ERR Target instance replied with error: {failure}")
    return "OK"


def restore(
    redis: SimulatedRedis, target: Process, moving: dict[bytes, Entry], *, replace: bool
) -> tuple[str, list[bytes]]:
    """Carry out RESTORE-ASKING of keys; return the first error, and the keys that were stored."""
    failure, stored = "", []
    for key, value in moving.items():
        refusal = _restore(redis, target, key, value, replace=replace)
        failure = failure or refusal
        if not refusal:
            stored.append(key)
    wrote(target)
    return failure, stored


class Late(NamedTuple):
    """A RESTORE of a MIGRATE that timed out, which the target has not executed yet.

    Attributes:
        pod: target.
        source: address of the source, whose connection to the target has the command.
        since: time of the MIGRATE, in seconds.
    """

    pod: str
    source: str
    key: bytes
    value: Entry
    since: float


def arrive(redis: SimulatedRedis, target: Process) -> None:
    """Carry out the commands of a MIGRATE that timed out, once `SimulatedRedis.lateness` has passed."""
    due = [each for each in redis.late if each.pod == target.pod and redis.now - each.since >= redis.lateness]
    for each in due:
        redis.late.remove(each)
        _restore(redis, target, each.key, each.value, replace=False)
    if due:
        wrote(target)


def connections(redis: SimulatedRedis, target: Process) -> list[str]:
    """Return the addresses of the servers whose MIGRATE a target has not executed yet."""
    return sorted({each.source for each in redis.late if each.pod == target.pod})


def disconnect(redis: SimulatedRedis, target: Process, source: str) -> None:
    """Close the connection of such a server: the target drops the commands that it has not executed."""
    redis.late = [each for each in redis.late if (each.pod, each.source) != (target.pod, source)]


def _restore(redis: SimulatedRedis, target: Process, key: bytes, value: Entry, *, replace: bool) -> str:
    """Carry out RESTORE-ASKING of one key; return the error, or an empty string."""
    node, slot = target.node, slot_of(key)
    owner = node.owner(slot)
    if slot not in node.importing and (owner is None or owner.id != node.id):
        return _redirection("MOVED", slot, owner) if owner else "CLUSTERDOWN Hash slot not served"
    if target.pod in redis.full:
        return "OOM command not allowed when used memory > 'maxmemory'."
    if key in node.keys and not replace:
        return "BUSYKEY Target key name already exists."
    node.keys[key] = value
    return ""
