"""Takes slots off their way where no key is left behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from operators.redis.client.errors import Refused, SlotStuck
from operators.redis.client.server import Access, Command, Connect, Endpoint
from operators.redis.migration.participants import End, Ends
from operators.redis.slots.hash_slots import Slots


async def close_slots(
    connect: Connect, access: Access, endpoints: Mapping[str, Endpoint], ids: Iterable[str], slots: Slots
) -> None:
    """Close slots at these nodes, as far as they are among `endpoints`.

    Raises:
        SlotStuck: a node that does not own some of them has keys of them; the others are closed.
        RedisError: a node does not answer, or is no master any more.
    """
    known = [node_id for node_id in ids if node_id in endpoints]
    async with Ends.opened(connect, access, endpoints, known) as ends:
        for failure in ends.missing.values():
            raise failure
        if held := await close(list(ends.of.values()), slots):
            names = " or ".join(end.name for end in ends.of.values())
            raise SlotStuck(f"Slots {held} cannot be closed: {names} holds keys of them, and does not own them.", "ERR")


async def close(ends: Sequence[End], slots: Slots) -> Slots:
    """Close slots at both ends; first where they are not owned, and then the keys there are counted again.

    For up to then a client that was sent there might have written one, and with the owner closed nobody would find it.

    Returns:
        Those that stay open: some of their keys are where they are not owned.
    """
    held = Slots()
    for end in ends:
        foreign = slots - end.report.me.slots
        free = foreign - await _with_keys(end, foreign)
        await _tell(end, [(slot, "STABLE") for slot in free])
        late = await _with_keys(end, free)
        await _tell(end, [(slot, "IMPORTING", _owner(slot, ends)) for slot in late])
        held |= (foreign - free) | late
    for end in ends:
        await _tell(end, [(slot, "STABLE") for slot in (slots & end.report.me.slots) - held])
    return held


def _owner(slot: int, ends: Sequence[End]) -> str:
    return next(end.id for end in ends if slot in end.report.me.slots)


async def _with_keys(end: End, slots: Slots) -> Slots:
    counts = await end.server.pipe([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots])
    return Slots.of(*(slot for slot, count in zip(slots, counts, strict=True) if count != 0))


async def _tell(end: End, desired: Sequence[tuple[int | str, ...]]) -> None:
    commands: list[Command] = [("CLUSTER", "SETSLOT", *words) for words in desired]
    for answer in await end.server.pipe(commands):
        if isinstance(answer, Refused):
            raise answer
