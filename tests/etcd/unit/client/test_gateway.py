"""Requests to a member of etcd, and the errors for invalid replies."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from operators.etcd.client import http
from operators.etcd.client.errors import Denied, Refused, Unreachable, Unsupported
from operators.etcd.client.gateway import connect
from operators.etcd.client.http import Wire
from operators.etcd.client.server import Access, Alarm, Endpoint
from tests.etcd.unit.client.gateway_stub import (
    HEADER,
    LIST,
    ROOT,
    STATUS,
    Reply,
    closing_connection,
    fake,
    issuing_tokens,
    never_replying,
    piece,
    raw,
    refusing,
    snapshot,
    streaming,
)


def test_connection_is_opened_by_the_first_request() -> None:
    connect(Endpoint("demo-0", "10.0.0.1", "demo-0.demo.test"), Access("nonsense"))  # no event loop is running


async def test_request_bodies_have_the_format_of_the_gateway() -> None:
    changed = (
        "cluster_member_promote",
        "cluster_member_remove",
        "maintenance_transfer-leadership",
        "maintenance_alarm",
        "maintenance_downgrade",
    )
    more = ("kv_compaction", "maintenance_defragment", "maintenance_hashkv")
    added = {"header": HEADER, "member": {"ID": "9", "peerURLs": ["http://demo-1:2380"], "isLearner": True}}
    replies = {path: {"header": HEADER} for path in (*changed, *more)}
    async with fake(cluster_member_add=added, **replies) as stub, stub.connected() as server:
        high = 2**64 - 1
        assert (await server.add_learner("http://demo-1:2380")).learner
        await server.promote(high)
        await server.remove(high)
        await server.move_leader(high)
        await server.enable_downgrade("3.5")
        await server.cancel_downgrade()
        await server.disarm(Alarm(high, "NOSPACE"))
        await server.compact(2**40)
        await server.defragment()
        await server.hash_kv(7)
        assert [body for _, body, _ in stub.requests] == [
            {"peerURLs": ["http://demo-1:2380"], "isLearner": True},
            {"ID": str(high)},
            {"ID": str(high)},
            {"targetID": str(high)},
            {"action": "ENABLE", "version": "3.5"},
            {"action": "CANCEL"},
            {"action": "DEACTIVATE", "memberID": str(high), "alarm": "NOSPACE"},
            {"revision": str(2**40), "physical": True},
            {},
            {"revision": "7"},
        ]
        assert not any(token for _, _, token in stub.requests)  # the server requires none


@pytest.mark.parametrize(("version", "first"), [("3.4.13", ["kv/range"]), ("3.5.35", []), ("3.10.0", [])])
async def test_member_list_is_linearizable_in_every_version(version: str, first: list[str]) -> None:
    versions = {"etcdserver": version, "etcdcluster": "not_decided"}
    async with (
        fake(
            cluster_member_list=LIST, kv_range={"header": HEADER}, maintenance_status={**STATUS, "version": version}
        ) as stub,
        stub.connected() as server,
    ):
        stub.replies["/version"] = versions
        await server.members()
        assert [path for path, _, _ in stub.requests] == ["/version", *first, "cluster/member/list"]
        assert stub.bodies("cluster/member/list") == [{"linearizable": True}]
        assert await server.cluster_version() == ""
        await server.remembered_members()
        assert stub.bodies("cluster/member/list")[1:] == [{"linearizable": False}]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (raw(b'{"header":{"cluster_id":"1"', length=200), "interrupted its response to maintenance/status"),
        (raw(b'{"header":{"cluster_id":"1"'), 'with a response that is not of etcd: \'{"header"'),
        (raw(b"<html>login</html>"), "not of etcd: '<html>login</html>'"),
        (
            raw(b"<html>down</html>", status=502),
            "returned no response of etcd to maintenance/status: <html>down</html>",
        ),
        (raw(b"", status=503), "no response of etcd to maintenance/status: nothing"),
        (raw(b"elsewhere", status=302), "no response of etcd"),
        (raw(b""), "not of etcd: ''"),
        ([], "not of etcd"),
        ({"header": {}}, "not of etcd"),
        (
            closing_connection,
            "closed the connection without a response to maintenance/status: it stopped, or requires TLS",
        ),
    ],
)
async def test_malformed_or_truncated_reply_is_reported(reply: Any, message: str) -> None:
    async with fake(maintenance_status=reply) as stub, stub.connected() as server:
        with pytest.raises(Unreachable) as raised:
            await server.status()
        assert message in str(raised.value)
        assert str(raised.value).startswith(f"demo-0 (127.0.0.1:{stub.port}) ")
        stub.replies["maintenance/status"] = STATUS
        assert (await server.status()).version == "3.6.16"  # the next request succeeds


async def test_request_timeout_is_reported() -> None:
    async with fake(maintenance_status=never_replying) as stub:
        line = Wire(stub.endpoint(), ROOT)
        with pytest.raises(Unreachable, match=r"did not answer maintenance/status within 0\.1 s"):
            await line.post("maintenance/status", {}, dict, within=0.1)
        await line.aclose()


async def test_refused_connection_is_reported() -> None:
    server = connect(Endpoint("demo-0", "::1", "demo-0.demo.test", 1), ROOT)
    with pytest.raises(Unreachable, match=r"^demo-0 \(\[::1\]:1\) (refuses connections|cannot be reached)"):
        await server.status()
    await server.aclose()


async def test_closing_the_server_closes_its_connections() -> None:
    async with fake(maintenance_status=STATUS) as stub:
        open_now: set[asyncio.Transport] = set()

        async def reply(request: web.BaseRequest) -> web.StreamResponse:
            assert isinstance(request.transport, asyncio.Transport)
            open_now.add(request.transport)
            return web.json_response(STATUS)

        stub.replies["maintenance/status"] = reply
        async with stub.connected() as server:
            for _ in range(5):
                await server.status()
            assert len(open_now) == 1
        async with asyncio.timeout(5):
            while not all(transport.is_closing() for transport in open_now):  # noqa: ASYNC110 (transports offer no event)
                await asyncio.sleep(0.01)


async def test_snapshot_is_streamed_in_pieces() -> None:
    lines = [piece(b"a" * 500_000, 532), piece(b"b" * 532), piece(b"h" * 32)]
    async with fake(maintenance_snapshot=streaming(*lines)) as stub, stub.connected() as server:
        assert [len(each) async for each in server.snapshot()] == [500_000, 532, 32]
        async with aclosing(server.snapshot()) as pieces:
            assert await anext(pieces) == b"a" * 500_000  # the rest is not read


@pytest.mark.parametrize(
    ("reply", "error", "message"),
    [
        (streaming(piece(b"a" * 512, 512), end=False), Unreachable, "interrupted its response to maintenance/snapshot"),
        (streaming(piece(b"a" * 512, 512)), Unreachable, "ended its snapshot early, after 512 bytes"),
        (streaming(piece(b"a" * 512)), Unreachable, "ended its snapshot early, after 512 bytes"),
        (streaming(), Unreachable, "ended its snapshot early, after 0 bytes"),
        (
            streaming(piece(b"a" * 512, 512), {"error": {"message": "etcdserver: server stopped"}}),
            Unreachable,
            "stopped",
        ),
        (
            streaming(piece(b"a", 1), {"error": {"message": "etcdserver: permission denied"}}),
            Denied,
            "permission denied",
        ),
        (streaming(b'{"result":{"blob":"QUJD'), Unreachable, "result"),
        (streaming(b"<html>\n"), Unreachable, "<html>"),
        (streaming(b"x" * (3 * 2**20)), Unreachable, "with a response that is not of etcd: a line of over"),
        (refusing("etcdserver: corrupt cluster", 15, 500), Refused, "corrupt cluster"),
        (closing_connection, Unreachable, "closed the connection"),
    ],
)
async def test_incomplete_snapshot_is_reported(reply: Reply, error: type[Exception], message: str) -> None:
    async with fake(maintenance_snapshot=reply) as stub, stub.connected() as server:
        with pytest.raises(error) as raised:
            await snapshot(server)
        assert message in str(raised.value)


async def test_stalled_snapshot_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(json.dumps(piece(b"a" * 512, 512)).encode() + b"\n")
        return await never_replying(request)

    monkeypatch.setattr(http, "STREAM_PAUSE_SECONDS", 0.1)
    async with fake(maintenance_snapshot=reply) as stub, stub.connected() as server:
        with pytest.raises(Unreachable, match=r"did not answer maintenance/snapshot within 0\.1 s"):
            await snapshot(server)


async def test_snapshot_is_requested_with_a_token_if_one_is_required() -> None:
    whole = streaming(piece(b"a" * 512), piece(b"h" * 32))

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") == "token.1":
            return await whole(request)
        return web.json_response({"error": {"message": "etcdserver: user name is empty"}}, status=400)

    async with fake(maintenance_snapshot=reply, auth_authenticate=issuing_tokens()) as stub, stub.connected() as server:
        assert len(await snapshot(server)) == 544


async def test_compacted_revision_is_detected() -> None:
    compacted = refusing("etcdserver: mvcc: required revision has been compacted", 11)
    async with fake(kv_range=compacted, kv_compaction=compacted) as stub, stub.connected() as server:
        assert await server.is_compacted(1)
        assert stub.requests == []
        assert await server.is_compacted(9)
        stub.replies["kv/range"] = {"header": HEADER}
        assert not await server.is_compacted(9)
        assert stub.bodies("kv/range")[0] == {"key": "AA==", "limit": "1", "serializable": True, "revision": "8"}
        stub.replies["kv/range"] = refusing("etcdserver: permission denied", 7, 403)
        with pytest.raises(Denied):
            await server.is_compacted(9)
        await server.compact(9)  # already compacted
        with pytest.raises(Unsupported):
            await server.hash_kv()


async def test_downgrade_in_the_desired_state_is_no_error() -> None:
    enabled = refusing("etcdserver: cluster has a downgrade job in progress")
    async with fake(maintenance_downgrade=enabled) as stub, stub.connected() as server:
        await server.enable_downgrade("3.5")
    ended = refusing("etcdserver: no inflight downgrade job")
    async with fake(maintenance_downgrade=ended) as stub, stub.connected() as server:
        await server.cancel_downgrade()
    invalid = refusing("etcdserver: invalid downgrade target version", 3)
    async with fake(maintenance_downgrade=invalid) as stub, stub.connected() as server:
        with pytest.raises(Refused, match="invalid downgrade target"):
            await server.enable_downgrade("3.4")
