"""A server that got no SIGTERM is shut down by the operator, as SIGTERM does it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from operators.redis.api.engine_versions import EngineName
from operators.redis.client.commands import ShutDown
from operators.redis.client.connection import connect
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import Access, Endpoint
from tests.support.redis.lab import PORT, RealLab
from tests.support.redis.recorded_conformance import FOO, form
from tools.databases import redis_programs


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        pytest.param("redis", "7.0", marks=pytest.mark.nightly),
        ("redis", "8.0"),
        pytest.param("valkey", "9.1", marks=pytest.mark.nightly),
    ],
)
async def test_server_is_shut_down_with_its_keys(tmp_path: Path, engine: EngineName, version: str) -> None:
    """The server waits for a replica that lags. Another process of the node is not ended."""
    lab = RealLab(redis_programs.server(engine, version), tmp_path, "127.86")
    lab.settings = {"appendonly": "no", "save": "3600 1", "shutdown-timeout": "3"}
    try:
        for name in "ab":
            await lab.start(name)
        await lab.server("a").execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await lab.server("b").execute("CLUSTER", "MEET", *lab.address("a"))
        await lab.wait(2)
        report = await inspect_node(lab.server("a"))
        await lab.server("b").execute("CLUSTER", "REPLICATE", report.id)
        await lab.wait(2)
        call = ShutDown(Access(), Endpoint("a", lab.address("a")[0], "localhost", PORT), report.id, report.run_id)
        await lab.hang("b")
        await lab.server("a").execute("SET", "key", "value")
        since = time.monotonic()
        await call.carry_out(connect)
        await lab.ended("a")
        assert time.monotonic() - since > 2.5
        await lab.hang("b", hangs=False)
        await lab.start("a")
        await call.carry_out(connect)
        await lab.wait(0.5)
        assert await lab.server("a").execute("DBSIZE") == 1
    finally:
        await lab.close()


@pytest.mark.parametrize("version", [pytest.param("9.0", marks=pytest.mark.weekly), "9.1"])
async def test_valkey_hands_over_when_it_gets_sigterm(tmp_path: Path, version: str) -> None:
    """Without the operator, which configures that."""
    assert FOO > 10922, "foo is a key of the third primary, c, whose replica is f"
    lab = RealLab(redis_programs.server("valkey", version), tmp_path, "127.86")
    lab.settings = {"shutdown-on-sigterm": "failover", "cluster-node-timeout": "30000"}
    try:
        recorder = await form(lab, "def")
        await lab.server("c").execute("SET", "foo", "value")
        began = time.monotonic()
        await lab.terminate("c")
        while not next(node for node in await recorder.nodes("f") if node.is_me).is_primary:
            assert time.monotonic() - began < 15, "an election begins only after the node timeout"
            await lab.wait(0.05)
        assert await lab.server("f").execute("GET", "foo") == b"value"
    finally:
        await lab.close()
