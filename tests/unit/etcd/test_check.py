"""What `helm test` does with an EtcdCluster: it passes where a value comes back, and tells why where none does."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from operators.etcd.api.resource import ADMISSION
from operators.etcd.check import CHECK, use
from shared.cli.check import Failed, NotYet
from shared.kubernetes.kinds import Obj


class Keys:
    """As much of etcd's gateway as the check needs; several members of one cluster share it."""

    def __init__(self, *, forgets: bool = False, refuses: bool = False) -> None:
        self.held: dict[str, str] = {}
        self._forgets = forgets
        self._refuses = refuses

    async def put(self, request: web.Request) -> web.Response:
        asked: dict[str, Any] = await request.json()
        if self._refuses:
            return web.json_response({"error": "etcdserver: mvcc: database space exceeded"}, status=429)
        self.held[asked["key"]] = asked["value"]
        return web.json_response({"header": {}})

    async def range(self, request: web.Request) -> web.Response:
        key = (await request.json())["key"]
        if key not in self.held or self._forgets:
            return web.json_response({"header": {}})
        return web.json_response({"kvs": [{"key": key, "value": self.held[key]}], "count": "1"})

    async def deleterange(self, request: web.Request) -> web.Response:
        self.held.pop((await request.json())["key"])
        return web.json_response({"deleted": "1"})


@asynccontextmanager
async def member(keys: Keys) -> AsyncIterator[str]:
    """A member's URL."""
    app = web.Application()
    app.add_routes([web.post(f"/v3/kv/{name}", getattr(keys, name)) for name in ("put", "range", "deleterange")])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def cluster(*endpoints: str) -> Obj:
    return {"status": {"endpoints": list(endpoints)}}


async def test_each_endpoint_is_asked_and_nothing_is_left() -> None:
    keys = Keys()
    async with member(keys) as one, member(keys) as other:
        assert await use(cluster(one, other)) == "all 2 endpoints returned the value written at one of them"
    assert keys.held == {}


async def test_a_member_of_another_cluster_is_told_by_its_address() -> None:
    async with member(Keys()) as one, member(Keys()) as stranger:
        with pytest.raises(Failed, match=f"{stranger} returned \\[\\] instead of"):
            await use(cluster(one, stranger))


async def test_a_member_that_forgets_is_told() -> None:
    async with member(Keys(forgets=True)) as one:
        with pytest.raises(Failed, match="instead of"):
            await use(cluster(one))


async def test_a_refusal_is_told_in_etcds_words() -> None:
    async with member(Keys(refuses=True)) as one:
        with pytest.raises(Failed, match=r"answered put with 429: .*database space exceeded"):
            await use(cluster(one))


async def test_a_member_that_cannot_be_reached_is_asked_again() -> None:
    """Its name may not be known to every DNS server yet."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NotYet, match="does not answer"):
            await use(cluster(f"http://127.0.0.1:{taken.getsockname()[1]}"))


def test_what_it_makes_is_taken_at_the_door() -> None:
    obj = {"metadata": {"name": "check-platform-etcd-operator"}, "spec": CHECK.spec}
    assert ADMISSION.review(ADMISSION.default(obj), None).errors == ()
