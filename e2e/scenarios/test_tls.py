"""Servers that speak TLS, and ask clients for certificates if they shall."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cluster.pki import Authority, Pair
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, tls_client, tls_secret
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import uids

Trusting = Callable[..., Access]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def stranger(tmp_path: Path) -> Pair:
    """A client's certificate by another authority."""
    return Authority(tmp_path / "stranger").issue("client", "client")


@pytest.fixture
def trusting(kubectl: Kubectl, authority: Authority) -> Trusting:
    """What clients bring that trust the authority: their own certificate, if any."""

    def make(own: Pair | None = None, *, checks_names: bool = True) -> Access:
        return Access(tls=tls_client(authority, own, checks_names=checks_names), names=Names(kubectl))

    return make


def issue(authority: Authority, kubectl: Kubectl, file: str = "server") -> Pair:
    """A certificate for the servers of `cache` by their stable names."""
    service = f"cache.{kubectl.namespace}.svc"
    return authority.issue(file, "cache", hosts=[service, f"*.{service}", f"*.{service}.cluster.local"])


def refuses(access: Access, server: str) -> bool:
    """Whether a server refuses a client.

    Under TLS 1.3 a handshake without the certificate that is asked for looks well to the client; the refusal comes with
    the first answer.
    """
    try:
        with access.connection(server) as connection:
            connection.sendall(b"version\r\n")
            return not connection.recv(100).startswith(b"VERSION")
    except (ssl.SSLError, ConnectionError):
        return True


def shown(access: Access, server: str) -> bytes:
    """The certificate that a server shows."""
    with access.connection(server) as connection:
        assert isinstance(connection, ssl.SSLSocket)
        return connection.getpeercert(binary_form=True) or b""


def test_plain_clients_are_refused_and_others_served_by_name(
    kubectl: Kubectl, authority: Authority, trusting: Trusting
) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    tls = {"secretName": "certificate"}
    cache = Memcached.create(kubectl, "cache", trusting(), size=2, workload="StatefulSet", tls=tls)
    cache.await_ready(2)
    assert cache.serves() == 2
    for server in cache.servers:
        assert refuses(Access(names=Names(kubectl)), server)
        assert not refuses(trusting(), server)


def test_clients_without_the_right_certificate_are_refused(
    kubectl: Kubectl, authority: Authority, stranger: Pair, trusting: Trusting
) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    own = authority.issue("client", "client")
    right = trusting(own, checks_names=False)
    tls = {"secretName": "certificate", "clientAuth": "required"}
    cache = Memcached.create(kubectl, "cache", right, size=2, tls=tls)
    cache.await_ready(2)
    assert cache.serves() == 2
    for server in cache.servers:
        assert refuses(trusting(checks_names=False), server), "no certificate"
        assert refuses(trusting(stranger, checks_names=False), server), "another authority's"
        assert refuses(Access(names=Names(kubectl)), server), "no TLS"
        assert not refuses(right, server)


def test_a_renewed_certificate_is_shown_and_no_item_is_lost(
    kubectl: Kubectl, authority: Authority, trusting: Trusting
) -> None:
    kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl)))
    tls = {"secretName": "certificate"}
    cache = Memcached.create(kubectl, "cache", trusting(), size=1, workload="StatefulSet", tls=tls)
    cache.await_ready(1)
    [server], pods = cache.servers, uids(kubectl)
    before = shown(cache.access, server)
    with cache.access.client(server) as client:
        client.set("kept", "yes")
        kubectl.apply(tls_secret("certificate", authority, issue(authority, kubectl, "renewed")))
        cache.touch()
        until("the renewed certificate is shown", lambda: shown(cache.access, server) != before, seconds=180)
        assert client.get("kept") == b"yes", "a connection that was open stays"
    with cache.access.client(server) as client:
        assert client.get("kept") == b"yes"
    assert uids(kubectl) == pods
