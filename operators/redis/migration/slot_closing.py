"""Closes open slots, if no key is left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from operators.redis.client.errors import SlotStuck, sure
from operators.redis.client.key_counts import count_keys
from operators.redis.client.server import Access, Command, Connect, Endpoint
from operators.redis.migration.participants import End, Ends
from operators.redis.slots.hash_slots import Slots


async def close_slots(
    connect: Connect, access: Access, endpoints: Mapping[str, Endpoint], ids: Iterable[str], slots: Slots
) -> None:
    """Close slots at the ends that are among `endpoints`.

    Raises:
        SlotStuck: a node has keys of slots that it does not own; the other slots are closed.
        RedisError: a node is unreachable, or no longer a primary.
    """
    known = [node_id for node_id in ids if node_id in endpoints]
    async with Ends.opened(connect, access, endpoints, known) as ends:
        for failure in ends.missing.values():
            raise failure
        if occupied := await close(list(ends.of.values()), slots):
            names = " or ".join(end.name for end in ends.of.values())
            raise SlotStuck(
                f"Slots {occupied} cannot be closed: {names} has keys of these slots without owning them.", "ERR"
            )


async def close(ends: Sequence[End], slots: Slots) -> Slots:
    """Close slots at both ends; first at the end that does not own them, where the keys are then counted again.

    A redirected client might have written a key in between, which no client would find with the owner closed.

    Returns:
        Slots that stay open, because the end that does not own them has some of their keys.
    """
    occupied = Slots()
    for end in ends:
        foreign = slots - end.report.me.slots
        free = foreign - await with_keys(end, foreign)
        await set_slots(end, [(slot, "STABLE") for slot in free])
        late = await with_keys(end, free)
        await set_slots(end, [(slot, "IMPORTING", _owner(slot, ends)) for slot in late])
        occupied |= (foreign - free) | late
    for end in ends:
        await set_slots(end, [(slot, "STABLE") for slot in (slots & end.report.me.slots) - occupied])
    return occupied


def _owner(slot: int, ends: Sequence[End]) -> str:
    return next(end.id for end in ends if slot in end.report.me.slots)


async def with_keys(end: End, slots: Slots) -> Slots:
    """Return the slots of which a node has keys.

    Raises:
        RedisError: the node is unreachable, or does not report how many.
    """
    return Slots.of(*await count_keys(end.server, slots))


async def set_slots(end: End, desired: Sequence[tuple[int | str, ...]]) -> None:
    """Send SETSLOT commands.

    Raises:
        Refused: the node rejects one of them.
    """
    commands: list[Command] = [("CLUSTER", "SETSLOT", *words) for words in desired]
    for answer in await end.server.pipe(commands):
        sure(answer)
