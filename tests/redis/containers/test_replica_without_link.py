"""A replica that lost its link before its primary ended: what INFO and CLUSTER NODES show of it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operators.redis.api.engine_versions import EngineName
from operators.redis.client.errors import Refused
from operators.redis.client.node_inspection import inspect_node
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import ELECTED, FOO, SEEN, form
from tools.databases import redis_programs

assert FOO > 10922, "foo is a key of the third primary, c, whose replica is f"


LAG = 6.0
"""Seconds for which a primary outlives the link to its replica, and after which it counts as failed."""

pytestmark = pytest.mark.parametrize(
    ("engine", "version"),
    [
        pytest.param("redis", "7.0", marks=pytest.mark.nightly),
        ("redis", "8.0"),
        pytest.param("valkey", "8.1", marks=pytest.mark.nightly),
        pytest.param("valkey", "9.1", marks=pytest.mark.nightly),
    ],
)


@pytest.fixture
async def lab(tmp_path: Path, engine: EngineName, version: str) -> AsyncIterator[RealLab]:
    made = RealLab(redis_programs.server(engine, version), tmp_path, "127.86")
    yield made
    await made.close()


async def test_replica_that_started_after_its_primary_ended_is_not_elected_and_can_be_forced(lab: RealLab) -> None:
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "old")
    await lab.wait(1)
    await lab.stop("f")
    await lab.server("c").execute("SET", "foo", "new")
    await lab.stop("c")
    await recorder.start("f")
    await lab.wait(ELECTED)
    found = await inspect_node(lab.server("f"))
    assert (found.link_up, found.unlinked_seconds) == (False, math.inf)
    assert [node.is_replica for node in await recorder.nodes("f") if node.is_me] == [True]
    await lab.server("f").execute("CLUSTER", "FAILOVER", "FORCE")
    while not next(node for node in await recorder.nodes("f") if node.is_me).is_primary:
        await lab.wait(1)
    assert await lab.server("f").execute("GET", "foo") == b"old", "the write of its primary is lost"


async def test_other_nodes_show_that_a_primary_outlived_the_link_to_its_replica(lab: RealLab) -> None:
    """The replica has a password that its primary refuses, while the nodes answer each other."""
    lab.settings = {"cluster-replica-no-failover": "yes"}
    recorder = await form(lab, "def")
    for setting in (("masteruser", "nobody"), ("masterauth", "wrong")):
        await lab.server("f").execute("CONFIG", "SET", *setting)
    await lab.server("c").execute("CLIENT", "KILL", "TYPE", "slave")
    await lab.wait(LAG)
    assert (await inspect_node(lab.server("c"))).answered == {}, "no node has failed"
    await lab.stop("c")
    await lab.wait(SEEN)
    await lab.stop("b")
    await recorder.start("b")
    reports = {name: await inspect_node(lab.server(name)) for name in "abf"}
    unlinked = reports["f"].unlinked_seconds
    for name in "af":
        answered = reports[name].answered[recorder.ids["c"]]
        assert unlinked - answered >= LAG - 2, f"{name} had answers from c after f lost its link"
        assert answered >= SEEN, f"{name} had none since c ended"
    assert recorder.ids["c"] not in reports["b"].answered, "b started since"


async def test_primary_that_ends_does_not_outlive_the_link_to_its_replica(lab: RealLab) -> None:
    lab.settings = {"cluster-replica-no-failover": "yes"}
    recorder = await form(lab, "def")
    assert (await inspect_node(lab.server("f"))).unlinked_seconds == 0
    await lab.stop("c")
    await lab.wait(LAG)
    for name in "abf":
        report = await inspect_node(lab.server(name))
        unlinked = (await inspect_node(lab.server("f"))).unlinked_seconds
        assert unlinked < math.inf
        assert unlinked - report.answered[recorder.ids["c"]] < LAG / 2, name


async def test_primary_that_reaches_no_majority_serves_no_clients(lab: RealLab) -> None:
    """So nothing was written since other primaries had its last answers, even if slots need not all be served."""
    lab.settings = {"cluster-require-full-coverage": "no", "cluster-replica-no-failover": "yes"}
    await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "old")
    for name in "ab":
        await lab.stop(name)
    await lab.wait(LAG)
    with pytest.raises(Refused, match="CLUSTERDOWN"):
        await lab.server("c").execute("SET", "foo", "new")
