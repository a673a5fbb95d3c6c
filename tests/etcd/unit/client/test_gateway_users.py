"""Authentication of the client with users and tokens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operators.etcd.client import gateway
from operators.etcd.client.errors import Denied, NoLeader, Refused, Unauthenticated
from operators.etcd.client.gateway import Tokens, connect
from operators.etcd.client.server import Access, Endpoint
from tests.etcd.unit.client.gateway_stub import (
    HEADER,
    ROOT,
    STATUS,
    closing_connection,
    fake,
    issuing_tokens,
    raw,
    refusing,
    requiring_token,
)


async def test_password_is_sent_only_to_a_server_that_requires_authentication() -> None:
    async with (
        fake(maintenance_status=requiring_token(STATUS, {"token.1"}), auth_authenticate=issuing_tokens()) as stub,
        stub.connected() as server,
    ):
        await server.status()
        assert [(path, token) for path, _, token in stub.requests] == [
            ("maintenance/status", ""),
            ("auth/authenticate", ""),
            ("maintenance/status", "token.1"),
        ]
        assert stub.bodies("auth/authenticate") == [{"name": "root", "password": "secret"}]
        async with stub.connected() as another:  # connections share tokens
            await another.status()
        assert len(stub.bodies("auth/authenticate")) == 1


async def test_invalid_token_is_replaced_once_per_request() -> None:
    valid = {"token.1"}
    async with (
        fake(maintenance_status=requiring_token(STATUS, valid), auth_authenticate=issuing_tokens()) as stub,
        stub.connected() as server,
    ):
        await server.status()
        valid.clear()
        valid.add("token.2")
        await server.status()
        valid.clear()
        with pytest.raises(Unauthenticated, match="invalid auth token"):
            await server.status()
        assert len(stub.bodies("auth/authenticate")) == 3


async def test_concurrent_requests_share_a_token() -> None:
    valid = {"token.1"}
    async with (
        fake(
            maintenance_status=requiring_token(STATUS, valid),
            auth_authenticate=issuing_tokens(tokens=("token.1", "token.2")),
        ) as stub,
        stub.connected() as server,
        stub.connected() as another,
    ):
        await server.status()
        valid.add("token.2")
        valid.remove("token.1")
        await server.status()
        gateway._tokens.put(server._key, "token.1")  # type: ignore[attr-defined]  # token of an earlier request
        task = asyncio.create_task(another.status())
        await asyncio.sleep(0)
        gateway._tokens.put(server._key, "token.2")  # type: ignore[attr-defined]
        await task
        assert len(stub.bodies("auth/authenticate")) == 2


async def test_wrong_password_is_denied_and_not_disclosed() -> None:
    async with (
        fake(
            maintenance_status=requiring_token(STATUS, {"token.1"}), auth_authenticate=issuing_tokens("another")
        ) as stub,
        stub.connected() as server,
    ):
        for request in (server.status, server.authenticate):
            with pytest.raises(Denied, match="authentication failed") as raised:
                await request()
            assert type(raised.value) is Denied
            assert "secret" not in str(raised.value)
        assert "secret" not in repr(ROOT)


async def test_missing_credentials_are_reported() -> None:
    async with (
        fake(maintenance_status=requiring_token(STATUS, {"token.1"})) as stub,
        stub.connected(Access()) as server,
    ):
        with pytest.raises(Unauthenticated, match="requires a user and a password, and none are configured"):
            await server.status()


async def test_authentication_without_a_quorum_raises_no_leader() -> None:
    async with (
        fake(maintenance_status=requiring_token(STATUS, {"token.1"}), auth_authenticate=closing_connection) as stub,
        stub.connected() as server,
    ):
        with pytest.raises(NoLeader, match="cannot issue a token for root: it has no quorum"):
            await server.status()


async def test_learner_refuses_an_old_token_until_a_voter_issues_a_new_one() -> None:
    refusal = refusing("etcdserver: rpc not supported for learner")
    async with (
        fake(maintenance_status=requiring_token(STATUS, {"token.1"}), auth_authenticate=issuing_tokens()) as voter,
        fake(maintenance_status=requiring_token(STATUS, {"token.2"}), auth_authenticate=refusal) as learner,
        voter.connected() as server,
    ):
        learner_endpoint = Endpoint(
            "demo-1", "127.0.0.1", voter.endpoint().host.replace("demo-0.", "demo-1."), learner.port
        )
        other = connect(learner_endpoint, ROOT)
        other._key = server._key  # type: ignore[attr-defined]  # pods use the same port
        await server.status()
        with pytest.raises(Refused, match="it is a learner"):
            await other.status()
        voter.replies["maintenance/status"] = requiring_token(STATUS, {"token.1", "token.2"})
        await server.status()
        await other.status()
        await other.aclose()


async def test_enabling_authentication_completes_after_a_crash() -> None:
    role_exists = refusing("etcdserver: role name already exists")
    user_missing = refusing("etcdserver: user name not found")
    successful = {path: {"header": HEADER} for path in ("auth_user_add", "auth_user_grant", "auth_enable")}
    for delete, role in ((user_missing, {}), ({}, role_exists)):
        async with fake(auth_user_delete=delete, auth_role_add=role, **successful) as stub, stub.connected() as server:
            await server.enable_auth("root", "secret")
            assert [(path, body) for path, body, _ in stub.requests] == [
                ("auth/user/delete", {"name": "root"}),
                ("auth/role/add", {"name": "root"}),
                ("auth/user/add", {"name": "root", "password": "secret"}),
                ("auth/user/grant", {"user": "root", "role": "root"}),
                ("auth/enable", {}),
            ]
    failing = {**successful, "auth_user_grant": refusing("etcdserver: user name not found")}
    async with fake(auth_user_delete={}, auth_role_add={}, **failing) as stub, stub.connected() as server:
        with pytest.raises(Refused, match="user name not found"):
            await server.enable_auth("root", "secret")
        assert stub.bodies("auth/enable") == []


async def test_user_for_applications_gets_a_role_on_all_keys() -> None:
    paths = ("auth_user_delete", "auth_role_add", "auth_role_grant", "auth_user_add", "auth_user_grant")
    async with fake(**{path: {"header": HEADER} for path in paths}) as stub, stub.connected() as server:
        await server.replace_user("client", "secret", "keys")
        assert [(path, body) for path, body, _ in stub.requests] == [
            ("auth/user/delete", {"name": "client"}),
            ("auth/role/add", {"name": "keys"}),
            (
                "auth/role/grant",
                {"name": "keys", "perm": {"permType": "READWRITE", "key": "AA==", "range_end": "AA=="}},
            ),
            ("auth/user/add", {"name": "client", "password": "secret"}),
            ("auth/user/grant", {"user": "client", "role": "keys"}),
        ]


@pytest.mark.parametrize(
    ("reply", "roles"),
    [
        ({"header": HEADER, "roles": ["keys", "root"]}, ("keys", "root")),
        ({"header": HEADER}, ()),
        (refusing("etcdserver: user name not found"), None),
    ],
)
async def test_roles_of_a_user_are_read(reply: Any, roles: tuple[str, ...] | None) -> None:
    async with fake(auth_user_get=reply) as stub, stub.connected() as server:
        assert await server.roles("client") == roles
        assert stub.bodies("auth/user/get") == [{"name": "client"}]


@pytest.mark.parametrize(
    ("replies", "enabled"),
    [
        ({"kv_range": {"header": HEADER}}, False),
        ({"kv_range": requiring_token({"header": HEADER}, {"token.1"})}, True),
        ({"kv_range": refusing("etcdserver: user name is empty", 3)}, True),  # 3.4
        ({"kv_range": refusing("etcdserver: permission denied", 7, 403)}, True),
        ({"kv_range": raw(b"CommonName of client sending a request will be ignored", status=400)}, True),
    ],
)
async def test_enabled_authentication_is_detected_without_a_proposal(replies: dict[str, Any], enabled: bool) -> None:
    """J7: auth/status goes through Raft's log: a write to every member for each observation, which needs a quorum."""
    async with fake(**replies, auth_authenticate=issuing_tokens()) as stub, stub.connected() as server:
        assert await server.auth_enabled() is enabled
        [(path, body, token)] = stub.requests
        assert (path, body["serializable"], token) == ("kv/range", True, "")


def test_least_recently_used_token_is_evicted() -> None:
    tokens = Tokens(most=2)
    keys = [("demo.test", 2379, "root", str(number)) for number in range(3)]
    tokens.put(keys[0], "zero")
    tokens.put(keys[1], "one")
    assert tokens.get(keys[0]) == "zero"
    tokens.put(keys[2], "two")
    assert [tokens.get(key) for key in keys] == ["zero", "", "two"]
    tokens.put(keys[0], "")
    assert tokens.get(keys[0]) == ""
