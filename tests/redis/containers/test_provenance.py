"""Open slots of real servers: marks that no client set, and marks that a failover lost."""

from __future__ import annotations

import shutil
import signal

import pytest

from operators.redis.client.commands import CancelImport, execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused, SlotStuck, Unreachable
from operators.redis.client.node_inspection import count_strays, inspect_node
from operators.redis.client.responses import Entries
from operators.redis.migration.commands import ReopenSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Move
from operators.redis.topology.cluster_view import ClusterView
from operators.redis.topology.provenance import Provenance, judge
from tests.support.containers.redis_cutting import Scissors
from tests.support.containers.redis_moving import KEYS, fill, forget, move, require_whole
from tools.databases.redis_servers import OLDEST, Client, Cluster, Node, Redis, all_know

pytestmark = pytest.mark.nightly

MOVED = Slots.of(range(10))


async def provenance(cluster: Cluster) -> Provenance:
    """Sort the open slots as the operator does whose status records no move."""
    reports = {}
    for node in cluster.nodes:
        async with node.connected() as server:
            reports[node.id] = await count_strays(server, await inspect_node(server), Slots(), Entries())
    view = ClusterView.of(reports)
    return judge(view, (), lambda *_: False, lambda node_id: node_id not in view.nodes)


@pytest.mark.commit
async def test_primary_with_older_data_brings_no_deleted_key_back(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3)
        one, two, _ = cluster.nodes
        wrote = await fill(cluster, MOVED)
        one.end(signal.SIGTERM)
        older = shutil.copytree(one.directory / "appendonlydir", one.directory / "older")
        one.start()
        await cluster.settled()
        await move(cluster, [Move(one.id, two.id, MOVED)])
        await forget(cluster, wrote)
        one.end()
        shutil.rmtree(one.directory / "appendonlydir")
        older.rename(one.directory / "appendonlydir")
        one.start()
        await cluster.until(lambda reports: reports[one.id].state_ok)
        assert set((await one.report()).me.importing) == set(MOVED), "Redis marks the slots by itself"
        found = await provenance(cluster)
        assert (found.unexplained, found.own) == ({one.id: MOVED}, Slots())
        assert found.foreign == {one.id: MOVED}
        await execute(connect, CancelImport(cluster.access, one.endpoint, one.id, MOVED))
        report = await one.report()
        assert (dict(report.me.importing), report.keys) == ({}, len(MOVED) * KEYS), "no key is deleted"
        with pytest.raises(SlotStuck, match="keys of unknown origin"):
            await move(cluster, [Move(two.id, one.id, MOVED)])
        client = Client(cluster)
        assert [key for key in wrote if await client.send(key, "EXISTS", key)] == []
        await client.aclose()


async def interrupted(cluster: Cluster) -> tuple[dict[bytes, bytes], bytes]:
    """Interrupt a migration between the first two primaries; return the keys, and one that has moved."""
    one, two = cluster.nodes[:2]
    wrote = await fill(cluster, Slots.of(0))
    with pytest.raises(Unreachable):
        await move(cluster, [Move(one.id, two.id, Slots.of(0))], scissors=Scissors(1, of="MIGRATE"))
    async with two.connected() as server:
        moved = (await server.execute("CLUSTER", "GETKEYSINSLOT", 0, 1))[0]
    await cluster.until(
        lambda reports: all(reports[copy.id].keys == reports[of.id].keys for of, copy in pairs(cluster))
    )
    return wrote, moved


def pairs(cluster: Cluster) -> list[tuple[Node, Node]]:
    return list(zip(cluster.nodes[:3], cluster.nodes[3:], strict=True))


async def reopen(cluster: Cluster, source: Node, target: Node) -> None:
    nodes = {node.id: node.endpoint for node in cluster.nodes if node.alive}
    call = ReopenSlots(cluster.access, source.id, target.id, Slots.of(0), nodes)
    for _ in range(2):  # repeated without harm
        await execute(connect, call)
    assert dict((await source.report()).me.migrating) == {0: target.id}
    assert dict((await target.report()).me.importing) == {0: source.id}


async def test_promoted_source_redirects_to_moved_keys_once_its_slot_is_open_again(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        one, two, _, successor, *_ = cluster.nodes
        wrote, moved = await interrupted(cluster)
        one.end()
        await cluster.until(lambda reports: all_know(reports, successor.id) and reports[successor.id].me.is_primary)
        assert not (await successor.report()).me.migrating, "Redis 7.0 does not replicate the mark"
        await reopen(cluster, successor, two)
        await cluster.until(lambda reports: reports[two.id].state_ok and reports[successor.id].state_ok)
        async with successor.connected() as source, two.connected() as target:
            with pytest.raises(Refused, match=f"ASK 0 127.0.0.1:{two.port}"):
                await source.execute("INCR", moved)  # without the mark, it would be created again
            assert (await target.pipe((("ASKING",), ("APPEND", moved, "+"))))[1] == len(wrote[moved]) + 1
        await move(cluster, [Move(successor.id, two.id, Slots.of(0))])
        await require_whole(cluster, wrote | {moved: wrote[moved] + b"+"})


async def test_promoted_target_serves_moved_keys_once_its_slot_is_open_again(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3, 1)
        one, two, _, _, successor, _ = cluster.nodes
        wrote, moved = await interrupted(cluster)
        two.end()
        await cluster.until(lambda reports: all_know(reports, successor.id) and reports[successor.id].state_ok)
        await reopen(cluster, one, successor)
        client = Client(cluster)
        assert await client.send(moved, "GET", moved) == wrote[moved]
        await client.aclose()
        await move(cluster, [Move(one.id, successor.id, Slots.of(0))])
        await require_whole(cluster, wrote)


async def test_slot_with_a_healthy_other_target_is_not_reopened(redis: Redis) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(3)
        one, two, three = cluster.nodes
        async with one.connected() as source, three.connected() as target:
            await target.execute("CLUSTER", "SETSLOT", 0, "IMPORTING", one.id)
            await source.execute("CLUSTER", "SETSLOT", 0, "MIGRATING", three.id)
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        await execute(connect, ReopenSlots(cluster.access, one.id, two.id, Slots.of(0), nodes))
        assert dict((await one.report()).me.migrating) == {0: three.id}
