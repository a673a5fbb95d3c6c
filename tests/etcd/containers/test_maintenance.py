"""Maintenance steps executed on real clusters: full disks, corrupt members and lost quorums."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import signal
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import Compact, EnableAuth, EtcdCall, Remove, execute
from operators.etcd.client.errors import EtcdError, NoSpace, Unhealthy
from operators.etcd.client.gateway import connect
from operators.etcd.client.server import CORRUPT, Access, EndpointStatus, Member, RaftProgress
from operators.etcd.membership import corruption
from operators.etcd.objects import bootstrap
from operators.etcd.objects.pod import INCONSISTENT
from operators.etcd.reasons import OUT_OF_SPACE, QUOTA_EXCEEDED, REPLACING_CORRUPT_MEMBER
from operators.etcd.state.observed import Instance, Observed
from operators.etcd.steps import maintenance
from operators.etcd.steps.corruption import replace_corrupt_member
from operators.etcd.steps.data_loss import loss
from operators.etcd.steps.maintenance import relieve_full_disk
from shared.kubernetes.pods import Pod
from shared.runtime.plan import Step
from tests.etcd.unit.world import assess, cluster
from tests.support.containers.etcd_servers import NEWEST, OPEN, Etcd, Node, count, eventually, leader, program, put

pytestmark = pytest.mark.nightly

MIB = 2**20
QUOTA = 16 * MIB


def resource_with_reason(reason: str, nodes: Sequence[Node]) -> EtcdCluster:
    """Build the resource of these members, with a reason in its status."""
    conditions = [{"type": "Ready", "status": "False", "reason": reason, "message": ""}]
    numbers = range(len(nodes))
    return cluster(len(nodes), recorded=numbers, status={"conditions": conditions}, quotaBackendBytes=QUOTA)


async def observe(nodes: Sequence[Node], *, hashes: bool = False) -> Observed:
    """Observe these members as the operator does."""
    answers: list[EndpointStatus | None] = []
    for node in nodes:
        try:
            answers.append(await node.status())
        except EtcdError:
            answers.append(None)
    ids = {status.member_id: number for number, status in enumerate(answers) if status}
    led = next(
        node for node, status in zip(nodes, answers, strict=True) if status and status.leader == status.member_id
    )
    async with led.connected() as server:
        listed = await server.members()
        alarms = await server.alarms()
        compacted = await server.is_compacted((await server.status()).revision)
    members = {ids.get(member.id, _number(nodes, member)): member for member in listed.members}
    found = {}
    for number, status in enumerate(answers):
        if hashes and status and number in members:
            async with nodes[number].connected() as server:
                found[status.member_id] = await server.hash_kv(min(known.revision for known in answers if known))
    instances = tuple(
        Instance(number, node.name, pod=pod(node), member=members.get(number), status=status)
        for number, (node, status) in enumerate(zip(nodes, answers, strict=True))
    )
    return Observed(
        instances=instances,
        members=listed.members,
        cluster_id=listed.cluster_id,
        alarms=alarms,
        compacted=compacted,
        hashes=found,
    )


def pod(node: Node) -> Pod:
    return Pod(node.name, node.address, "StatefulSet", ready=True, leaving=False, ended=False, problem="")


def _number(nodes: Sequence[Node], member: Member) -> int:
    return next(number for number, node in enumerate(nodes) if node.peer_url in member.peer_urls)


async def carry_out(nodes: Sequence[Node], step: Step) -> list[str]:
    """Execute the calls of a step at the real addresses of these members."""
    by_name = {node.name: node for node in nodes}
    done = []
    for call in step.actions:
        assert isinstance(call, EtcdCall)
        endpoints = tuple(by_name[endpoint.name].endpoint() for endpoint in call.endpoints)
        call = dataclasses.replace(call, endpoints=endpoints)
        await eventually(partial(execute, connect, call), Unhealthy)  # the operator would retry, too
        done.append(str(call))
    return done


async def test_full_cluster_accepts_writes_again_and_keeps_every_key(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, f"--quota-backend-bytes={QUOTA}", size=3) as made:
        led = await leader(made.nodes)

        async def fill() -> None:
            for number in range(1000):
                await put(led, f"key-{number % 8}", bytes(MIB // 4))

        await put(led, "first", b"value")
        with pytest.raises(NoSpace):
            await fill()
        revision = (await led.status()).revision
        done = []
        resource = resource_with_reason(OUT_OF_SPACE, made.nodes)
        for _ in range(100):
            observed = await observe(made.nodes)
            if not observed.is_full:
                break
            step = relieve_full_disk(assess(resource, observed))
            assert step.reason == OUT_OF_SPACE
            executed = await carry_out(made.nodes, step)
            if observed.leader and executed == [f"defragment {observed.leader.name}"]:  # the leader may change
                rest = [instance.status for instance in observed.instances if instance is not observed.leader]
                assert all(status and status.db_size < maintenance.MAX_FULL_SHARE * QUOTA for status in rest)
            done += executed
            await asyncio.sleep(0 if executed else 0.2)
        names = [each for each in done if each.startswith("defragment")]
        assert done[0] == f"compact up to revision {revision}"
        assert sorted(names) == ["defragment demo-0", "defragment demo-1", "defragment demo-2"]
        assert all(each.startswith("disarm NOSPACE") for each in done[4:])
        led = await leader(made.nodes)
        await put(led, "last", b"value")
        assert (await led.status()).revision == revision + 1


async def test_alarm_is_seen_at_every_member_without_credentials(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, f"--quota-backend-bytes={QUOTA}", size=2) as made:
        led = await leader(made.nodes)

        async def alarms() -> list[bool]:
            found = []
            for node in made.nodes:
                async with node.connected() as server:
                    found.append(await server.has_alarm())
            return found

        assert await alarms() == [False, False]

        async def fill() -> None:
            for number in range(1000):
                await put(led, f"key-{number % 8}", bytes(MIB // 4))

        with pytest.raises(NoSpace):
            await fill()
        root = Access(user="root", password="secret")
        await execute(connect, EnableAuth((led.endpoint(),), OPEN, root.user, root.password))

        async def seen_everywhere() -> None:
            assert await alarms() == [True, True]

        await eventually(seen_everywhere, AssertionError)
        led.signal(signal.SIGSTOP)  # no quorum
        other = next(node for node in made.nodes if node is not led)
        async with other.connected() as server:
            assert await server.has_alarm()
        led.signal(signal.SIGCONT)


async def test_live_data_that_fills_the_quota_is_reported_and_kept(etcd: Etcd) -> None:
    with etcd.cluster(NEWEST, f"--quota-backend-bytes={QUOTA}") as made:
        (node,) = made.nodes
        await leader(made.nodes)
        keys = itertools.count()
        written = refused = 0

        async def fill() -> None:
            nonlocal written
            for number in itertools.islice(keys, 2000):
                await put(node, f"key-{number:05}", bytes(MIB // 64))
                written += 1

        resource = resource_with_reason(OUT_OF_SPACE, made.nodes)
        # How much of the full file is free, and so whether a defragmentation helps, depends on the time of each commit.
        for _ in range(10):
            with pytest.raises(NoSpace):
                await fill()
            refused += 1
            done: list[str] = []
            for _ in range(5):
                step = relieve_full_disk(assess(resource, await observe(made.nodes)))
                done += await carry_out(made.nodes, step)
            operations = [each.split()[0] for each in done]
            if step.reason == QUOTA_EXCEEDED:
                break
            assert operations == ["compact", "defragment", "disarm"]
        assert step.reason == QUOTA_EXCEEDED
        assert operations in (["compact"], ["compact", "defragment"])
        # A member also refuses a write that it applied as the first one above the quota (quotaApplierV3.Put of etcd).
        assert written <= await count(node) <= written + refused
        raised = cluster(1, recorded=range(1), quotaBackendBytes=2 * QUOTA)
        step = relieve_full_disk(assess(raised, await observe(made.nodes)))
        assert [each.split()[0] for each in await carry_out(made.nodes, step)] == ["disarm"]


@pytest.mark.parametrize("leads", [False, True])
async def test_corrupt_member_is_found_and_removed_even_if_it_leads(etcd: Etcd, leads: bool) -> None:
    flags = ("--feature-gates=CompactHashCheck=true", "--compact-hash-check-time=1s")
    with etcd.cluster("3.6.16", *flags, size=3) as made:
        led = await leader(made.nodes)
        for number in range(20):
            await put(led, f"key-{number}", f"unmistakable-{number:02}".encode())
        victim = next(node for node in made.nodes if node is not led)
        corrupt(victim, b"unmistakable-13")
        led = await leader(made.nodes)
        if leads:
            async with led.connected() as server:
                await server.move_leader((await victim.status()).member_id)
            led = await leader(made.nodes)
            assert led is victim
        await execute(connect, Compact((led.endpoint(),), OPEN, 20))

        async def alarmed() -> None:
            assert any(alarm.kind == CORRUPT for alarm in (await led.status()).alarms)

        await eventually(alarmed, AssertionError)
        resource, left = resource_with_reason(REPLACING_CORRUPT_MEMBER, made.nodes), list(made.nodes)
        done: list[str] = []
        for _ in range(10):
            observed = await observe(left, hashes=True)
            if not corruption.suspected(observed):
                break
            step = replace_corrupt_member(assess(resource, observed))
            done += await carry_out(left, step)
            if any(isinstance(call, Remove) for call in step.actions):
                left.remove(victim)
            await leader(left)
        removed = [each.split(" (")[0] for each in done if each.startswith("remove")]
        assert removed == [f"remove {victim.name}"]
        assert done[0].startswith("move the lead") == leads
        assert done[-1].startswith("disarm CORRUPT")
        await put(await leader(left), "after", b"value")


async def test_corrupt_member_does_not_start_with_the_initial_corruption_check(etcd: Etcd) -> None:
    with etcd.cluster("3.6.16", "--feature-gates=InitialCorruptCheck=true", size=3) as made:
        led = await leader(made.nodes)
        for number in range(20):
            await put(led, f"key-{number}", f"unmistakable-{number:02}".encode())
        victim = next(node for node in made.nodes if node is not led)
        with pytest.raises(AssertionError, match=INCONSISTENT):
            corrupt(victim, b"unmistakable-13")
        left = [node for node in made.nodes if node is not victim]
        observed = await observe([*left, victim], hashes=True)
        assert len(set(observed.hashes.values())) == 1
        assert len(observed.hashes) == 2


def corrupt(node: Node, value: bytes) -> None:
    """Flip one bit of a value while the member is stopped, then restart the member."""
    node.stop()
    (file,) = node.files.glob("**/snap/db")
    content = bytearray(file.read_bytes())
    assert value in content
    at = content.find(value)
    while at >= 0:
        content[at] ^= 1
        at = content.find(value, at + 1)
    file.write_bytes(content)
    node.start()


@pytest.mark.commit
async def test_survivor_of_a_lost_quorum_continues_with_the_predicted_cluster_id(
    etcd: Etcd, etcd_version: str, tmp_path: Path
) -> None:
    with etcd.cluster(etcd_version, size=3) as made:
        led = await leader(made.nodes)
        for number in range(20):
            await put(led, f"key-{number}", b"value")
        before = await led.status()
        others = [node for node in made.nodes if node is not led]
        for node in others:
            node.signal(signal.SIGKILL)
        async with led.connected() as server:
            remembered = await server.remembered_members()
            running = await server.status()
        assert len(remembered.members) == 3
        assert running.raft_applied >= before.raft_applied
        led.stop()
        led.start()
        with pytest.raises(EtcdError):  # without a quorum it serves no client
            await led.status()
        async with led.connected() as server:
            progress = await server.progress()
        assert progress.member_id == before.member_id
        assert progress.revision == before.revision
        survivor = chosen_survivor(progress, before.cluster_id)
        assert survivor == "demo-0"
        led.stop()

        tool = program(etcd_version, "etcdctl" if etcd_version.startswith("3.4.") else "etcdutl")
        (file,) = led.files.glob("**/snap/db")
        token = "u-1-0123456789ab"
        options = {
            "data-dir": tmp_path / "data",
            "name": led.name,
            "initial-cluster": f"{led.name}={led.peer_url}",
            "initial-advertise-peer-urls": led.peer_url,
            "initial-cluster-token": token,
        }
        restore(tool, file, *(f"--{option}={value}" for option, value in options.items()))
        (led.files / "data").rename(led.files / "before")
        (tmp_path / "data").rename(led.files / "data")
        led.start()
        member_id, cluster_id = bootstrap.ids(led.peer_url, token)

        async def leads() -> None:
            status = await led.status()
            assert (status.member_id, status.cluster_id, status.leader) == (member_id, cluster_id, member_id)
            assert status.revision == before.revision

        await eventually(leads, EtcdError, AssertionError)
        async with led.connected() as server:
            assert [member.id for member in (await server.members()).members] == [member_id]
        await put(led, "after", b"value")


def restore(tool: Path, *arguments: str | Path) -> None:
    command = [tool, "snapshot", "restore", "--skip-hash-check", *arguments]
    subprocess.run(command, check=True, capture_output=True, env={"ETCDCTL_API": "3"})


def chosen_survivor(progress: RaftProgress, cluster_id: int) -> str:
    """Return the survivor that the operator chooses if only the metrics of demo-0 are available."""
    members = [
        {"name": f"demo-{number}", "id": f"{progress.member_id + number:016x}", "volume": f"disk-{number}"}
        for number in range(3)
    ]
    resource = cluster(3, status={"clusterID": f"{cluster_id:016x}", "members": members})
    instances = (
        Instance(0, "demo-0", progress=progress, disk="disk-0"),
        Instance(1, "demo-1", disk="another", recorded="disk-1"),
        Instance(2, "demo-2", disk="another", recorded="disk-2"),
    )
    found = loss(assess(resource, Observed(instances=instances)))
    assert found is not None
    assert found.identity
    assert found.survivor is not None
    return found.survivor.name
