"""The clients and the CLI check of the end-to-end tests, against real servers: losses are detected."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from redis.crc import key_slot

from e2e.scenarios.redis import cli_check
from e2e.scenarios.redis.clients import Load
from e2e.scenarios.redis.replication_monitor import ReplicationMonitor
from e2e.scenarios.redis.session import Access, Address
from e2e.scenarios.redis.workload import Kind
from operators.redis.client.server import Server
from tools.databases.redis_servers import NEWEST, OLDEST, Client, Cluster, Node, Redis

pytestmark = pytest.mark.nightly

NO_PASSWORD = Access()


def addresses(cluster: Cluster) -> list[Address]:
    return [("127.0.0.1", node.port) for node in cluster.nodes]


def by_name(cluster: Cluster) -> dict[str, Address]:
    return {node.name: ("127.0.0.1", node.port) for node in cluster.nodes}


def verdict(cluster: Cluster) -> cli_check.Verdict:
    return cli_check.check(addresses(cluster)[0], NO_PASSWORD, cluster.engine)


async def move_slowly(
    slot: int, source: tuple[Node, Server], target: tuple[Node, Server], others: list[Server]
) -> None:
    """Move a slot with pauses between the steps."""
    await target[1].execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source[0].id)
    await source[1].execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target[0].id)
    await asyncio.sleep(0.02)
    while keys := await source[1].execute("CLUSTER", "GETKEYSINSLOT", slot, 100):
        await source[1].execute("MIGRATE", "127.0.0.1", target[0].port, "", 0, 5000, "KEYS", *keys)
    await asyncio.sleep(0.02)
    for server in (target[1], source[1], *others):
        await server.execute("CLUSTER", "SETSLOT", slot, "NODE", target[0].id)


@pytest.mark.parametrize("of", [OLDEST, pytest.param(NEWEST, marks=pytest.mark.weekly)])
async def test_clients_follow_slots_to_a_new_node_without_an_error(of: tuple[str, str], tmp_path: Path) -> None:
    with Redis(tmp_path).cluster(of) as cluster:
        await cluster.form(3, 1)
        assert verdict(cluster) == cli_check.Verdict(3, 3, ())
        joined = await cluster.join()
        # Slots with frequent writes move first.
        with Load.running(lambda: addresses(cluster)[:2]) as load:
            async with (
                cluster.nodes[0].connected() as source,
                joined.connected() as target,
                cluster.nodes[1].connected() as other,
            ):
                own = (await cluster.owners())[cluster.nodes[0].id]
                wrote = busy(load)
                slots = sorted(own, key=lambda slot: slot not in wrote)
                for slot in slots[:150]:
                    await move_slowly(slot, (cluster.nodes[0], source), (joined, target), [other])
        assert load.errors == Counter()
        assert await asyncio.to_thread(load.check) > 20
        await cluster.settled()
        assert verdict(cluster) == cli_check.Verdict(4, 3, ())


def busy(load: Load) -> set[int]:
    """Return the slots of the keys that were written so far."""
    return {key_slot(name.encode()) for name in list(load.workload.keys)}


async def test_write_lost_by_a_takeover_is_detected_unless_it_was_not_replicated(tmp_path: Path) -> None:
    with Redis(tmp_path).cluster(OLDEST, cluster_node_timeout="60000") as cluster:
        await cluster.form(3, 1)
        primary, replica = cluster.nodes[0], cluster.nodes[3]
        with (
            ReplicationMonitor.running(lambda: by_name(cluster)) as replication,
            Load.running(lambda: addresses(cluster)) as load,
        ):
            await asyncio.sleep(0.5)
            replica.end()
            stopped = time.monotonic()
            await asyncio.sleep(2)
            replication.crash(primary.name)
            primary.end()
            await asyncio.to_thread(replica.start)
            await cluster.until(lambda reports: not reports[replica.id].loading)
            async with replica.connected() as server:
                await server.execute("CLUSTER", "FAILOVER", "TAKEOVER")
            await asyncio.sleep(1)
        assert load.errors + load.connection_failures, "clients notice a killed primary"
        [death] = replication.deaths()
        assert death.slots == set(range(5461))
        assert stopped - 1 < death.replicated < stopped + 1 < death.until, "from the last write that was replicated"
        with pytest.raises(AssertionError, match=r"misses|undoes"):
            await asyncio.to_thread(load.check)
        assert await asyncio.to_thread(load.check, [death]) > 10
        old = next(key for key in load.workload.keys.values() if key.kind is Kind.COUNTER and key.number == 1)
        client = Client(cluster)
        await client.send(old.name.encode(), "SET", old.name, 1)
        await client.aclose()
        with pytest.raises(AssertionError, match=f"read {old.name}="):
            await asyncio.to_thread(load.check, [death])


async def test_open_slot_is_detected(tmp_path: Path) -> None:
    with Redis(tmp_path).cluster(OLDEST) as cluster:
        await cluster.form(3)
        async with cluster.nodes[1].connected() as server:
            (slot, *_) = (await cluster.owners())[cluster.nodes[1].id]
            await server.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", cluster.nodes[2].id)
        assert any(
            "open" in problem
            for problem in cli_check.check(addresses(cluster)[1], NO_PASSWORD, cluster.engine).problems
        )


async def test_clients_change_their_password_without_an_error(tmp_path: Path) -> None:
    with Redis(tmp_path).cluster(OLDEST) as cluster:
        await cluster.form(3)
        for node in cluster.nodes:
            async with node.connected() as server:
                await server.execute("ACL", "SETUSER", "default", "resetpass", ">first", ">second")
        with Load.running(lambda: addresses(cluster), Access(password="first")) as load:
            await asyncio.sleep(0.5)
            load.access = Access(password="second")
            await asyncio.sleep(0.5)
            for node in cluster.nodes:
                async with node.connected() as server:
                    await server.execute("AUTH", "second")
                    await server.execute("ACL", "SETUSER", "default", "<first")
            await asyncio.sleep(0.5)
        assert load.errors == Counter()
        assert await asyncio.to_thread(load.check) > 10
        assert cli_check.check(addresses(cluster)[0], load.access, cluster.engine) == cli_check.Verdict(3, 0, ())
        assert cli_check.check(addresses(cluster)[0], NO_PASSWORD, cluster.engine).problems
