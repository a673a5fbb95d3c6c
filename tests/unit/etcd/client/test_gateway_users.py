"""How a member of etcd that asks for users is told who we are."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operators.etcd.client import gateway
from operators.etcd.client.errors import Denied, NoLeader, Refused, Unauthenticated
from operators.etcd.client.gateway import Tokens, connect
from operators.etcd.client.server import Access, Endpoint
from tests.unit.etcd.client.gateway_stub import (
    HEADER,
    ROOT,
    STATUS,
    asking,
    fake,
    hanging_up,
    letting_in,
    raw,
    refusing,
)


async def test_who_we_are_is_told_only_to_a_server_that_asks() -> None:
    async with (
        fake(maintenance_status=asking(STATUS, {"token.1"}), auth_authenticate=letting_in()) as to,
        to.connected() as server,
    ):
        await server.status()
        assert [(path, token) for path, _, token in to.asked] == [
            ("maintenance/status", ""),
            ("auth/authenticate", ""),
            ("maintenance/status", "token.1"),
        ]
        assert to.bodies("auth/authenticate") == [{"name": "root", "password": "secret"}]
        async with to.connected() as another:  # a token outlives the connections
            await another.status()
        assert len(to.bodies("auth/authenticate")) == 1


async def test_a_token_that_is_not_valid_any_more_is_replaced_once() -> None:
    valid = {"token.1"}
    async with (
        fake(maintenance_status=asking(STATUS, valid), auth_authenticate=letting_in()) as to,
        to.connected() as server,
    ):
        await server.status()
        valid.clear()
        valid.add("token.2")
        await server.status()
        valid.clear()
        with pytest.raises(Unauthenticated, match="invalid auth token"):
            await server.status()
        assert len(to.bodies("auth/authenticate")) == 3


async def test_questions_at_once_share_a_token() -> None:
    valid = {"token.1"}
    async with (
        fake(
            maintenance_status=asking(STATUS, valid), auth_authenticate=letting_in(tokens=("token.1", "token.2"))
        ) as to,
        to.connected() as server,
        to.connected() as another,
    ):
        await server.status()
        valid.add("token.2")
        valid.remove("token.1")
        await server.status()
        gateway._tokens.put(server._key, "token.1")  # type: ignore[attr-defined]  # as one that asked before has it
        task = asyncio.create_task(another.status())
        await asyncio.sleep(0)
        gateway._tokens.put(server._key, "token.2")  # type: ignore[attr-defined]
        await task
        assert len(to.bodies("auth/authenticate")) == 2


async def test_a_wrong_password_is_denied_and_appears_nowhere() -> None:
    async with (
        fake(maintenance_status=asking(STATUS, {"token.1"}), auth_authenticate=letting_in("another")) as to,
        to.connected() as server,
    ):
        for ask in (server.status, server.authenticate):
            with pytest.raises(Denied, match="authentication failed") as told:
                await ask()
            assert type(told.value) is Denied
            assert "secret" not in str(told.value)
        assert "secret" not in repr(ROOT)


async def test_without_a_user_it_is_said_that_one_is_asked_for() -> None:
    async with (
        fake(maintenance_status=asking(STATUS, {"token.1"})) as to,
        to.connected(Access()) as server,
    ):
        with pytest.raises(Unauthenticated, match="requires a user and a password, and none are configured"):
            await server.status()


async def test_where_only_a_quorum_could_let_us_in_there_is_no_leader() -> None:
    async with (
        fake(maintenance_status=asking(STATUS, {"token.1"}), auth_authenticate=hanging_up) as to,
        to.connected() as server,
    ):
        with pytest.raises(NoLeader, match="cannot issue a token for root: it has no quorum"):
            await server.status()


async def test_a_learner_gives_no_token_and_its_refusal_makes_the_others_give_a_new_one() -> None:
    refusal = refusing("etcdserver: rpc not supported for learner")
    async with (
        fake(maintenance_status=asking(STATUS, {"token.1"}), auth_authenticate=letting_in()) as voter,
        fake(maintenance_status=asking(STATUS, {"token.2"}), auth_authenticate=refusal) as learner,
        voter.connected() as server,
    ):
        beside = Endpoint("demo-1", "127.0.0.1", voter.endpoint().host.replace("demo-0.", "demo-1."), learner.port)
        other = connect(beside, ROOT)
        other._key = server._key  # type: ignore[attr-defined]  # in pods, ports are the same
        await server.status()
        with pytest.raises(Refused, match="it is a learner"):
            await other.status()
        voter.replies["maintenance/status"] = asking(STATUS, {"token.1", "token.2"})
        await server.status()
        await other.status()
        await other.aclose()


async def test_users_are_enabled_whatever_a_crash_left() -> None:
    there = refusing("etcdserver: role name already exists")
    gone = refusing("etcdserver: user name not found")
    done = {path: {"header": HEADER} for path in ("auth_user_add", "auth_user_grant", "auth_enable")}
    for delete, role in ((gone, {}), ({}, there)):
        async with fake(auth_user_delete=delete, auth_role_add=role, **done) as to, to.connected() as server:
            await server.enable_auth("root", "secret")
            assert [(path, body) for path, body, _ in to.asked] == [
                ("auth/user/delete", {"name": "root"}),
                ("auth/role/add", {"name": "root"}),
                ("auth/user/add", {"name": "root", "password": "secret"}),
                ("auth/user/grant", {"user": "root", "role": "root"}),
                ("auth/enable", {}),
            ]
    failing = {**done, "auth_user_grant": refusing("etcdserver: user name not found")}
    async with fake(auth_user_delete={}, auth_role_add={}, **failing) as to, to.connected() as server:
        with pytest.raises(Refused, match="user name not found"):
            await server.enable_auth("root", "secret")
        assert to.bodies("auth/enable") == []


@pytest.mark.parametrize(
    ("replies", "enabled"),
    [
        ({"auth_status": {"header": HEADER, "enabled": True}}, True),
        ({"auth_status": {"header": HEADER, "authRevision": "1"}}, False),
        ({"auth_status": refusing("etcdserver: permission denied", 7, 403)}, True),
        ({"auth_status": raw(b"CommonName of client sending a request will be ignored", status=400)}, True),
        ({"auth_authenticate": refusing("etcdserver: authentication is not enabled")}, False),  # 3.4
        ({"auth_authenticate": refusing("etcdserver: authentication failed, invalid user ID or password", 3)}, True),
    ],
)
async def test_whether_users_are_asked_for_is_found_out(replies: dict[str, Any], enabled: bool) -> None:
    async with fake(**replies) as to, to.connected() as server:
        assert await server.auth_enabled() is enabled
        assert not any("secret" in str(body) for _, body, _ in to.asked)


def test_tokens_that_are_not_used_are_forgotten() -> None:
    tokens = Tokens(most=2)
    keys = [("demo.test", 2379, "root", str(number)) for number in range(3)]
    tokens.put(keys[0], "zero")
    tokens.put(keys[1], "one")
    assert tokens.get(keys[0]) == "zero"
    tokens.put(keys[2], "two")
    assert [tokens.get(key) for key in keys] == ["zero", "", "two"]
    tokens.put(keys[0], "")
    assert tokens.get(keys[0]) == ""
