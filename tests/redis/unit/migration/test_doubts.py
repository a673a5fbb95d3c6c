"""Keys in doubt after a MIGRATE that timed out: the operator ends after any of its commands, and none comes back.

The target executes the RESTORE late, and a client deletes the key at the source. The record in the status outlives the
operator, so that the next one removes the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from operators.redis.api.status import recorded_moves
from operators.redis.client.errors import RedisError, Unreachable
from operators.redis.client.server import Access, Command, Connect, Endpoint, Server
from operators.redis.migration import throttle
from operators.redis.migration.commands import MoveSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.kubernetes.kinds import Obj
from shared.runtime.process import MAX_RECONCILE_SECONDS
from shared.runtime.reconciler import RECONCILE_TIMEOUT_SECONDS
from simulator.redis.node import slot_of
from tests.redis.unit.migration.test_key_by_key import KEY, OTHER, SLOT, Bed
from tests.support.virtual_time import in_virtual_time

SLOTS = Slots.of(SLOT)


class Ended(BaseException):
    """The operator's process has ended."""


class Operator:
    """Successive processes of the operator, and the status that outlives them.

    Attributes:
        left: commands and records after the failure of MIGRATE until the process ends; None for never.
        done: commands and records since the failure, in order.
    """

    def __init__(self, bed: Bed, left: int | None, slots: Slots = SLOTS) -> None:
        self.bed, self.left, self.slots = bed, left, slots
        self.done: list[str] = []
        self.status: Obj = {"moves": []}
        bed.before = self.step

    async def record(self, fields: Obj) -> None:
        self.status |= fields
        self.step("record")

    def step(self, what: str) -> None:
        if not self.bed.lab.redis.done["timed out"]:
            return
        self.done.append(what)
        if self.left is not None and len(self.done) > self.left:
            raise Ended

    async def move(self, connect: Connect | None = None) -> None:
        bed = self.bed
        nodes = {bed.lab.id(name): Endpoint(name, bed.lab.address(name)[0], name) for name in "abc"}
        moves = (Move(bed.lab.id(bed.source), bed.lab.id(bed.target), self.slots),)
        known = recorded_moves(self.status)
        call = MoveSlots(Access(), moves, nodes, acknowledge=False, recorded=known or (), written=known)
        await call.carry_out_recorded(connect or bed.lab.redis.connect, self.record)


async def interrupted(left: int | None, *, lateness: float) -> tuple[Bed, list[str]]:
    """Move a slot; the process ends at a command after the failure, and a client deletes the key in doubt.

    Returns:
        The servers after the next process has moved the slot, and what the first one did after the failure.
    """
    bed = await Bed.begin(replicas="")
    redis = bed.lab.redis
    redis.stalled.add(f"demo-{bed.target}")
    redis.lateness = lateness
    operator = Operator(bed, left)
    with contextlib.suppress(Ended):
        await operator.move()
    done, operator.done, operator.left = operator.done, [], None
    bed.keys(bed.source if KEY in bed.keys(bed.source) else bed.target).pop(KEY, None)  # clients follow redirections
    await bed.lab.wait(lateness + 1)
    await bed.lab.server(bed.target).execute("PING")  # the target executes what it has received
    for _ in range(3):
        with contextlib.suppress(RedisError):
            await operator.move()
    assert bed.owns(bed.target)
    return bed, done


READ = 1
"""Commands after MIGRATE in its pipeline: an operator that ends before has not read the replies."""


@pytest.mark.parametrize("lateness", [0.0, 3.0], ids=["at once", "later"])
async def test_deleted_key_stays_deleted_whenever_the_operator_ends(lateness: float) -> None:
    _, done = await interrupted(None, lateness=lateness)
    assert len(done) > 3
    for left in range(READ, len(done)):
        bed, _ = await interrupted(left, lateness=lateness)
        assert KEY not in bed.keys(bed.target), f"a deleted key is back: the operator ended at {done[left]}"
        assert OTHER in bed.keys(bed.target)


@pytest.mark.parametrize("lateness", [0.0, 3.0], ids=["at once", "later"])
async def test_deleted_key_is_back_only_if_the_operator_was_killed_before_it_read_the_reply(lateness: float) -> None:
    """Only the reply of MIGRATE shows that its keys are in doubt: docs/concepts/durability.md has this loss."""
    for left in range(READ):
        bed, done = await interrupted(left, lateness=lateness)
        assert done == [f"EVAL at demo-{bed.source}"], "the list of the remaining keys is in the pipeline of MIGRATE"
        assert KEY in bed.keys(bed.target), "this end loses nothing any more: it belongs to the test above"
        assert OTHER in bed.keys(bed.target)


async def test_deleted_key_stays_deleted_although_the_connection_to_the_target_breaks() -> None:
    bed = await Bed.begin(replicas="")
    redis = bed.lab.redis
    redis.stalled.add(f"demo-{bed.target}")
    operator = Operator(bed, None)
    target = bed.process(bed.target)

    async def record(fields: Obj) -> None:
        operator.status |= fields
        if redis.done["timed out"]:
            redis.hidden.add(target.pod)

    operator.record = record  # type: ignore[method-assign]
    with pytest.raises(Unreachable):
        await operator.move()
    del bed.keys(bed.source)[KEY]
    redis.hidden.clear()
    operator.record = Operator.record.__get__(operator)  # type: ignore[method-assign]
    await operator.move()
    assert bed.owns(bed.target)
    assert KEY not in bed.keys(bed.target)
    assert OTHER in bed.keys(bed.target)


async def test_record_of_doubts_ends_before_the_key_moves() -> None:
    """A key that has moved looks like the outdated copy: with a record, the next operator would delete it."""
    bed = await Bed.begin(replicas="")
    redis = bed.lab.redis
    redis.stalled.add(f"demo-{bed.target}")
    operator = Operator(bed, None)
    seen: list[bool] = []

    def before(what: str) -> None:
        if redis.done["timed out"] and what.startswith("MIGRATE"):
            seen.append(any("doubts" in each for each in operator.status["moves"]))

    bed.before = before
    await operator.move()
    assert seen
    assert not any(seen)
    assert KEY in bed.keys(bed.target)


@dataclass
class _Slow:
    """A connection on which the operator is stopped while a MIGRATE runs: the server answers afterwards."""

    server: Server
    stop: Callable[[], object]

    async def execute(self, *command: str | int | bytes) -> Any:
        return await self.server.execute(*command)

    async def pipe(self, commands: Sequence[Command]) -> list[Any]:
        replies = await self.server.pipe(commands)
        if any(command[0] == "MIGRATE" for command in commands):
            self.stop()
        await asyncio.sleep(0)
        return replies

    async def aclose(self) -> None:
        await self.server.aclose()


async def test_deleted_key_stays_deleted_although_the_operator_is_stopped_during_migrate() -> None:
    """Each update of the operator does that: the process has some seconds to end, in which the reply can be read."""
    bed = await Bed.begin(replicas="")
    redis = bed.lab.redis
    redis.stalled.add(f"demo-{bed.target}")
    operator = Operator(bed, None)

    def connect(endpoint: Endpoint, access: Access) -> Server:
        return _Slow(redis.connect(endpoint, access), lambda: running.cancel())

    running = asyncio.create_task(operator.move(connect))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert redis.done["timed out"] == 1
    await bed.lab.server(bed.target).execute("PING")  # the target executes what it has received
    assert KEY in bed.keys(bed.target)
    del bed.keys(bed.source)[KEY]
    await operator.move()
    assert bed.owns(bed.target)
    assert KEY not in bed.keys(bed.target), "a deleted key is back"
    assert OTHER in bed.keys(bed.target)


@in_virtual_time
async def test_reconcile_that_is_stopped_does_not_wait_for_a_source_that_never_answers_migrate() -> None:
    bed = await Bed.begin(replicas="")

    class Hung(_Slow):
        async def pipe(self, commands: Sequence[Command]) -> list[Any]:
            if any(command[0] == "MIGRATE" for command in commands):
                self.stop()
                await asyncio.sleep(math.inf)
            return await self.server.pipe(commands)

    def connect(endpoint: Endpoint, access: Access) -> Server:
        return Hung(bed.lab.redis.connect(endpoint, access), lambda: running.cancel())

    running = asyncio.create_task(Operator(bed, None).move(connect))
    await asyncio.wait([running], timeout=MAX_RECONCILE_SECONDS - RECONCILE_TIMEOUT_SECONDS)
    assert running.cancelled()


async def test_keys_of_all_slots_of_a_batch_are_recorded_before_the_first_copy_is_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(throttle.Throttle, "next_size", lambda _: (8, 8))
    bed = await Bed.begin(replicas="")
    redis = bed.lab.redis
    more = next(key for key in bed.keys(bed.source) if slot_of(key) != SLOT)
    await bed.lab.opened(slot_of(more))
    operator = Operator(bed, None, SLOTS | Slots.of(slot_of(more)))

    def before(what: str) -> None:
        if what.startswith("MIGRATE") and redis.done["timed out"] < 2:
            redis.stalled.add(f"demo-{bed.target}")
        if redis.done["timed out"] == 2:  # neither is a copy removed
            redis.hidden.add(f"demo-{bed.target}")

    bed.before = before
    with contextlib.suppress(Unreachable):
        await operator.move()
    found = [doubt for move in recorded_moves(operator.status) or () for doubt in move.doubts]
    assert {doubt.slot for doubt in found} == {SLOT, slot_of(more)}
