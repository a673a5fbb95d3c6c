"""Replicas authenticate as a user of their own, so that they copy no foreign server: on real servers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from operators.redis.api.engine_versions import EngineName
from operators.redis.client.commands import Configure, SetPasswords, execute
from operators.redis.client.connection import connect
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.responses import fields
from operators.redis.client.server import REPLICATION_USER, Access, Endpoint
from operators.redis.security.users import Passwords
from tests.support.redis.lab import PORT, RealLab
from tools.databases import redis_programs

pytestmark = pytest.mark.nightly

USERS = Passwords("", exporter="reader", replication="of this cluster").use_replication()
ENGINES: list[tuple[EngineName, str]] = [("redis", "7.0"), ("redis", "8.0"), ("valkey", "9.1")]


@pytest.fixture(params=ENGINES, ids=" ".join)
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RealLab]:
    engine, version = request.param
    lab = RealLab(redis_programs.server(engine, version), tmp_path, "127.83")
    yield lab
    await lab.close()


async def apply(lab: RealLab, name: str, passwords: Passwords, *, links: bool = True) -> None:
    """Apply the users to a server, as the operator does."""
    node_id = await lab.server(name).execute("CLUSTER", "MYID")
    at = Endpoint(name, lab.address(name)[0], "localhost", PORT)
    await execute(connect, SetPasswords(Access(), at, node_id, passwords.digests, passwords.admitted))
    if links:
        user, password = passwords.link
        await execute(connect, Configure(Access(), at, node_id, {"masteruser": user, "masterauth": password}))


async def info(lab: RealLab, name: str) -> dict[str, str]:
    return fields(await lab.server(name).execute("INFO"))


async def until(lab: RealLab, name: str, test: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    deadline = time.monotonic() + 20
    while not test(found := await info(lab, name)):
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.1)
    return found


def is_linked(found: dict[str, str]) -> bool:
    return found.get("master_link_status") == "up"


async def pair(lab: RealLab) -> str:
    """Start a primary and its replica, without the user of replicas, and return the id of the primary."""
    for name in ("primary", "replica"):
        await lab.start(name)
    primary = lab.server("primary")
    primary_id = str(await primary.execute("CLUSTER", "MYID"))
    await primary.execute("CLUSTER", "MEET", *lab.address("replica"))
    await primary.execute("CLUSTER", "ADDSLOTS", *range(16384))
    await lab.wait(2)
    await lab.server("replica").execute("CLUSTER", "REPLICATE", primary_id)
    await until(lab, "replica", is_linked)
    await lab.wait(1)
    await primary.execute("SET", "key", "of this cluster")
    await until(lab, "replica", lambda found: "keys=1" in found.get("db0", ""))
    return primary_id


async def take_address(lab: RealLab) -> None:
    """Give the address of the primary to a server of another cluster, without a password for clients."""
    await lab.stop("primary")
    await lab.start("foreign", address="primary")
    await lab.server("foreign").execute("CLUSTER", "ADDSLOTS", *range(16384))
    await apply(lab, "foreign", Passwords("", exporter="reader", replication="of another cluster").use_replication())
    await lab.wait(4)


async def test_replica_without_its_user_copies_a_foreign_server(lab: RealLab) -> None:
    """The servers are as this project takes them to be; else it would protect from nothing."""
    await pair(lab)
    await take_address(lab)
    found = await until(lab, "replica", is_linked)
    assert "db0" not in found


async def test_replica_with_its_user_keeps_its_keys_and_comes_back(lab: RealLab) -> None:
    primary_id = await pair(lab)
    for name in ("primary", "replica"):
        await apply(lab, name, USERS)
    await take_address(lab)
    found = await info(lab, "replica")
    assert not is_linked(found)
    assert "keys=1" in found["db0"]
    assert "WRONGPASS" in (lab.log("replica"))

    await lab.move("primary")
    await lab.start("primary")
    await apply(lab, "primary", USERS)
    await lab.server("primary").execute("CLUSTER", "MEET", *lab.address("replica"))
    await lab.wait(3)
    await lab.server("replica").execute("CLUSTER", "REPLICATE", primary_id)
    found = await until(lab, "replica", is_linked)
    assert found["master_host"] == lab.address("primary")[0]
    assert "keys=1" in found["db0"]


async def test_link_stays_while_the_user_is_introduced(lab: RealLab) -> None:
    await pair(lab)
    before = await info(lab, "primary")
    for name in ("primary", "replica"):
        await apply(lab, name, USERS, links=False)
    for name in ("replica", "primary"):
        await apply(lab, name, USERS)
    for name in ("primary", "replica"):  # another password: the user in use is changed
        await apply(lab, name, Passwords("", replication="another").use_replication(), links=False)
        await apply(lab, name, USERS, links=False)
    await lab.wait(1)
    found = await info(lab, "primary")
    assert is_linked(await info(lab, "replica"))
    for counter in ("sync_full", "sync_partial_ok", "sync_partial_err"):
        assert found[counter] == before[counter], "the connection is the same"
    await lab.server("primary").execute("CLIENT", "KILL", "TYPE", "replica")
    await lab.wait(1)
    found = await until(lab, "primary", lambda found: int(found["connected_slaves"]) == 1)
    assert int(found["sync_partial_ok"]) == int(before["sync_partial_ok"]) + 1
    assert found["sync_full"] == before["sync_full"]
    report = await inspect_node(lab.server("replica"))
    assert (report.gives_as, report.admits, report.takes) == (REPLICATION_USER, USERS.admitted, ())


@pytest.mark.parametrize("setting", ["dual-channel-replication-enabled", "repl-rdb-channel"])
async def test_user_suffices_for_a_sync_with_two_connections(lab: RealLab, setting: str) -> None:
    primary_id = await pair(lab)
    if not await lab.server("primary").execute("CONFIG", "GET", setting):
        return  # the engine does not have it
    for name in ("primary", "replica"):
        await apply(lab, name, USERS)
        await lab.server(name).execute("CONFIG", "SET", setting, "yes")
    await lab.start("new")
    await apply(lab, "new", USERS)
    await lab.server("new").execute("CONFIG", "SET", setting, "yes")
    await lab.server("primary").execute("CLUSTER", "MEET", *lab.address("new"))
    await lab.wait(2)
    await lab.server("new").execute("CLUSTER", "REPLICATE", primary_id)
    found = await until(lab, "new", is_linked)
    assert "keys=1" in found["db0"]


async def test_valkey_migrates_slots_as_the_user_of_replicas(tmp_path: Path) -> None:
    lab = RealLab(redis_programs.server("valkey", "9.1"), tmp_path, "127.83")
    try:
        for number, name in enumerate(("source", "target"), start=1):
            await lab.start(name)
            await lab.server(name).execute("CLUSTER", "SET-CONFIG-EPOCH", number)
            await apply(lab, name, USERS)
        source, target = lab.server("source"), lab.server("target")
        await source.execute("CLUSTER", "MEET", *lab.address("target"))
        await source.execute("CLUSTER", "ADDSLOTS", *range(16383))
        await target.execute("CLUSTER", "ADDSLOTS", 16383)
        await lab.wait(3)
        await source.execute("SET", "foo", "bar")
        target_id = await target.execute("CLUSTER", "MYID")
        await source.execute("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", 12182, 12182, "NODE", target_id)
        job: dict[str, Any] = {}
        for _ in range(100):
            ((*pairs,),) = await source.execute("CLUSTER", "GETSLOTMIGRATIONS")
            job = dict(zip(pairs[::2], pairs[1::2], strict=True))
            if job["state"] in ("success", "failed"):
                break
            await asyncio.sleep(0.1)
        assert job["state"] == "success", job
        assert await target.execute("GET", "foo") == b"bar"
    finally:
        await lab.close()
