"""memcached servers with authentication."""

from __future__ import annotations

import pytest
from pymemcache.exceptions import MemcacheClientError

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, users
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import condition, conditions, uids

pytestmark = pytest.mark.nightly

LOGIN = ("app", "first-secret")
COMMANDS = (
    """
get key|gets key|gat 0 key|gats 0 key|mg key v|ms key 1|md key|ma key|me key|mn
add key 0 0 1|replace key 0 0 1|append key 0 0 1|prepend key 0 0 1|cas key 0 0 1 1|delete key|incr key 1|decr key 1
touch key 0|flush_all|stats|stats items|stats settings|version|verbosity 1|cache_memlimit 32|slabs reassign 1 2
slabs automove 1|lru_crawler enable|lru tune 10 25 0.1 2|watch|refresh_certs|shutdown|extstore free_memchunks 1 1
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
"""All commands of the protocol except `set`, with which clients log in, and `quit`."""


def access(kubectl: Kubectl, login: tuple[str, str] | None = LOGIN) -> Access:
    return Access(login=login, names=Names(kubectl))


def reply(access: Access, server: str, *lines: str) -> str:
    """Send lines on one connection and return the response to the last one."""
    with access.connection(server) as connection:
        response = b""
        for line in lines:
            connection.sendall(f"{line}\r\n".encode())
            response = connection.recv(4096)
    return response.decode().strip()


def test_access_without_the_password_is_rejected(kubectl: Kubectl) -> None:
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=2, auth={"secretName": "users"})
    cache.await_ready(2)
    assert cache.serves() == 2
    anonymous = access(kubectl, None)
    for server in cache.servers:
        with access(kubectl).client(server) as client:
            client.set("key", "value")
        for command in COMMANDS:
            answers = ["CLIENT_ERROR unauthenticated", *([""] if command == "mn" else [])]  # 1.6.45 closes at mn
            assert reply(anonymous, server, command) in answers, command
        wrong = "set login 0 0 9\r\napp wrong"
        assert reply(anonymous, server, wrong) == "CLIENT_ERROR authentication failure"
        assert reply(anonymous, server, wrong, "version") == "CLIENT_ERROR unauthenticated"
        assert reply(anonymous, server, "\x80\x0b" + "\0" * 22) == "CLIENT_ERROR unauthenticated", "binary protocol"
        with access(kubectl).client(server) as client:
            assert client.get("key") == b"value"


def test_missing_secret_is_named_until_it_exists(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=1, auth={"secretName": "users"})

    def secret_is_reported_missing() -> bool:
        ready = condition(cache.now, "Ready")
        assert ready["reason"] == "SecretMissing", ready
        return "users" in ready["message"]

    until("the condition Ready names the missing Secret", secret_is_reported_missing)
    assert not kubectl.items("pods"), "no server starts without the users"
    kubectl.apply(users("users", LOGIN))
    cache.await_ready(1)
    assert cache.serves() == 1
    kubectl("delete", "secret", "users")
    cache.touch()
    until("the condition Ready names the deleted Secret", secret_is_reported_missing)
    assert cache.serves() == 1, "the servers continue to run"


def test_new_password_reaches_every_server_and_the_old_one_is_revoked(kubectl: Kubectl) -> None:
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=2, auth={"secretName": "users"})
    cache.await_ready(2)
    servers = uids(kubectl)
    first = until("the servers attest the users that they loaded", lambda: cache.now["status"].get("users"))
    second = ("app", "second-secret")
    for server in cache.servers:
        with access(kubectl).client(server) as client:
            client.set("kept", "value")

    kubectl.apply(users("users", LOGIN, second))
    cache.touch()
    until("all servers accept both passwords", lambda: cache.now["status"]["users"] != first)
    assert cache.serves() == 2
    cache.access = access(kubectl, second)
    assert cache.serves() == 2

    def rejects_the_old_password(server: str) -> bool:
        try:
            with access(kubectl).client(server):
                return False
        except MemcacheClientError:
            return True

    kubectl.apply(users("users", second))
    cache.touch()
    until("all servers accept only the new password", lambda: all(map(rejects_the_old_password, cache.servers)))
    assert cache.serves() == 2
    assert uids(kubectl) == servers, "no server is replaced"
    for server in cache.servers:
        with access(kubectl, second).client(server) as client:
            assert client.get("kept") == b"value", "and no item is lost"
        with pytest.raises(MemcacheClientError, match="authentication failure"), access(kubectl).client(server):
            pass


def test_clients_get_port_and_password_of_what_runs(kubectl: Kubectl) -> None:
    """A server without authentication would store the password that a client sends, as an item for everyone."""
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl, None), size=2)
    cache.await_ready(2)

    def connection_has_a_password() -> bool:
        data = kubectl.get("secret", "cache-connection")["data"]
        pods = kubectl.items("pods")
        requiring = [any(volume["name"] == "auth" for volume in pod["spec"].get("volumes", ())) for pod in pods]
        assert all(requiring) or not data.get("password"), "a password is published that a server does not require"
        return len(pods) == 2 and bool(data.get("password"))

    with cache.planned(containerPort=11311, auth={"secretName": "users"}):
        until("the connection Secret has the password", connection_has_a_password, seconds=90)
        cache.await_ready(2)
    assert {server.rpartition(":")[2] for server in cache.servers} == {"11311"}
    cache.access = access(kubectl)
    assert cache.serves() == 2


def test_invalid_users_file_locks_no_client_out(kubectl: Kubectl) -> None:
    kubectl.apply(users("users", LOGIN))
    cache = Memcached.create(kubectl, "cache", access(kubectl), size=1, auth={"secretName": "users"})
    cache.await_ready(1)
    kubectl.apply(users("users"))
    until("the condition Ready names the Secret", lambda: condition(cache.now, "Ready")["reason"] == "SecretMissing")
    assert cache.serves() == 1
    before = uids(kubectl)
    kubectl("delete", "pod", "cache-0")

    def another_server_is_ready() -> bool:
        pods = kubectl.items("pods")
        is_new = len(pods) == 1 and pods[0]["metadata"]["uid"] not in before
        return is_new and conditions(pods[0]).get("Ready") == "True"

    until("another server is ready", another_server_is_ready, seconds=150)
    until("its name has the new address, and it has the former users", lambda: cache.serves() == 1)
