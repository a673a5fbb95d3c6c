"""Identities of real nodes: a lost nodes.conf, a new one for each process, and a foreign node at an address."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from operators.redis.client.commands import Forget, Meet, TakeBack, execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import ForeignNodeMet, Refused
from operators.redis.client.server import Access, Endpoint, Server
from operators.redis.slots.hash_slots import Slots
from tools.databases.redis_servers import OPEN, Cluster, Node, Redis, key_in

pytestmark = pytest.mark.nightly

WRITTEN = (0, 100, 5000, 6000, 12000)
"""Slots with a key."""


async def restarted_without_nodes_conf(cluster: Cluster, node: Node) -> str:
    """Restart a node without its nodes.conf; return its new id."""
    node.end()
    (node.directory / "nodes.conf").unlink()
    node.start()
    node.id = ""
    await cluster.identify()
    return node.id


async def write(cluster: Cluster, slots: tuple[int, ...] = WRITTEN) -> None:
    owned = await cluster.owners()
    for slot in slots:
        owner = next(node for node in cluster.nodes if slot in owned[node.id])
        async with owner.connected() as server:
            await server.execute("SET", key_in(slot), "kept")


@pytest.mark.commit
async def test_node_that_lost_nodes_conf_takes_its_slots_back_with_their_keys(
    redis: Redis, engine: tuple[str, str]
) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3)
        first, *others = cluster.nodes
        former, slots = first.id, (await cluster.owners())[first.id]
        await write(cluster)
        new = await restarted_without_nodes_conf(cluster, first)
        alone = await first.report()
        assert new != former
        assert (alone.keys, alone.me.epoch) == (3, 0)
        assert str(alone.me.slots) == "0 100 5000", "the node claims the slots whose keys it has"

        await execute(connect, Forget(OPEN, former, tuple(node.endpoint for node in others)))
        wrong = TakeBack(OPEN, first.endpoint, new, slots - Slots.of(100), 9)
        with pytest.raises(Refused, match="claims slots 100"):
            await execute(connect, wrong)
        for _ in range(2):
            await execute(connect, TakeBack(OPEN, first.endpoint, new, slots, 9))
        for _ in range(2):
            via = tuple(node.endpoint for node in others)
            await execute(connect, Meet(OPEN, first.endpoint, via, new, own=frozenset({former, new})))
        reports = await cluster.until(
            lambda reports: all((known := each.node(new)) and known.slots == slots for each in reports.values())
        )
        assert reports[new].keys == 3
        await cluster.settled()
        assert {node_id: reported.keys for node_id, reported in (await cluster.reports()).items()} == {
            new: 3,
            others[0].id: 1,
            others[1].id: 1,
        }
        cluster.check()


async def test_foreign_node_at_the_address_of_a_pod_is_forgotten(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster, redis.cluster(engine) as foreign:
        await cluster.form(3)
        for _ in range(2):
            foreign.add()
        await foreign.meet(foreign.nodes[1:])
        await foreign.until(lambda reports: all(len(each.nodes) == 2 for each in reports.values()))
        # The pod reports the stranger's bus port: clusters that began with 0.1.0 have one port, newer ones rarely.
        new = cluster.add(cluster_announce_bus_port=str((await foreign.nodes[0].report()).me.bus))
        await cluster.identify()
        address = replace(foreign.nodes[0].endpoint, name="demo-9", id=new.id)
        members = cluster.nodes[:3]
        own = frozenset(node.id for node in cluster.nodes)
        call = Meet(OPEN, address, tuple(node.endpoint for node in members), new.id, own=own)
        with pytest.raises(ForeignNodeMet, match=foreign.nodes[0].id):
            await execute(partial(_to_the_pod, new), call)
        # Valkey sends MEET to a node that does not contact it, after the node timeout (2 s here).
        await asyncio.sleep(0 if engine[0] == "valkey" else 3)
        for node in members:
            assert {known.id for known in (await node.report()).nodes} == {member.id for member in members}
        cluster.nodes.remove(new)
        new.end()
        cluster.check()


def _to_the_pod(pod: Node, endpoint: Endpoint, access: Access) -> Server:
    """Connect to the pod that had the address when its identity was checked."""
    return connect(pod.endpoint if endpoint.name == "demo-9" else endpoint, access)


async def test_process_with_another_file_is_another_node(redis: Redis, engine: tuple[str, str]) -> None:
    """See steps/fresh_identity.py: names as the kubelet fills them in, first without an earlier process."""
    with redis.cluster(engine) as cluster:
        node = cluster.add(appendonly="no")
        ids = []
        for process in ("", "f" * 40, "f" * 40):
            node.end()
            name = f"6f0c2c1e-3b1a-4a53-8e3a-1c1f0a1f2f3b-{process}"
            node.options |= {"cluster-config-file": f"nodes-{name}.conf", "dbfilename": f"dump-{name}.rdb"}
            (node.directory / "redis.conf").unlink()
            node.start()
            ids.append((await node.report()).id)
        assert ids[0] != ids[1] == ids[2]
