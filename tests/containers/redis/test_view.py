"""What nodes themselves say through a failure, an election and a loss, put together as the plan reads it."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from e2e.databases.redis_servers import Cluster, Redis
from operators.redis.client.errors import RedisError
from operators.redis.client.responses import NodeReport
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.cluster_view import ClusterView


async def seen(cluster: Cluster) -> ClusterView:
    """By those who answer now; who reads its data does not."""
    said: dict[str, NodeReport] = {}
    for node in cluster.nodes:
        with suppress(RedisError):
            if node.alive:
                said[node.id] = await node.says()
    return ClusterView.of(said, {node.id: node.name for node in cluster.nodes})


async def until(cluster: Cluster, holds: Callable[[ClusterView], bool], seconds: float = 60) -> list[ClusterView]:
    """All that was seen until something holds; at every moment each slot has an owner."""
    views: list[ClusterView] = []
    deadline = time.monotonic() + seconds
    while True:
        views.append(await seen(cluster))
        assert views[-1].owned
        assert not views[-1].uncovered
        if holds(views[-1]):
            return views
        assert time.monotonic() < deadline, (views[-1].settled, views[-1].report)
        await asyncio.sleep(0.05)


async def test_a_failure_an_election_and_a_comeback(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3, 1)
        first, *_, replica, _, _ = cluster.nodes
        views = await until(cluster, lambda view: not view.settled)
        assert views[-1].primaries[0].id == first.id
        assert [copy.id for copy in views[-1].other_copies(first.id)] == [replica.id]

        first.end()
        views = await until(cluster, lambda view: not view.settled and replica.id in view.owned)
        assert "demo-0 does not answer, yet " in views[0].settled
        assert [node.id for node in views[-1].failing] == [first.id]
        assert views[-1].owned[replica.id] == Slots.of(range(16384 // 3))
        assert views[-1].holds_only_copy(replica.id)
        assert not views[-1].holds_only_copy(first.id)
        # Whoever asked while the replica was not elected yet was told to wait for it.
        assert all(view.settled or view.awaiting_election for view in views[:-1])

        first.start()
        views = await until(cluster, lambda view: not view.settled and bool(view.other_copies(replica.id)))
        assert views[-1].nodes[first.id].primary == replica.id
        assert not views[-1].holds_only_copy(replica.id)


async def test_one_that_comes_back_empty_is_another_and_the_former_is_lost(
    redis: Redis, engine: tuple[str, str]
) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3, 1)
        last = cluster.nodes[-1]
        former = last.id
        last.end()
        for path in last.directory.iterdir():
            if path.name != "redis.conf":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        last.start()
        last.id = (await last.says()).id
        views = await until(cluster, lambda view: not view.settled and view.nodes[former].lost)
        assert [node.id for node in views[-1].outside] == [last.id]
        assert former in views[-1].cluster
        assert not views[-1].holds_only_copy(former)

        await cluster.meet([last])
        await until(cluster, lambda view: not view.settled and last.id in {node.id for node in view.empty_primaries})


async def test_without_a_majority_nothing_is_settled(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3)
        await until(cluster, lambda view: not view.settled)
        for node in cluster.nodes[1:]:
            node.end(signal.SIGKILL)
        (view, *_) = await until(cluster, lambda view: bool(view.settled))
        assert view.settled.startswith("Only 1 of 3 masters answer, not demo-1 and demo-2")
        assert not view.can_elect
        assert not view.failing, "for that a majority would have to agree"
