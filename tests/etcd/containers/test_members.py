"""Gateway client and membership calls against real etcd servers."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial

import pytest

from operators.etcd.client.commands import AddLearner, Defragment, EtcdCall, MoveLeader, Promote, Remove, execute
from operators.etcd.client.errors import EtcdError, NoLeader, NoSuchMember, NotInSync, Refused, Unhealthy, Unreachable
from operators.etcd.client.gateway import connect
from operators.etcd.client.server import NOSPACE, Alarm, Member, Members
from tests.support.containers.etcd_servers import OPEN, Cluster, Etcd, Node, eventually, leader, put

pytestmark = pytest.mark.nightly


async def members(node: Node) -> Members:
    async with node.connected() as server:
        return await server.members()


def member(node: Node, found: Members) -> Member:
    return next(each for each in found.members if node.peer_url in each.peer_urls)


async def carry_out(call: EtcdCall) -> None:
    """Execute a call as the reconciler does: repeat it while the cluster is not ready."""
    await eventually(partial(execute, connect, call), Unhealthy, NotInSync, NoLeader)


async def grow(cluster: Cluster, by: Node) -> Node:
    """Add a member and promote it to a voter."""
    node = cluster.prepare()
    await carry_out(AddLearner((by.endpoint(),), OPEN, node.peer_url))
    cluster.join(node)
    await carry_out(Promote((by.endpoint(),), OPEN, member(node, await members(by))))
    return node


@pytest.mark.commit
async def test_member_reports_its_status_and_its_cluster(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        async with node.connected() as server:
            status, found = await server.status(), await server.members()
            assert await server.cluster_version() == etcd_version.rpartition(".")[0] + ".0"
            assert await server.alarms() == ()
            assert await server.remembered_members() == found
            progress = await server.progress()
        assert (status.version, status.leader, status.revision) == (etcd_version, status.member_id, 1)
        assert (status.learner, status.errors) == (False, ())
        assert status.db_size >= status.db_in_use > 0
        assert status.raft_index >= status.raft_applied > 0
        assert found == Members(status.cluster_id, (Member(status.member_id, node.name, (node.peer_url,)),))
        assert (progress.member_id, progress.revision) == (status.member_id, 1)
        assert progress.applied >= status.raft_applied


@pytest.mark.commit
async def test_members_are_added_as_learners_promoted_and_removed(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version) as cluster:
        first = await leader(cluster.nodes)
        endpoints = (first.endpoint(),)
        second = cluster.prepare()
        add = AddLearner(endpoints, OPEN, second.peer_url)
        await execute(connect, add)
        await execute(connect, add)  # already added
        found = await members(first)
        learner = member(second, found)
        assert (learner.name, learner.learner, len(found.members)) == ("", True, 2)
        with pytest.raises(Refused, match="one at a time"):
            await execute(connect, AddLearner(endpoints, OPEN, "http://127.0.0.1:1"))
        promote = Promote(endpoints, OPEN, learner)
        with pytest.raises(NotInSync):  # the learner has not started
            await execute(connect, promote)

        cluster.join(second)
        assert (await eventually(second.status, Unreachable)).learner
        async with second.connected() as server:
            with pytest.raises(Refused, match="it is a learner"):
                await server.members()
        await carry_out(promote)
        await execute(connect, promote)  # already promoted
        now = member(second, await members(first))
        assert (now.id, now.name, now.learner) == (learner.id, second.name, False)
        assert not (await second.status()).learner
        with pytest.raises(Refused, match="the operator checks again"):  # the removal was planned for a learner
            await execute(connect, Remove(endpoints, OPEN, learner))

        third = await grow(cluster, first)
        nodes = [first, second, third]
        assert await leader(nodes) is first
        move = MoveLeader(endpoints, OPEN, now)
        await execute(connect, move)
        await execute(connect, move)  # already the leader
        assert await leader(nodes) is second
        with pytest.raises(Refused, match="is no longer the leader"):
            await execute(connect, MoveLeader(endpoints, OPEN, member(third, await members(first))))

        remove = Remove(endpoints, OPEN, member(third, await members(first)))
        await carry_out(remove)
        await execute(connect, remove)  # already removed
        with pytest.raises(NoSuchMember):
            await execute(connect, Promote(endpoints, OPEN, remove.member))
        with pytest.raises(NoSuchMember):
            await execute(connect, MoveLeader((second.endpoint(),), OPEN, remove.member))
        async with first.connected() as server:
            with pytest.raises(NoSuchMember):
                await server.remove(remove.member.id)
        await carry_out(Remove(endpoints, OPEN, now))
        last = (await eventually(partial(members, first), NoLeader)).members
        assert [each.name for each in last] == [first.name]
        with pytest.raises(Refused, match="the only voter"):
            await execute(connect, Remove(endpoints, OPEN, last[0]))
        assert (await members(first)).members == last


async def test_call_uses_the_next_endpoint_and_never_another_cluster(etcd: Etcd) -> None:
    with etcd.cluster() as cluster, etcd.cluster() as other:
        node, foreign = await leader(cluster.nodes), await leader(other.nodes)
        stopped = cluster.prepare().endpoint()
        moved = node.endpoint()
        moved = type(moved)(moved.name, foreign.address, moved.host, foreign.ports[0])
        await execute(connect, Defragment((stopped, moved, node.endpoint()), OPEN))
        with pytest.raises(Unreachable, match=r"demo-0 is not at 127\.\S+: a server of another cluster answers there"):
            await execute(connect, AddLearner((moved,), OPEN, "http://127.0.0.1:1"))
        assert len((await members(foreign)).members) == 1
        with pytest.raises(Unreachable, match="no voter is healthy"):
            await execute(connect, Defragment((), OPEN))


@pytest.mark.weekly
async def test_member_without_a_quorum_reports_the_members_that_it_remembers(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, size=3) as cluster:
        await leader(cluster.nodes)
        survivor, *others = cluster.nodes
        await put(survivor, "key", b"value")
        before = await members(survivor)
        for node in others:
            node.signal(signal.SIGKILL)

        async def alone() -> None:
            assert (await survivor.status()).leader == 0

        await eventually(alone, AssertionError)
        async with survivor.connected() as server:
            disarm = server.disarm(Alarm(before.members[0].id, NOSPACE))
            listed, disarmed = await asyncio.gather(server.members(), disarm, return_exceptions=True)
            assert isinstance(listed, NoLeader | Unreachable)
            assert isinstance(disarmed, NoLeader)  # the error of etcd itself
            assert await server.remembered_members() == before
            assert (await server.progress()).revision == 2

        survivor.signal(signal.SIGKILL)
        survivor.start()
        async with survivor.connected() as server:  # without a quorum it serves no client
            with pytest.raises(Unreachable):
                await server.status()
            progress = await server.progress()
            assert (progress.member_id, progress.revision) == (member(survivor, before).id, 2)
        for node in others:
            node.start()
        await leader(cluster.nodes)
        assert await members(survivor) == before


async def test_dead_voter_must_be_removed_before_a_member_is_added(etcd: Etcd) -> None:
    with etcd.cluster(size=3) as cluster:
        await leader(cluster.nodes)
        dead, *alive = cluster.nodes
        endpoints = tuple(node.endpoint() for node in alive)
        dead_member = member(dead, await members(alive[0]))
        dead.signal(signal.SIGKILL)
        await leader(alive)
        with pytest.raises(Unhealthy):
            await execute(connect, AddLearner(endpoints, OPEN, "http://127.0.0.1:1"))
        await carry_out(Remove(endpoints, OPEN, dead_member))
        assert {each.name for each in (await members(alive[0])).members} == {node.name for node in alive}


@pytest.mark.weekly
async def test_request_to_a_hanging_member_times_out_after_five_seconds(etcd: Etcd) -> None:
    with etcd.cluster() as cluster:
        node = await leader(cluster.nodes)
        node.signal(signal.SIGSTOP)
        begun = time.monotonic()
        with pytest.raises(Unreachable, match="did not answer maintenance/status within 5 s"):
            await node.status()
        assert 4.5 < time.monotonic() - begun < 7
        node.signal(signal.SIGCONT)
        await node.status()
        node.stop()
        with pytest.raises(Unreachable, match="no process listens on the port"):
            await node.status()
        with pytest.raises(EtcdError, match="no process listens on the port"):
            async with node.connected() as server:
                await server.progress()
