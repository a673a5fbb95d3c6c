"""Two clusters of Valkey, one of which has a former address of the other: on real servers.

Since 8.1, a node sends MEET to a node that it has no link from for the node timeout, and repeats it at that address
until a node answers (https://github.com/valkey-io/valkey/pull/4286).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import pytest

from tests.support.redis.lab import TIMEOUT, RealLab
from tools.databases import redis_programs

pytestmark = pytest.mark.nightly

SECONDS = TIMEOUT / 1000
"""Node timeout."""

DEBUG = {"enable-debug-command": "yes"}


@pytest.fixture
async def lab_of(tmp_path: Path) -> AsyncIterator[Callable[[str], RealLab]]:
    made: list[RealLab] = []

    def make(version: str) -> RealLab:
        made.append(RealLab(redis_programs.server("valkey", version), tmp_path, "127.84"))
        return made[-1]

    yield make
    for lab in made:
        await lab.close()


async def form(lab: RealLab, one: str, other: str, settings: Mapping[str, str]) -> str:
    """Start a cluster of two primaries; return the id of the second one."""
    lab.settings = settings
    for name in (one, other):
        await lab.start(name)
    await lab.server(one).execute("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
    await lab.server(other).execute("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
    bus = [settings["cluster-port"]] if "cluster-port" in settings else []
    await lab.server(one).execute("CLUSTER", "MEET", *lab.address(other), *bus)
    await lab.wait(2 * SECONDS)
    return str(await lab.server(other).execute("CLUSTER", "MYID"))


async def known(lab: RealLab, name: str) -> int:
    return len(str(await lab.server(name).execute("CLUSTER", "NODES")).splitlines())


@pytest.mark.parametrize("ports", [("", ""), ("20001", "20002")], ids=["same port", "own ports"])
@pytest.mark.parametrize("version", ["8.1", "9.1"])
async def test_clusters_merge_only_if_their_bus_has_the_same_port(
    lab_of: Callable[[str], RealLab], version: str, ports: tuple[str, str]
) -> None:
    lab = lab_of(version)
    here, there = (DEBUG | ({"cluster-port": port} if port else {}) for port in ports)
    away = await form(lab, "a", "b", here)
    await form(lab, "x", "y", there)
    assert (await known(lab, "a"), await known(lab, "x")) == (2, 2)
    await lab.server("a").execute("DEBUG", "CLUSTERLINK", "KILL", "FROM", away)
    await lab.hang("b")
    await lab.wait(2 * SECONDS)
    assert f"Sending MEET packet to node {away}" in lab.log("a")
    await lab.stop("b")
    await lab.stop("y")
    await lab.start("y", address="b")
    await lab.wait(4 * SECONDS)
    merged = [await known(lab, name) > 2 for name in "ax"]
    assert merged == [not any(ports)] * 2
