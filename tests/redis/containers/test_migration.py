"""Slot migration between real servers: every key exists exactly once after any failure or interruption."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from operators.redis.client.errors import RedisError, SlotStuck, TargetFull, TargetNotReplicating, Unreachable
from operators.redis.client.server import Access, Command
from operators.redis.migration import big_keys
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move, balanced
from shared.pki.certs import Pair
from tests.redis.containers.test_connection import tls
from tests.support.containers.redis_cutting import Scissors
from tests.support.containers.redis_moving import close_arrived, fill, forget, move, require_whole, writing
from tests.support.tls import Authority
from tools.databases.redis_servers import OLDEST, Client, Node, Redis, all_know, key_in

pytestmark = pytest.mark.nightly


async def test_primary_joins_and_leaves_while_a_client_writes(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3)
        some = Slots.of(*range(0, 16384, 160))
        wrote = await fill(cluster, some)
        async with cluster.nodes[0].connected() as server:
            await server.execute("FUNCTION", "LOAD", "#!lua name=one\nredis.register_function('f', function() end)")
        node = await cluster.join()
        async with writing(cluster, some) as writer:
            await move(cluster, balanced(await cluster.owners(), [each.id for each in cluster.nodes]))
            reports = await cluster.settled()
            assert [len(reports[each.id].me.slots) for each in cluster.nodes] == [4096] * 4
            back = balanced(await cluster.owners(), [each.id for each in cluster.nodes[:3]])
            await asyncio.sleep(0.3)
            await move(cluster, back)
            await asyncio.sleep(0.3)
        assert not (await node.report()).me.slots
        async with node.connected() as server:
            assert len(await server.execute("FUNCTION", "LIST")) == 1
        await require_whole(cluster, wrote | writer.wrote)


@pytest.mark.commit
async def test_migration_interrupted_after_any_command_is_completed(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(2)
        slots = Slots.of(0, 1, 2)
        wrote = await fill(cluster, slots)
        one, two = (node.id for node in cluster.nodes)
        undisturbed = Scissors()
        await move(cluster, [Move(one, two, slots)], scissors=undisturbed)
        await require_whole(cluster, wrote)
        for cut in range(len(undisturbed.sent)):
            one, two = two, one
            scissors = Scissors(cut)
            with suppress(Unreachable):  # servers with atomic migration may finish before the cut
                await move(cluster, [Move(one, two, slots)], scissors=scissors)
            async with writing(cluster, slots) as writer:
                await move(cluster, [Move(one, two, slots)])
                await close_arrived(cluster, one, two)
            assert slots == (await cluster.reports())[two].me.slots & slots, f"cut after {scissors.sent[-1:]}"
            await require_whole(cluster, wrote | writer.wrote)
            await forget(cluster, writer.wrote)


async def test_stale_copy_of_a_key_at_the_target_is_replaced(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        wrote = await fill(cluster, Slots.of(0, 1))
        async with one.connected() as source, two.connected() as target:
            await target.execute("CLUSTER", "SETSLOT", 0, "IMPORTING", one.id)
            await source.execute("CLUSTER", "SETSLOT", 0, "MIGRATING", two.id)
            late = ("RESTORE-ASKING", key_in(0, 3), 0, await source.execute("DUMP", key_in(1, 3)))
            await target.execute(*late)  # a late RESTORE of an earlier attempt
        await move(cluster, [Move(one.id, two.id, Slots.of(0, 1))])
        await require_whole(cluster, wrote)


async def test_unexpected_keys_at_the_target_are_never_replaced(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        wrote = await fill(cluster, Slots.of(0, 1))
        async with two.connected() as target:
            await target.execute("CLUSTER", "SETSLOT", 0, "IMPORTING", one.id)
            await target.pipe((("ASKING",), ("SET", key_in(0, 3), "of another client")))
            await target.execute("CLUSTER", "SETSLOT", 0, "STABLE")
            with pytest.raises(SlotStuck, match="demo-1 has 1 keys of unknown origin in slot 0, which demo-0 owns"):
                await move(cluster, [Move(one.id, two.id, Slots.of(0, 1))])
            assert await target.execute("CLUSTER", "COUNTKEYSINSLOT", 0) == 1
            reports = await cluster.settled()
            assert 1 in reports[two.id].me.slots  # the other slot has moved
            assert 0 in reports[one.id].me.slots
            await target.execute("CLUSTER", "SETSLOT", 0, "IMPORTING", one.id)
            await target.pipe((("ASKING",), ("DEL", key_in(0, 3))))
            await target.execute("CLUSTER", "SETSLOT", 0, "STABLE")
        await move(cluster, [Move(one.id, two.id, Slots.of(0, 1))])
        await require_whole(cluster, wrote)


async def test_expiring_keys_do_not_block_a_migration(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        slots = Slots.of(range(40))
        client = Client(cluster)
        for number, slot in enumerate(slots):
            for key in range(30):
                await client.send(
                    key_in(slot, key), "SET", key_in(slot, key), "short", "PX", 1 + (number * 30 + key) % 1500
                )
        stays = key_in(7, 99)
        await client.send(stays, "SET", stays, "stays", "EX", 1000)
        await move(cluster, [Move(one.id, two.id, slots)])
        assert not (await one.report()).me.slots & slots
        left = await client.send(stays, "TTL", stays)
        assert isinstance(left, int)
        assert 900 < left <= 1000
        await asyncio.sleep(2)
        await forget(cluster, {key_in(slot, key): b"" for slot in slots for key in range(30)})
        await client.aclose()
        await require_whole(cluster, {stays: b"stays"})


async def test_target_without_memory_receives_no_slot_and_is_reported(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        slots = Slots.of(*range(0, 5461, 91))
        wrote = await fill(cluster, slots, "v" * 20_000)
        async with two.connected() as target:
            used = (await two.report()).memory
            await target.execute("CONFIG", "SET", "maxmemory", used + 100_000)
            with pytest.raises(TargetFull, match=r"demo-1 uses .* of .* bytes"):
                await move(cluster, [Move(one.id, two.id, Slots.of(range(5461)))])
            reports = await cluster.reports()
            assert not reports[one.id].me.migrating
            assert not reports[two.id].me.importing

            await target.execute("CONFIG", "SET", "maxmemory", 0)
        await move(cluster, [Move(one.id, two.id, slots)])
        await require_whole(cluster, wrote)


async def test_full_target_keeps_its_keys_and_continues_with_more_memory(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misjudged(*_: object) -> None:
        """Pass the check, as if clients filled the memory after it."""

    monkeypatch.setattr("operators.redis.migration.target_check.require_memory", misjudged)
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        slots = Slots.of(range(60))
        wrote = await fill(cluster, slots, "v" * 20_000)
        async with two.connected() as target:
            await target.execute("CONFIG", "SET", "maxmemory", (await two.report()).memory + 4_000_000)
            with pytest.raises(TargetFull, match="demo-1 has no memory for slot"):
                await move(cluster, [Move(one.id, two.id, slots)])
            reports = await cluster.reports()
            open_slots = Slots.of(*reports[one.id].me.migrating)
            assert open_slots == Slots.of(*reports[two.id].me.importing)
            assert len(open_slots) < len(slots - reports[two.id].me.slots)  # slots without moved keys are closed
            client = Client(cluster)
            for key, value in wrote.items():
                assert await client.send(key, "GET", key) == value  # at both ends of an open slot
            await client.aclose()
            await target.execute("CONFIG", "SET", "maxmemory", 0)
        await move(cluster, [Move(one.id, two.id, slots)])
        await require_whole(cluster, wrote)


async def test_big_key_moves_alone_without_a_failover(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(big_keys, "BIG_KEY_BYTES", 1_000_000)
    with redis.cluster(OLDEST, cluster_node_timeout="1000", proto_max_bulk_len="20000000") as cluster:
        await cluster.form(3, 1)
        one, two = cluster.nodes[:2]
        wrote = await fill(cluster, Slots.of(0, 1))
        client = Client(cluster)
        large = key_in(0, 99)
        for part in range(40):
            await client.send(large, "RPUSH", large, *[b"%07d" % (part * 20_000 + number) for number in range(20_000)])
        await cluster.until(lambda reports: reports[cluster.nodes[3].id].offset >= reports[one.id].offset)
        scissors = Scissors()
        await move(cluster, [Move(one.id, two.id, Slots.of(0, 1))], scissors=scissors)
        timeouts = [command[3] for command in scissors.sent if command[1:3] == ("SET", "cluster-node-timeout")]
        assert len(timeouts) == 6
        assert timeouts[-1] == 1000
        for node in cluster.nodes[:3]:
            async with node.connected() as server:
                assert (await server.execute("CONFIG", "GET", "cluster-node-timeout"))[1] == "1000"
                assert (await server.execute("CONFIG", "GET", "proto-max-bulk-len"))[1] == "20000000"
        assert await client.send(large, "LLEN", large) == 800_000
        assert await client.send(large, "LINDEX", large, 777_777) == "0777777"
        await client.send(large, "UNLINK", large)
        await client.aclose()
        assert (await cluster.reports())[one.id].me.is_primary
        await require_whole(cluster, wrote)


async def test_migration_between_nodes_with_passwords_and_tls(
    redis: Redis, engine_with_tls: tuple[str, str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", *(f"demo-{number}.demo.test" for number in range(2)))
    pair = Pair(*(file.read_text() for file in authority.issue("client")))
    access = Access(authority.certificate.read_text(), pair, "a-secret", ("former-secret",))
    with redis.cluster(
        engine_with_tls, access, requirepass="a-secret", masterauth="a-secret", **tls(tmp_path)
    ) as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        slots = Slots.of(range(10))
        wrote = await fill(cluster, slots)
        await move(cluster, [Move(one.id, two.id, slots)])
        reports = await cluster.settled()
        assert not slots - reports[two.id].me.slots
        client = Client(cluster)
        for key, value in wrote.items():
            assert await client.send(key, "GET", key) == value
        await client.aclose()
        for node in cluster.nodes:
            assert "secret" not in (node.directory / "log").read_text()


@pytest.mark.parametrize("end", [0, 1])
async def test_node_killed_during_a_migration_loses_no_keys(redis: Redis, engine: tuple[str, str], end: int) -> None:
    with redis.cluster(engine, appendfsync="always") as cluster:
        await cluster.form(2)
        one, two = cluster.nodes
        slots = Slots.of(range(200))
        wrote = await fill(cluster, slots)
        moving = asyncio.create_task(move(cluster, [Move(one.id, two.id, slots)]))
        await cluster.until(lambda reports: bool(reports[two.id].me.slots & slots or reports[one.id].me.migrating))
        cluster.nodes[end].end()
        with suppress(RedisError):  # the migration may already be complete
            await moving
        with pytest.raises(Unreachable):
            await move(cluster, [Move(one.id, two.id, slots)])
        cluster.nodes[end].start()
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, slots)])
        await close_arrived(cluster, one.id, two.id)
        assert not slots - (await cluster.settled())[two.id].me.slots
        await require_whole(cluster, wrote)


async def test_promoted_replica_of_the_source_completes_the_migration(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        one, two, _, successor, *_ = cluster.nodes
        slots = Slots.of(0, 1, 2)
        wrote = await fill(cluster, slots)
        with pytest.raises(Unreachable):
            await move(cluster, [Move(one.id, two.id, slots)], scissors=Scissors(1, of="MIGRATE"))
        await cluster.until(lambda reports: reports[successor.id].keys == reports[one.id].keys < len(wrote))
        one.end()
        await cluster.until(lambda reports: all_know(reports, successor.id) and reports[successor.id].state_ok)
        await move(cluster, [Move(successor.id, two.id, slots)])  # the target may still report cluster_state:fail
        one.start()
        await cluster.until(lambda reports: reports[one.id].me.is_replica or not reports[one.id].keys)
        await close_arrived(cluster, one.id, two.id)
        assert not slots - (await cluster.settled())[two.id].me.slots
        await require_whole(cluster, wrote)


async def test_promoted_replica_of_the_target_receives_the_remaining_keys(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        one, two, _, _, successor, _ = cluster.nodes
        slots = Slots.of(0, 1, 2)
        wrote = await fill(cluster, slots)
        with pytest.raises(Unreachable):
            await move(cluster, [Move(one.id, two.id, slots)], scissors=Scissors(1, of="MIGRATE"))
        await cluster.until(lambda reports: reports[successor.id].keys == reports[two.id].keys > 0)
        two.end()
        await cluster.until(lambda reports: reports[successor.id].me.is_primary and reports[successor.id].state_ok)
        await cluster.settled()
        with pytest.raises(SlotStuck, match=f"is migrating to {two.id}"):
            await move(cluster, [Move(one.id, successor.id, slots)])
        two.start()
        await cluster.until(lambda reports: reports[two.id].me.primary == successor.id)
        await cluster.settled()
        await move(cluster, [Move(one.id, successor.id, slots)])
        assert not slots - (await cluster.settled())[successor.id].me.slots
        await require_whole(cluster, wrote)


async def test_hanging_target_causes_no_failover_of_the_source(redis: Redis) -> None:
    with redis.cluster(OLDEST, cluster_node_timeout="6000") as cluster:
        await cluster.form(3, 1)
        one, two, _, successor = cluster.nodes[:4]
        slots = Slots.of(range(300))
        wrote = await fill(cluster, slots)
        watched = Scissors()
        moving = asyncio.create_task(move(cluster, [Move(one.id, two.id, slots)], scissors=watched))
        while "MIGRATE" not in (command[0] for command in watched.sent):
            assert not moving.done()
            await asyncio.sleep(0)  # a query of the cluster would take longer than the rest of the migration
        two.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(4)
        finally:
            two.signal(signal.SIGCONT)
        with suppress(SlotStuck, Unreachable):  # the migration may have been aborted by then
            await moving
        assert (await successor.report()).me.primary == one.id
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, slots)])
        await require_whole(cluster, wrote)


async def test_counter_that_a_promoted_replica_created_again_does_not_replace_the_moved_one(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        one, two, _, successor, *_ = cluster.nodes
        slots, counter = Slots.of(0, 1), key_in(0, 99)
        wrote = await fill(cluster, slots)
        async with one.connected() as source, two.connected() as target:
            await source.execute("SET", counter, 1_000_000)
            await target.execute("CLUSTER", "SETSLOT", 0, "IMPORTING", one.id)
            await source.execute("CLUSTER", "SETSLOT", 0, "MIGRATING", two.id)
            await source.execute("MIGRATE", "127.0.0.1", two.port, counter, 0, 1000)
        await cluster.until(lambda reports: reports[successor.id].offset >= reports[one.id].offset)
        one.end()
        await cluster.until(lambda reports: all_know(reports, successor.id) and reports[successor.id].state_ok)
        async with successor.connected() as promoted, two.connected() as target:
            assert await promoted.execute("INCR", counter) == 1  # it does not know that the slot is migrating
            with pytest.raises(SlotStuck, match=r"Slot 0 cannot leave demo-3: .* exist there and at demo-1"):
                await move(cluster, [Move(successor.id, two.id, slots)])
            assert await promoted.execute("GET", counter) == b"1"
            assert (await target.pipe((("ASKING",), ("GET", counter))))[1] == b"1000000"
            reports = await cluster.settled()
            assert 1 in reports[two.id].me.slots  # the other slot has moved
            assert reports[successor.id].keys < len(wrote)
            await promoted.execute("DEL", counter)  # the decision of the user
        await move(cluster, [Move(successor.id, two.id, slots)])
        one.start()
        await cluster.until(lambda reports: reports[one.id].me.is_replica or not reports[one.id].keys)
        await close_arrived(cluster, one.id, two.id)
        await require_whole(cluster, wrote | {counter: b"1000000"})


@dataclass
class _Stopping(Scissors):
    """Stops a node right before the first MIGRATE to it is sent."""

    node: Node | None = None
    moved: tuple[bytes, ...] = ()
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    def let(self, commands: Sequence[Command]) -> list[Command]:
        first = next((command for command in commands if command[0] == "MIGRATE"), None)
        if first is not None and self.node is not None:
            self.node.signal(signal.SIGSTOP)
            self.moved = tuple(key for key in first[first.index("KEYS") + 1 :] if isinstance(key, bytes))
            self.node = None
            self.stopped.set()
        return super().let(commands)


async def test_key_deleted_while_the_target_executes_migrate_late_stays_deleted(redis: Redis) -> None:
    with redis.cluster(OLDEST, cluster_node_timeout="6000") as cluster:
        await cluster.form(3)
        one, two = cluster.nodes[:2]
        slots = Slots.of(0)
        wrote = await fill(cluster, slots)
        scissors = _Stopping(node=two)
        moving = asyncio.create_task(move(cluster, [Move(one.id, two.id, slots)], scissors=scissors))
        await scissors.stopped.wait()
        try:
            await asyncio.sleep(3.5)  # MIGRATE fails after half of the node timeout
            async with one.connected() as source:
                deleted = [key for key in scissors.moved[:1] if await source.execute("DEL", key)]
        finally:
            two.signal(signal.SIGCONT)
        await moving
        assert deleted
        await cluster.settled()
        await require_whole(cluster, {key: value for key, value in wrote.items() if key not in deleted})


async def test_target_whose_replica_hangs_receives_no_more_slots(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine, cluster_node_timeout="15000") as cluster:
        await cluster.form(3, 1)
        one, two, _, _, replica, _ = cluster.nodes
        slots = Slots.of(range(100))
        wrote = await fill(cluster, slots)
        replica.signal(signal.SIGSTOP)
        try:
            with pytest.raises(TargetNotReplicating, match="demo-1 paused: no replica of it acknowledged"):
                await move(cluster, [Move(one.id, two.id, slots)])
            reports = {node.id: await node.report() for node in (one, two)}
            if engine == OLDEST:  # otherwise one job moves all of them at once
                assert len(reports[two.id].me.slots & slots) < len(slots)
            assert len(reports[one.id].me.migrating) <= 1  # a slot of which keys have moved stays open
            assert reports[one.id].me.migrating.keys() == reports[two.id].me.importing.keys()
        finally:
            replica.signal(signal.SIGCONT)
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, slots)])
        await require_whole(cluster, wrote)


async def test_target_without_a_running_replica_receives_no_slot(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3, 1)
        one, two, _, _, replica, _ = cluster.nodes
        slots = Slots.of(range(10))
        wrote = await fill(cluster, slots)
        replica.end()
        await cluster.until(lambda reports: not reports[two.id].replicas)
        with pytest.raises(TargetNotReplicating, match="No slot moves to demo-1: none of its replicas is online"):
            await move(cluster, [Move(one.id, two.id, slots)])
        assert not (await two.report()).me.importing
        await move(cluster, [Move(one.id, two.id, slots)], acknowledge=False)
        assert not slots - (await two.report()).me.slots
        replica.start()
        await require_whole(cluster, wrote)
