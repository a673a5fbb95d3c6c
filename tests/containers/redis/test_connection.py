"""The connection to a node against Redis and Valkey themselves: what it answers, what it refuses, and who is let in."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from e2e.databases.redis_servers import OLDEST, OPEN, Redis
from operators.redis.client import connection
from operators.redis.client.connection import connect
from operators.redis.client.errors import Denied, Refused, Unreachable
from operators.redis.client.node_inspection import inspect_node
from operators.redis.client.server import Access, Endpoint
from shared.pki.certs import Pair
from tests.support.tls import Authority

HOST = "demo-0.demo.test"


async def test_it_answers_and_refuses_in_its_own_words(redis: Redis, engine: tuple[str, str]) -> None:
    with redis.cluster(engine) as cluster:
        await cluster.form(1)
        (node,) = cluster.nodes
        async with node.asked() as server:
            binary = bytes(range(256)) * 300
            assert await server.execute("SET", b"\xff{a}", binary) == "OK"
            assert await server.execute("GET", b"\xff{a}") == binary
            assert await server.execute("GET", "nothing") is None
            assert await server.execute("CLUSTER", "GETKEYSINSLOT", 15495, 10) == [b"\xff{a}"]
            assert isinstance(await server.execute("CLUSTER", "MYID"), str)
            with pytest.raises(Refused, match=r"demo-0 \(127\.0\.0\.1:\d+\) refuses CLUSTER FORGET: ERR") as told:
                await server.execute("CLUSTER", "FORGET", "nobody")
            assert told.value.code == "ERR"
            with pytest.raises(Refused) as told:
                await server.execute("MIGRATE", "127.0.0.1", 1, "", 0, 100, "KEYS", b"\xff{a}")
            assert told.value.code == "IOERR"
            good, bad, last = await server.pipe((("PING",), ("NONSENSE", "secret"), ("DBSIZE",)))
            assert (good, last) == ("PONG", 1)
            assert isinstance(bad, Refused)
            assert await server.pipe(()) == []
            said = await inspect_node(server)
        assert (said.engine, said.id, said.keys, said.state_ok) == (engine[0], node.id, 1, True)
        assert said.version.startswith(engine[1])
        assert len(said.me.slots) == 16384
        assert said.memory > 0


async def test_a_node_that_does_not_answer_is_told_in_time_and_leaves_nothing_open(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis.cluster(OLDEST) as cluster:
        await cluster.form(1)
        (node,) = cluster.nodes
        monkeypatch.setattr(connection, "REQUEST_TIMEOUT_SECONDS", 2.0)
        async with node.asked() as server:
            assert await server.execute("PING") == "PONG"
            node.signal(signal.SIGSTOP)
            with pytest.raises(Unreachable, match="did not respond to PING"):
                await server.execute("PING")
            node.signal(signal.SIGCONT)
            assert await server.execute("ECHO", "again") == "again"  # and not the answer that came too late

            waiting = asyncio.create_task(server.execute("BLPOP", "list", 0))
            await asyncio.sleep(0.1)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await server.execute("PING") == "PONG"

            node.end()
            with pytest.raises(Unreachable, match=r"ended the connection|refuses connections"):
                await server.execute("PING")
            with pytest.raises(Unreachable, match="no process listens on the port"):
                await server.execute("PING")
            node.start()
            assert await server.execute("PING") == "PONG"
            assert (await server.execute("CLIENT", "LIST")).count("id=") == 1


async def test_former_passwords_are_tried_and_none_is_told(redis: Redis, engine: tuple[str, str]) -> None:
    second = Access(password="second-secret", former=("first-secret",))
    with redis.cluster(engine, requirepass="first-secret") as cluster:
        node = cluster.add()
        assert (await node.says(Access(password="first-secret"))).id
        assert (await node.says(second)).id
        for wrong in (OPEN, Access(password="wrong-secret"), Access(password="wrong-secret", former=("other-secret",))):
            with pytest.raises(Denied) as told:
                await node.says(wrong)
            assert "secret" not in str(told.value)
        async with node.asked(second) as server:
            await server.execute("CONFIG", "SET", "requirepass", "second-secret")
            assert "secret" not in repr(server)
        assert (await node.says(second)).id
        async with node.asked(second) as server:
            await server.execute("CONFIG", "SET", "requirepass", "")
        assert (await node.says(second)).id  # nobody is asked for one


async def test_both_ends_prove_who_they_are(redis: Redis, engine: tuple[str, str], tmp_path: Path) -> None:
    authority, another = Authority(tmp_path), Authority(tmp_path, "another")
    authority.issue("server", HOST)
    pair = Pair(*(file.read_text() for file in authority.issue("client")))
    access = Access(authority.certificate.read_text(), pair)
    with redis.cluster(engine, OPEN, **tls(tmp_path)) as cluster:
        node = cluster.add()
        assert (await node.says(access)).id

        stranger = Pair(*(file.read_text() for file in another.issue("stranger")))
        expired = Pair(*(file.read_text() for file in authority.issue("expired", days=-1)))
        for wrong, host, why in (
            (access, "elsewhere.test", r"not valid for 'elsewhere\.test'"),
            (replace(access, authority=another.certificate.read_text()), HOST, "not to be trusted"),
            (replace(access, pair=None), HOST, "certificate"),
            (replace(access, pair=stranger), HOST, "certificate"),
            (replace(access, pair=expired), HOST, "certificate"),
            (OPEN, HOST, "TLS"),
            (replace(access, authority="nonsense"), HOST, "no authority to trust"),
            (
                replace(access, pair=Pair(pair.certificate, stranger.key)),
                HOST,
                "the key does not belong to the certificate",
            ),
        ):
            server = connect(replace(node.endpoint, host=host), wrong)
            with pytest.raises(Unreachable, match=why) as told:
                await server.execute("PING")
            await server.aclose()
            assert "PRIVATE" not in str(told.value)

    with redis.cluster(engine) as cluster, pytest.raises(Unreachable, match="speaks no TLS"):
        await cluster.add().says(access)


async def test_who_speaks_something_else_is_told_so() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    strange = await asyncio.start_server(greet, "127.0.0.1")
    port = strange.sockets[0].getsockname()[1]
    server = connect(Endpoint("demo-0", "127.0.0.1", HOST, port), OPEN)
    with pytest.raises(Unreachable, match="not of Redis or Valkey"):
        await server.execute("PING")
    await server.aclose()
    strange.close()
    await strange.wait_closed()


def tls(directory: Path) -> dict[str, str]:
    """Directives of a server that speaks TLS alone; see `Node.port`."""
    return {
        "tls_cert_file": f"{directory}/server.crt",
        "tls_key_file": f"{directory}/server.key",
        "tls_ca_cert_file": f"{directory}/authority.crt",
        "tls_cluster": "yes",
        "tls_replication": "yes",
    }
