"""A replica that starts after its primary ended: what INFO shows of it, and that it takes over only by force."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.databases import redis_programs
from operators.redis.api.engine_versions import EngineName
from operators.redis.client.responses import Facts, parse_facts
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import ELECTED, FOO, SEEN, form

assert FOO > 10922, "foo is a key of the third primary, c, whose replica is f"


async def facts(lab: RealLab, name: str) -> Facts:
    return parse_facts(str(await lab.server(name).execute("INFO")))


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        pytest.param("redis", "7.0", marks=pytest.mark.nightly),
        ("redis", "8.0"),
        pytest.param("valkey", "8.1", marks=pytest.mark.nightly),
        pytest.param("valkey", "9.1", marks=pytest.mark.nightly),
    ],
)
async def test_replica_that_started_after_its_primary_ended_is_not_elected_and_can_be_forced(
    tmp_path: Path, engine: EngineName, version: str
) -> None:
    lab = RealLab(redis_programs.server(engine, version), tmp_path, "127.86")
    try:
        recorder = await form(lab, "def")
        await lab.server("c").execute("SET", "foo", "old")
        await lab.wait(1)
        await lab.stop("f")
        await lab.server("c").execute("SET", "foo", "new")
        await lab.stop("c")
        await recorder.start("f")
        await lab.wait(ELECTED)
        found = await facts(lab, "f")
        assert (found.link_up, found.had_link) == (False, False)
        assert [node.is_replica for node in await recorder.nodes("f") if node.is_me] == [True]
        await lab.server("f").execute("CLUSTER", "FAILOVER", "FORCE")
        await lab.wait(2 * SEEN)
        assert [node.is_primary for node in await recorder.nodes("f") if node.is_me] == [True]
        assert await lab.server("f").execute("GET", "foo") == b"old", "the write of its primary is lost"
    finally:
        await lab.close()


async def test_replica_whose_primary_ends_had_a_link(tmp_path: Path) -> None:
    """INFO shows for how long the replica has been without one."""
    lab = RealLab(redis_programs.server("redis", "8.0"), tmp_path, "127.87")
    try:
        await form(lab, "def")
        await lab.wait(1)
        assert (await facts(lab, "f")).had_link
        await lab.stop("c")
        await lab.wait(1)
        found = await facts(lab, "f")
        assert found.had_link
        assert not found.link_up
    finally:
        await lab.close()
