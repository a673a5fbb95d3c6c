"""Servers that ask who is there."""

from __future__ import annotations

import pytest
from pymemcache.exceptions import MemcacheClientError

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, users
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import condition, uids

LOGIN = ("app", "first-secret")
COMMANDS = (
    """
get who|gets who|gat 0 who|gats 0 who|mg who v|ms who 1|md who|ma who|me who|mn
add who 0 0 1|replace who 0 0 1|append who 0 0 1|prepend who 0 0 1|cas who 0 0 1 1|delete who|incr who 1|decr who 1
touch who 0|flush_all|stats|stats items|stats settings|version|verbosity 1|cache_memlimit 32|slabs reassign 1 2
slabs automove 1|lru_crawler enable|lru tune 10 25 0.1 2|watch|refresh_certs|shutdown|extstore free_memchunks 1 1
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
"""Every command of the protocol but `set`, by which one logs in, and `quit`."""


def access(kubectl: Kubectl, login: tuple[str, str] | None = LOGIN) -> Access:
    return Access(login=login, names=Names(kubectl))


def answer(access: Access, server: str, *lines: str) -> str:
    """The last line that a server answers on one connection to these lines."""
    with access.connection(server) as connection:
        answered = b""
        for line in lines:
            connection.sendall(f"{line}\r\n".encode())
            answered = connection.recv(4096)
    return answered.decode().strip()


def test_nobody_gets_in_without_the_password(kubectl: Kubectl) -> None:
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=2, auth={"secretName": "users"})
    cache.await_ready(2)
    assert cache.serves() == 2
    anybody = access(kubectl, None)
    for server in cache.servers:
        for command in COMMANDS:
            assert answer(anybody, server, command) == "CLIENT_ERROR unauthenticated", command
        wrong = "set login 0 0 9\r\napp wrong"
        assert answer(anybody, server, wrong) == "CLIENT_ERROR authentication failure"
        assert answer(anybody, server, wrong, "version") == "CLIENT_ERROR unauthenticated"
        assert answer(anybody, server, "\x80\x0b" + "\0" * 22) == "CLIENT_ERROR unauthenticated", "binary protocol"
        with access(kubectl).client(server) as client:
            assert client.get("who") is not None


def test_a_secret_that_is_missing_is_named_and_looked_for(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=1, auth={"secretName": "users"})

    def told() -> bool:
        ready = condition(cache.now, "Ready")
        assert ready["reason"] == "SecretMissing", ready
        return "users" in ready["message"]

    until("the condition names the Secret", told)
    assert not kubectl.items("pods"), "no server without its users"
    kubectl.apply(users("users", LOGIN))
    cache.await_ready(1)
    assert cache.serves() == 1
    kubectl("delete", "secret", "users")
    cache.touch()
    until("the loss is told", told)
    assert cache.serves() == 1, "the servers run on"


def test_a_new_password_reaches_every_server_and_the_old_one_ends(kubectl: Kubectl) -> None:
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=2, auth={"secretName": "users"})
    cache.await_ready(2)
    old = uids(kubectl)
    second = ("app", "second-secret")

    kubectl.apply(users("users", LOGIN, second))
    cache.touch()
    until("servers that know both", lambda: old.isdisjoint(uids(kubectl)))
    cache.await_ready(2)
    both = uids(kubectl)
    assert cache.serves() == 2
    cache.access = access(kubectl, second)
    assert cache.serves() == 2

    kubectl.apply(users("users", second))
    cache.touch()
    until("servers that know the new one", lambda: both.isdisjoint(uids(kubectl)))
    cache.await_ready(2)
    assert cache.serves() == 2
    for server in cache.servers:
        with pytest.raises(MemcacheClientError, match="authentication failure"), access(kubectl).client(server):
            pass
