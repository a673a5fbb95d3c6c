"""The record of opened slots: each slot is recorded right before it is opened, and no other one is."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from operators.redis.api.status import recorded_moves
from operators.redis.client.errors import RedisError
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration.commands import MoveSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, RecordedMove
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj
from simulator.redis.client import KEYS
from simulator.redis.node import slot_of
from tests.redis.simulation.lab import GuardedLab


@dataclass
class Bed:
    """Primaries between which slots move, and the status.

    Attributes:
        slots: slots to move, with and without keys.
        writes: recorded slots after each write, in order.
    """

    lab: GuardedLab
    source: str
    target: str
    slots: Slots
    status: Obj = field(default_factory=lambda: {"moves": []})
    writes: list[Slots] = field(default_factory=list)
    refuses: bool = False

    @classmethod
    async def begin(cls) -> Bed:
        lab = await GuardedLab.begin("")
        source = next(name for name in "abc" if lab.process(name).node.me.slots >> slot_of(KEYS[-1]) & 1)
        target = next(name for name in "abc" if name != source)
        owned = Slots(lab.process(source).node.me.slots)
        lab.redis.commanded.clear()
        occupied = owned & Slots.of(*map(slot_of, lab.process(source).node.keys))
        return cls(lab, source, target, occupied | owned.first(200))

    @property
    def marked(self) -> Slots:
        source, target = (self.lab.process(name).node for name in (self.source, self.target))
        return Slots.of(*source.migrating, *target.importing)

    @property
    def recorded(self) -> Slots:
        return Slots.union(move.slots for move in recorded_moves(self.status) or ())

    async def record(self, fields: Obj) -> None:
        if self.refuses:
            raise Conflict("the resource has changed")
        self.status |= fields
        self.writes.append(self.recorded)

    async def move(self, **more: object) -> None:
        nodes = {self.lab.id(name): Endpoint(name, self.lab.address(name)[0], name) for name in "abc"}
        moves = (Move(self.lab.id(self.source), self.lab.id(self.target), self.slots),)
        call = MoveSlots(Access(), moves, nodes, acknowledge=False, written=recorded_moves(self.status), **more)  # type: ignore[arg-type]
        await call.carry_out_recorded(self.lab.redis.connect, self.record)


async def test_each_slot_is_recorded_before_it_is_opened_and_no_other_one_is() -> None:
    bed = await Bed.begin()

    def after(_: str) -> None:
        assert not bed.marked - bed.recorded, "a slot is open that is not recorded"

    bed.lab.redis.after = after
    await bed.move()
    assert not bed.slots - Slots(bed.lab.process(bed.target).node.me.slots)
    assert len(bed.writes) > 1, "batch by batch"
    assert all(len(slots) <= 64 for slots in bed.writes), "closed slots leave the record"
    assert not bed.lab.redis.violations


async def test_no_slot_is_opened_if_it_cannot_be_recorded() -> None:
    """Another client has changed the resource, or another replica of the operator leads."""
    bed = await Bed.begin()

    bed.refuses = True
    with pytest.raises(Conflict):
        await bed.move()
    assert not bed.marked
    assert not bed.lab.redis.commanded


async def test_open_slots_stay_recorded_with_their_promotion() -> None:
    """The record of an interrupted migration is extended: a slot that a replica inherited stays marked as such."""
    bed = await Bed.begin()
    slot = slot_of(KEYS[-1])
    source, target = bed.lab.id(bed.source), bed.lab.id(bed.target)
    bed.lab.redis.fault = lambda what: False if what.startswith("MIGRATE") else None
    with pytest.raises(RedisError):
        await bed.move(recorded=(RecordedMove(source, target, Slots.of(slot), promoted=True),))
    entries = {move.promoted: move.slots for move in recorded_moves(bed.status) or ()}
    assert entries[True] == Slots.of(slot)
    assert slot not in entries.get(False, Slots())
