"""Replies of a server that is not the database, at the address of one: each is an error, and none costs much.

Without TLS, any pod that gets the address of a former server can answer. A reply may occupy the event loop for at most
100 ms, and need at most 20 MiB (tests/harness/cost.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import inspect
import itertools
import re
import socket
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest

from operators.etcd.client import gateway
from operators.etcd.client.errors import EtcdError
from operators.etcd.client.server import Access as EtcdAccess
from operators.etcd.client.server import Alarm
from operators.etcd.client.server import Endpoint as Member
from operators.etcd.client.server import Server as EtcdServer
from operators.etcd.observe import _query_without_quorum
from operators.etcd.state.observed import Instance as Voter
from operators.etcd.state.observed import Observed as EtcdObserved
from operators.memcached.client import attestation
from operators.memcached.client import server as memcached
from operators.memcached.client.errors import MemcachedError
from operators.memcached.observe import _inspect as _inspect_memcached
from operators.memcached.security.certificates import inspect_certificate
from operators.memcached.security.connection import Access as MemcachedAccess
from operators.memcached.security.secrets import Secrets
from operators.memcached.security.versions import inspect_response
from operators.redis.api.resource import RedisCluster
from operators.redis.client import connection as redis
from operators.redis.client.errors import RedisError
from operators.redis.client.node_inspection import report_of, request_report
from operators.redis.client.server import Access as RedisAccess
from operators.redis.client.server import Endpoint as Node
from operators.redis.client.server import Server
from operators.redis.observe import _inspect_all
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from shared.kubernetes.pods import Pod
from shared.observability.tls_buffers import TLS_BUFFER_BYTES
from shared.pki.certs import Pair
from simulator.memcached.fake_servers import certificate, signer
from tests.harness import cost
from tests.redis.unit.security.rotation import wished
from tests.support.paths import REPOSITORY

MIB = 1024 * 1024


@contextlib.contextmanager
def serving(respond: Callable[[socket.socket], None], servers: int) -> Iterator[int]:
    """Serve connections; yield the port.

    Args:
        respond: serves a connection; an error of the connection ends only that.
        servers: number of connections at once, each of which is served by a thread.
    """
    listening = socket.create_server(("127.0.0.1", 0), backlog=servers)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            connection.settimeout(10)
            with contextlib.suppress(OSError), connection:
                respond(connection)

    threads = [threading.Thread(target=serve, daemon=True) for _ in range(servers)]
    for thread in threads:
        thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for thread in threads:
            thread.join()


def answering(
    reply: bytes | Callable[[int], bytes], times: int = 1, servers: int = 1
) -> contextlib.AbstractContextManager[int]:
    """Serve a reply to each connection after its first bytes; the context is the port.

    Args:
        reply: the reply, or what returns that to a connection, by the number of connections before.
        servers: number of connections at once.
    """
    numbers = itertools.count()

    def respond(connection: socket.socket) -> None:
        connection.recv(65_536)
        sent = reply if isinstance(reply, bytes) else reply(next(numbers))
        for _ in range(times):
            connection.sendall(sent)

    return serving(respond, servers)


# Each operator: what it requests of a server, and hostile replies.


ARGUMENTS: Mapping[str, Any] = {
    "peer_url": "http://demo-1:2380",
    "member_id": 1,
    "to": 1,
    "series": "3.5",
    "alarm": Alarm(1, "NOSPACE"),
    "revision": 5,
    "user": "root",
    "password": "secret",
    "role": "etcd.ydzs.io/client",
    "section": "items",
    "auth": ("app", "secret"),
}
"""Arguments of the methods of clients, by the name of the parameter."""


NOT_JUDGED = {"aclose", "snapshot"}
"""Sends nothing; and runs in a pod that takes a snapshot, not in an operator."""


def methods(client: type) -> list[Callable[[Any], Awaitable[object]]]:
    """Return a call of each method of a client that sends a request."""

    def called(name: str) -> Callable[[Any], Awaitable[object]]:
        function = getattr(client, name)
        given = {each: ARGUMENTS[each] for each in list(inspect.signature(function).parameters)[1:]}
        return lambda server: _exhausted(getattr(server, name)(**given))

    found = inspect.getmembers(
        client, lambda each: inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
    )
    names = [name for name, _ in found if not name.startswith("_") and name not in NOT_JUDGED]
    assert len(names) > 2
    return [called(name) for name in names]


async def _exhausted(reply: Any) -> None:
    if inspect.isasyncgen(reply):
        async for _ in reply:
            pass
    else:
        await reply


async def of_memcached(port: int) -> AsyncIterator[Awaitable[object]]:
    for method in methods(memcached._Connection):
        yield _connected(port, method)


async def _connected(port: int, method: Callable[[Any], Awaitable[object]]) -> None:
    """Call a method on a new connection: an error closes it."""
    server = await memcached.connect("127.0.0.1", port, timeout=3, auth=("app", "secret"))
    try:
        await method(server)
    finally:
        await server.aclose()


MEMCACHED: Mapping[str, bytes] = {
    "line without an end": b"x" * MIB,
    "many lines": b"VERSION 1.6.38\r\n" + b"STAT a 1\r\n" * 100_000,
    "long lines": b"VERSION 1.6.38\r\n" + (b"STAT a " + b"x" * 60_000 + b"\r\n") * 100,
    "many names": b"VERSION 1.6.38\r\n" + b"".join(b"STAT %d 1\r\n" % number for number in range(100_000)),
    "NUL bytes": bytes(MIB),
    "authentication and a line without an end": b"CLIENT_ERROR unauthenticated\r\n" + b"x" * MIB,
    "authentication and many lines": b"CLIENT_ERROR unauthenticated\r\nSTORED\r\n" + b"STAT a 1\r\n" * 100_000,
    "errors": b"VERSION 1.6.38\r\n" + b"Error " + b"x" * 60_000 + b"\r\n",
}


async def of_redis(port: int) -> AsyncIterator[Awaitable[object]]:
    server = redis.connect(Node("demo-0", "127.0.0.1", "demo-0.demo", port), RedisAccess())
    yield inspected(server)
    await server.aclose()


async def inspected(server: Server) -> None:
    """Inspect a node with as many settings as a spec may have, and its users."""
    settings, users = ["maxmemory", *(f"s{number}" for number in range(127))], [f"u{number}" for number in range(128)]
    report_of(await request_report(server, settings, users), users)


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


INFO = (
    b"redis_version:8.0.2\r\nrun_id:a\r\nrole:master\r\nused_memory:1\r\nmaxmemory:0\r\nloading:0\r\n"
    b"master_repl_offset:1\r\nserver_time_usec:99000000\r\nuptime_in_seconds:98\r\n"
)
STATE = b"cluster_state:ok\r\ncluster_current_epoch:1\r\n"
ME = b"%s 10.0.0.1:6379@16379 myself,master - 0 0 1 connected" % (b"a" * 40)
REST = (
    b"*2\r\n"
    + bulk(b"masterauth")
    + bulk(b"")
    + b"*4\r\n"
    + bulk(b"flags")
    + b"*0\r\n"
    + bulk(b"passwords")
    + b"*0\r\n"
    + b"*2\r\n"
    + bulk(b"masteruser")
    + bulk(b"")
    + b"$-1\r\n"
)


def report(*, info: bytes = INFO, nodes: bytes = ME + b"\n", rest: bytes = REST) -> bytes:
    return bulk(info) + b":0\r\n" + bulk(STATE) + bulk(nodes) + rest + b"*2\r\n" + bulk(b"maxmemory") + bulk(b"0")


def members(count: int) -> bytes:
    return b"".join(b"%040x 10.0.0.1:6379@16379 master - 0 0 1 connected\n" % number for number in range(count))


REDIS: Mapping[str, bytes] = {
    "array that announces 400 million items": b"*400000000\r\n",
    "array within an array that announces 400 million items": b"*2\r\n+a\r\n*400000000\r\n",
    "announcement split at a packet": b"$65500\r\n" + b"x" * 65_500 + b"\r\n*400000000\r\n",
    "string that announces 2 GiB": b"$2147483647\r\n" + b"x" * MIB,
    "string of 64 MiB": b"$%d\r\n" % (64 * MIB) + b"x" * MIB,
    "line without an end": b"+" + b"x" * MIB,
    "number without an end": b"$" + b"1" * MIB,
    "deep arrays": b"*1\r\n" * 100_000,
    "many items": b"*60000\r\n" + (b"*2\r\n:1\r\n:2\r\n") * 60_000,
    "many errors": b"-ERR x\r\n" * 100_000,
    "INFO with many fields": report(info=b"".join(b"f%d:1\r\n" % number for number in range(40_000)) + INFO),
    "INFO with a long version": report(info=INFO.replace(b"8.0.2", b"8." * 30_000)),
    "too many nodes": report(nodes=ME + b"\n" + members(5_000)),
    "node with too many slots": report(nodes=ME + b" 0" * 200_000),
    "slot that does not exist": report(nodes=ME + b" 0-99999999999999999999\n"),
    "nodes without fields": report(nodes=b"\n" * 400_000),
    "number of 100,000 digits": report(nodes=ME.replace(b" 1 connected", b" " + b"1" * 100_000 + b" connected")),
    "array instead of text": b"*0\r\n" * 6,
    "bytes that are not text": report(nodes=b"\xff" * 400_000),
    "long answers": bulk(b"x" * 400_000),
    "many answers of many items": b"*16000\r\n" + b"+a\r\n" * 16_000,
}


async def of_etcd(port: int) -> AsyncIterator[Awaitable[object]]:
    server = gateway.Gateway(Member("demo-0", "127.0.0.1", "demo-0.demo.test", port, port), EtcdAccess(user="root"))
    for method in methods(gateway.Gateway):
        yield method(server)
    await server.aclose()


def http(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> bytes:
    lines = (b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def of_a_sidecar(port: int) -> AsyncIterator[Awaitable[object]]:
    yield attestation.fetch("127.0.0.1", port, "nonce")


def attested(version: bytes) -> bytes:
    return http(b'{"serves":true,"certificate":"","users":"","error":"","version":%s}' % version)


SIDECAR: Mapping[str, bytes] = {
    "deep arrays": http(b"[" * 9_999),
    "deep objects": http(b'{"a":' * 1_900),
    "deep version": attested(b"[" * 900 + b"]" * 900),
    "version of many items": attested(b"[" + b"0," * 4_900 + b"0]"),
    "number of 9,000 digits": attested(b"1" * 9_000),
    "bytes that are not text": attested(b'"' + b"\xff" * 9_000 + b'"'),
    "long status": b"HTTP/1.1 " + b"x" * 16_000 + b" OK\r\n\r\n",
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000,
    "header without an end": b"HTTP/1.1 200 OK\r\nA: " + b"x" * MIB,
    "length of 9,999 digits": b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 9_999 + b"\r\n\r\n",
    "body that ends early": b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n{",
}


HEADER = b'"header":{"cluster_id":"1","member_id":"2"}'
ETCD: Mapping[str, bytes] = {
    "deep arrays": http(b"[" * 200_000),
    "deep objects": http(b'{"a":' * 50_000),
    "many items": http(b"[" + b"0," * 120_000 + b"0]"),
    "many objects": http(b"[" + b"{}," * 80_000 + b"{}]"),
    "text of 16 MiB": http(b'"' + b"x" * 16 * MIB + b'"'),
    "compressed zeros": http(gzip.compress(bytes(64 * MIB)), b"Content-Encoding: gzip"),
    "body without an end": b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * MIB,
    "chunks of a byte": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100_000,
    "header without an end": b"HTTP/1.1 200 OK\r\nA: " + b"x" * MIB,
    "many headers": b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000,
    "error of 16 MiB": http(b"x" * 16 * MIB, status=b"500 Oops"),
    "deep error": http(b'{"error":' * 20_000, status=b"400 Bad Request"),
    "infinite numbers": http(
        b'{%s,"version":"3.6.0","raftTerm":1e999,"members":[{"ID":1e999,"peerURLs":[]}]}' % HEADER
    ),
    "number of 100,000 digits": http(b'{"header":{"cluster_id":"%s","member_id":"2"}}' % (b"1" * 100_000)),
    "long version": http(b'{%s,"version":"%s"}' % (HEADER, b"3" * 200_000)),
    "many members": http(b'{%s,"members":[%s]}' % (HEADER, b",".join([b'{"ID":1,"peerURLs":[]}'] * 7_000))),
    "metrics without an end": http(b"etcd_server_proposals_applied_total 1\n" * 100_000),
    "infinite metrics": http(
        b'etcd_server_id{server_id="a"} 1\netcd_server_proposals_applied_total 1e999\n'
        b"etcd_debugging_mvcc_current_revision 1e999\n"
    ),
    "token of 200 KB": http(b'{"token":"%s"}' % (b"x" * 200_000)),
}

ENDLESS = {
    *("body without an end", "line without an end", "string of 64 MiB", "string that announces 2 GiB"),
    *("long answers", "many answers of many items"),
}
"""Replies that are repeated 64 times."""

Requests = Callable[[int], AsyncIterator[Awaitable[object]]]
SERVERS: Mapping[str, tuple[Requests, type[Exception], Mapping[str, bytes]]] = {
    "memcached": (of_memcached, MemcachedError, MEMCACHED),
    "sidecar of memcached": (of_a_sidecar, MemcachedError, SIDECAR),
    "redis": (of_redis, RedisError, REDIS),
    "etcd": (of_etcd, EtcdError, ETCD),
}
CASES = [
    pytest.param(operator, name, id=f"{operator}, {name}")
    for operator, (_, _, replies) in SERVERS.items()
    for name in replies
]


CLIENTS = {"memcached/client/server", "memcached/client/attestation", "redis/client/connection", "etcd/client/http"}
"""Modules that open connections to servers, of which each is attacked."""

_OPENS = re.compile(r"open_connection\(|create_connection\(|[^n_]Connection\(|TCPConnector\(")


def test_every_client_of_servers_is_attacked() -> None:
    clients = {path for path in (REPOSITORY / "operators").glob("*/client/*.py") if _OPENS.search(path.read_text())}
    assert {str(path.relative_to(REPOSITORY / "operators").with_suffix("")) for path in clients} == CLIENTS
    assert len(SERVERS) == len(CLIENTS)


@pytest.mark.parametrize(("operator", "name"), CASES)
async def test_hostile_reply_is_an_error_of_the_server_and_costs_little(operator: str, name: str) -> None:
    requests, kind, replies = SERVERS[operator]
    errors: list[str] = []
    with answering(replies[name], 64 if name in ENDLESS else 1) as port:
        async with cost.bounded():
            try:
                async for request in requests(port):
                    try:
                        await request
                    except kind as error:
                        errors.append(str(error))
            except kind as error:
                errors.append(str(error))
        await asyncio.sleep(0.01)  # closed connections end the server's thread, which is joined without the event loop
    assert errors
    assert all(len(error) <= 1_000 for error in errors)


SERVERS_AT_ONCE, PODS = 60, 300


def knowing(line: bytes, count: int = 1_999, same: int = 0) -> Callable[[int], bytes]:
    """Return the replies of servers of which each knows a number of others, and some that all of them know."""

    def reply(number: int) -> bytes:
        others = [*range(same), *range(10_000 * (number + 1), 10_000 * (number + 1) + count)]
        me = ME.replace(b"a" * 40, b"f%039x" % number)
        return complete(nodes=me + b"\n" + b"".join(line % other for other in others))

    return reply


def opened(number: int) -> bytes:
    return complete(nodes=ME.replace(b"a" * 40, b"f%039x" % number) + b" [%d->-a]" * 16_384 % (*range(16_384),))


def complete(rest: bytes = REST, settings: bytes = b"", nodes: bytes = ME + b"\n") -> bytes:
    """Return the whole reply to an inspection."""
    pair = b"*2\r\n" + bulk(b"maxmemory") + bulk(b"0")
    return bulk(INFO) + b":0\r\n" + bulk(STATE) + bulk(nodes) + rest + (settings or pair) + pair * 8


FAILED = b"%040x 10.0.0.1:6379@16379 master,fail - 0 9000 1 connected\n"
PASSWORDS = b"".join(bulk(b"%d" % number) for number in range(15_000))
LARGE: Mapping[str, bytes | Callable[[int], bytes]] = {
    "long answers": bulk(b"x" * 400_000) * 9,
    "long answer of each": report(info=INFO + b"x" * 400_000),
    "answer of many items of each": b"*16000\r\n" + b"+a\r\n" * 16_000,
    "2,000 other nodes of each": knowing(b"%040x 10.0.0.1:6379@16379 master - 0 0 1 connected\n"),
    "2,000 other nodes of each, with slots": knowing(b"%040x 10.0.0.1:6379@16379 master - 0 0 1 connected 16383\n"),
    "2,000 other nodes of each, which failed": knowing(FAILED),
    "600 other nodes of each": knowing(b"%040x 10.0.0.1:6379@16379 master - 0 0 1 connected 16383\n", 600),
    "600 equal nodes and another one of each": knowing(FAILED, 1, 600),
    "16,384 open slots of each": opened,
    "many settings of each": complete(settings=b"*15000\r\n" + PASSWORDS),
    "many passwords of each": complete(REST.replace(b"passwords\r\n*0\r\n", b"passwords\r\n*15000\r\n" + PASSWORDS)),
}


@pytest.mark.parametrize("name", LARGE)
async def test_hostile_replies_of_many_servers_at_once_cost_little(name: str) -> None:
    """The author of a resource chooses the image of all its servers."""
    resource = wished(replicas=SERVERS_AT_ONCE)
    pods = {
        number: {"metadata": {"name": f"demo-{number}", "uid": "u"}, "status": {"podIP": "127.0.0.1"}}
        for number in range(SERVERS_AT_ONCE)
    }
    instances = tuple(Instance(number, f"demo-{number}", pod=Pod.of(pod), pod_obj=pod) for number, pod in pods.items())
    reply = LARGE[name]
    replies = [reply if isinstance(reply, bytes) else reply(number) for number in range(SERVERS_AT_ONCE)]
    with answering(replies.__getitem__, servers=SERVERS_AT_ONCE) as port:

        def connect(endpoint: Node, access: RedisAccess) -> Server:
            return redis.connect(dataclasses.replace(endpoint, port=port), access)

        async with cost.bounded():
            seen = await _inspect_all(connect, resource, Observed(instances=instances))
            await asyncio.sleep(0)
            assert seen.view.settled is not None
        await asyncio.sleep(0.01)
    assert all(instance.report or instance.error for instance in seen.instances)


async def test_nodes_that_do_not_use_tls_cost_little_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", TLS_BUFFER_BYTES)  # as in an operator (`limit_tls_buffers`)
    obj = {"metadata": {"name": "demo-0", "uid": "u"}, "status": {"podIP": "127.0.0.1"}}
    instances = tuple(Instance(number, f"demo-{number}", pod=Pod.of(obj), pod_obj=obj) for number in range(PODS))
    access = RedisAccess(authority=signer("ca").certificate, pair=certificate())
    with answering(b"x" * 1_000_000, servers=PODS) as port:

        def connect(endpoint: Node, _: RedisAccess) -> Server:
            return redis.connect(dataclasses.replace(endpoint, port=port), access)

        async with cost.bounded():
            seen = await _inspect_all(connect, wished(replicas=PODS), Observed(instances=instances))
        await asyncio.sleep(0.01)
    assert all("does not use TLS" in instance.error for instance in seen.instances)


_COUNTED = re.compile(rb"(DBSIZE|MYID|cluster-databases|COUNTKEYSINSLOT)\r\n")


def without_slots(servers: int, databases: bytes, count: bytes) -> contextlib.AbstractContextManager[int]:
    """Serve nodes that own no slot, and count keys; the context is the port."""
    replies = {b"DBSIZE": complete(), b"MYID": bulk(b"a" * 40), b"cluster-databases": databases}

    def respond(connection: socket.socket) -> None:
        rest = b""
        while received := connection.recv(8_192):
            found = [*_COUNTED.finditer(rest := rest + received)]
            connection.sendall(b"".join(replies.get(each[1], count) for each in found))
            rest = rest[found[-1].end() :] if found else rest

    return serving(respond, servers)


UNOWNED: Mapping[str, tuple[int, bytes, bytes]] = {
    "no keys": (SERVERS_AT_ONCE, b"*0\r\n", b":0\r\n"),
    "keys of each slot": (SERVERS_AT_ONCE, b"*0\r\n", b":9000000000\r\n"),
    "many databases": (1, b"*2\r\n" + bulk(b"cluster-databases") + bulk(b"60"), b":0\r\n"),
}


@pytest.mark.parametrize("name", UNOWNED)
async def test_counting_the_keys_of_unowned_slots_costs_little(name: str) -> None:
    """Users may let all nodes give up their slots (CLUSTER DELSLOTSRANGE), and choose their image."""
    servers, databases, count = UNOWNED[name]
    resource = RedisCluster.parse({**wished(replicas=SERVERS_AT_ONCE).obj, "status": {"formed": True}})
    obj = {"metadata": {"name": "demo-0", "uid": "u"}, "status": {"podIP": "127.0.0.1"}}
    instances = tuple(Instance(number, f"demo-{number}", pod=Pod.of(obj), pod_obj=obj) for number in range(servers))
    with without_slots(servers, databases, count) as port:

        def connect(endpoint: Node, access: RedisAccess) -> Server:
            return redis.connect(dataclasses.replace(endpoint, port=port), access)

        async with cost.bounded():
            seen = await _inspect_all(connect, resource, Observed(instances=instances))
        await asyncio.sleep(0.01)
    errors = [each.error for each in seen.instances if not each.report]
    assert bool(errors) == (name != "no keys"), errors


STATISTICS = b"".join(b"STAT %d %s\r\n" % (number, b"x" * 30) for number in range(9_999))
MANY: Mapping[str, tuple[bytes, Pair | None]] = {
    "line without an end": (b"VERSION " + b"x" * 60_000, None),
    "long line": (b"x" * 1_000_000, None),
    "statistics": (b"VERSION 1\r\n" + STATISTICS, None),
    "no TLS": (b"x" * 1_000_000, certificate()),
}


@pytest.mark.parametrize("inspect_server", [inspect_response, inspect_certificate])
@pytest.mark.parametrize("name", MANY)
async def test_hostile_replies_of_many_memcached_servers_at_once_cost_little(
    name: str,
    inspect_server: Callable[[MemcachedAccess, str], Awaitable[object]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", TLS_BUFFER_BYTES)  # as in an operator (`limit_tls_buffers`)
    reply, pair = MANY[name]
    pods = [Pod.of({"metadata": {"name": f"cache-{number}"}}) for number in range(PODS)]
    with answering(reply, servers=PODS) as port:
        access = MemcachedAccess(memcached.connect, {"127.0.0.1": port}, Secrets(pair=pair))
        async with cost.bounded():
            found = await _inspect_memcached(pods, lambda _: inspect_server(access, "127.0.0.1"))
        await asyncio.sleep(0.01)
    assert len(found) == PODS


METRICS = (
    b'etcd_server_id{server_id="a"} 1\netcd_server_proposals_applied_total 1\netcd_debugging_mvcc_current_revision 1\n'
)
NINE: Mapping[str, bytes] = {
    "metrics without an end": http(b"etcd_server_proposals_applied_total 1\n" * 100_000),
    "long metrics": http(METRICS + b"# a comment\n" * 160_000),
}


@pytest.mark.parametrize("name", NINE)
async def test_hostile_metrics_of_nine_members_at_once_cost_little(name: str) -> None:
    with answering(NINE[name], servers=9) as port:
        members = [Voter(number, f"demo-{number}") for number in range(9)]
        servers: dict[int, EtcdServer] = {
            each.number: gateway.Gateway(Member(each.name, "127.0.0.1", "demo.test", port, port), EtcdAccess())
            for each in members
        }
        async with cost.bounded():
            seen = await _query_without_quorum(EtcdObserved(instances=tuple(members)), servers)
        for server in servers.values():
            await server.aclose()
        await asyncio.sleep(0.01)
    assert len(seen.instances) == 9
