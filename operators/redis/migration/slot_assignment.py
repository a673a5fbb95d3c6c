"""Assigns slots that no node owns, because each end of a former migration takes another node for the owner."""

from __future__ import annotations

from collections.abc import Mapping

from operators.redis.client.errors import Refused
from operators.redis.client.key_counts import count_hidden
from operators.redis.client.server import Access, Connect, Endpoint
from operators.redis.migration.claim_renewal import note_arrival
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
        note_arrival(first)
        for end in (first, *others):
            await set_slots(end, [(slot, "NODE", owner) for slot in slots])


async def _require_free(end: End, ends: Ends, slots: Slots, *, has_keys: bool) -> None:
    claimed = Slots.union([end.report.me.slots, *(node.slots for node in end.report.nodes if node.id not in ends.of)])
    if taken := claimed & slots:
        raise Refused(f"Slots {taken} are not assigned: by the report of {end.name}, a node owns them again.")
    if hidden := await count_hidden(end.server, end.report):
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
