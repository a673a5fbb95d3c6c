"""Prevents that outdated messages of the source change the owner of a slot while it moves.

Redis 7.0.13 to 7.0.15 and 7.2.0 to 7.2.3 mark a slot as unclaimed when a message of its owner does not claim it. The
next node that claims the slot gets it, with any config epoch. Two defects make the mark dangerous:

1. A message that the owner sent before it received the slot may arrive after SETSLOT NODE. It sets the mark, and later
   messages do not clear it: a node reads the claims in a message only if they differ from its own table.
2. SETSLOT NODE does not clear the mark. If the slot returns to the node with the mark, a message that the source sent
   before it was informed takes the slot back. The node deletes the keys that it has received, and no node owns the
   slot: the source has learned from the target that it gave the slot away.

To clear the marks, the target unassigns one slot of the source in its own table (DELSLOTS), and the source sends it a
message at once (CLUSTER MEET). Its claims differ from the table, so the target reads them: it assigns the slot again,
and clears the marks of all slots that the source claims. Other nodes are not affected.

Valkey 8 lets a target take over a slot that it imports as soon as a message of the source does not claim the slot,
because the source may have lost the end of the migration. But the source may have built that message before it
received the slot, and sent it late, for example while its CPU was throttled. The source then deletes the keys that
have not moved yet. So a node that has received slots gives none until no such message can arrive: nodes close a link
on which a reply is late by half of cluster-node-timeout. What a former process of the operator moved is not known to
this one, which begins seconds later.

Source: clusterUpdateSlotsConfigWith, clusterProcessPacket and clusterDelSlot in cluster.c of Redis 7.0.15, and in
cluster_legacy.c of Valkey 8.1;
https://github.com/redis/redis/pull/12344, https://github.com/redis/redis/pull/12564.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from operators.redis.client.errors import Loading, Unreachable, reads_replies
from operators.redis.client.responses import NodeReport, mapping, parse_nodes
from operators.redis.migration.participants import End
from operators.redis.slots.hash_slots import Slots

FULL_COVERAGE = "cluster-require-full-coverage"

POLL_SECONDS = 0.05
"""Time between inspections of both ends. A handshake takes about 0.1 s."""

_arrivals: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, float]] = WeakKeyDictionary()
"""When nodes have received their last slots, in seconds of the loop's clock, by their id."""


def note_arrival(target: End) -> None:
    """Note that a node receives slots."""
    loop = asyncio.get_running_loop()
    _arrivals.setdefault(loop, {})[target.id] = loop.time()


def require_settled(source: End, target: End, seconds: float) -> None:
    """Require that no message that the source built before it received slots is still in transit.

    Args:
        seconds: longest time that such a message takes.

    Raises:
        Loading: the source has received slots recently.
    """
    loop = asyncio.get_running_loop()
    since = loop.time() - _arrivals.get(loop, {}).get(source.id, -seconds)
    if since < seconds and target.report.features.takes_over_imports:
        raise Loading(
            f"No slot moves from {source.name} yet: it received slots {since:.0f} s ago, and a late message of before "
            f"would let {target.name} take over a slot without its keys. The migration continues after "
            f"{seconds - since:.0f} s."
        )


async def renew_claims(source: End, target: End, patience: float) -> None:
    """Clear the marks of a target for all slots that the source claims, if its version keeps outdated ones.

    A slot that the target imports is unassigned only if the source has no other: DELSLOTS also clears the importing
    mark, which is set again.

    Args:
        patience: time in seconds that a message of the source may take.

    Raises:
        Loading: the target does not know yet that the source owns slots.
        Unreachable: no message of the source arrived, or an end is unreachable.
    """
    if not target.report.features.keeps_unclaimed_marks:
        return
    at_source, at_target = await asyncio.gather(_table(source), _table(target))
    known = at_target.node(source.id)
    claimed = at_source.me.slots & (known.slots if known else Slots())
    if not claimed:
        raise Loading(
            f"No slot moves to {target.name} yet: it does not know which slots {source.name} owns. The migration "
            "continues when the nodes report the same cluster view."
        )
    importing = at_target.me.importing
    slot = next(iter(claimed - Slots.of(*importing) or claimed))
    coverage = await _coverage(target)
    if coverage == "yes":  # the target would reject all commands of clients without an owner of the slot
        await target.server.execute("CONFIG", "SET", FULL_COVERAGE, "no")
    await target.server.execute("CLUSTER", "DELSLOTS", slot)
    await source.server.execute("CLUSTER", "MEET", target.endpoint.address, target.endpoint.port, at_target.me.bus)
    await _await_claim(source, target, slot, patience)
    if slot in importing:
        await target.server.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", importing[slot])
    if coverage == "yes":  # after a failure, the next inspection finds that the setting differs
        await target.server.execute("CONFIG", "SET", FULL_COVERAGE, "yes")


async def _await_claim(source: End, target: End, slot: int, patience: float) -> None:
    """Wait until the target has read the claims of the source, and the handshake between them is over."""
    clock = asyncio.get_running_loop().time
    until = clock() + patience
    at = (target.endpoint.address, target.endpoint.port)
    while True:
        at_source, at_target = await asyncio.gather(_table(source), _table(target))
        is_assigned = any(slot in node.slots for node in at_target.nodes)
        if is_assigned and at not in [(node.address, node.port) for node in at_source.handshakes]:
            return
        if clock() >= until:
            break
        await asyncio.sleep(POLL_SECONDS)
    if not is_assigned:
        raise Unreachable(
            f"Migration to {target.name} paused: no message of {source.name} on the cluster bus reached it within "
            f"{patience:g} s. The migration continues when they are connected: check network policies for the port "
            f"{at_target.me.bus}."
        )


@reads_replies
async def _coverage(end: End) -> str | None:
    """Return whether a node requires that every slot has an owner: `yes` or `no`."""
    return mapping(await end.server.execute("CONFIG", "GET", FULL_COVERAGE)).get(FULL_COVERAGE)


@reads_replies
async def _table(end: End) -> NodeReport:
    """Return the present table of a node, without its other facts."""
    return NodeReport(id=end.id, nodes=parse_nodes(await end.server.execute("CLUSTER", "NODES")))
