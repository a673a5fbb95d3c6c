"""Connections to real Redis and Valkey nodes: replies, refusals, timeouts, passwords and TLS."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from operators.redis.client import connection
from operators.redis.client.connection import connect
from operators.redis.client.errors import Denied, Refused, Unreachable
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import Access, Endpoint
from shared.pki.certs import Pair
from tests.support.tls import Authority
from tools.databases.redis_servers import OLDEST, OPEN, Redis

pytestmark = pytest.mark.nightly

HOST = "demo-0.demo.test"


async def test_connection_returns_replies_and_raises_refusals(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(1)
        (node,) = cluster.nodes
        async with node.connected() as server:
            binary = bytes(range(256)) * 300
            assert await server.execute("SET", b"\xff{a}", binary) == "OK"
            assert await server.execute("GET", b"\xff{a}") == binary
            assert await server.execute("GET", "nothing") is None
            assert await server.execute("CLUSTER", "GETKEYSINSLOT", 15495, 10) == [b"\xff{a}"]
            assert isinstance(await server.execute("CLUSTER", "MYID"), str)
            with pytest.raises(Refused, match=r"demo-0 \(127\.0\.0\.1:\d+\) refuses CLUSTER FORGET: ERR") as error:
                await server.execute("CLUSTER", "FORGET", "unknown")
            assert error.value.code == "ERR"
            with pytest.raises(Refused) as error:
                await server.execute("MIGRATE", "127.0.0.1", 1, "", 0, 100, "KEYS", b"\xff{a}")
            assert error.value.code == "IOERR"
            good, bad, last = await server.pipe((("PING",), ("NONSENSE", "secret"), ("DBSIZE",)))
            assert (good, last) == ("PONG", 1)
            assert isinstance(bad, Refused)
            assert await server.pipe(()) == []
            report = await inspect_node(server)
        assert (report.engine, report.id, report.keys, report.state_ok) == (engine[0], node.id, 1, True)
        assert report.version.startswith(engine[1])
        assert len(report.me.slots) == 16384
        assert report.memory > 0


async def test_unreachable_node_is_reported_in_time_and_leaves_no_connection(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(1)
        (node,) = cluster.nodes
        monkeypatch.setattr(connection, "REQUEST_TIMEOUT_SECONDS", 2.0)
        async with node.connected() as server:
            assert await server.execute("PING") == "PONG"
            node.signal(signal.SIGSTOP)
            with pytest.raises(Unreachable, match="did not respond to PING"):
                await server.execute("PING")
            node.signal(signal.SIGCONT)
            assert await server.execute("ECHO", "again") == "again"  # not the late reply to the earlier PING

            waiting = asyncio.create_task(server.execute("BLPOP", "list", 0))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await server.execute("PING") == "PONG"

            node.end()
            with pytest.raises(Unreachable, match=r"closed the connection|refuses connections"):
                await server.execute("PING")
            with pytest.raises(Unreachable, match="no process listens on the port"):
                await server.execute("PING")
            node.start()
            assert await server.execute("PING") == "PONG"
            assert (await server.execute("CLIENT", "LIST")).count("id=") == 1


async def test_former_passwords_are_tried_and_never_shown(redis: Redis, engine: tuple[str, str]) -> None:
    second = Access(password="second-secret", former=("first-secret",))
    with redis.cluster(engine, requirepass="first-secret") as cluster:
        node = cluster.add()
        assert (await node.report(Access(password="first-secret"))).id
        assert (await node.report(second)).id
        for wrong in (OPEN, Access(password="wrong-secret"), Access(password="wrong-secret", former=("other-secret",))):
            with pytest.raises(Denied) as error:
                await node.report(wrong)
            assert "secret" not in str(error.value)
        async with node.connected(second) as server:
            await server.execute("CONFIG", "SET", "requirepass", "second-secret")
            assert "secret" not in repr(server)
        assert (await node.report(second)).id
        async with node.connected(second) as server:
            await server.execute("CONFIG", "SET", "requirepass", "")
        assert (await node.report(second)).id  # no password is required


async def test_both_ends_verify_the_certificate_of_the_other(
    redis: Redis, engine_with_tls: tuple[str, str], tmp_path: Path
) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    authority.issue("server", HOST)
    pair = Pair(*(file.read_text() for file in authority.issue("client")))
    access = Access(authority.certificate.read_text(), pair)
    with redis.cluster(engine_with_tls, OPEN, **tls(tmp_path)) as cluster:
        node = cluster.add()
        assert (await node.report(access)).id

        foreign = Pair(*(file.read_text() for file in another.issue("foreign")))
        expired = Pair(*(file.read_text() for file in authority.issue("expired", days=-1)))
        for wrong, host, why in (
            (access, "elsewhere.test", r"not valid for 'elsewhere\.test'"),
            (replace(access, authority=another.certificate.read_text()), HOST, "is not trusted"),
            (replace(access, pair=None), HOST, "certificate"),
            (replace(access, pair=foreign), HOST, "certificate"),
            (replace(access, pair=expired), HOST, "certificate"),
            (OPEN, HOST, "TLS"),
            (replace(access, authority="nonsense"), HOST, "no certificate authority found"),
            (
                replace(access, pair=Pair(pair.certificate, foreign.key)),
                HOST,
                "the key does not belong to the certificate",
            ),
        ):
            server = connect(replace(node.endpoint, host=host), wrong)
            with pytest.raises(Unreachable, match=why) as error:
                await server.execute("PING")
            await server.aclose()
            assert "PRIVATE" not in str(error.value)
        with pytest.raises(Unreachable) as unknown:
            await node.report(replace(access, authority=another.certificate.read_text()))
        assert unknown.value.distrusts

    with redis.cluster(engine_with_tls) as cluster, pytest.raises(Unreachable, match="does not use TLS"):
        await cluster.add().report(access)


async def test_server_of_another_protocol_is_reported() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1")
    port = listener.sockets[0].getsockname()[1]
    server = connect(Endpoint("demo-0", "127.0.0.1", HOST, port), OPEN)
    with pytest.raises(Unreachable, match="not of Redis or Valkey"):
        await server.execute("PING")
    await server.aclose()
    listener.close()
    await listener.wait_closed()


def tls(directory: Path) -> dict[str, str]:
    """Directives of a server that accepts only TLS; see `Node.port`."""
    return {
        "tls_cert_file": f"{directory}/server.crt",
        "tls_key_file": f"{directory}/server.key",
        "tls_ca_cert_file": f"{directory}/authority.crt",
        "tls_cluster": "yes",
        "tls_replication": "yes",
    }
