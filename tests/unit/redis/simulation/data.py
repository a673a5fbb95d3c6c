"""Keys of `FakeRedis`: how they follow masters, how they move, and a client that writes some all the time.

Source: replication.c, migrateCommand and getNodeByQuery in cluster.c of Redis 7.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from operators.redis.client.errors import Refused
from tests.unit.redis.simulation.node import Node, slot_of
from tests.unit.redis.simulation.process import Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis

KEYS = tuple(f"key:{number}".encode() for number in range(20)) + tuple(
    f"{{hot}}:{number}".encode() for number in range(3)
)
"""What the client writes; the last ones share a slot."""

HOPS = 6
"""Redirections that the client follows."""


@dataclass
class Client:
    """Writes rising numbers.

    Attributes:
        home: the cluster that it writes to.
        idle: whether it writes nothing.
        count: of the last write.
        acknowledged: the last number by key, of which a server said that it is written.
        routes: the address that took a key last.
        refused: how often no server took a write.
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
            address, asking = first, False
            for _ in range(HOPS):
                process = redis.at(address)
                if process is None or process.cluster != self.home:
                    break
                try:
                    put(redis, process, key, str(self.count).encode(), asking=asking)
                except Refused as refused:
                    if refused.code not in ("MOVED", "ASK"):
                        break
                    address, asking = str(refused).split()[2].rpartition(":")[0], refused.code == "ASK"
                else:
                    if not asking:
                        self.routes[key] = address
                    return True
        return False

    def _addresses(self, redis: FakeRedis, best: str) -> Iterator[str]:
        """Whom it asks, in turn."""
        yield best
        yield from (each.address for each in redis.running if each.cluster == self.home and each.address != best)


def route(redis: FakeRedis, process: Process, keys: Sequence[bytes], *, asking: bool, read: bool = False) -> None:
    """Require that a node may answer for keys of one slot.

    Raises:
        Refused: another may, or nobody.
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
        raise Refused(f"ASK {slot} {_address(node, node.migrating[slot])}")
    if slot in node.importing and asking:
        if len(keys) > 1 and missing:
            raise Refused("TRYAGAIN Multiple keys request during rehashing of slot")
        return
    if owner.id != node.id:
        raise Refused(f"MOVED {slot} {owner.address}:{owner.port}")


def put(redis: FakeRedis, process: Process, key: bytes, value: bytes, *, asking: bool = False) -> None:
    """A client writes.

    Raises:
        Refused: it is not taken here and now.
    """
    route(redis, process, [key], asking=asking)
    if process.paused > redis.now:
        raise Refused("BUSY the client waits: writes are paused")
    process.node.keys[key] = value
    wrote(redis, process)


def wrote(redis: FakeRedis, process: Process) -> None:
    """A data set has changed: those who follow hear of it."""
    process.node.offset += 1
    for replica in redis.replicas_of(process):
        redis.replicate(replica)


def replicate(redis: FakeRedis, process: Process) -> None:
    """A replica takes what its master has by now; what it had of its own is gone."""
    lead = process.node.lead
    primary = redis.reached(process, lead.address, lead.port) if lead else None
    if lead is None or primary is None or primary.node.id != lead.id or not _let_in(process, primary):
        if process.linked:
            process.linked, process.since = False, redis.now
        process.syncing = 0.0
        return
    mine, theirs = process.node, primary.node
    if process.pod in redis.lagging:
        if not process.linked and not process.syncing:
            process.syncing = redis.now
        return
    if not process.linked and not _continues(mine, theirs):
        if not process.syncing:
            process.syncing = redis.now
            return
        if process.syncing == redis.now:
            return
        redis.guard.may_overwrite(redis, mine, theirs)
    process.linked, process.since, process.syncing = True, redis.now, 0.0
    if (mine.history, mine.offset) != (theirs.history, theirs.offset):
        mine.keys, mine.history, mine.offset = dict(theirs.keys), theirs.history, theirs.offset


def _let_in(process: Process, primary: Process) -> bool:
    """Whether a master takes its password."""
    return not primary.passwords or primary.opens(process.says("masterauth"))


def _continues(mine: Node, theirs: Node) -> bool:
    """Whether what a node holds is the beginning of what another does."""
    if mine.history == theirs.history:
        return mine.offset <= theirs.offset
    return bool(mine.history) and mine.history == theirs.former and mine.offset <= theirs.turned


def _address(node: Node, node_id: str) -> str:
    known = node.known.get(node_id)
    return f"{known.address}:{known.port}" if known else ":0"


@dataclass(frozen=True)
class Transfer:
    """What MIGRATE was asked."""

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
        Refused: of the keys, some may have gone.
    """
    asked = Transfer.of(words)
    keys, target = asked.keys, redis.reached(process, asked.host, asked.port)
    node = process.node
    slot = slot_of(keys[0])
    if any(slot_of(other) != slot for other in keys):
        raise Refused("CROSSSLOT Keys in request don't hash to the same slot")
    owner = node.owner(slot)
    if slot not in node.migrating and slot not in node.importing and (owner is None or owner.id != node.id):
        raise Refused(f"MOVED {slot} {owner.address}:{owner.port}" if owner else "CLUSTERDOWN Hash slot not served")
    found = [each for each in keys if each in node.keys]
    if not found:
        return "NOKEY"
    if target is None:
        raise Refused("IOERR error or timeout connecting to the client")
    if target.passwords and not target.opens(asked.password):
        raise Refused("ERR Target instance replied with error: NOAUTH Authentication required.")
    failure = ""
    for each in found:
        refusal = _restore(redis, target, each, node.keys[each], replace=asked.replace)
        if not refusal:
            del node.keys[each]
        failure = failure or refusal
    wrote(redis, target)
    wrote(redis, process)
    if failure:
        raise Refused(f"ERR Target instance replied with error: {failure}")
    return "OK"


def _restore(redis: FakeRedis, target: Process, key: bytes, value: bytes, *, replace: bool) -> str:
    """RESTORE-ASKING of one key; returns how it is refused, empty if it is not."""
    node, slot = target.node, slot_of(key)
    owner = node.owner(slot)
    if slot not in node.importing and (owner is None or owner.id != node.id):
        return f"MOVED {slot} {owner.address}:{owner.port}" if owner else "CLUSTERDOWN Hash slot not served"
    if target.pod in redis.full:
        return "OOM command not allowed when used memory > 'maxmemory'."
    if key in node.keys and not replace:
        return "BUSYKEY Target key name already exists."
    node.keys[key] = value
    return ""
