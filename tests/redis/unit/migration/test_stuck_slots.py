"""A slot that cannot move does not stop the others, and is reported once nothing else is left to move."""

from __future__ import annotations

import pytest

from operators.redis.client.errors import SlotStuck
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration import coordinator
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from simulator.redis.client import KEYS, Entry
from simulator.redis.node import slot_of
from tests.redis.simulation.lab import GuardedLab


async def test_stuck_slot_is_reported_once_the_others_have_moved() -> None:
    lab = await GuardedLab.begin()
    key = KEYS[-1]
    source = next(name for name in "abc" if lab.process(name).node.me.slots >> slot_of(key) & 1)
    target = next(name for name in "abc" if name != source)
    lab.process(target).node.keys[key] = Entry(0)  # an older copy
    owned = lab.process(source).node.me.slots
    other = next(slot for slot in range(16384) if owned >> slot & 1 and slot != slot_of(key))
    nodes = {lab.id(name): Endpoint(name, lab.address(name)[0], name) for name in "abc"}
    moves = [Move(lab.id(source), lab.id(target), Slots.of(slot_of(key), other))]
    await coordinator.move(lab.redis.connect, Access(), nodes, moves, budget=0)  # nothing else has moved yet
    with pytest.raises(SlotStuck, match="keys of unknown origin"):
        await coordinator.move(lab.redis.connect, Access(), nodes, moves)
    assert lab.process(target).node.me.slots >> other & 1
    assert lab.process(source).node.me.slots >> slot_of(key) & 1
    assert not lab.redis.violations
