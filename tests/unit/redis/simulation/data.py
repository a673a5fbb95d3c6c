"""Keys of `FakeRedis`: replication, migration, and a client that writes continuously.

Source: replication.c, migrateCommand and getNodeByQuery in cluster.c of Redis 7.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operators.redis.client.errors import Refused
from tests.unit.redis.simulation.node import Known, Node, slot_of
from tests.unit.redis.simulation.process import Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis

KEYS = tuple(f"key:{number}".encode() for number in range(20)) + tuple(
    f"{{hot}}:{number}".encode() for number in range(3)
)
"""Keys that the client writes; the last ones share a slot."""

HOPS = 6
"""Redirections that the client follows."""


@dataclass
class Client:
    """Client that writes increasing numbers.

    Attributes:
        home: cluster that it writes to.
        idle: whether it writes nothing.
        count: number of the last write.
        acknowledged: last acknowledged number, by key.
        routes: address that last accepted a write, by key.
        refused: number of writes that no server accepted.
    """

    home: str = ""
    idle: bool = False
    count: int = 0
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    routes: dict[bytes, str] = field(default_factory=dict)
    refused: int = 0

    def write(self, redis: FakeRedis, keys: Sequence[bytes] = KEYS) -> None:
        for key in keys:
            self.count += 1
            if self._put(redis, key):
                self.acknowledged[key] = self.count
            else:
                self.refused += 1

    def _put(self, redis: FakeRedis, key: bytes) -> bool:
        for first in self._addresses(redis, self.routes.get(key, "")):
            address, redirected = first, False
            for _ in range(HOPS):
                process = redis.at(address)
                if process is None or process.cluster != self.home:
                    break
                try:
                    put(redis, process, key, str(self.count).encode(), redirected=redirected)
                except Refused as refused:
                    if refused.code not in ("MOVED", "ASK"):
                        break
                    address, redirected = str(refused).split()[2].rpartition(":")[0], refused.code == "ASK"
                else:
                    if not redirected:
                        self.routes[key] = address
                    return True
        return False

    def _addresses(self, redis: FakeRedis, best: str) -> Iterator[str]:
        """Yield the addresses to try, best first."""
        yield best
        yield from (each.address for each in redis.running if each.cluster == self.home and each.address != best)


def route(redis: FakeRedis, process: Process, keys: Sequence[bytes], *, redirected: bool, read: bool = False) -> None:
    """Require that a node may serve keys of one slot.

    Raises:
        Refused: another node serves them, or none does.
    """
    node = process.node
    slot = slot_of(keys[0])
    if any(slot_of(key) != slot for key in keys):
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


def put(redis: FakeRedis, process: Process, key: bytes, value: bytes, *, redirected: bool = False) -> None:
    """Write a key as a client does.

    Raises:
        Refused: the node does not accept the write now.
    """
    route(redis, process, [key], redirected=redirected)
    if process.paused > redis.now:
        raise Refused("BUSY the client waits: writes are paused")
    process.node.keys[key] = value
    wrote(redis, process)


def wrote(redis: FakeRedis, process: Process) -> None:
    """Advance the offset after a write, and replicate it."""
    process.node.offset += 1
    for replica in redis.replicas_of(process):
        redis.replicate(replica)


def replicate(redis: FakeRedis, process: Process) -> None:
    """Copy the data set of the primary; a full resync discards what the replica has."""
    lead = process.node.lead
    primary = redis.reached(process, lead.address, lead.port) if lead else None
    if lead is None or primary is None or primary.node.id != lead.id or not _accepts(process, primary):
        if process.linked:
            process.linked, process.since = False, redis.now
        process.syncing = 0.0
        return
    node, source = process.node, primary.node
    if process.pod in redis.lagging:
        if not process.linked and not process.syncing:
            process.syncing = redis.now
        return
    if not process.linked and not _continues(node, source):
        if not process.syncing:
            process.syncing = redis.now
            return
        if process.syncing == redis.now:
            return
        redis.guard.may_overwrite(redis, node, source)
    process.linked, process.since, process.syncing = True, redis.now, 0.0
    if (node.history, node.offset) != (source.history, source.offset):
        node.keys, node.history, node.offset = dict(source.keys), source.history, source.offset


def _accepts(process: Process, primary: Process) -> bool:
    """Whether the primary accepts the replica's password."""
    return not primary.passwords or primary.opens(process.config("masterauth"))


def _continues(node: Node, source: Node) -> bool:
    """Whether the history of a node is a prefix of that of the source (partial resync)."""
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
    def of(cls, words: list[bytes]) -> Transfer:
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


def migrate(redis: FakeRedis, process: Process, words: list[bytes]) -> str:
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
    if target.pod in redis.stalled:  # it receives the command, and executes it after the timeout
        redis.stalled.discard(target.pod)
        redis.late += [(target.pod, each, node.keys[each]) for each in found]
        raise Refused("IOERR error or timeout reading to target instance")
    failure = ""
    for each in found:
        refusal = _restore(redis, target, each, node.keys[each], replace=transfer.replace)
        if not refusal:
            del node.keys[each]
        failure = failure or refusal
    wrote(redis, target)
    wrote(redis, process)
    if failure:
        raise Refused(f"ERR Target instance replied with error: {failure}")
    return "OK"


def arrive(redis: FakeRedis, target: Process) -> None:
    """Carry out the commands of a MIGRATE that timed out."""
    late = [each for each in redis.late if each[0] == target.pod]
    for each in late:
        redis.late.remove(each)
        _restore(redis, target, each[1], each[2], replace=False)
    if late:
        wrote(redis, target)


def _restore(redis: FakeRedis, target: Process, key: bytes, value: bytes, *, replace: bool) -> str:
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
