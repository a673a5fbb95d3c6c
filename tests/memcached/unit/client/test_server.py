"""Client of memcached's protocol, and its errors for unexpected responses."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from operators.memcached.client import server as database
from operators.memcached.client.errors import (
    AuthenticationFailed,
    Busy,
    CertificatesRefused,
    MemcachedError,
    TimedOut,
    TLSFailed,
    UnexpectedAnswer,
    Unreachable,
)
from operators.memcached.client.server import Section, Server
from tests.memcached.unit.client.fake import CLOSE, NO_REPLY, Answer, Fake, fake
from tests.support.tls import Authority

STATS = b"STAT pid 1\r\nSTAT version 1.6.38\r\nSTAT domain_socket \r\nSTAT inter 0.0.0.0, ::\r\nEND\r\n"
REQUIRES_AUTH: dict[str, Answer] = {
    "version": b"CLIENT_ERROR unauthenticated\r\n",
    "set auth 0 0 10": b"",
    "alice open": b"STORED\r\n",
    "alice nope": b"CLIENT_ERROR authentication failure\r\n",
}


@asynccontextmanager
async def connection(to: Fake, timeout: float = 5.0) -> AsyncIterator[Server]:  # noqa: ASYNC109
    server = await database.connect("127.0.0.1", to.port, timeout=timeout)
    try:
        yield server
    finally:
        await server.aclose()


async def test_statistics_are_read_by_name() -> None:
    async with fake({"stats": STATS, "stats settings": b"END\r\n"}) as to, connection(to) as server:
        assert await server.version() == "1.6.38"
        assert await server.stats() == {
            "pid": "1",
            "version": "1.6.38",
            "domain_socket": "",
            "inter": "0.0.0.0, ::",
        }
        assert await server.stats("settings") == {}
        assert server.certificate == b""
        assert to.connections == 1


async def test_response_is_read_in_pieces() -> None:
    pieces: list[bytes] = [STATS[at : at + 7] for at in range(0, len(STATS), 7)]
    async with fake({"stats": pieces}) as to, connection(to) as server:
        assert len(await server.stats()) == 4
        assert await server.version() == "1.6.38"


async def test_large_response_is_read_completely() -> None:
    lines = b"".join(b"STAT items:%d:number %d\r\n" % (number, number) for number in range(9_000))
    async with fake({"stats items": lines + b"END\r\n"}) as to, connection(to) as server:
        assert len(await server.stats("items")) == 9_000


@pytest.mark.parametrize(("section", "lines"), [("", database.MAX_GENERAL_LINES), ("items", database.MAX_LINES)])
async def test_endless_response_is_not_read_forever(section: Section, lines: int) -> None:
    command = f"stats {section}".rstrip()
    async with fake({command: b"STAT a 1\r\n" * (lines + 1)}) as to, connection(to) as server:
        with pytest.raises(UnexpectedAnswer, match=f"more than {lines} lines"):
            await server.stats(section)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (b"SERVER_ERROR out of memory\r\n", UnexpectedAnswer, "returned 'SERVER_ERROR out of memory' for 'stats'"),
        (b"STAT a 1\r\nNONSENSE\r\n", UnexpectedAnswer, "'NONSENSE'"),
        (b"\xff\xfe\r\n", UnexpectedAnswer, r"xff"),
        (b"x" * 5000 + b"\r\n", UnexpectedAnswer, "x{200}…'"),
        (b"x" * 70_000, UnexpectedAnswer, "a line of over 65536 bytes for 'stats'"),
        (b"ERROR Too many open connections\r\n", Busy, "reached its connection limit"),
        (CLOSE, Unreachable, "no response to 'stats', and the server closed the connection: it stopped"),
        ([b"STAT a 1\r\nSTA", b""], TimedOut, "no response to 'stats' within 0.2 s"),
        (NO_REPLY, TimedOut, "no response to 'stats' within 0.2 s"),
    ],
    ids=["server error", "word", "bytes", "long", "endless", "limit", "closed", "incomplete", "timeout"],
)
async def test_unexpected_response_is_reported_and_closes_the_connection(
    answer: Answer, error: type[MemcachedError], message: str
) -> None:
    async with fake({"stats": answer}) as to, connection(to, timeout=0.2) as server:
        with pytest.raises(error, match=message) as error_info:
            await server.stats()
        assert str(error_info.value).startswith(f"127.0.0.1:{to.port}")
        assert type(error_info.value) is error
        assert getattr(error_info.value, "is_accepted", True)
        with pytest.raises(Unreachable):  # the rest of the response is not read as the next one
            await server.version()


async def test_cancelled_request_closes_the_connection() -> None:
    async with fake({"stats": NO_REPLY}) as to, connection(to) as server:
        pending = asyncio.create_task(server.stats())
        await asyncio.sleep(0.05)
        pending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pending
        with pytest.raises(Unreachable):
            await server.version()


async def test_credentials_are_sent_to_a_server_that_requires_them() -> None:
    async with fake(REQUIRES_AUTH) as to:
        server = await database.connect("127.0.0.1", to.port, auth=("alice", "open"))
        await server.aclose()
        assert to.received == ["version", "set auth 0 0 10", "alice open"]


async def test_credentials_are_not_sent_to_a_server_without_authentication() -> None:
    async with fake() as to:
        server = await database.connect("127.0.0.1", to.port, auth=("alice", "open"))
        await server.aclose()
        assert to.received == ["version"]


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (("alice", "nope"), "rejects the user and password"),
        (None, "requires authentication: provide a user and a password"),
        (("alice", "two words"), "contains whitespace"),
        (("alice", "a\r\nflush_all"), "contains whitespace"),
        (("", "open"), "is empty"),
    ],
)
async def test_authentication_error_contains_no_credentials(auth: tuple[str, str] | None, message: str) -> None:
    async with fake(REQUIRES_AUTH) as to:
        with pytest.raises(AuthenticationFailed, match=message) as error_info:
            await database.connect("127.0.0.1", to.port, auth=auth)
        assert not any(secret and secret in str(error_info.value) for secret in auth or ())
        assert to.received[1:] in ([], ["set auth 0 0 10", "alice nope"])


async def test_password_in_a_response_does_not_appear_in_an_error() -> None:
    async with fake({**REQUIRES_AUTH, "alice open": b"EH? alice open\r\n"}) as to:
        with pytest.raises(UnexpectedAnswer) as error_info:
            await database.connect("127.0.0.1", to.port, auth=("alice", "open"))
        assert "alice" not in str(error_info.value)


async def test_failed_certificate_reload_is_reported_and_can_be_retried() -> None:
    why = b"Error loading the key: /tls/tls.key : key values mismatch\r\n"
    async with fake({"refresh_certs": why}) as to, connection(to) as server:
        with pytest.raises(CertificatesRefused, match="key values mismatch"):
            await server.refresh_certs()
        to.answers["refresh_certs"] = b"OK\r\n"
        await server.refresh_certs()
        to.answers["refresh_certs"] = b"ERROR\r\n"
        with pytest.raises(UnexpectedAnswer, match="'ERROR' for 'refresh_certs'"):
            await server.refresh_certs()
        assert to.connections == 1


async def test_refused_connection_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(Unreachable, match="refuses connections: no process listens"):
            await database.connect("127.0.0.1", taken.getsockname()[1])


async def test_unknown_host_is_reported() -> None:
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid:11211: unknown host"):
        await database.connect("no-such-host.invalid", 11211)


async def test_other_program_is_not_mistaken_for_memcached() -> None:
    async with fake({"version": b"-ERR unknown command 'version'\r\n"}) as to:
        with pytest.raises(UnexpectedAnswer, match=r"for 'version': it may not be memcached"):
            await database.connect("127.0.0.1", to.port)


class Certificates:
    """A CA that server and clients trust, certificates that it signed, and a foreign CA."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.foreign = Authority(directory, "foreign")
        self.server = self.authority.issue("server", "memcached.test", "127.0.0.1")
        self.client = self.authority.issue("client")

    def serving(self, *, client_certificate_required: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.server)
        if client_certificate_required:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.authority.certificate)
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


async def test_tls_connection_has_the_certificate_of_the_server(certificates: Certificates) -> None:
    async with fake(tls=certificates.serving(client_certificate_required=True)) as to:
        trust = certificates.authority.trust(certificates.client)
        server = await database.connect("127.0.0.1", to.port, tls=trust, server_name="memcached.test")
        assert await server.version() == "1.6.38"
        assert server.certificate == ssl.PEM_cert_to_DER_cert(certificates.server[0].read_text())
        await server.aclose()


async def test_certificate_of_a_server_that_responds_to_no_command_is_read(certificates: Certificates) -> None:
    async with fake({"version": NO_REPLY}, tls=certificates.serving(client_certificate_required=True)) as to:
        trust = certificates.authority.trust(certificates.client)
        server = await database.connect(
            "127.0.0.1", to.port, tls=trust, server_name="memcached.test", handshake_only=True
        )
        assert server.certificate == ssl.PEM_cert_to_DER_cert(certificates.server[0].read_text())
        await server.aclose()
        assert to.received == []


@contextmanager
def rejecting_server(serving: ssl.SSLContext) -> Iterator[int]:
    """Run a server that sends a TLS alert and keeps the connection open until the client read it, like memcached."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            client, _ = listening.accept()
            with serving.wrap_socket(client, server_side=True, do_handshake_on_connect=False) as connection:
                with suppress(ssl.SSLError):
                    connection.do_handshake()
                with suppress(ConnectionError):
                    while socket.socket.recv(connection, 4096):  # unread data would reset the connection
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_error_states_the_cause(certificates: Certificates, version: ssl.TLSVersion) -> None:
    async def tls_error(
        trust: ssl.SSLContext, name: str = "127.0.0.1", *, client_certificate_required: bool = False
    ) -> str:
        trust.maximum_version = version
        with (
            rejecting_server(certificates.serving(client_certificate_required=client_certificate_required)) as port,
            pytest.raises(TLSFailed) as error,
        ):
            await database.connect("127.0.0.1", port, tls=trust, server_name=name)
        return str(error.value)

    trust = certificates.authority.trust
    assert "is not trusted: unable to get local issuer certificate." in await tls_error(certificates.foreign.trust())
    assert "certificate is not valid for 'other.test'" in await tls_error(trust(), "other.test")
    foreign = trust(certificates.foreign.issue("intruder"))
    assert "does not trust the client certificate" in await tls_error(foreign, client_certificate_required=True)
    expired = trust(certificates.authority.issue("late", days=-1))
    assert "the client certificate has expired" in await tls_error(expired, client_certificate_required=True)
    why = await tls_error(trust(), client_certificate_required=True)
    assert "requires a client certificate" in why


async def test_missing_client_certificate_is_reported(certificates: Certificates) -> None:
    async with fake(tls=certificates.serving(client_certificate_required=True)) as to:
        with pytest.raises(TLSFailed, match="certificate"):
            await database.connect("127.0.0.1", to.port, tls=certificates.authority.trust())


async def test_tls_to_a_server_without_tls_is_reported(certificates: Certificates) -> None:
    async with fake() as to:
        with pytest.raises((TLSFailed, TimedOut), match="TLS"):
            await database.connect("127.0.0.1", to.port, tls=certificates.authority.trust(), timeout=0.3)


async def test_plain_connection_to_a_server_with_tls_is_reported(certificates: Certificates) -> None:
    async with fake(tls=certificates.serving()) as to:
        with pytest.raises(MemcachedError, match="TLS"):
            await database.connect("127.0.0.1", to.port, timeout=0.3)


async def test_ipv6_address_is_written_in_brackets() -> None:
    with pytest.raises(Unreachable, match=r"^\[::1\]:1 "):
        await database.connect("::1", 1)
