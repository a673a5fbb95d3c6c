"""How a member of etcd is asked, and what is said of one that answers otherwise."""

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
from tests.unit.etcd.client.gateway_stub import (
    HEADER,
    LIST,
    ROOT,
    STATUS,
    Reply,
    fake,
    hanging_up,
    letting_in,
    piece,
    raw,
    refusing,
    silent,
    snapshot,
    streaming,
)


def test_nothing_is_opened_before_something_is_asked() -> None:
    connect(Endpoint("demo-0", "10.0.0.1", "demo-0.demo.test"), Access("nonsense"))  # there is not even a loop


async def test_requests_are_as_etcd_reads_them() -> None:
    changed = (
        "cluster_member_promote",
        "cluster_member_remove",
        "maintenance_transfer-leadership",
        "maintenance_alarm",
    )
    more = ("kv_compaction", "maintenance_defragment", "maintenance_hashkv")
    added = {"header": HEADER, "member": {"ID": "9", "peerURLs": ["http://demo-1:2380"], "isLearner": True}}
    replies = {path: {"header": HEADER} for path in (*changed, *more)}
    async with fake(cluster_member_add=added, **replies) as to, to.connected() as server:
        high = 2**64 - 1
        assert (await server.add_learner("http://demo-1:2380")).learner
        await server.promote(high)
        await server.remove(high)
        await server.move_leader(high)
        await server.disarm(Alarm(high, "NOSPACE"))
        await server.compact(2**40)
        await server.defragment()
        await server.hash_kv(7)
        assert [body for _, body, _ in to.asked] == [
            {"peerURLs": ["http://demo-1:2380"], "isLearner": True},
            {"ID": str(high)},
            {"ID": str(high)},
            {"targetID": str(high)},
            {"action": "DEACTIVATE", "memberID": str(high), "alarm": "NOSPACE"},
            {"revision": str(2**40), "physical": True},
            {},
            {"revision": "7"},
        ]
        assert not any(token for _, _, token in to.asked)  # nobody asked for one


@pytest.mark.parametrize(("version", "first"), [("3.4.13", ["kv/range"]), ("3.5.35", []), ("3.10.0", [])])
async def test_the_list_is_linearizable_in_every_version(version: str, first: list[str]) -> None:
    versions = {"etcdserver": version, "etcdcluster": "not_decided"}
    async with (
        fake(
            cluster_member_list=LIST, kv_range={"header": HEADER}, maintenance_status={**STATUS, "version": version}
        ) as to,
        to.connected() as server,
    ):
        to.replies["/version"] = versions
        await server.members()
        assert [path for path, _, _ in to.asked] == ["/version", *first, "cluster/member/list"]
        assert to.bodies("cluster/member/list") == [{"linearizable": True}]
        assert await server.cluster_version() == ""
        await server.remembered_members()
        assert to.bodies("cluster/member/list")[1:] == [{"linearizable": False}]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (raw(b'{"header":{"cluster_id":"1"', length=200), "interrupted its response to maintenance/status"),
        (raw(b'{"header":{"cluster_id":"1"'), 'with a response that is not of etcd: \'{"header"'),
        (raw(b"<html>login</html>"), "not of etcd: '<html>login</html>'"),
        (
            raw(b"<html>gone</html>", status=502),
            "returned no response of etcd to maintenance/status: <html>gone</html>",
        ),
        (raw(b"", status=503), "no response of etcd to maintenance/status: nothing"),
        (raw(b"elsewhere", status=302), "no response of etcd"),
        (raw(b""), "not of etcd: ''"),
        ([], "not of etcd"),
        ({"header": {}}, "not of etcd"),
        (hanging_up, "closed the connection without a response to maintenance/status: it stopped, or requires TLS"),
    ],
)
async def test_what_is_no_whole_answer_of_etcds_is_told(reply: Any, says: str) -> None:
    async with fake(maintenance_status=reply) as to, to.connected() as server:
        with pytest.raises(Unreachable) as told:
            await server.status()
        assert says in str(told.value)
        assert str(told.value).startswith(f"demo-0 (127.0.0.1:{to.port}) ")
        to.replies["maintenance/status"] = STATUS
        assert (await server.status()).version == "3.6.16"  # and it is asked anew


async def test_a_server_that_does_not_answer_in_time_is_told() -> None:
    async with fake(maintenance_status=silent) as to:
        line = Wire(to.endpoint(), ROOT)
        with pytest.raises(Unreachable, match=r"did not answer maintenance/status within 0\.1 s"):
            await line.post("maintenance/status", {}, dict, within=0.1)
        await line.aclose()


async def test_a_server_that_is_not_there_is_told() -> None:
    server = connect(Endpoint("demo-0", "::1", "demo-0.demo.test", 1), ROOT)
    with pytest.raises(Unreachable, match=r"^demo-0 \(\[::1\]:1\) (refuses connections|cannot be reached)"):
        await server.status()
    await server.aclose()


async def test_connections_end_with_the_server() -> None:
    async with fake(maintenance_status=STATUS) as to:
        open_now: set[asyncio.Transport] = set()

        async def reply(request: web.BaseRequest) -> web.StreamResponse:
            assert isinstance(request.transport, asyncio.Transport)
            open_now.add(request.transport)
            return web.json_response(STATUS)

        to.replies["maintenance/status"] = reply
        async with to.connected() as server:
            for _ in range(5):
                await server.status()
            assert len(open_now) == 1
        async with asyncio.timeout(5):
            while not all(transport.is_closing() for transport in open_now):  # noqa: ASYNC110 (nobody tells of it)
                await asyncio.sleep(0.01)


async def test_a_snapshot_is_handed_on_piece_by_piece() -> None:
    lines = [piece(b"a" * 500_000, 532), piece(b"b" * 532), piece(b"h" * 32)]
    async with fake(maintenance_snapshot=streaming(*lines)) as to, to.connected() as server:
        assert [len(each) async for each in server.snapshot()] == [500_000, 532, 32]
        async with aclosing(server.snapshot()) as pieces:
            assert await anext(pieces) == b"a" * 500_000  # and no more is wanted


@pytest.mark.parametrize(
    ("reply", "error", "says"),
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
        (hanging_up, Unreachable, "closed the connection"),
    ],
)
async def test_a_snapshot_that_is_not_whole_is_told(reply: Reply, error: type[Exception], says: str) -> None:
    async with fake(maintenance_snapshot=reply) as to, to.connected() as server:
        with pytest.raises(error) as told:
            await snapshot(server)
        assert says in str(told.value)


async def test_a_snapshot_whose_sender_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(json.dumps(piece(b"a" * 512, 512)).encode() + b"\n")
        return await silent(request)

    monkeypatch.setattr(http, "STREAM_PAUSE_SECONDS", 0.1)
    async with fake(maintenance_snapshot=reply) as to, to.connected() as server:
        with pytest.raises(Unreachable, match=r"did not answer maintenance/snapshot within 0\.1 s"):
            await snapshot(server)


async def test_a_snapshot_is_asked_for_with_a_token_where_one_is_needed() -> None:
    whole = streaming(piece(b"a" * 512), piece(b"h" * 32))

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        if request.headers.get("Authorization") == "token.1":
            return await whole(request)
        return web.json_response({"error": {"message": "etcdserver: user name is empty"}}, status=400)

    async with fake(maintenance_snapshot=reply, auth_authenticate=letting_in()) as to, to.connected() as server:
        assert len(await snapshot(server)) == 544


async def test_history_that_is_gone_is_known_to_be() -> None:
    compacted = refusing("etcdserver: mvcc: required revision has been compacted", 11)
    async with fake(kv_range=compacted, kv_compaction=compacted) as to, to.connected() as server:
        assert await server.is_compacted(1)
        assert to.asked == []
        assert await server.is_compacted(9)
        to.replies["kv/range"] = {"header": HEADER}
        assert not await server.is_compacted(9)
        assert to.bodies("kv/range")[0] == {"key": "AA==", "limit": "1", "serializable": True, "revision": "8"}
        to.replies["kv/range"] = refusing("etcdserver: permission denied", 7, 403)
        with pytest.raises(Denied):
            await server.is_compacted(9)
        await server.compact(9)  # it is so already
        with pytest.raises(Unsupported):
            await server.hash_kv()
