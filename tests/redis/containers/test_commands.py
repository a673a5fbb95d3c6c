"""Cluster commands against real Redis and Valkey: the effect of each, its repetition, and refusals."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest

from operators.redis.client.command_base import RedisCall
from operators.redis.client.commands import (
    AddSlots,
    Configure,
    FailOver,
    Forget,
    Meet,
    Replicate,
    SetEpoch,
    SetPasswords,
    execute,
)
from operators.redis.client.connection import connect
from operators.redis.client.errors import Denied, Refused, SlotStuck, Unreachable
from operators.redis.client.server import Access
from operators.redis.migration.commands import CloseSlots
from operators.redis.slots.hash_slots import Slots
from tools.databases.redis_servers import OPEN, Redis, all_know, key_in

pytestmark = pytest.mark.nightly


async def twice(call: RedisCall) -> None:
    """Execute a command twice: it is repeated if its result is unknown."""
    await execute(connect, call)
    await execute(connect, call)


@pytest.mark.commit
async def test_cluster_is_formed_and_changed_command_by_command(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        one, two, three = (cluster.add() for _ in range(3))
        await cluster.identify()
        at = {node.id: node.endpoint for node in cluster.nodes}
        for number, node in enumerate((one, two, three)):
            await twice(SetEpoch(OPEN, node.endpoint, node.id, number + 1))
        await twice(Meet(OPEN, two.endpoint, (one.endpoint,), two.id))
        await twice(Meet(OPEN, three.endpoint, (one.endpoint, two.endpoint), three.id))
        await cluster.until(lambda reports: all(len(each.nodes) == 3 for each in reports.values()))
        await twice(AddSlots(OPEN, one.endpoint, one.id, Slots.of(range(8000))))
        await twice(AddSlots(OPEN, two.endpoint, two.id, Slots.all() - Slots.of(range(8000))))
        reports = await cluster.settled()
        assert [reports[node.id].me.epoch for node in (one, two, three)] == [1, 2, 3]
        with pytest.raises(Refused, match="as the owner of slots 7999"):
            await execute(connect, AddSlots(OPEN, two.endpoint, two.id, Slots.of(7999, 8000)))

        async with one.connected() as server:
            await server.execute("SET", key_in(0), "kept")  # slot 0
        await twice(Replicate(OPEN, three.endpoint, three.id, one.id))
        await cluster.until(lambda reports: reports[three.id].keys == 1 and all_know(reports, three.id, one.id))
        with pytest.raises(Refused, match="must not become a replica"):
            await execute(connect, Replicate(OPEN, two.endpoint, two.id, one.id))

        failover = FailOver(OPEN, three.endpoint, three.id, one.id, address=f"{one.endpoint.address}:{one.port}")
        await execute(connect, failover)  # takes effect after the response
        await cluster.until(lambda reports: reports[one.id].link_up and all_know(reports, one.id, three.id))
        await execute(connect, failover)  # takes effect after the response
        await cluster.until(lambda reports: reports[one.id].link_up and reports[one.id].keys == 1)
        cluster.check()

        four = await cluster.join()
        four.end()
        await twice(Forget(OPEN, four.id, (one.endpoint, two.endpoint, three.endpoint)))
        reports = await cluster.reports()
        assert all({node.id for node in each.nodes} == set(at) for each in reports.values())


async def test_commands_are_refused_by_another_node_at_the_address(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster, redis.cluster(engine) as another:
        await cluster.form(1)
        await another.form(1)
        (own,), (foreign,) = cluster.nodes, another.nodes
        here = replace(own.endpoint, port=foreign.port)  # the address now belongs to a node of another cluster
        for call in (
            SetEpoch(OPEN, here, own.id, 7),
            Meet(OPEN, here, (own.endpoint,), own.id),
            Meet(OPEN, own.endpoint, (here,), own.id),
            AddSlots(OPEN, here, own.id, Slots.of(1)),
            Replicate(OPEN, here, own.id, "0" * 40),
            FailOver(OPEN, here, own.id, "0" * 40, "TAKEOVER"),
            Forget(OPEN, "0" * 40, (here,)),
            Configure(OPEN, here, own.id, {"maxmemory": "1mb"}),
            SetPasswords(OPEN, here, own.id, ("0" * 64,)),
            CloseSlots(OPEN, own.id, "0" * 40, Slots.of(1), {own.id: here}),
        ):
            with pytest.raises(Unreachable, match=foreign.id):
                await execute(connect, call)
        assert len((await foreign.report()).nodes) == len((await own.report()).nodes) == 1
        assert (await foreign.report()).max_memory == 0


async def test_passwords_overlap_and_stay_out_of_descriptions(redis: Redis, engine: tuple[str, str]) -> None:
    first, second = Access(password="first-secret"), Access(password="second-secret")
    digests = [hashlib.sha256(access.password.encode()).hexdigest() for access in (first, second)]
    with redis.cluster(engine, first, requirepass="first-secret") as cluster:
        node = cluster.add()
        await cluster.identify()
        both = SetPasswords(first, node.endpoint, node.id, tuple(digests))
        await twice(both)
        for access in (first, second):
            assert (await node.report(access)).id == node.id
        await twice(SetPasswords(second, node.endpoint, node.id, tuple(digests[1:])))
        with pytest.raises(Denied):
            await node.report(first)

        call = Configure(second, node.endpoint, node.id, {"masterauth": "second-secret", "maxmemory": "1048576000"})
        await twice(call)
        assert (await node.report(second)).max_memory == 1_048_576_000
        for shown in (repr(call), str(call), repr(both), str(both)):
            assert "secret" not in shown
            assert digests[0] not in shown
        await twice(SetPasswords(second, node.endpoint, node.id, ()))
        assert (await node.report(OPEN)).id == node.id


async def test_slots_are_closed_unless_keys_are_left_behind(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(2)
        source, target = cluster.nodes
        nodes = {node.id: node.endpoint for node in cluster.nodes}
        async with source.connected() as giving, target.connected() as taking:
            for slot in (0, 1, 2):
                await taking.execute("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
                await giving.execute("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
            await taking.pipe((("ASKING",), ("SET", key_in(0), "left behind")))  # slot 0
            with pytest.raises(SlotStuck, match="Slots 0 cannot be closed"):
                await execute(connect, CloseSlots(OPEN, source.id, target.id, Slots.of(0, 1, 2), nodes))
            reports = await cluster.reports()
            assert list(reports[source.id].me.migrating) == list(reports[target.id].me.importing) == [0]
            await taking.pipe((("ASKING",), ("DEL", key_in(0))))
            await twice(CloseSlots(OPEN, source.id, target.id, Slots.of(0, 1, 2), nodes))
            await giving.execute("CLUSTER", "SETSLOT", 3, "MIGRATING", target.id)
            await twice(CloseSlots(OPEN, source.id, "0" * 40, Slots.of(3), nodes))
        cluster.check()
