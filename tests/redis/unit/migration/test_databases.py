"""Clusters of Valkey 9 with several databases (cluster-databases): no key of a database above 0 is lost."""

from __future__ import annotations

import pytest

from operators.redis.client.commands import TakeBack, execute
from operators.redis.client.errors import Refused, SlotStuck
from operators.redis.client.node_inspection import count_strays, inspect_node
from operators.redis.client.responses import Entries
from operators.redis.client.server import Access, Endpoint
from operators.redis.migration import coordinator
from operators.redis.migration.commands import AssignSlots, CloseSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from shared.kubernetes import accessors
from simulator.redis import atomic_migration
from simulator.redis.client import Entry
from simulator.redis.node import slot_of
from simulator.redis.process import Migration, Process
from tests.harness.scenario_runner import ScenarioRun, World
from tests.redis.simulation.database import FakeRedis
from tests.redis.simulation.lab import GuardedLab
from tests.redis.simulation.moving_slots import status
from tests.support.redis.scenarios import REDIS, cluster

KEY = b"\0\3{above}:1"
"""A key in database 3."""

SLOT = slot_of(KEY)
VALKEY = "9.0.1"


async def with_databases(count: int = 16) -> tuple[GuardedLab, str, str]:
    """Return three primaries with several databases, and the names of the owner of the slot and of another node."""
    lab = await GuardedLab.begin("")
    for name in "abc":
        process = lab.process(name)
        process.engine, process.version, process.settings["cluster-databases"] = "valkey", VALKEY, str(count)
    source = next(name for name in "abc" if lab.process(name).node.me.slots >> SLOT & 1)
    return lab, source, next(name for name in "abc" if name != source)


def endpoints(lab: GuardedLab) -> dict[str, Endpoint]:
    return {lab.id(name): Endpoint(name, lab.address(name)[0], name, id=lab.id(name)) for name in "abc"}


async def test_no_key_is_left_behind_by_a_migration_key_by_key() -> None:
    """An open slot moves key by key; MIGRATE and the counts of its keys see database 0 only."""
    lab, source, target = await with_databases()
    lab.process(source).node.keys[KEY] = Entry(0)
    await lab.opened(SLOT)
    move = Move(lab.id(source), lab.id(target), Slots.of(SLOT))
    with pytest.raises(SlotStuck) as error:
        await coordinator.move(lab.redis.connect, Access(), endpoints(lab), [move])
    assert lab.process(source).node.me.slots >> SLOT & 1
    assert KEY in lab.process(source).node.keys
    message = str(error.value)
    assert f"{source} and {target} run with cluster-databases 16" in message
    assert len(message) <= 400


async def test_slot_with_keys_in_another_database_is_not_closed() -> None:
    lab, source, target = await with_databases()
    await lab.opened(SLOT)
    lab.process(target).node.keys[KEY] = Entry(0)
    call = CloseSlots(Access(), lab.id(source), lab.id(target), Slots.of(SLOT), endpoints(lab))
    with pytest.raises(SlotStuck, match="has keys of these slots without owning them"):
        await execute(lab.redis.connect, call)
    assert SLOT in lab.process(target).node.importing


async def test_slot_with_keys_in_another_database_is_assigned_to_the_node_that_has_them() -> None:
    lab, source, target = await with_databases()
    lab.process(source).node.keys[KEY] = Entry(0)
    lab.redis.guard.disabled = True
    for name in "abc":
        lab.process(name).node.give(SLOT, None)
    with pytest.raises(Refused, match=f"{source} has keys of {SLOT} of them|{target} has keys of none of them"):
        await execute(lab.redis.connect, AssignSlots(Access(), lab.id(target), Slots.of(SLOT), endpoints(lab)))
    await execute(lab.redis.connect, AssignSlots(Access(), lab.id(source), Slots.of(SLOT), endpoints(lab)))
    assert lab.process(source).node.me.slots >> SLOT & 1


async def test_foreign_keys_of_another_database_are_counted() -> None:
    lab, _, target = await with_databases()
    lab.process(target).node.keys[KEY] = Entry(0)
    server = lab.server(target)
    report = await count_strays(server, await inspect_node(server), Slots.of(SLOT), Entries())
    assert report.strays == {SLOT: 1}
    assert await server.execute("CLUSTER", "COUNTKEYSINSLOT", SLOT) == 0, "database 0 is selected again"


async def test_node_without_nodes_conf_claims_slots_with_keys_in_another_database() -> None:
    lab, _, _ = await with_databases()
    await lab.start("x")
    process = lab.process("x")
    process.engine, process.version, process.settings["cluster-databases"] = "valkey", VALKEY, "16"
    process.node.keys = {KEY: Entry(0)}
    lab.redis.guard.disabled = True
    at = Endpoint("x", lab.address("x")[0], "x")
    await execute(lab.redis.connect, TakeBack(Access(), at, process.node.id, Slots.of(SLOT), 9))
    assert process.node.me.slots >> SLOT & 1


@pytest.mark.nightly
async def test_cluster_with_several_databases_reports_why_its_slots_do_not_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Jobs of the servers fail, so that the operator would move the slots key by key."""
    play = ScenarioRun(World(REDIS))
    image = {"repository": "valkey/valkey", "replicasPerMaster": 0}
    await play.step(cluster(3, VALKEY, **image))
    redis: FakeRedis = play.stage.database
    for process in redis.running:
        process.settings["cluster-databases"] = "16"  # admission was bypassed
    keys = tuple(b"\0\3above:%d" % number for number in range(200))
    redis.client.add(keys, ())
    await play.wait(5)

    def fails(_: FakeRedis, __: Process, job: Migration) -> None:
        job.state, job.message = "failed", "no fork"

    monkeypatch.setattr(atomic_migration, "_finish", fails)
    await play.step(cluster(4, VALKEY, **image))
    await play.wait(20, times=8)
    assert not redis.violations
    assert redis.guard.records.keys() > {*keys}
    ready = accessors.condition_in(status(play)["conditions"], "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "SlotStuck")
    assert "runs with cluster-databases 16" in ready["message"]
    monkeypatch.undo()
    for process in redis.running:
        process.migrations.clear()  # as after a restart
    await play.wait(20, times=3)
    assert len([process for process in redis.running if process.node.me.slots]) == 4, "the servers move all databases"
    assert not redis.violations
