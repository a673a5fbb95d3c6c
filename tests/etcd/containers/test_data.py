"""Gateway client against real etcd servers: disk space, hashes of the keys, and snapshots."""

from __future__ import annotations

import hashlib
import signal
import subprocess
from contextlib import aclosing
from pathlib import Path

import pytest

from operators.etcd.client.commands import Compact, Defragment, Disarm, execute
from operators.etcd.client.errors import NoSpace, Refused, Unreachable, Unsupported
from operators.etcd.client.gateway import connect
from operators.etcd.client.server import NOSPACE, Alarm
from tests.support.containers.etcd_servers import OPEN, Etcd, Node, eventually, leader, program, put

pytestmark = pytest.mark.nightly

MIB = 2**20


async def test_full_database_accepts_writes_after_compaction_and_defragmentation(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, f"--quota-backend-bytes={4 * MIB}") as cluster:
        node = await leader(cluster.nodes)
        endpoints = (node.endpoint(),)

        async def fill() -> None:
            for _ in range(20):
                await put(node, "key", bytes(MIB // 2))

        with pytest.raises(NoSpace):
            await fill()
        full = await node.status()
        alarm = Alarm(full.member_id, NOSPACE)
        assert full.alarms == (alarm,)
        async with node.connected() as server:
            assert await server.alarms() == (alarm,)
            assert not await server.is_compacted(full.revision)
            with pytest.raises(Refused, match="future revision"):
                await server.compact(full.revision + 1)

        compact = Compact(endpoints, OPEN, full.revision)
        await execute(connect, compact)
        await execute(connect, compact)  # already compacted
        async with node.connected() as server:
            assert await server.is_compacted(full.revision)
            assert await server.is_compacted(1)
            assert not await server.is_compacted(full.revision + 1)

        async def freed() -> None:
            now = await node.status()
            assert now.db_size >= full.db_size
            if not etcd_version.startswith("3.4."):  # 3.4 updates it with the next write
                assert now.db_in_use < MIB

        await eventually(freed, AssertionError)
        await execute(connect, Defragment(endpoints, OPEN))
        assert (await node.status()).db_size < 2 * MIB

        with pytest.raises(NoSpace):  # until the alarm is disarmed
            await put(node, "key", b"value")
        disarm = Disarm(endpoints, OPEN, alarm)
        await execute(connect, disarm)
        await execute(connect, disarm)
        assert (await node.status()).alarms == ()
        await put(node, "key", b"value")


async def test_members_with_the_same_keys_have_the_same_hash(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, size=3) as cluster:
        led = await leader(cluster.nodes)
        for number in range(20):
            await put(led, f"key-{number % 7}", str(number).encode())
        revision = (await led.status()).revision

        async def hashed(node: Node, at: int) -> tuple[int, int, int]:
            async with node.connected() as server:
                await server.members()  # wait until the member has caught up
                found = await server.hash_kv(at)
                return found.hash, found.revision, found.compacted

        if etcd_version.startswith("3.4."):
            with pytest.raises(Unsupported):
                await hashed(led, 0)
            return
        for at in (0, revision, 10):
            assert len({await hashed(node, at) for node in cluster.nodes}) == 1
            assert (await hashed(led, at))[1] == (at or revision)
        assert (await hashed(led, 10))[0] != (await hashed(led, revision))[0]
        async with led.connected() as server:
            await server.compact(15)
        assert {(await hashed(node, revision))[2] for node in cluster.nodes} == {15}


@pytest.mark.commit
async def test_snapshot_ends_with_its_checksum_and_can_be_restored(
    etcd: Etcd, etcd_version: str, tmp_path: Path
) -> None:
    with etcd.cluster(etcd_version) as cluster:
        node = await leader(cluster.nodes)
        for number in range(4):
            await put(node, f"key-{number}", bytes([number]) * MIB)
        file = tmp_path / "snapshot"
        async with node.connected() as server:
            with file.open("wb") as out:
                async for piece in server.snapshot():
                    out.write(piece)
            size = (await server.status()).db_size
    taken = file.read_bytes()
    assert len(taken) == size + 32
    assert len(taken) % 512 == 32
    assert hashlib.sha256(taken[:-32]).digest() == taken[-32:]

    tool = program(etcd_version, "etcdctl" if etcd_version.startswith("3.4.") else "etcdutl")
    shown = run(tool, "snapshot", "status", file, "--write-out=fields")
    assert '"Revision" : 5' in shown
    run(tool, "snapshot", "restore", file, "--data-dir", tmp_path / "data")
    cut = tmp_path / "cut"
    cut.write_bytes(taken[: 2 * MIB])
    with pytest.raises(subprocess.CalledProcessError):
        run(tool, "snapshot", "restore", cut, "--data-dir", tmp_path / "another")


async def test_interrupted_snapshot_is_reported(etcd: Etcd, etcd_version: str) -> None:
    with etcd.cluster(etcd_version, f"--max-request-bytes={4 * MIB}") as cluster:
        node = await leader(cluster.nodes)
        for number in range(16):  # more than any buffer on the way
            await put(node, f"key-{number}", bytes(3 * MIB))
        async with node.connected() as server:
            async with aclosing(server.snapshot()) as pieces:
                assert len(await anext(pieces)) > 0
            await server.status()  # the member still replies after a stream was closed early
            async with aclosing(server.snapshot()) as pieces:
                sent = len(await anext(pieces))
                node.signal(signal.SIGKILL)
                with pytest.raises(Unreachable, match=r"interrupted its response|ended its snapshot early"):
                    sent += sum([len(piece) async for piece in pieces])
            assert 0 < sent < 48 * MIB


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, env={"ETCDCTL_API": "3"}).stdout
