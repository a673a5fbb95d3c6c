"""The cluster view from reports of real nodes during a failure, an election and a loss."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from operators.redis.client.errors import RedisError
from operators.redis.client.responses import NodeReport
from operators.redis.slots.hash_slots import Slots
from operators.redis.topology.cluster_view import ClusterView
from tools.databases.redis_servers import Cluster, Redis

pytestmark = pytest.mark.nightly


async def observe(cluster: Cluster) -> ClusterView:
    """Return the view of the nodes that answer now; a loading node does not."""
    reports: dict[str, NodeReport] = {}
    for node in cluster.nodes:
        with suppress(RedisError):
            if node.alive:
                reports[node.id] = await node.report()
    return ClusterView.of(reports, {node.id: node.name for node in cluster.nodes})


async def until(cluster: Cluster, condition: Callable[[ClusterView], bool], seconds: float = 60) -> list[ClusterView]:
    """Observe until `condition` is true, and return all views; each slot has an owner in every view."""
    views: list[ClusterView] = []
    deadline = time.monotonic() + seconds
    while True:
        views.append(await observe(cluster))
        assert views[-1].owned
        assert not views[-1].uncovered
        if condition(views[-1]):
            return views
        assert time.monotonic() < deadline, (views[-1].settled, views[-1].report)
        await asyncio.sleep(0.05)


async def test_view_follows_a_failure_an_election_and_a_return(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3, 1)
        first, *_, replica, _, _ = cluster.nodes
        views = await until(cluster, lambda view: not view.settled)
        assert views[-1].primaries[0].id == first.id
        assert [copy.id for copy in views[-1].other_copies(first.id)] == [replica.id]

        first.end()
        views = await until(cluster, lambda view: not view.settled and replica.id in view.owned)
        assert "demo-0 is unreachable, but " in views[0].settled
        assert [node.id for node in views[-1].failing] == [first.id]
        assert views[-1].owned[replica.id] == Slots.of(range(16384 // 3))
        assert views[-1].holds_only_copy(replica.id)
        assert not views[-1].holds_only_copy(first.id)
        # Every view before the election is unsettled or awaits the election.
        assert all(view.settled or view.awaiting_election for view in views[:-1])

        first.start()
        views = await until(cluster, lambda view: not view.settled and bool(view.other_copies(replica.id)))
        assert views[-1].nodes[first.id].primary == replica.id
        assert not views[-1].holds_only_copy(replica.id)


async def test_node_that_returns_empty_is_new_and_the_former_one_is_lost(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3, 1)
        last = cluster.nodes[-1]
        former = last.id
        last.end()
        for path in last.directory.iterdir():
            if path.name != "redis.conf":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        last.start()
        last.id = (await last.report()).id
        views = await until(cluster, lambda view: not view.settled and view.nodes[former].lost)
        assert [node.id for node in views[-1].outside] == [last.id]
        assert former in views[-1].cluster
        assert not views[-1].holds_only_copy(former)

        await cluster.meet([last])
        await until(cluster, lambda view: not view.settled and last.id in {node.id for node in view.members})


async def test_view_is_not_settled_without_a_majority(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(3)
        await until(cluster, lambda view: not view.settled)
        for node in cluster.nodes[1:]:
            node.end(signal.SIGKILL)
        (view, *_) = await until(cluster, lambda view: bool(view.settled))
        assert view.settled.startswith("Only 1 of 3 primaries reachable (unreachable: demo-1 and demo-2)")
        assert not view.can_elect
        assert not view.failing, "a majority must agree on a failure"
