"""The `helm test` check of an EtcdCluster: it passes if every endpoint returns the value, and reports failures."""

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
    """The requests of etcd's gateway that the check uses; the members of one cluster share an instance."""

    def __init__(self, *, loses_values: bool = False, refuses: bool = False) -> None:
        self.values: dict[str, str] = {}
        self._forgets = loses_values
        self._refuses = refuses

    async def put(self, request: web.Request) -> web.Response:
        body: dict[str, Any] = await request.json()
        if self._refuses:
            return web.json_response({"error": "etcdserver: mvcc: database space exceeded"}, status=429)
        self.values[body["key"]] = body["value"]
        return web.json_response({"header": {}})

    async def range(self, request: web.Request) -> web.Response:
        key = (await request.json())["key"]
        if key not in self.values or self._forgets:
            return web.json_response({"header": {}})
        return web.json_response({"kvs": [{"key": key, "value": self.values[key]}], "count": "1"})

    async def deleterange(self, request: web.Request) -> web.Response:
        self.values.pop((await request.json())["key"])
        return web.json_response({"deleted": "1"})


@asynccontextmanager
async def member(keys: Keys) -> AsyncIterator[str]:
    """Serve a member and return its URL."""
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


async def test_each_endpoint_is_checked_and_the_key_is_deleted() -> None:
    keys = Keys()
    async with member(keys) as first, member(keys) as second:
        assert await use(cluster(first, second)) == "all 2 endpoints returned the value written at one of them"
    assert keys.values == {}


async def test_member_of_another_cluster_is_reported_by_address() -> None:
    async with member(Keys()) as first, member(Keys()) as foreign:
        with pytest.raises(Failed, match=f"{foreign} returned \\[\\] instead of"):
            await use(cluster(first, foreign))


async def test_member_that_loses_the_value_is_reported() -> None:
    async with member(Keys(loses_values=True)) as first:
        with pytest.raises(Failed, match="instead of"):
            await use(cluster(first))


async def test_refusal_quotes_etcds_message() -> None:
    async with member(Keys(refuses=True)) as first:
        with pytest.raises(Failed, match=r"answered put with 429: .*database space exceeded"):
            await use(cluster(first))


async def test_unreachable_member_is_retried() -> None:
    """The name may not have reached every DNS server yet."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(NotYet, match="does not answer"):
            await use(cluster(f"http://127.0.0.1:{taken.getsockname()[1]}"))


def test_resource_of_the_check_passes_admission() -> None:
    obj = {"metadata": {"name": "check-platform-etcd-operator"}, "spec": CHECK.spec}
    assert ADMISSION.review(ADMISSION.default(obj), None).errors == ()
