"""Comparison of the gateway client with python-etcd3, which uses gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from operators.etcd.client.errors import NoSpace
from operators.etcd.client.server import NOSPACE
from tests.support import paths
from tests.support.containers.etcd_servers import Etcd, Node, eventually, leader, put

pytestmark = pytest.mark.nightly

KEYS = {f"key-{number}": f"value-{number}" for number in range(50)}


async def other_client(node: Node, snapshot: Path, keys: dict[str, str] | None = None) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.containers.etcd3_client", node.address, str(node.ports[0]), str(snapshot),
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
        cwd=paths.REPOSITORY, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    lines = "".join(f"{key} {value}\n" for key, value in (keys or {}).items())
    printed, _ = await process.communicate(lines.encode())
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(printed)
    return found


async def test_both_clients_report_the_same(etcd: Etcd, etcd_version: str, tmp_path: Path) -> None:
    other_snapshot = tmp_path / "other"
    with etcd.cluster(etcd_version, "--quota-backend-bytes=4194304", size=3) as cluster:
        led = await leader(cluster.nodes)
        reported = await other_client(led, other_snapshot, KEYS)
        assert reported["keys"] == KEYS
        status = await led.status()
        assert status.revision == 1 + len(KEYS)
        for name in ("version", "db_size", "leader", "raft_term"):
            assert getattr(status, name) == reported[name], name
        async with led.connected() as server:
            members = (await server.members()).members
            assert sorted([each.id, each.name, list(each.peer_urls)] for each in members) == sorted(reported["members"])
            assert reported["alarms"] == []
            own_snapshot = b"".join([piece async for piece in server.snapshot()])
        for size in (len(own_snapshot), other_snapshot.stat().st_size):  # etcd may add a page in between
            assert size % 4096 == 32, "whole pages, and a digest of 32 bytes"

        async def fill() -> None:
            try:
                await put(led, "big", bytes(2**19))
            except NoSpace:
                return
            raise AssertionError("the database is not full")

        await eventually(fill, AssertionError)
        async with led.connected() as server:
            (alarm,) = await server.alarms()
            assert (await other_client(led, other_snapshot))["alarms"] == [[alarm.member_id, 1]]
            assert alarm.kind == NOSPACE
            await server.compact((await server.status()).revision)
        for node in cluster.nodes:
            before = (await node.status()).db_size
            async with node.connected() as server:
                await server.defragment()
            assert (await other_client(node, other_snapshot))["db_size"] == (await node.status()).db_size < before
        async with led.connected() as server:
            await server.disarm(alarm)
        reported = await other_client(led, other_snapshot, {"key-0": "another"})
        assert reported["keys"]["key-0"] == "another"
        assert reported["alarms"] == []
