"""Assigns slots that no node owns, because each end of a former migration takes another node for the owner."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.api.engine_versions import Engine, features
from operators.redis.client.errors import Refused, sure
from operators.redis.client.server import Access, Connect, Endpoint
from operators.redis.migration.participants import End, Ends
from operators.redis.migration.slot_closing import set_slots, with_keys
from operators.redis.slots.hash_slots import Slots


async def assign_slots(
    connect: Connect,
    access: Access,
    endpoints: Mapping[str, Endpoint],
    owner: str,
    slots: Slots,
    *,
    is_empty: bool = False,
) -> None:
    """Let a primary own slots that no other primary claims, and of which no other has a key. No key is deleted.

    The owner gets the highest config epoch before it claims the slots: after an interruption, gossip spreads the claim.

    Args:
        endpoints: endpoints of all primaries by id.
        owner: id of the node that has the keys.
        is_empty: whether no node has keys of the slots, instead.

    Raises:
        Refused: another node claims a slot or has keys of it, or the owner has none. Nothing was changed.
        RedisError: a node is unreachable, or no longer a primary: it may have keys.
    """
    async with Ends.opened(connect, access, endpoints, endpoints) as ends:
        for failure in ends.missing.values():
            raise failure
        for end in ends.of.values():
            await _require_free(end, ends, slots, has_keys=end.id == owner and not is_empty)
        first = ends.of[owner]
        others = [end for end in ends.of.values() if end is not first]
        await first.server.execute("CLUSTER", "BUMPEPOCH")
        for end in (first, *others):
            await set_slots(end, [(slot, "NODE", owner) for slot in slots])


async def _require_free(end: End, ends: Ends, slots: Slots, *, has_keys: bool) -> None:
    claimed = Slots.union([end.report.me.slots, *(node.slots for node in end.report.nodes if node.id not in ends.of)])
    if taken := claimed & slots:
        raise Refused(f"Slots {taken} are not assigned: by the report of {end.name}, a node owns them again.")
    if hidden := await _uncounted(end):
        raise Refused(
            f"Slots {slots} are not assigned: {end.name} has {hidden} keys of slots that it does not own, and does not "
            "report of which slots."
        )
    found = await with_keys(end, slots)
    if found != (slots if has_keys else Slots()):
        raise Refused(
            f"Slots {slots} are not assigned: {end.name} has keys of {found or 'none'} of them, which differs from its "
            "last report."
        )


async def _uncounted(end: End) -> int:
    """Return how many keys a node has that it counts for no slot.

    Redis 8.4 and later count 0 keys of a slot that the node neither owns nor imports, although it may have some. A
    transaction gives all counts of one moment.

    Source: clusterCanAccessKeysInSlot in src/cluster.c of redis 8.6.

    Raises:
        RedisError: the node is unreachable, or does not report how many.
    """
    report = end.report
    if features(Engine.parse(f"{report.engine} {report.version}")).migration != "import":
        return 0
    counted = report.me.slots | Slots.of(*report.me.importing)
    commands = [("MULTI",), ("DBSIZE",), *(("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in counted), ("EXEC",)]
    *_, answers = await end.server.pipe(commands)
    total, *counts = sure(answers)
    return max(int(report.trimming), int(total) - sum(map(int, counts)))
