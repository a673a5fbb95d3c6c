"""Calls on servers that arrive late."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from operators.redis.client.commands import AddSlots, FailOver, Pause, Relink, SaveSnapshot, execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused
from operators.redis.client.server import Access, Endpoint
from operators.redis.slots.hash_slots import Slots
from simulator.redis.client import Entry
from simulator.redis.node import FAILED, slot_of
from tests.redis.simulation.lab import FakeLab, GuardedLab
from tests.support.virtual_time import in_virtual_time

KEY = b"foo"

Mode = Literal["", "FORCE", "TAKEOVER"]


@pytest.fixture
async def lab() -> GuardedLab:
    return await GuardedLab.begin()


async def fail_over(lab: GuardedLab, replica: str, primary: str, mode: Mode = "") -> None:
    at = Endpoint(replica, *lab.address(replica)[:1], replica)
    call = FailOver(Access(), at, lab.id(replica), lab.id(primary), mode, present(lab, primary))
    await execute(lab.redis.connect, call)


async def relink(lab: GuardedLab, replica: str, primary: str, address: str = "") -> None:
    at = Endpoint(replica, *lab.address(replica)[:1], replica)
    call = Relink(Access(), at, lab.id(replica), lab.id(primary), primary, address or present(lab, primary))
    await execute(lab.redis.connect, call)


def present(lab: GuardedLab, name: str) -> str:
    address, port = lab.address(name)
    return f"{address}:{port}"


def primaries(lab: GuardedLab) -> set[str]:
    return {name for name in "abcdef" if not lab.process(name).node.me.primary}


async def test_repeated_request_for_a_snapshot_begins_no_second_one(lab: GuardedLab) -> None:
    process = lab.process("a")
    call = SaveSnapshot(Access(), Endpoint("a", *lab.address("a")[:1], "a"), lab.id("a"))
    for _ in range(2):
        await execute(lab.redis.connect, call)
        assert process.snapshot
        assert not process.saved
    await lab.wait(5)
    assert process.snapshot is None
    assert process.saved


@pytest.mark.parametrize("mode", ["", "FORCE", "TAKEOVER"])
async def test_late_failover_does_not_depose_another_primary(lab: GuardedLab, mode: Mode) -> None:
    """The replica was planned to replace one primary, and replicates another one when the call arrives."""
    with pytest.raises(Refused, match=f"replicates {lab.id('c')}, not {lab.id('a')}"):
        await fail_over(lab, "f", "a", mode)
    await lab.wait(20)
    assert primaries(lab) == {*"abc"}
    assert not lab.redis.violations


@pytest.mark.parametrize("mode", ["FORCE", "TAKEOVER"])
async def test_late_forced_failover_does_not_depose_a_primary_that_is_back(lab: GuardedLab, mode: Mode) -> None:
    with pytest.raises(Refused, match="does not report that its primary failed"):
        await fail_over(lab, "f", "c", mode)
    await lab.wait(20)
    assert primaries(lab) == {*"abc"}
    assert not lab.redis.violations


async def test_failover_replaces_the_expected_primary(lab: GuardedLab) -> None:
    await fail_over(lab, "f", "c")
    await lab.wait(5)
    assert primaries(lab) == {*"abf"}
    await fail_over(lab, "f", "c")
    assert not lab.redis.violations


async def test_replica_that_is_connected_elsewhere_takes_over_from_no_primary(lab: GuardedLab) -> None:
    lab.process("f").source = lab.address("a")
    with pytest.raises(Refused, match="is not connected to its primary"):
        await fail_over(lab, "f", "c")
    lab.process("f").node.known[lab.id("c")].flags.add(FAILED)
    with pytest.raises(Refused, match=f"is connected to {present(lab, 'a')}"):
        await fail_over(lab, "f", "c", "FORCE")


async def test_replica_is_connected_again_once(lab: GuardedLab) -> None:
    lab.process("f").source = lab.address("a")
    before = len(lab.redis.commanded)
    for _ in range(2):
        await relink(lab, "f", "c")
    assert lab.process("f").source == lab.address("c")
    assert sum(what.startswith("CLUSTER REPLICATE") for what in lab.redis.commanded[before:]) == 1


async def test_late_connection_leads_to_no_other_node(lab: GuardedLab) -> None:
    """The replica has another primary by now, or does not know the address yet."""
    link = lab.process("f").source
    await relink(lab, "f", "a")
    with pytest.raises(Refused, match="knows c at another address"):
        await relink(lab, "f", "c", "10.9.9.9:6379")
    assert lab.process("f").source == link


async def add_lost_slots(lab: FakeLab) -> None:
    at, node = Endpoint("x", lab.address("x")[0], "x"), lab.process("x").node
    await execute(lab.redis.connect, AddSlots(Access(), at, node.id, Slots.of(slot_of(KEY)), outbid=True))


async def test_lost_slots_are_not_added_to_a_node_that_has_keys_of_them_by_then() -> None:
    lab = FakeLab()
    await lab.start("x")
    lab.process("x").node.keys[KEY] = Entry(0)
    with pytest.raises(Refused, match="x has 1 keys of slots 12182 or of others that it does not own"):
        await add_lost_slots(lab)
    assert not lab.process("x").node.me.slots


async def test_slots_that_were_added_before_an_interruption_get_the_highest_epoch() -> None:
    """Clients may have written keys since."""
    lab = FakeLab()
    await lab.start("x")
    node = lab.process("x").node
    node.keys[KEY], node.me.slots = Entry(0), 1 << slot_of(KEY)
    await add_lost_slots(lab)
    assert node.me.epoch == 1


@in_virtual_time
async def test_pause_takes_its_time_by_the_clock_of_the_process() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await execute(connect, Pause(Access(), 2.0, "so that replicas stop before primaries"))
    assert loop.time() - began == pytest.approx(2.0)
