"""A primary without an append-only file is killed, and is back within the node timeout with its last snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from operators.redis.api.engine_versions import EngineName
from operators.redis.client.commands import FailOver
from operators.redis.client.connection import connect
from operators.redis.client.errors import Refused
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import fields
from operators.redis.client.server import Access, Endpoint
from operators.redis.objects.redis_conf import AWAITED_REPLICA, DELAYED_SYNC
from tests.support.redis.lab import RealLab
from tests.support.redis.recorded_conformance import FOO, SEEN, Recorder, form
from tools.databases import redis_programs

SNAPSHOTS = {"appendonly": "no", "save": "3600 1"}
AS_IN_A_POD = {name: value for name, value in {**DELAYED_SYNC, **AWAITED_REPLICA}.items() if "max-replicas" not in name}
assert FOO > 10922, "foo is a key of the third primary, c, whose replica is f"


@pytest.fixture
async def lab(tmp_path: Path, engine: EngineName, version: str) -> AsyncIterator[RealLab]:
    made = RealLab(redis_programs.server(engine, version), tmp_path, "127.81")
    yield made
    await made.close()


async def _written(lab: RealLab) -> Recorder:
    """Form a cluster in which a replica has a newer value than the last snapshot of its primary."""
    lab.settings = SNAPSHOTS
    recorder = await form(lab, "def")
    await lab.server("c").execute("SET", "foo", "old")
    await lab.server("c").execute("SAVE")
    await lab.server("c").execute("SET", "foo", "new")
    await lab.wait(1)
    return recorder


async def _value(lab: RealLab, name: str) -> object:
    await lab.server(name).execute("READONLY")
    return await lab.server(name).execute("GET", "foo")


ALL = pytest.mark.parametrize(
    ("engine", "version"),
    [
        pytest.param("redis", "7.0", marks=pytest.mark.nightly),
        ("redis", "8.0"),
        pytest.param("valkey", "9.1", marks=pytest.mark.nightly),
    ],
)


@ALL
async def test_replica_with_newer_keys_takes_over_from_the_snapshot(lab: RealLab) -> None:
    recorder = await _written(lab)
    lab.settings = SNAPSHOTS | AS_IN_A_POD
    await lab.stop("c")
    await recorder.start("c")
    await lab.wait(2 * SEEN)
    assert not [each for each in lab.transcript if "another id" in each]
    assert (await _value(lab, "c"), await _value(lab, "f")) == (b"old", b"new"), "the replica keeps its data"
    copy, primary = await inspect_node(lab.server("f")), await inspect_node(lab.server("c"))
    assert copy.history == primary.former_history
    assert copy.offset > primary.forked_at - 1, "the replica has all writes of the snapshot, and a later one"
    with pytest.raises(Refused, match="NOREPLICAS"):
        await lab.server("c").execute("SET", "foo", "late")
    at = Endpoint("f", lab.address("f")[0], "localhost", lab.address("f")[1], id=recorder.ids["f"])
    call = FailOver(Access(), at, recorder.ids["f"], recorder.ids["c"], "FORCE", resumed=True)
    await call.carry_out(connect)
    await lab.wait(2 * SEEN)
    assert {name: fields(await lab.server(name).execute("INFO"))["role"] for name in "cf"} == {
        "c": "slave",
        "f": "master",
    }
    assert (await _value(lab, "c"), await _value(lab, "f")) == (b"new", b"new")


@ALL
async def test_replica_that_lost_its_link_before_the_snapshot_shows_that_it_has_older_keys(lab: RealLab) -> None:
    """The primary refuses the password of the replica until it has restarted."""
    recorder = await _written(lab)
    await lab.server("f").execute("CONFIG", "SET", "masterauth", "wrong")
    await lab.server("f").execute("CONFIG", "SET", "masteruser", "nobody")
    await lab.server("c").execute("CLIENT", "KILL", "TYPE", "slave")
    await lab.wait(1)
    await lab.server("c").execute("SET", "foo", "newest")
    await lab.server("c").execute("SAVE")
    lab.settings = SNAPSHOTS | AS_IN_A_POD
    await lab.stop("c")
    await recorder.start("c")
    for name in ("masteruser", "masterauth"):
        await lab.server("f").execute("CONFIG", "SET", name, "")
    await lab.wait(2 * SEEN)
    assert (await _value(lab, "c"), await _value(lab, "f")) == (b"newest", b"new")
    copy, primary = await inspect_node(lab.server("f")), await inspect_node(lab.server("c"))
    assert (copy.link_up, copy.syncing) == (False, False), "it waits for a transfer"
    assert copy.history == primary.former_history
    assert copy.offset < primary.forked_at - 1


@ALL
async def test_primary_that_was_shut_down_serves_at_once(lab: RealLab) -> None:
    """The snapshot is complete: the replica continues, without a transfer that it would wait for."""
    recorder = await _written(lab)
    lab.settings = SNAPSHOTS | AS_IN_A_POD
    await lab.terminate("c")
    await recorder.start("c")
    await lab.wait(2 * SEEN)
    assert await lab.server("c").execute("SET", "foo", "later") == "OK"
    await lab.wait(1)
    assert await _value(lab, "f") == b"later"


@pytest.mark.nightly
@pytest.mark.parametrize(("engine", "version"), [("redis", "8.0")])
async def test_snapshot_replaces_newer_keys_without_the_settings_of_a_pod(lab: RealLab) -> None:
    """The loss that these settings prevent."""
    recorder = await _written(lab)
    await lab.stop("c")
    await recorder.start("c")
    await lab.wait(2 * SEEN)
    assert await _value(lab, "f") == b"old"
