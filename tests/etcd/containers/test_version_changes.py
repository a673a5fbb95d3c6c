"""Changes of the version against real etcd: logs that 3.7 cannot read, and rolling downgrades."""

from __future__ import annotations

import asyncio

import pytest

from operators.etcd.client.commands import AddLearner, CancelDowngrade, EnableDowngrade
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import EndpointStatus
from simulator.etcd.database import UNREADABLE
from tests.etcd.containers.test_members import carry_out, grow, members
from tests.support.containers.etcd_servers import OPEN, Cluster, Etcd, Node, eventually, leader, put

pytestmark = pytest.mark.nightly

EARLIER, LATER, LATEST = "3.5.35", "3.6.16", "3.7.3"


async def statuses(cluster: Cluster) -> list[EndpointStatus]:
    return [await node.status() for node in cluster.nodes]


async def runs_as(cluster: Cluster, series: str) -> None:
    """Wait until all members report the version of the cluster."""

    async def agreed() -> None:
        for node in cluster.nodes:
            async with node.connected() as server:
                assert await server.cluster_version() == f"{series}.0"

    await eventually(agreed, EtcdError, AssertionError, seconds=60)


async def roll(etcd: Etcd, cluster: Cluster, version: str, *arguments: str) -> None:
    """Restart each member with a version, the next one after the former one has rejoined."""
    for node in cluster.nodes:
        cluster.change(node, etcd.image(version), *arguments)
        node.wait()
        await leader(cluster.nodes)


def log_of(node: Node) -> str:
    return str(node.container.get_wrapped_container().logs(tail=200).decode())


async def exited(node: Node) -> None:
    async def stopped() -> None:
        wrapped = node.container.get_wrapped_container()
        wrapped.reload()
        assert wrapped.status == "exited"

    await eventually(stopped, AssertionError)


async def test_3_7_panics_on_a_log_of_3_5_until_3_6_has_written_a_snapshot(etcd: Etcd) -> None:
    """T1: the number of entries after which `readable` permits the upgrade is sufficient."""
    with etcd.cluster(EARLIER) as cluster:
        [node] = cluster.nodes
        await leader([node])
        await roll(etcd, cluster, LATER, "--snapshot-count=50")
        await runs_as(cluster, "3.6")
        since = (await node.status()).raft_index
        cluster.change(node, etcd.image(LATEST))
        await exited(node)
        assert UNREADABLE in log_of(node)
        await roll(etcd, cluster, LATER, "--snapshot-count=50")
        while (await node.status()).raft_applied < since + 50 + 1:
            await put(node, "key", b"value")
        cluster.change(node, etcd.image(LATEST))
        node.wait()
        await leader([node])
        assert (await node.status()).version == LATEST
        cluster.image = etcd.image(LATEST)
        await grow(cluster, node)  # it begins with a snapshot of the leader


@pytest.mark.parametrize(("before", "after"), [(LATER, EARLIER), pytest.param(LATEST, LATER, marks=pytest.mark.weekly)])
async def test_cluster_is_downgraded_member_by_member(etcd: Etcd, before: str, after: str) -> None:
    series = after.rpartition(".")[0]
    with etcd.cluster(before, size=3) as cluster:
        lead = await leader(cluster.nodes)
        await runs_as(cluster, before.rpartition(".")[0])
        await put(lead, "key", b"value")
        revision = (await lead.status()).revision
        await carry_out(EnableDowngrade((lead.endpoint(),), OPEN, series))
        await carry_out(EnableDowngrade((lead.endpoint(),), OPEN, series))
        await runs_as(cluster, series)

        async def converted() -> None:
            for status in await statuses(cluster):
                assert (status.storage_version, status.downgrade_target) == (f"{series}.0", f"{series}.0")

        await eventually(converted, AssertionError, seconds=60)
        await roll(etcd, cluster, after)
        assert {status.version for status in await statuses(cluster)} == {after}
        assert (await (await leader(cluster.nodes)).status()).revision == revision
        await runs_as(cluster, series)
        await asyncio.sleep(6)  # etcd ends the downgrade within 5 s; until then, no member can join
        await roll(etcd, cluster, before)
        await runs_as(cluster, before.rpartition(".")[0])
        assert {status.downgrade_target for status in await statuses(cluster)} == {""}


async def test_downgrade_is_cancelled_by_a_member_that_runs_the_earlier_version_already(etcd: Etcd) -> None:
    with etcd.cluster(LATER, size=3) as cluster:
        first = (await leader(cluster.nodes)).endpoint()
        await runs_as(cluster, "3.6")
        await carry_out(EnableDowngrade((first,), OPEN, "3.5"))
        await runs_as(cluster, "3.5")
        node = cluster.nodes[0]
        cluster.change(node, etcd.image(EARLIER))
        node.wait()
        await leader(cluster.nodes)
        await carry_out(CancelDowngrade((node.endpoint(),), OPEN))
        await roll(etcd, cluster, LATER)
        await runs_as(cluster, "3.6")
        assert {status.downgrade_target for status in await statuses(cluster)} == {""}


@pytest.mark.parametrize("version", [EARLIER, LATER])
async def test_no_member_joins_during_a_downgrade(etcd: Etcd, version: str) -> None:
    with etcd.cluster(LATER) as cluster:
        lead = await leader(cluster.nodes)
        await runs_as(cluster, "3.6")
        await carry_out(EnableDowngrade((lead.endpoint(),), OPEN, "3.5"))
        await runs_as(cluster, "3.5")
        cluster.image = etcd.image(version)
        node = cluster.prepare()
        await carry_out(AddLearner((lead.endpoint(),), OPEN, node.peer_url))
        with pytest.raises(AssertionError, match="incompatible with current running cluster"):
            cluster.join(node)


async def test_downgrade_is_cancelled(etcd: Etcd) -> None:
    with etcd.cluster(LATER) as cluster:
        [node] = cluster.nodes
        await leader([node])
        await carry_out(CancelDowngrade((node.endpoint(),), OPEN))
        await carry_out(EnableDowngrade((node.endpoint(),), OPEN, "3.5"))
        await runs_as(cluster, "3.5")
        await carry_out(CancelDowngrade((node.endpoint(),), OPEN))
        await runs_as(cluster, "3.6")
        assert (await node.status()).downgrade_target == ""
        assert len((await members(node)).members) == 1
