"""What nodes of `FakeRedis` tell each other: who is there, who owns what, who fails.

A header says what its sender is; gossip says what it has heard of some others. All of it may be old. Who is right is
decided by config epochs alone, as in Redis.

Source: clusterProcessPacket, clusterProcessGossipSection, clusterUpdateSlotsConfigWith and
clusterHandleConfigEpochCollision in cluster.c of Redis 7.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.unit.redis.simulation.node import FAILED, HANDSHAKE, NOADDR, SUSPECTED, UNKNOWN, Known, Node
from tests.unit.redis.simulation.process import Process

if TYPE_CHECKING:
    from tests.unit.redis.simulation.database import FakeRedis

GOSSIP = 3
"""Nodes that a message tells of, besides those that are suspected: a tenth of all, and at least three."""


@dataclass(frozen=True, slots=True)
class Rumour:
    """What somebody says of a third."""

    id: str
    address: str
    port: int
    doubted: bool
    replica: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A header, with gossip.

    Attributes:
        source: the sender's address, as the connection has it.
        epoch: the newest that the sender has heard of.
        config_epoch, slots: its own; a replica's are those of its master.
    """

    id: str
    source: str
    port: int
    epoch: int
    config_epoch: int
    slots: int
    primary: str
    offset: int
    rumours: tuple[Rumour, ...]


def message(process: Process, turn: int) -> Message:
    """What a process says of itself, and of some others: the next ones each turn."""
    node, me = process.node, process.node.me
    lead = node.lead if me.primary else me
    peers = [known for known in node.others if not known.flags & {HANDSHAKE, NOADDR}]
    calm = [known for known in peers if SUSPECTED not in known.flags]
    count = min(len(calm), max(GOSSIP, len(node.known) // 10))
    told = [calm[(turn + step) % len(calm)] for step in range(count)]
    told += [known for known in peers if SUSPECTED in known.flags]
    return Message(
        id=node.id,
        source=process.address,
        port=process.port,
        epoch=node.epoch,
        config_epoch=lead.epoch if lead else 0,
        slots=lead.slots if lead else 0,
        primary=me.primary,
        offset=node.offset,
        rumours=tuple(
            Rumour(known.id, known.address, known.port, known.doubted, bool(known.primary)) for known in told
        ),
    )


def converse(redis: FakeRedis, process: Process, known: Known) -> None:
    """Ping somebody, or meet; and hear the answer, if there is one."""
    other = redis.reached(process, known.address, known.port)
    if other is None:
        return
    if known.shakes:
        redis.guard.may_join(redis, process.node, other.node)
    receive(redis, other, message(process, redis.turn), meets=known.meets)
    answered(redis, process, known, message(other, redis.turn))


def receive(redis: FakeRedis, process: Process, heard: Message, *, meets: bool = False) -> None:
    """Take in what somebody says."""
    node = process.node
    sender = node.known.get(heard.id)
    if meets and sender is None:
        shake(process, heard.source, heard.port, redis.now, meets=False)
    if meets:
        listen(redis, process, heard, sender)
    if sender is None or sender.shakes or sender.id == node.id:
        return
    if not meets and sender.address != heard.source:  # it speaks from there, so that is where it is
        sender.address, sender.port = heard.source, heard.port
        sender.flags.discard(NOADDR)
    believe(redis, process, sender, heard)
    if not meets:
        listen(redis, process, heard, sender)


def answered(redis: FakeRedis, process: Process, asked: Known, heard: Message) -> None:
    """Take in the answer of somebody who was asked at an address."""
    node = process.node
    if asked.id not in node.known:
        return  # forgotten meanwhile
    if asked.shakes:
        del node.known[asked.id]
        there = node.known.get(heard.id)
        if there is not None:
            if there.id != node.id:
                there.address, there.port = asked.address, asked.port
                there.flags.discard(NOADDR)
            return
        asked.id, asked.flags, asked.meets = heard.id, set(), False
        node.known[heard.id] = asked
    elif asked.id != heard.id:  # somebody else lives at that address by now
        asked.address = ""
        asked.flags.add(NOADDR)
        return
    asked.heard = redis.now
    asked.flags.discard(SUSPECTED)
    if asked.fails and (not asked.votes or redis.now - asked.failed > 2 * process.timeout):
        asked.flags.discard(FAILED)
    believe(redis, process, asked, heard)
    listen(redis, process, heard, asked)


def shake(process: Process, address: str, port: int, now: float, *, meets: bool) -> None:
    """Begin a handshake with whoever is at an address, unless there is one."""
    node = process.node
    if not any(known.shakes and (known.address, known.port) == (address, port) for known in node.others):
        stranger = Known(node.unique("handshake"), address, port, flags={HANDSHAKE}, heard=now, meets=meets)
        node.known[stranger.id] = stranger


def believe(redis: FakeRedis, process: Process, sender: Known, heard: Message) -> None:
    """What a node says of itself: epochs, role, slots."""
    node = process.node
    node.epoch = max(node.epoch, heard.epoch)
    sender.epoch = max(sender.epoch, heard.config_epoch)
    sender.offset = heard.offset
    former = sender.primary
    if heard.primary and not sender.primary:
        sender.slots = 0
    sender.primary = heard.primary
    owner = sender if not sender.primary else node.known.get(sender.primary)
    if owner is not None and owner.slots != heard.slots:
        if not sender.primary:
            adopt(redis, process, sender, heard.config_epoch, heard.slots, former)
        _correct(redis, process, sender, heard)
    me = node.me
    if not sender.primary and not me.primary and sender.epoch == me.epoch and node.id < sender.id:
        node.epoch += 1
        me.epoch = node.epoch
        process.news = True


def _correct(redis: FakeRedis, process: Process, sender: Known, heard: Message) -> None:
    """Tell somebody whose claims are old who has a newer one (UPDATE)."""
    node = process.node
    for known in node.known.values():
        if known.slots & heard.slots and known.epoch > heard.config_epoch and known.id != sender.id:
            other = redis.reached(process, sender.address, sender.port)
            if other is not None and other.node.id == sender.id:
                update(redis, other, known.id, known.epoch, known.slots)
            return


def update(redis: FakeRedis, process: Process, node_id: str, epoch: int, slots: int) -> None:
    """Somebody says what a third owns by a newer epoch."""
    known = process.node.known.get(node_id)
    if known is None or known.shakes or known.epoch >= epoch or known.id == process.node.id:
        return
    former, known.primary, known.epoch = known.primary, "", epoch
    adopt(redis, process, known, epoch, slots, former)


def adopt(redis: FakeRedis, process: Process, sender: Known, epoch: int, claimed: int, former: str) -> None:
    """Slots go to who claims them by a newer epoch; who loses all at once, as to a successor, follows that.

    Args:
        former: id of the master that the sender had until now. In truth it is told by the slots alone; but whoever gets
            them by SETSLOT tells of each at once, and so never of all.
    """
    node = process.node
    me = node.me
    mine = me if not me.primary else node.known.get(me.primary)
    for slot in node.importing:
        claimed &= ~(1 << slot)
    lost = 0
    for known in node.known.values():
        taken = known.slots & claimed
        if known is sender or not taken or known.epoch >= epoch:
            continue
        known.slots &= ~taken
        sender.slots |= taken
        if known is mine:
            lost = taken
    sender.slots |= claimed & ~node.assigned
    if not lost or mine is None:
        return
    succeeded = former == mine.id and lost == sender.slots
    if not mine.slots and (succeeded or process.says("cluster-allow-replica-migration") == "yes"):
        redis.follow(process, sender)
    elif mine is me:
        redis.lose_keys(process, lost, f"{sender.id[:8]} claims slots of {node.place} by a newer epoch")


def listen(redis: FakeRedis, process: Process, heard: Message, sender: Known | None) -> None:
    """Gossip: who fails, who moved, who is there."""
    node = process.node
    for rumour in heard.rumours:
        known = node.known.get(rumour.id)
        if known is None:
            if sender is not None and node.banned.get(rumour.id, 0.0) <= redis.now:
                primary = UNKNOWN if rumour.replica else ""
                node.known[rumour.id] = Known(rumour.id, rumour.address, rumour.port, primary, heard=redis.now)
            continue
        if sender is not None and not sender.primary and known.id != node.id:
            if rumour.doubted:
                known.reports[sender.id] = redis.now
                condemn(redis, process, known)
            else:
                known.reports.pop(sender.id, None)
        moved = (rumour.address, rumour.port) != (known.address, known.port)
        if known.doubted and not rumour.doubted and rumour.address and moved and NOADDR not in known.flags:
            known.address, known.port = rumour.address, rumour.port


def condemn(redis: FakeRedis, process: Process, known: Known) -> None:
    """A node fails once a majority of masters finds so; then everybody is told."""
    node = process.node
    if SUSPECTED not in known.flags or known.fails:
        return
    fresh = [since for since in known.reports.values() if redis.now - since <= 2 * process.timeout]
    if len(fresh) + (not node.me.primary) < majority(node):
        return
    _fail(known, redis.now)
    for other in node.others:
        told = redis.reached(process, other.address, other.port)
        if told is not None and known.id in told.node.known and known.id != told.node.id:
            _fail(told.node.known[known.id], redis.now)


def _fail(known: Known, now: float) -> None:
    if not known.fails:
        known.flags.discard(SUSPECTED)
        known.flags.add(FAILED)
        known.failed = now


def majority(node: Node) -> int:
    return node.size // 2 + 1
