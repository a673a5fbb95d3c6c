"""Resumption of key-by-key migration after an interruption."""

from __future__ import annotations

from operators.redis.client.server import Access, Endpoint
from operators.redis.migration import coordinator
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from tests.support.redis.recorded_conformance import SEEN
from tests.unit.redis.simulation.client import KEYS
from tests.unit.redis.simulation.lab import GuardedLab
from tests.unit.redis.simulation.node import slot_of


async def test_source_learns_of_a_slot_that_the_target_already_owns() -> None:
    lab = await GuardedLab.begin()
    slot = slot_of(KEYS[-1])
    moved_keys = [key for key in KEYS if slot_of(key) == slot]
    source, target = await lab.opened(slot)
    await lab.server(source).execute("MIGRATE", *lab.address(target), "", 0, 1000, "KEYS", *moved_keys)
    await lab.cluster(target, "SETSLOT", slot, "NODE", lab.id(target))  # the interruption
    assert lab.process(source).node.me.slots >> slot & 1
    nodes = {lab.id(name): Endpoint(name, lab.address(name)[0], name) for name in "abc"}
    move = Move(lab.id(source), lab.id(target), Slots.of(slot))
    await coordinator.move(lab.redis.connect, Access(), nodes, [move])
    await lab.wait(SEEN)
    assert not lab.process(source).node.me.slots >> slot & 1
    assert not lab.redis.violations
