"""memcached servers with TLS and client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, tls_client, tls_secret
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import uids
from tools.local.pki import Authority, Pair

pytestmark = pytest.mark.nightly

Trusting = Callable[..., Access]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def untrusted(tmp_path: Path) -> Pair:
    """Return a client certificate of an unknown CA."""
    return Authority(tmp_path / "untrusted").issue("client", "client")


@pytest.fixture
def trusting(kubectl: Kubectl, authority: Authority) -> Trusting:
    """Factory of settings for clients that trust the CA, optionally with a client certificate."""

    def make(own: Pair | None = None, *, checks_names: bool = True) -> Access:
        return Access(tls=tls_client(authority, own, checks_names=checks_names), names=Names(kubectl))

    return make


def issue(authority: Authority, kubectl: Kubectl, file: str = "server") -> Pair:
    """Issue a certificate for the stable names of the servers of `cache`."""
    service = f"cache.{kubectl.namespace}.svc"
    return authority.issue(file, "cache", hosts=[service, f"*.{service}", f"*.{service}.cluster.local"])


def rejects(access: Access, server: str) -> bool:
    """Return whether a server rejects a client.

    In TLS 1.3 the handshake succeeds for a client without the required certificate; the server rejects it afterwards.
    """
    try:
        with access.connection(server) as connection:
            connection.sendall(b"version\r\n")
            return not connection.recv(100).startswith(b"VERSION")
    except (ssl.SSLError, ConnectionError):
        return True


def served_certificate(access: Access, server: str) -> bytes:
    """Return the certificate of a server."""
    with access.connection(server) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        return connection.getpeercert(binary_form=True) or b""


def test_plain_text_clients_are_rejected(kubectl: Kubectl, authority: Authority, trusting: Trusting) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    tls = {"secretName": "certificate"}
    cache = Memcached.create(kubectl, "cache", trusting(), size=2, tls=tls)
    cache.await_ready(2)
    assert cache.serves() == 2
    for server in cache.servers:
        assert rejects(Access(names=Names(kubectl)), server)
        assert not rejects(trusting(), server)


def test_clients_without_a_trusted_certificate_are_rejected(
    kubectl: Kubectl, authority: Authority, untrusted: Pair, trusting: Trusting
) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    own = authority.issue("client", "client")
    right = trusting(own, checks_names=False)
    tls = {"secretName": "certificate", "clientAuth": "required"}
    cache = Memcached.create(kubectl, "cache", right, size=2, tls=tls)
    cache.await_ready(2)
    assert cache.serves() == 2
    for server in cache.servers:
        assert rejects(trusting(checks_names=False), server), "no certificate"
        assert rejects(trusting(untrusted, checks_names=False), server), "certificate of an unknown CA"
        assert rejects(Access(names=Names(kubectl)), server), "no TLS"
        assert not rejects(right, server)


def test_renewed_certificate_is_served_without_losing_items(
    kubectl: Kubectl, authority: Authority, trusting: Trusting
) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    tls = {"secretName": "certificate"}
    cache = Memcached.create(kubectl, "cache", trusting(), size=1, tls=tls)
    cache.await_ready(1)
    [server], pods = cache.servers, uids(kubectl)
    before = served_certificate(cache.access, server)
    with cache.access.client(server) as client:
        client.set("kept", "yes")
        kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl, "renewed")))
        cache.touch()
        until(
            "the server presents the renewed certificate",
            lambda: served_certificate(cache.access, server) != before,
            seconds=180,
        )
        assert client.get("kept") == b"yes", "open connections are kept"
    with cache.access.client(server) as client:
        assert client.get("kept") == b"yes"
    assert uids(kubectl) == pods
