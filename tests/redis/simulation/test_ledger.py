"""The judge of keys sees what a careless operator, or careless servers, do to them."""

from __future__ import annotations

import copy

import pytest

from operators.redis.client.errors import Refused
from simulator.redis.client import KEYS, OLD_KEYS, Entry
from simulator.redis.node import slot_of
from tests.harness.scenario import Unsafe
from tests.redis.simulation.guard import named_slots
from tests.redis.simulation.lab import GuardedLab
from tests.redis.simulation.ledger import Branch, State
from tests.support.redis.recorded_conformance import ELECTED, SEEN

HOT = KEYS[-3:]
SLOT = slot_of(HOT[0])


@pytest.fixture
async def lab() -> GuardedLab:
    return await GuardedLab.begin()


async def migrate(lab: GuardedLab, source: str, target: str, *keys: bytes, options: tuple[str, ...] = ()) -> None:
    address = lab.address(target)
    await lab.server(source).execute("MIGRATE", *address, "", 0, 1000, *options, "KEYS", *keys)


async def successor_of(lab: GuardedLab, name: str) -> str:
    """End a primary, and return its replica, which was elected."""
    await lab.stop(name)
    await lab.wait(ELECTED)
    return {"a": "d", "b": "e", "c": "f"}[name]


async def test_replacing_a_newer_key_is_a_violation(lab: GuardedLab) -> None:
    """A promoted source has no marks, so clients begin its moved keys again; REPLACE then discards the moved ones."""
    source, target = await lab.opened(SLOT)
    await migrate(lab, source, target, *HOT)
    await lab.wait(1)
    promoted = await successor_of(lab, source)
    assert not lab.process(promoted).node.migrating
    assert not lab.redis.violations, "both are kept"
    assert {*lab.redis.guard.unresolved(lab.redis)} >= {*HOT}
    with pytest.raises(Unsafe, match="in slots"):
        lab.redis.guard.require_resolved(lab.redis)
    lab.redis.violations.clear()
    lab.redis.guard.require_resolved(lab.redis, f"Slot {SLOT} has keys at both ends.")
    await lab.cluster(promoted, "SETSLOT", SLOT, "MIGRATING", lab.id(target))
    await migrate(lab, promoted, target, *HOT, options=("REPLACE",))
    with pytest.raises(Unsafe, match="acknowledged writes are lost"):
        await lab.wait(1)


async def test_batches_that_no_replica_acknowledged_are_a_violation(lab: GuardedLab) -> None:
    source, target = await lab.opened(SLOT)
    replica = {"a": "d", "b": "e", "c": "f"}[target]
    lab.redis.lagging.add(f"demo-{replica}")
    for key in HOT:
        await migrate(lab, source, target, key)
    await lab.stop(target)
    with pytest.raises(Unsafe, match="acknowledged writes are lost"):
        await lab.wipe(target)


async def test_last_batch_may_be_lost_with_its_target(lab: GuardedLab) -> None:
    source, target = await lab.opened(SLOT)
    for key in HOT[:-1]:
        await migrate(lab, source, target, key)
        await lab.server(target).execute("PING")  # so that WAIT covers what MIGRATE wrote
        assert await lab.server(target).pipe([("PING",), ("WAIT", 1, 100)])
    await migrate(lab, source, target, HOT[-1])
    await lab.stop(target)
    await lab.wipe(target)
    await lab.wait(ELECTED)
    assert not lab.redis.violations


async def test_delete_undone_by_a_late_restore_is_a_violation(lab: GuardedLab) -> None:
    source, target = await lab.opened(SLOT)
    lab.redis.stalled.add(f"demo-{target}")
    with pytest.raises(Refused, match="IOERR"):
        await migrate(lab, source, target, *HOT)
    for key in HOT:
        assert lab.redis.client.send(lab.redis, key, "DEL")
    await lab.server(target).execute("PING")
    lab.redis.client.idle = True
    with pytest.raises(Unsafe, match="was deleted, and comes back"):
        await lab.cluster(target, "SETSLOT", SLOT, "NODE", lab.id(target))


async def test_primary_that_resumes_empty_is_a_violation(lab: GuardedLab) -> None:
    lab.process("c").settings["appendonly"] = "no"
    await lab.stop("c")
    await lab.start("c", appendonly="no")
    with pytest.raises(Unsafe, match="discards the only copy"):
        await lab.wait(SEEN)


async def test_writes_of_a_cut_off_primary_may_be_lost(lab: GuardedLab) -> None:
    lab.redis.partitions = {"demo-c": 1}
    await lab.wait(ELECTED)
    lab.redis.partitions.clear()
    await lab.wait(2 * SEEN)
    assert not lab.redis.violations
    assert lab.process("c").node.me.primary == lab.id("f")


async def test_writes_of_a_primary_that_does_not_know_its_successor_yet_may_be_lost(lab: GuardedLab) -> None:
    """A primary is back before the others have forgotten its failure, and its replica is elected."""
    redis, primary, replica = lab.redis, lab.process("c"), lab.process("f")
    redis.take_over(replica, replica.node.epoch + 1, "f is elected")
    assert redis.guard.served[primary.node.id] == redis.now
    assert primary.node.offset > replica.node.offset
    await lab.wait(2 * SEEN)
    assert primary.node.me.primary == replica.node.id
    redis.guard.require_resolved(redis)
    assert not redis.violations


async def test_copy_of_another_cluster_does_not_keep_what_a_server_without_persistence_had(lab: GuardedLab) -> None:
    """A snapshot of a volume is served by no server of the cluster."""
    redis = lab.redis
    primary = lab.process("c")
    primary.settings["appendonly"] = "no"
    key = next(key for key in OLD_KEYS if key in primary.node.keys)
    copied = copy.deepcopy(primary.node)
    copied.cluster = "a copy"
    await lab.stop("f")
    await lab.wipe("f")
    redis.disks["snapshot"] = copied
    await lab.stop("c")
    record = redis.guard.records[key]
    assert all(branch.found(None, redis.now) for branch in record.branches)


async def test_nodes_of_other_shards_have_not_deleted_the_keys_that_a_late_replica_has(lab: GuardedLab) -> None:
    """The replica takes over from a primary that lost its disk, with all writes up to the last one it received."""
    redis = lab.redis
    replica = lab.process("f")
    key = next(key for key in OLD_KEYS if key in lab.keys("c"))
    older = replica.node.keys[key]
    redis.lagging.add("demo-f")
    replica.linked, replica.since = False, None  # restarted, and has not reached its primary since
    assert redis.client.send(redis, key, "DEL")
    assert redis.client.send(redis, key, "SET")
    await lab.stop("c")
    [branch] = redis.guard.records[key].branches
    assert branch.floor == branch.head.number, "the disk of the primary has everything"
    await lab.wipe("c")
    assert branch.found(older, redis.now)
    assert branch.floor == older.number, "nothing older may be found"


def test_budget_ends_at_the_newest_copy() -> None:
    states = [State(1, Entry(1), None)]
    for number in (2, 3, 4):
        states.append(State(number, Entry(number) if number != 3 else None, states[-1]))
    branch = Branch(states[-1], 4)
    assert branch.found(Entry(4), 0)
    assert not branch.found(None, 0)
    assert branch.lower([Entry(1), None], 0)
    assert branch.floor == 3, "a copy without the key has it as deleted"
    assert branch.found(None, 0)
    assert not branch.found(Entry(2), 0)
    assert branch.lower([], 0)
    assert branch.floor == 0, "no copy is left"


def test_expired_key_is_as_a_deleted_one() -> None:
    branch = Branch(State(1, Entry(1, expires=10.0), None), 1)
    assert not branch.found(None, 9.9)
    assert branch.found(None, 10.0)


def test_slots_are_named_one_by_one_or_as_ranges() -> None:
    assert named_slots("Slots 3-5 and 9 of cache-1 cannot be moved.") >= {3, 4, 5, 9}
