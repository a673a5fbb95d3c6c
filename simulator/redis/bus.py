"""Cluster bus of `SimulatedRedis`: membership, slot ownership and failure reports.

The header of a message describes its sender; the gossip section describes some other nodes. All of it may be stale.
Conflicting claims are resolved by config epochs, as in Redis; but a slot that its owner does not claim goes to the next
node that does. A node reads claims only if they differ from its table, so that the mark of such a slot may be outdated.

Source: clusterProcessPacket, clusterProcessGossipSection, clusterUpdateSlotsConfigWith and
clusterHandleConfigEpochCollision in cluster.c of Redis 7.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from operators.redis.client.server import BUS_PORT
from simulator.redis.node import FAILED, HANDSHAKE, NOADDR, SUSPECTED, UNKNOWN, Known, Node
from simulator.redis.process import Process

if TYPE_CHECKING:
    from simulator.redis.database import SimulatedRedis

GOSSIP = 3
"""Nodes in the gossip section of a message in addition to suspected ones: a tenth of all, and at least three."""


class GossipEntry(NamedTuple):
    """Description of a third node in a gossip section."""

    id: str
    address: str
    port: int
    unhealthy: bool
    replica: bool
    bus: int = BUS_PORT


class Message(NamedTuple):
    """Message of the cluster bus: header and gossip section.

    Attributes:
        source: address of the sender, as the connection has it.
        epoch: newest epoch that the sender knows (currentEpoch).
        config_epoch, slots: config epoch and slots of the sender, or of its primary if the sender is a replica.
    """

    id: str
    source: str
    port: int
    epoch: int
    config_epoch: int
    slots: int
    primary: str
    offset: int
    gossip: tuple[GossipEntry, ...]
    bus: int = BUS_PORT


_NOT_DESCRIBED = frozenset({HANDSHAKE, NOADDR})


def build_message(process: Process, turn: int) -> Message:
    """Build the message of a process. Each turn describes the next few nodes in turn."""
    node, me = process.node, process.node.me
    lead = node.lead if me.primary else me
    peers = [known for known in node.others if not known.flags or known.flags.isdisjoint(_NOT_DESCRIBED)]
    healthy = [known for known in peers if SUSPECTED not in known.flags]
    count = min(len(healthy), max(GOSSIP, len(node.known) // 10))
    selected = [healthy[(turn + step) % len(healthy)] for step in range(count)]
    if len(healthy) < len(peers):
        selected += [known for known in peers if SUSPECTED in known.flags]
    return Message(
        id=node.id,
        source=process.address,
        port=process.port,
        epoch=node.epoch,
        config_epoch=lead.epoch if lead else 0,
        slots=lead.slots if lead else 0,
        primary=me.primary,
        offset=node.offset,
        gossip=tuple(
            [
                GossipEntry(known.id, known.address, known.port, known.unhealthy, bool(known.primary), known.bus)
                for known in selected
            ]
        ),
        bus=process.bus,
    )


def ping(redis: SimulatedRedis, process: Process, known: Known) -> None:
    """Send PING or MEET to a node, and process the answer if there is one."""
    other = redis.peer(process, known.address, known.bus)
    if other is None:
        return
    if known.meets or known.in_handshake:
        redis.guard.may_join(redis, process.node, other.node)
    receive(redis, other, build_message(process, redis.turn), meets=known.meets)
    receive_pong(redis, process, known, build_message(other, redis.turn))


def receive(redis: SimulatedRedis, process: Process, message: Message, *, meets: bool = False) -> None:
    """Process a PING or MEET."""
    node = process.node
    sender = node.known.get(message.id)
    if sender is not None:
        sender.last_data = redis.now
    if meets and sender is None:
        start_handshake(process, message.source, message.port, message.bus, redis.now, meets=False)
    if meets:
        process_gossip(redis, process, message, sender)
    if sender is None or sender.in_handshake or sender.id == node.id:
        return
    sender.last_message = redis.now
    at = (message.source, message.bus)
    if not meets and (sender.address, sender.bus) != at:  # the address that it sends from is its current one
        _update_address(process, sender, message.source, message.port, message.bus)
    update_sender(redis, process, sender, message)
    if not meets:
        process_gossip(redis, process, message, sender)


def receive_pong(redis: SimulatedRedis, process: Process, contacted: Known, message: Message) -> None:
    """Process the PONG of the node that was contacted at an address."""
    node = process.node
    if contacted.id not in node.known:
        return  # forgotten in the meantime
    there = node.known.get(message.id)
    if there is not None:
        there.last_data = redis.now
    if contacted.in_handshake:
        del node.known[contacted.id]
        if there is not None:
            if there.id != node.id:
                _update_address(process, there, contacted.address, contacted.port, contacted.bus)
            return
        contacted.id, contacted.flags, contacted.last_message = message.id, set(), redis.now
        node.known[message.id] = contacted
    elif contacted.id != message.id:  # another node has that address now
        contacted.address = ""
        contacted.flags.add(NOADDR)
        return
    contacted.last_response, contacted.meets = redis.now, False
    contacted.flags.discard(SUSPECTED)
    if contacted.fails and (not contacted.votes or redis.now - contacted.failed > 2 * process.timeout):
        contacted.flags.discard(FAILED)
    update_sender(redis, process, contacted, message)
    process_gossip(redis, process, message, contacted)


def _update_address(process: Process, known: Known, address: str, port: int, bus: int) -> None:
    """Change the address of a node that contacted this one; a replica connects to its primary there.

    Source: nodeUpdateAddressIfNeeded in cluster.c of Redis 7.0. Gossip changes addresses without that.
    """
    moved = (known.address, known.port) != (address, port)
    known.address, known.port, known.bus = address, port, bus
    known.flags.discard(NOADDR)
    if moved and known.id == process.node.me.primary:
        process.source, process.linked = (address, port), False


def start_handshake(process: Process, address: str, port: int, bus: int, now: float, *, meets: bool) -> None:
    """Begin a handshake with the node at an address, unless one is in progress."""
    node = process.node
    if not any(known.in_handshake and (known.address, known.bus) == (address, bus) for known in node.others):
        peer = Known(node.unique("handshake"), address, port, bus, flags={HANDSHAKE}, last_response=now, meets=meets)
        node.known[peer.id] = peer


def meet_again(redis: SimulatedRedis, process: Process) -> None:
    """Send MEET from now on to nodes that seem well but sent nothing for the node timeout, until they answer.

    They may have missed the handshake. But a node that has their former address by now is met as well.

    Source: clusterNodeCronHandleReconnect in src/cluster_legacy.c of Valkey 8.1; the flag outlasts a failed link.
    """
    for known in process.node.others if process.meets_again else ():
        if not known.unhealthy and not known.in_handshake and NOADDR not in known.flags:
            known.meets |= redis.now - known.last_message > max(process.timeout, 1.0)


def update_sender(redis: SimulatedRedis, process: Process, sender: Known, message: Message) -> None:
    """Update epochs, role and slots of the sender of a message."""
    node = process.node
    node.epoch = max(node.epoch, message.epoch)
    sender.epoch = max(sender.epoch, message.config_epoch)
    sender.offset = message.offset
    former = sender.primary
    if message.primary and not sender.primary:
        sender.slots = 0
    sender.primary = message.primary
    owner = sender if not sender.primary else node.known.get(sender.primary)
    if owner is not None and owner.slots != message.slots:
        if not sender.primary:
            update_slots(redis, process, sender, message.config_epoch, message.slots, former)
        _send_update(redis, process, sender, message)
    me = node.me
    if not sender.primary and not me.primary and sender.epoch == me.epoch and node.id < sender.id:
        node.epoch += 1
        me.epoch = node.epoch
        process.broadcast_pending = True


def _send_update(redis: SimulatedRedis, process: Process, sender: Known, message: Message) -> None:
    """Send UPDATE to a node with stale claims: another node owns the slots by a newer epoch."""
    node = process.node
    for known in node.known.values():
        outdated = known.slots & message.slots & ~process.unclaimed
        if outdated and known.epoch > message.config_epoch and known.id != sender.id:
            other = redis.peer(process, sender.address, sender.bus)
            if other is not None and other.node.id == sender.id:
                receive_update(redis, other, known.id, known.epoch, known.slots & ~process.unclaimed)
            return


def receive_update(redis: SimulatedRedis, process: Process, node_id: str, epoch: int, slots: int) -> None:
    """Process UPDATE: the slots of a third node by a newer epoch."""
    known = process.node.known.get(node_id)
    if known is None or known.in_handshake or known.epoch >= epoch or known.id == process.node.id:
        return
    former, known.primary, known.epoch = known.primary, "", epoch
    update_slots(redis, process, known, epoch, slots, former)


def update_slots(redis: SimulatedRedis, process: Process, sender: Known, epoch: int, claimed: int, former: str) -> None:
    """Assign claimed slots to the sender with the newer epoch, or if their owner does not claim them.

    A node that loses all its slots follows the sender.

    Args:
        former: id of the former primary of the sender. Redis decides by the slots alone. But a node that receives slots
            by SETSLOT announces each of them at once, and so never all together.
    """
    node = process.node
    me = node.me
    mine = me if not me.primary else node.known.get(me.primary)
    _mark_unclaimed(process, sender, claimed)
    if process.replicates_slots:
        _follow_failover(node, sender, former)
    else:
        for slot in node.importing:
            claimed &= ~(1 << slot)
    lost = 0
    for known in node.known.values():
        taken = known.slots & claimed
        if known.epoch >= epoch:
            taken &= process.unclaimed
        if known is sender or not taken:
            continue
        known.slots &= ~taken
        sender.slots |= taken
        if known is mine:
            lost = taken
    sender.slots |= claimed & ~node.assigned
    process.unclaimed &= ~(sender.slots & claimed)
    if process.replicates_slots:
        _close_slots(node, mine, sender)
        _take_over_imports(process, sender, claimed)
    if not lost or mine is None:
        return
    succeeded = former == mine.id and lost == sender.slots
    if not mine.slots and (succeeded or process.config("cluster-allow-replica-migration") == "yes"):
        if mine is me:
            redis.guard.outbid(redis, node)
        redis.follow(process, sender)
    elif mine is me:
        redis.guard.outbid(redis, node)
        redis.lose_keys(process, lost, f"{sender.id[:8]} claims slots of {node.name} by a newer epoch")


def _mark_unclaimed(process: Process, sender: Known, claimed: int) -> None:
    """Mark the slots of the sender that it does not claim, and clear the marks of those that it claims."""
    process.unclaimed &= ~(sender.slots & claimed)
    if process.marks_unclaimed:
        process.unclaimed |= sender.slots & ~claimed


def bump(process: Process) -> bool:
    """Set the config epoch above every known one without an election; return whether it changed."""
    node, me = process.node, process.node.me
    newest = max(node.epoch, *(known.epoch for known in node.known.values()))
    process.broadcast_pending = True
    if me.epoch and me.epoch == newest:
        return False
    node.epoch = newest + 1
    me.epoch = node.epoch
    return True


def _take_over_imports(process: Process, sender: Known, claimed: int) -> None:
    """Let a primary own the slots that it imports from the sender, if the sender does not claim them.

    The message may be older than the claim. Source: clusterUpdateSlotsConfigWith in cluster_legacy.c of Valkey 8.
    """
    node = process.node
    released = [slot for slot, other in node.importing.items() if other == sender.id and not claimed >> slot & 1]
    if node.me.primary:
        return
    for slot in released:
        del node.importing[slot]
        node.give(slot, node.me)
        bump(process)


def _follow_failover(node: Node, sender: Known, former: str) -> None:
    """Keep the marks of open slots when an end fails over: the successor replaces its primary in them.

    Source: clusterUpdateSlotsConfigWith in cluster_legacy.c of Valkey 8.
    """
    if former:
        for marks in (node.migrating, node.importing):
            marks |= {slot: sender.id for slot, other in marks.items() if other == former}


def _close_slots(node: Node, mine: Known | None, sender: Known) -> None:
    """Clear the marks of slots that the sender owns by now, of another shard than the other end (as there)."""
    owned = sender.slots
    if sender is not mine:
        node.migrating = {slot: to for slot, to in node.migrating.items() if not owned >> slot & 1}
    node.importing = {
        slot: source for slot, source in node.importing.items() if source == sender.id or not owned >> slot & 1
    }


def process_gossip(redis: SimulatedRedis, process: Process, message: Message, sender: Known | None) -> None:
    """Process a gossip section: failure reports, changed addresses, unknown nodes."""
    node = process.node
    for entry in message.gossip:
        known = node.known.get(entry.id)
        if known is None:
            if sender is not None and node.banned.get(entry.id, 0.0) <= redis.now:
                primary = UNKNOWN if entry.replica else ""
                known = Known(entry.id, entry.address, entry.port, entry.bus, primary, last_response=redis.now)
                known.last_message = redis.now
                node.known[entry.id] = known
            continue
        if sender is not None and not sender.primary and known.id != node.id:
            if entry.unhealthy:
                known.reports[sender.id] = redis.now
                mark_failed_by_majority(redis, process, known)
            else:
                known.reports.pop(sender.id, None)
        moved = (entry.address, entry.port, entry.bus) != (known.address, known.port, known.bus)
        if known.unhealthy and not entry.unhealthy and entry.address and moved and NOADDR not in known.flags:
            if process.follows_gossip:
                _update_address(process, known, entry.address, entry.port, entry.bus)
            known.address, known.port, known.bus = entry.address, entry.port, entry.bus


def mark_failed_by_majority(redis: SimulatedRedis, process: Process, known: Known) -> None:
    """Mark a node as failed once a majority of primaries reports it, and broadcast the failure."""
    node = process.node
    if SUSPECTED not in known.flags or known.fails:
        return
    fresh = [since for since in known.reports.values() if redis.now - since <= 2 * process.timeout]
    if len(fresh) + (not node.me.primary) < majority(node):
        return
    _mark_failed(known, redis.now)
    for other in node.others:
        receiver = redis.peer(process, other.address, other.bus)
        if receiver is not None and known.id in receiver.node.known and known.id != receiver.node.id:
            _mark_failed(receiver.node.known[known.id], redis.now)


def _mark_failed(known: Known, now: float) -> None:
    if not known.fails:
        known.flags.discard(SUSPECTED)
        known.flags.add(FAILED)
        known.failed = now


def majority(node: Node) -> int:
    return node.size // 2 + 1
