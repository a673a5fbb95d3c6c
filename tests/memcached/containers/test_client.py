"""Client of memcached's protocol against real memcached servers."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from pymemcache.client.base import Client

from operators.memcached.client import errors
from operators.memcached.client import server as database
from operators.memcached.client.errors import AuthenticationFailed, Busy, CertificatesRefused, TLSFailed, Unreachable
from operators.memcached.client.server import Server
from tests.support.containers.servers import FILES, Memcached, Servers
from tests.support.tls import Authority

pytestmark = pytest.mark.nightly

NAME = "memcached.test"
TLS = ("--enable-ssl", f"--extended=ssl_chain_cert={FILES}/server.crt,ssl_key={FILES}/server.key")
CLIENTS = f"--extended=ssl_ca_cert={FILES}/authority.crt,ssl_verify_mode=2"


@asynccontextmanager
async def connected(
    to: Memcached, *, tls: ssl.SSLContext | None = None, name: str = NAME, auth: tuple[str, str] | None = None
) -> AsyncIterator[Server]:
    server = await database.connect(to.host, to.port, tls=tls, server_name=name, auth=auth)
    try:
        yield server
    finally:
        await server.aclose()


async def refused(to: Memcached, tls: ssl.SSLContext | None = None, auth: tuple[str, str] | None = None) -> Exception:
    with pytest.raises(errors.MemcachedError) as error:
        async with connected(to, tls=tls, auth=auth):
            pass
    return error.value


@pytest.mark.commit
async def test_version_and_statistics_of_a_plain_server_are_read(servers: Servers, version: str) -> None:
    with servers.memcached(version, "--memory-limit=32") as to:
        Client((to.host, to.port)).set("key", "value", noreply=False)
        async with connected(to) as server:
            assert await server.version() == version
            assert (await server.stats())["curr_items"] == "1"
            assert (await server.stats("settings"))["maxbytes"] == str(32 * 2**20)
            assert (await server.stats("slabs"))["1:used_chunks"] == "1"
            assert (await server.stats("items"))["items:1:number"] == "1"
            assert server.certificate == b""
            with pytest.raises(CertificatesRefused, match="TLS not enabled"):
                await server.refresh_certs()
            assert await server.version() == version


async def test_stopped_server_is_reported_as_unreachable(servers: Servers, version: str) -> None:
    with servers.memcached(version) as to:
        async with connected(to) as server:
            to.stop()
            with pytest.raises(Unreachable, match="it stopped"):
                await server.stats()
        assert "no process listens on this port" in str(await refused(to))


async def test_connection_limit_is_reported(servers: Servers, version: str) -> None:
    with servers.memcached(version, "--conn-limit=32", "--threads=1") as to:
        idle = []
        for _ in range(40):  # one after the other: 1.6.45 counts one that it rejects until that is closed
            reader, writer = await asyncio.open_connection(to.host, to.port)
            idle.append(writer)
            writer.write(b"version\r\n")
            with suppress(ConnectionError):
                await reader.readline()  # a response, or the error of a rejected connection
        # The connection may be closed before the error is read.
        assert isinstance(await refused(to), Busy | Unreachable)
        for writer in idle:
            writer.close()


async def test_only_known_users_are_accepted(servers: Servers, version: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("alice:open sesame\nalice:open\nbob:a:b\n")
    with servers.memcached(version, f"--auth-file={FILES}/users", files=tmp_path) as to:
        for auth in (("alice", "open"), ("bob", "a:b")):
            async with connected(to, auth=auth) as server:
                assert (await server.stats())["curr_items"] == "0"  # the password is not stored as an item
        for foreign in (("alice", "other"), ("alice", "open sesame"), None):
            why = await refused(to, auth=foreign)
            assert isinstance(why, AuthenticationFailed)
            assert "sesame" not in str(why)


async def test_password_is_not_stored_by_a_server_without_authentication(servers: Servers, version: str) -> None:
    with servers.memcached(version) as to:
        async with connected(to, auth=("alice", "open")) as server:
            assert (await server.stats())["total_items"] == "0"


@pytest.mark.commit
async def test_server_reloads_users_on_sighup(servers: Servers, version: str, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.write_text("alice:one\n")
    with servers.memcached(version, f"--auth-file={FILES}/users", files=tmp_path) as to:
        async with connected(to, auth=("alice", "one")) as before:
            users.write_text("alice:two\n")
            to.signal(signal.SIGHUP)
            await asyncio.sleep(1.5)  # memcached checks once a second
            assert isinstance(await refused(to, auth=("alice", "one")), AuthenticationFailed)
            async with connected(to, auth=("alice", "two")):
                assert await before.version() == version


async def test_tls_verifies_authority_and_name(servers: Servers, version: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, _ = authority.issue("server", NAME)
    with servers.memcached(version, *TLS, files=tmp_path) as to:
        async with connected(to, tls=authority.trust()) as server:
            assert await server.version() == version
            assert server.certificate == ssl.PEM_cert_to_DER_cert(certificate.read_text())
        assert "is not trusted: unable to get" in str(await refused(to, other.trust()))
        with pytest.raises(TLSFailed, match=r"not valid for 'elsewhere\.test'"):
            await database.connect(to.host, to.port, tls=authority.trust(), server_name="elsewhere.test")
        assert "expects TLS" in str(await refused(to))


async def test_tls_to_a_plain_server_is_reported(servers: Servers, version: str, tmp_path: Path) -> None:
    with servers.memcached(version) as to:
        assert "does not use TLS" in str(await refused(to, Authority(tmp_path).trust()))


async def test_required_client_certificate_is_enforced(servers: Servers, version: str, tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(tmp_path, "foreign")
    authority.issue("server", NAME)
    with servers.memcached(version, *TLS, CLIENTS, files=tmp_path) as to:
        async with connected(to, tls=authority.trust(authority.issue("client"))) as server:
            assert await server.version() == version
        for trust in (
            authority.trust(),
            authority.trust(foreign.issue("intruder")),
            authority.trust(authority.issue("late", days=-1)),
        ):
            why = await refused(to, trust)
            assert isinstance(why, TLSFailed)
            assert "certificate" in str(why)


async def test_certificate_renewal_loses_no_items(servers: Servers, version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", NAME)
    trust = authority.trust()
    with servers.memcached(version, *TLS, files=tmp_path) as to:
        shown = Client((to.host, to.port), tls_context=_without_names(authority))
        for number in range(500):
            shown.set(f"key{number}", str(number))
        async with connected(to, tls=trust) as before:
            certificate, _ = authority.issue("server", NAME)
            renewed = ssl.PEM_cert_to_DER_cert(certificate.read_text())
            async with connected(to, tls=trust) as unchanged:
                assert unchanged.certificate == before.certificate != renewed
            await before.refresh_certs()
            async with connected(to, tls=trust) as after:
                assert after.certificate == renewed
                assert int((await after.stats())["time_since_server_cert_refresh"]) <= 2
            assert await before.version() == version  # open connections stay
        keys = [f"key{number}" for number in range(500)]
        assert shown.get_many(keys) == {f"key{number}": str(number).encode() for number in range(500)}


async def test_refresh_adds_a_client_authority_and_never_drops_one(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    """The reason why a changed ca.crt replaces servers: only a new process stops trusting the former authority."""
    authority, following = Authority(tmp_path), Authority(tmp_path, "following")
    authority.issue("server", NAME)
    former = authority.trust(authority.issue("client"))
    later = authority.trust(following.issue("later"))
    with servers.memcached(version, *TLS, CLIENTS, files=tmp_path) as to:
        assert isinstance(await refused(to, later), TLSFailed)
        authority.certificate.write_text(following.certificate.read_text())
        async with connected(to, tls=former) as server:
            await server.refresh_certs()
        async with connected(to, tls=later), connected(to, tls=former) as still:
            assert await still.version() == version


async def test_invalid_certificate_is_reported_and_the_old_one_stays(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, _ = authority.issue("server", NAME)
    with servers.memcached(version, *TLS, files=tmp_path) as to:
        certificate.write_text("no certificate")
        async with connected(to, tls=authority.trust()) as server:
            with pytest.raises(CertificatesRefused, match="certificate chain"):
                await server.refresh_certs()
        async with connected(to, tls=authority.trust()) as again:
            assert again.certificate == server.certificate


async def test_key_mismatch_is_reported_and_repaired_over_the_same_connection(
    servers: Servers, version: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    _, key = authority.issue("server", NAME)
    with servers.memcached(version, *TLS, files=tmp_path) as to:
        async with connected(to, tls=authority.trust()) as server:
            fitting = key.read_text()
            authority.issue("server", NAME)
            renewed = key.read_text()
            key.write_text(fitting)
            with pytest.raises(CertificatesRefused, match="key"):
                await server.refresh_certs()
            assert isinstance(await refused(to, authority.trust()), TLSFailed)  # the server rejects new clients
            key.write_text(renewed)
            await server.refresh_certs()
            async with connected(to, tls=authority.trust()) as again:
                assert again.certificate != server.certificate


@pytest.mark.commit
async def test_tls_and_users_work_together(servers: Servers, version: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server", NAME)
    (tmp_path / "users").write_text("alice:open\n")
    with servers.memcached(version, *TLS, f"--auth-file={FILES}/users", files=tmp_path) as to:
        async with connected(to, tls=authority.trust(), auth=("alice", "open")) as server:
            await server.refresh_certs()
        assert isinstance(await refused(to, authority.trust()), AuthenticationFailed)


def _without_names(authority: Authority) -> ssl.SSLContext:
    """Return a context without host name checks, for a client that uses the IP address as the name."""
    context = authority.trust()
    context.check_hostname = False
    return context
