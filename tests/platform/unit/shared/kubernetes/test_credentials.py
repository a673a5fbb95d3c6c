"""Credentials that change under a running client: CA, client certificate and token."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.kubernetes import credentials
from shared.kubernetes.client import Request
from shared.kubernetes.credentials import (
    MAX_AGE_SECONDS,
    MAX_UNTRUSTED_SECONDS,
    MIN_AGE_SECONDS,
    Configuration,
    load_configuration,
)
from shared.kubernetes.errors import Forbidden, KubeError, Unavailable
from shared.kubernetes.transport import HttpTransport, Transports, open_session
from shared.pki import ca, certs
from shared.pki.certs import Pair

BEGINS = datetime.now(UTC)
ENDS = BEGINS + timedelta(days=1)


def authority() -> Pair:
    return ca.authority("ca", begins=BEGINS, ends=ENDS)


class ApiServer:
    """An API server over TLS, whose certificate, authority and accepted credentials change.

    Attributes:
        context: serving context of the next handshake.
        accepted: token or common name of the client certificate that requests need; empty for none.
        keeps_connections: whether connections stay open after a request.
        seen: token or common name of each request.
    """

    url = ""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.accepted = ""
        self.keeps_connections = False
        self.seen = list[str]()
        self.front = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.front.sni_callback = self._choose
        self.rotate()

    def rotate(self) -> None:
        """Serve with a certificate of a new authority."""
        self.authority = authority()
        pair = ca.issue(self.authority, "localhost", begins=BEGINS, ends=ENDS, hosts=["localhost"])
        self.context = certs.server_context(pair)
        for context in (self.front, self.context):
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(cadata=self.authority.certificate)

    def _choose(self, connection: ssl.SSLObject, _name: str, _front: ssl.SSLContext) -> None:
        connection.context = self.context

    def publish_authority(self) -> None:
        (self.directory / "ca.crt").write_text(self.authority.certificate)

    def issue_client(self, name: str) -> None:
        """Write a client certificate, signed by the authority."""
        pair = ca.issue(self.authority, name, begins=BEGINS, ends=ENDS, client=True)
        (self.directory / "client.crt").write_text(pair.certificate)
        (self.directory / "client.key").write_text(pair.key)

    async def handle(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        name = "".join(value for part in peer.get("subject", ()) for _, value in part)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ").removeprefix("bearer ")
        self.seen.append(token or name)
        status = 401 if self.accepted and self.seen[-1] != self.accepted else 200
        answer = web.Response(text="{}\n", content_type="application/json", status=status)
        if not self.keeps_connections:
            answer.force_close()
        return answer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiServer]:
    server = ApiServer(tmp_path)
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.handle)
    running = TestServer(application, scheme="https", host="localhost")
    await running.start_server(ssl=server.front)
    server.url = f"https://localhost:{running.port}"
    server.publish_authority()
    yield server
    await running.close()


def kubeconfig(server: ApiServer, **user: str) -> Path:
    path = server.directory / "kubeconfig"
    cluster = {"server": server.url, "certificate-authority": str(server.directory / "ca.crt")}
    content = {
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": user}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path.write_text(yaml.safe_dump(content))
    return path


def in_pod(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the process believe that it runs in a pod with a service account."""
    host, port = server.url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", server.directory)


async def status(transport: HttpTransport) -> int:
    return (await transport.request(Request("GET", "/"))).status


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def test_changed_ca_is_used_by_the_next_connection(server: ApiServer) -> None:
    configuration = await load_configuration(str(kubeconfig(server)))
    transport = HttpTransport(configuration)
    server.keeps_connections = True
    assert await status(transport) == 200
    server.rotate()
    server.keeps_connections = False
    assert await status(transport) == 200, "an open connection stays in use"
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await status(transport)
    server.publish_authority()
    assert await status(transport) == 200
    await transport.close()


async def test_changed_ca_is_used_by_watches(server: ApiServer) -> None:
    configuration = await load_configuration(str(kubeconfig(server)))
    async with open_session(configuration) as session:
        server.rotate()
        server.publish_authority()
        async with session.get(server.url) as answer:
            assert answer.status == 200


async def test_former_ca_is_not_trusted_any_more(server: ApiServer) -> None:
    configuration = await load_configuration(str(kubeconfig(server)))
    transport = HttpTransport(configuration)
    server.directory.joinpath("ca.crt").write_text(authority().certificate)
    with pytest.raises(Unavailable, match="certificate verify failed"):
        await status(transport)
    await transport.close()


async def test_incomplete_ca_is_not_loaded(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    configuration = await load_configuration(str(kubeconfig(server)))
    transport = HttpTransport(configuration)
    for content in ("", server.authority.certificate[:100]):
        (server.directory / "ca.crt").write_text(content)
        assert await status(transport) == 200
    (server.directory / "ca.crt").unlink()
    assert await status(transport) == 200
    assert "the previous one stays in use" in caplog.text
    await transport.close()


async def test_missing_ca_at_the_start_is_an_error(server: ApiServer) -> None:
    path = kubeconfig(server)
    (server.directory / "ca.crt").unlink()
    with pytest.raises(KubeError, match=r"ca\.crt"):
        await load_configuration(str(path))


async def test_changed_client_certificate_is_used_after_a_rejection(server: ApiServer) -> None:
    """The API server checks the certificate of a connection on each request, so open connections cannot be reused."""
    server.keeps_connections = True
    server.issue_client("first")
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    user = {key: str(server.directory / name) for key, name in files.items()}
    configuration = await load_configuration(str(kubeconfig(server, **user)))
    transport = HttpTransport(configuration)
    server.accepted = "first"
    assert await status(transport) == 200
    server.issue_client("second")
    server.accepted = "second"
    assert await status(transport) == 200
    assert server.seen == ["first", "first", "second"]
    await transport.close()


async def test_each_transport_uses_a_changed_client_certificate(server: ApiServer) -> None:
    """The first one loads the files; the connections of the others have the former certificate, too."""
    server.keeps_connections = True
    server.issue_client("first")
    files = {"client-certificate": "client.crt", "client-key": "client.key"}
    user = {key: str(server.directory / name) for key, name in files.items()}
    configuration = await load_configuration(str(kubeconfig(server, **user)))
    server.accepted = "first"
    async with Transports.open(configuration) as transports:
        for transport in (transports.work, transports.lease):
            assert (await transport.request(Request("GET", "/"))).status == 200
        async with transports.watches.stream(Request("GET", "/"), accept="text/x") as lines:
            assert [line async for line in lines] == [b"{}"]
        server.issue_client("second")
        server.accepted = "second"
        for transport in (transports.work, transports.lease):
            assert (await transport.request(Request("GET", "/"))).status == 200
        with pytest.raises(Forbidden):
            async with transports.watches.stream(Request("GET", "/"), accept="text/x"):
                pass
        async with transports.watches.stream(Request("GET", "/"), accept="text/x"):
            assert server.seen[-1] == "second"


@pytest.mark.parametrize("replaced", [False, True])
async def test_changed_token_of_a_service_account_is_used_at_once(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    token = server.directory / "token"
    token.write_text("first")
    in_pod(server, monkeypatch)
    configuration = await load_configuration("")
    configuration._clock = lambda: configuration._age_limit - 1.0  # time does not pass
    transport = HttpTransport(configuration)
    server.accepted = "first"
    assert await status(transport) == 200
    if replaced:  # as the kubelet does
        (server.directory / "new").write_text("second")
        (server.directory / "new").rename(token)
    else:
        token.write_text("second")
    server.accepted = "second"
    assert await status(transport) == 200
    assert server.seen == ["first", "second"]
    await transport.close()


async def test_service_account_of_a_pod_takes_precedence_over_the_variable_but_not_over_the_flag(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (server.directory / "token").write_text("of the pod")
    in_pod(server, monkeypatch)
    path = kubeconfig(server, token="of the file")
    monkeypatch.setenv("KUBECONFIG", str(path))
    for given in ("", str(path)):
        transport = HttpTransport(await load_configuration(given))
        assert await status(transport) == 200
        await transport.close()
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    transport = HttpTransport(await load_configuration(""))
    assert await status(transport) == 200
    await transport.close()
    assert server.seen == ["of the pod", "of the file", "of the file"]


async def test_missing_token_file_leaves_the_present_token_in_use(
    server: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    token = server.directory / "token"
    token.write_text("first")
    in_pod(server, monkeypatch)
    transport = HttpTransport(await load_configuration(""))
    for damage in (lambda: token.write_text(""), token.unlink):
        damage()
        assert await status(transport) == 200
    assert server.seen == ["first", "first"]
    assert "the present ones stay in use" in caplog.text
    await transport.close()


async def test_rejected_token_is_read_again_and_the_request_repeated_once(server: ApiServer) -> None:
    """The file of the token is named in the kubeconfig, which does not change."""
    token = server.directory / "token"
    token.write_text("first")
    transport = HttpTransport(await load_configuration(str(kubeconfig(server, tokenFile=str(token)))))
    server.accepted = "first"
    assert await status(transport) == 200
    token.write_text("second")
    server.accepted = "second"
    assert await status(transport) == 200
    assert server.seen == ["first", "first", "second"]
    server.accepted = "third"
    assert await status(transport) == 401
    assert len(server.seen) <= 5
    await transport.close()


async def test_changed_kubeconfig_is_read_again(server: ApiServer) -> None:
    path = kubeconfig(server, token="first")
    transport = HttpTransport(await load_configuration(str(path)))
    assert await status(transport) == 200
    kubeconfig(server, token="second, and longer")
    assert await status(transport) == 200
    assert server.seen == ["first", "second, and longer"]
    path.write_text("users: [")
    transport._configuration._pause_until = 0.0
    assert await status(transport) == 200, "an incomplete kubeconfig is not used"
    await transport.close()


async def test_credentials_are_read_again_rarely() -> None:
    clock, count = Clock(), 0

    async def read(_: Configuration) -> None:
        nonlocal count
        count += 1

    configuration = Configuration(read=read, clock=clock)
    assert not await configuration.refresh()
    assert await configuration.refresh(rejected=True)
    assert not await configuration.refresh(rejected=True), "not more often than each second"
    clock.now += MIN_AGE_SECONDS
    assert not await configuration.refresh()
    clock.now += MAX_AGE_SECONDS
    assert await configuration.refresh()
    assert count == 2


# Liveness.


async def test_tls_errors_that_last_fail_liveness(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    configuration = await load_configuration(str(kubeconfig(server)))
    configuration._clock = clock = Clock()
    transport = HttpTransport(configuration)
    assert await status(transport) == 200
    server.rotate()
    for _ in range(3):
        with pytest.raises(Unavailable):
            await status(transport)
        assert configuration.untrusted() is None
        clock.now += MAX_UNTRUSTED_SECONDS / 3
    assert (configuration.untrusted() or "").startswith("TLS connections to the API server have failed for 120 s: ")
    assert "certificate verify failed" in (configuration.untrusted() or "")
    server.publish_authority()
    assert await status(transport) == 200
    assert configuration.untrusted() is None
    await transport.close()


async def test_unreachable_api_server_does_not_fail_liveness(tmp_path: Path) -> None:
    configuration = Configuration(host="https://127.0.0.1:1", clock=(clock := Clock()))
    transport = HttpTransport(configuration)
    with pytest.raises(Unavailable):
        await status(transport)
    clock.now += 10 * MAX_UNTRUSTED_SECONDS
    assert configuration.untrusted() is None
    await transport.close()
