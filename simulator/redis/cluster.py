"""CLUSTER commands of `SimulatedRedis`.

Source: clusterCommand in cluster.c of Redis 7.0, and cluster_migrateslots.c of Valkey 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from operators.redis.client.errors import Refused
from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.slots.hash_slots import SLOTS
from simulator.redis import atomic_migration
from simulator.redis.bus import bump, start_handshake
from simulator.redis.election import MANUAL_FAILOVER_SECONDS, is_healthy
from simulator.redis.node import ALL, Known, fake_id, slot_of
from simulator.redis.process import Election, Process

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

Words = Sequence[bytes]

FORGET_SECONDS = 60.0
"""Seconds for which a forgotten node is not added again."""


def carry_out(redis: SimulatedRedis, process: Process, name: str, words: Words, database: int = 0) -> Any:
    """Carry out a CLUSTER command, and return its answer.

    Args:
        database: selected database of the connection, whose keys it lists.

    Raises:
        Refused: error of the server.
    """
    if name == "GETKEYSINSLOT":
        return process.node.in_slot(slot_number(words[0]), database)[: int(words[1])]
    known = _COMMANDS.get(name)
    if known is None:
        raise Refused(f"ERR unknown subcommand '{name}'. Try CLUSTER HELP.")
    return known(redis, process, words)


def _info(redis: SimulatedRedis, process: Process, __: Words) -> str:
    node = process.node
    failing = sum(known.slots.bit_count() for known in node.known.values() if known.fails)
    unhealthy = sum(known.slots.bit_count() for known in node.known.values() if known.unhealthy) - failing
    assigned = node.assigned.bit_count()
    lines = {
        "cluster_state": "ok" if process.serves else "fail",
        "cluster_slots_assigned": assigned,
        "cluster_slots_ok": assigned - failing - unhealthy,
        "cluster_slots_pfail": unhealthy,
        "cluster_slots_fail": failing,
        "cluster_known_nodes": len(node.known),
        "cluster_size": node.size,
        "cluster_current_epoch": node.epoch,
        "cluster_my_epoch": (node.lead or node.me).epoch,
    }
    if process.imports_slots:
        lines["cluster_slot_migration_active_trim_running"] = int(redis.now < process.trimmed[1])
    return "".join(f"{name}:{value}\r\n" for name, value in lines.items())


def _meet(redis: SimulatedRedis, process: Process, words: Words) -> str:
    address, port = words[0].decode(), int(words[1]) if len(words) > 1 else PORT
    if not address or port <= 0:
        raise Refused(f"ERR Invalid node address specified: {address}:{port}")
    bus = int(words[2]) if len(words) > 2 else port + BUS_PORT - PORT
    other = redis.peer(process, address, bus)
    if other is not None:
        redis.guard.may_join(redis, process.node, other.node)
    start_handshake(process, address, port, bus, redis.now, meets=True)
    return "OK"


def _forget(redis: SimulatedRedis, process: Process, words: Words) -> str:
    node, other = process.node, _known(process, words[0], "ERR Unknown node {}")
    if other.id == node.id:
        raise Refused("ERR I tried hard but I can't forget myself...")
    if node.me.primary == other.id:
        raise Refused("ERR Can't forget my master!")
    redis.guard.may_forget(redis, process, other.id)
    node.banned[other.id] = redis.now + FORGET_SECONDS
    node.forget(other.id)
    if (forgotten := redis.node(other.id)) is not None:
        redis.delete_directory(forgotten)
    redis.done["forgotten"] += not other.in_handshake
    return "OK"


def _replicate(redis: SimulatedRedis, process: Process, words: Words) -> str:
    node, primary = process.node, _known(process, words[0], "ERR Unknown node {}")
    if primary.id == node.id:
        raise Refused("ERR Can't replicate myself")
    if primary.primary:
        raise Refused("ERR I can only replicate a master, not a replica.")
    if not node.me.primary and (node.me.slots or node.keys):
        raise Refused("ERR To set a master the node must be empty and without assigned slots.")
    if node.me.primary == primary.id and process.follows_gossip:
        return "OK"
    redis.guard.may_replicate(redis, process, primary.id)
    redis.follow(process, primary)
    redis.settle(f"{process.pod} is made a replica")
    return "OK"


def _add_slots(redis: SimulatedRedis, process: Process, slots: int) -> str:
    node = process.node
    if taken := node.assigned & slots:
        raise Refused(f"ERR Slot {(taken & -taken).bit_length() - 1} is already busy")
    redis.guard.may_add(redis, process, slots)
    node.me.slots |= slots
    node.importing = {slot: source for slot, source in node.importing.items() if not slots >> slot & 1}
    redis.settle(f"{process.pod} is assigned slots")
    return "OK"


def _del_slots(redis: SimulatedRedis, process: Process, slots: int) -> str:
    node = process.node
    if free := slots & ~node.assigned:
        raise Refused(f"ERR Slot {(free & -free).bit_length() - 1} is already unassigned")
    for known in node.known.values():
        known.slots &= ~slots
    node.importing = {slot: source for slot, source in node.importing.items() if not slots >> slot & 1}
    if not process.keeps_unclaimed_marks:
        process.unclaimed &= ~slots
    redis.settle(f"{process.pod} forgets owners of slots")
    return "OK"


def _set_slot(redis: SimulatedRedis, process: Process, words: Words) -> str:
    answer = _set_slot_at_primary(redis, process, words)
    if process.replicates_slots:
        _replicate_slot(redis, process, slot_number(words[0]))
    return answer


def _replicate_slot(redis: SimulatedRedis, process: Process, slot: int) -> None:
    """Replicate the marks and the owner of a slot: since Valkey 8, SETSLOT waits until replicas have them."""
    node = process.node
    owner = node.owner(slot)
    for replica in redis.connected_to(process):
        if replica.linked and replica.pod not in redis.lagging:
            replica.node.migrating, replica.node.importing = dict(node.migrating), dict(node.importing)
            if owner is not None and owner.id in replica.node.known:
                replica.node.give(slot, replica.node.known[owner.id])


def _set_slot_at_primary(redis: SimulatedRedis, process: Process, words: Words) -> str:
    node, slot = process.node, slot_number(words[0])
    what = words[1].decode().upper()
    if node.me.primary:
        raise Refused("ERR Please use SETSLOT only with masters.")
    owner = node.owner(slot)
    mine = owner is not None and owner.id == node.id
    if what == "STABLE":
        node.migrating.pop(slot, None)
        node.importing.pop(slot, None)
        return "OK"
    if what == "MIGRATING" and not mine:
        raise Refused(f"ERR I'm not the owner of hash slot {slot}")
    if what == "IMPORTING" and mine:
        raise Refused(f"ERR I'm already the owner of hash slot {slot}")
    unknown = "ERR Unknown node {}" if what == "NODE" else "ERR I don't know about node {}"
    other = _known(process, words[2], unknown)
    if other.primary:
        raise Refused("ERR Target node is not a master")
    if what in ("MIGRATING", "IMPORTING"):
        (node.migrating if what == "MIGRATING" else node.importing)[slot] = other.id
        return "OK"
    if what != "NODE":
        raise Refused("ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP")
    _hand_over(redis, process, slot, other)
    redis.touch_slot(slot, f"{process.pod} sets the owner of slot {slot} to {redis.name(other.id)}")
    return "OK"


def _hand_over(redis: SimulatedRedis, process: Process, slot: int, to: Known) -> None:
    node = process.node
    owner = node.owner(slot)
    mine = owner is not None and owner.id == node.id
    if mine and to.id != node.id and node.in_slot(slot):
        raise Refused(
            f"ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot."
        )
    redis.guard.may_own(redis, process, slot, to.id)
    if not process.keeps_unclaimed_marks:
        process.unclaimed &= ~(1 << slot)
    if not node.in_slot(slot):
        node.migrating.pop(slot, None)
    if to.id == node.id and slot in node.importing:
        node.give(slot, to)
        bump(process)
        del node.importing[slot]
        redis.done["slots moved"] += 1
    node.give(slot, to)
    allowed = process.config("cluster-allow-replica-migration") == "yes"
    if mine and not node.me.slots and to.id != node.id and allowed:
        redis.follow(process, to)


def _set_epoch(_: SimulatedRedis, process: Process, words: Words) -> str:
    node, epoch = process.node, int(words[0])
    if epoch < 0:
        raise Refused(f"ERR Invalid config epoch specified: {epoch}")
    if len(node.known) > 1:
        raise Refused("ERR The user can assign a config epoch only when the node does not know any other node.")
    if node.me.epoch:
        raise Refused("ERR Node config epoch is already non-zero")
    node.me.epoch = epoch
    node.epoch = max(node.epoch, epoch)
    return "OK"


def _fail_over(redis: SimulatedRedis, process: Process, words: Words) -> str:
    node, mode = process.node, words[0].decode().upper() if words else ""
    if mode not in ("", "FORCE", "TAKEOVER"):
        raise Refused("ERR syntax error")
    if not node.me.primary:
        raise Refused("ERR You should send CLUSTER FAILOVER to a replica")
    lead = node.lead
    if lead is None:
        raise Refused("ERR I'm a replica but my master is unknown to me")
    if not mode and (lead.fails or redis.peer(process, lead.address, lead.bus) is None):
        raise Refused("ERR Master is down or failed, please use CLUSTER FAILOVER FORCE")
    redis.guard.may_promote(redis, process, mode)
    if mode == "TAKEOVER":
        bump(process)
        redis.take_over(process, node.me.epoch, f"{process.pod} takes over")
    else:
        process.election = Election(manual=redis.now + MANUAL_FAILOVER_SECONDS, forced=bool(mode))
    return "OK"


def _reset(redis: SimulatedRedis, process: Process, words: Words) -> str:
    node, hard = process.node, bool(words) and words[0].upper() == b"HARD"
    if not node.me.primary and node.keys:
        raise Refused("ERR CLUSTER RESET can't be called with master nodes containing keys")
    redis.guard.may_reset(redis, process, hard=hard)
    if node.me.primary:
        node.keys, node.offset, node.history = {}, 0, fake_id("history", node.unique("reset"))
    process.source, process.linked, process.since, process.election = ("", 0), False, None, Election()
    me = node.me
    me.primary, me.slots = "", 0
    node.known, node.migrating, node.importing = {me.id: me}, {}, {}
    node.family = fake_id("family", node.unique("reset"))
    process.serves = is_healthy(redis, process)
    redis.settle(f"{process.pod} is reset")
    return "OK"


def _known(process: Process, word: bytes, otherwise: str) -> Known:
    found = process.node.known.get(word.decode())
    if found is None:
        raise Refused(otherwise.format(word.decode()))
    return found


def slot_number(word: bytes) -> int:
    """Return the slot that a word of a command names."""
    try:
        slot = int(word)
    except ValueError:
        slot = -1
    if not 0 <= slot < SLOTS:
        raise Refused("ERR Invalid or out of range slot")
    return slot


def _listed(words: Words) -> int:
    """Return the mask of slots that are listed one by one."""
    mask = 0
    for word in words:
        bit = 1 << slot_number(word)
        if mask & bit:
            raise Refused(f"ERR Slot {slot_number(word)} specified multiple times")
        mask |= bit
    return mask


def _ranged(words: Words) -> int:
    """Return the mask of slots that are listed as the first and last of each range."""
    mask = 0
    for first, last in zip(words[::2], words[1::2], strict=True):
        mask |= (1 << (slot_number(last) + 1)) - (1 << slot_number(first))
    return mask & ALL


_COMMANDS: dict[str, Callable[[SimulatedRedis, Process, Words], Any]] = {
    "NODES": lambda _, process, __: process.node.cluster_nodes(),
    "INFO": _info,
    "MYID": lambda _, process, __: process.node.id,
    "MEET": _meet,
    "FORGET": _forget,
    "REPLICATE": _replicate,
    "ADDSLOTS": lambda redis, process, words: _add_slots(redis, process, _listed(words)),
    "ADDSLOTSRANGE": lambda redis, process, words: _add_slots(redis, process, _ranged(words)),
    "DELSLOTS": lambda redis, process, words: _del_slots(redis, process, _listed(words)),
    "DELSLOTSRANGE": lambda redis, process, words: _del_slots(redis, process, _ranged(words)),
    "SETSLOT": _set_slot,
    "SET-CONFIG-EPOCH": _set_epoch,
    "BUMPEPOCH": lambda _, process, __: f"{'BUMPED' if bump(process) else 'STILL'} {process.node.me.epoch}",
    "FAILOVER": _fail_over,
    "RESET": _reset,
    "KEYSLOT": lambda _, __, words: slot_of(words[0]),
    "MIGRATESLOTS": atomic_migration.migrate_slots,
    "GETSLOTMIGRATIONS": atomic_migration.migrations,
    "CANCELSLOTMIGRATIONS": atomic_migration.cancel,
    "MIGRATION IMPORT": atomic_migration.import_slots,
    "MIGRATION STATUS": atomic_migration.tasks,
    "MIGRATION CANCEL": atomic_migration.cancel_tasks,
}
