"""ACL users of the spec on real servers: what the operator relies on to apply and to prove them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis as Client
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as CutOff

from operators.redis.client.commands import ChangeUser, execute
from operators.redis.client.connection import connect
from operators.redis.client.errors import ConfigRefused
from operators.redis.client.node_inspection import report_of, request_report
from operators.redis.client.responses import AclUser
from operators.redis.client.server import Access, Endpoint
from operators.redis.objects.redis_conf import USERS_KEY
from operators.redis.security.users import Passwords, SpecUser, revision_of
from tests.support.redis.lab import PORT, RealLab
from tools.databases import redis_programs

ENGINES = [
    pytest.param("redis", "7.0", id="redis 7.0"),
    pytest.param("valkey", "9.1", id="valkey 9.1"),
    *(
        pytest.param(engine, version, id=f"{engine} {version}", marks=pytest.mark.nightly)
        for engine, version in (("redis", "8.0"), ("redis", "8.6"), ("valkey", "8.1"))
    ),
]

APP = SpecUser("one", name="app", rules="~app:* &app* +@read +@write -@dangerous")
SUBCOMMANDS = "%R~a:* +@all -config +config|get -flushall -client|kill (~c:* +get +set)"

RULES = (
    APP.rules,
    SUBCOMMANDS,
    "allkeys resetchannels +get +get -get +get",
    "+@all ~* &* nocommands +ping",
    """~"q"\\*'#x* +get""",
    "~app:* &app:* +@read +@write +@connection +cluster|slots +cluster|shards -@dangerous",
    "~app:* +@read +@connection +cluster|slots +cluster|shards +readonly",
)


@pytest.fixture
async def started(engine: str, version: str, tmp_path: Path) -> AsyncIterator[RealLab]:
    lab = RealLab(redis_programs.server(engine, version), tmp_path, "127.84")
    (tmp_path / USERS_KEY).write_text(Passwords("", exporter="reader").text)
    lab.settings = {"include": str(tmp_path / USERS_KEY)}
    await lab.start("node")
    yield lab
    await lab.close()


def file(lab: RealLab) -> Path:
    return Path(lab.settings["include"])


async def apply(lab: RealLab, user: SpecUser) -> None:
    """Apply a user to the server, as the operator does."""
    node_id = await lab.server("node").execute("CLUSTER", "MYID")
    at = Endpoint("node", lab.address("node")[0], "localhost", PORT)
    await execute(connect, ChangeUser(Access(), at, node_id, user.name, user.commands))


async def found(lab: RealLab, name: str = "app") -> dict[str, AclUser]:
    names = (name, revision_of(name))
    return dict(report_of(await request_report(lab.server("node"), (), names), names).users)


def client(lab: RealLab, password: str = "one") -> Any:
    address, port = lab.address("node")
    return Client(host=address, port=port, username="app", password=password)


@pytest.mark.parametrize(("engine", "version"), ENGINES)
async def test_server_proves_each_form_of_rules_live_and_after_a_restart(started: RealLab) -> None:
    lab = started
    for rules in RULES:
        user = replace(APP, rules=rules)
        await apply(lab, user)
        assert user.is_applied(await found(lab), rules), rules
        assert not replace(user, rules="+ping").is_applied(await found(lab), "+ping"), rules
    users = tuple(replace(APP, name=f"app-{number}", rules=rules) for number, rules in enumerate(RULES))
    file(lab).write_text(Passwords("", exporter="reader", users=users).text)
    await lab.stop("node")
    await lab.start("node")
    for user in users:
        assert user.is_applied(await found(lab, user.name), user.rules), user.rules
        _, live = user.commands
        await lab.server("node").execute(*live)  # the form of a rule is the same from the file and from ACL SETUSER
        assert user.is_applied(await found(lab, user.name), user.rules), user.rules


@pytest.mark.parametrize(("engine", "version"), ENGINES)
async def test_server_shows_a_change_by_hand_and_a_user_set_again_is_exactly_that_of_the_spec(started: RealLab) -> None:
    lab, server = started, started.server("node")
    await apply(lab, APP)
    for change in (["+flushall"], ["nopass"], [">other"], ["off"], ["~*"], ["allchannels"], ["reset"], ["(~x +get)"]):
        for name in (APP.name, revision_of(APP.name)):
            await server.execute("ACL", "SETUSER", name, *(change if change != ["off"] or ":" not in name else ["on"]))
            assert not APP.is_applied(await found(lab), APP.rules), (name, change)
            await apply(lab, APP)
            assert APP.is_applied(await found(lab), APP.rules), (name, change)
    await server.execute("ACL", "DELUSER", APP.name)
    assert not APP.is_applied(await found(lab), APP.rules)


@pytest.mark.parametrize(("engine", "version"), ENGINES)
async def test_server_refuses_a_wrong_rule_and_changes_nothing(started: RealLab) -> None:
    lab = started
    await apply(lab, APP)
    before = await found(lab)
    for wrong in ("+nosuch", "~a +@nosuch", "%X~a", "(~a", "nonsense"):
        with pytest.raises(ConfigRefused, match="refuses ACL SETUSER: ERR"):
            await apply(lab, replace(APP, rules=wrong))
        assert await found(lab) == before
    file(lab).write_text(Passwords("", exporter="reader", users=(replace(APP, rules="+nosuch"),)).text)
    await lab.stop("node")
    with pytest.raises(AssertionError, match="nosuch"):  # therefore the file has only rules that servers accepted
        await lab.start("node")
    await lab.ended("node")


@pytest.mark.parametrize(("engine", "version"), ENGINES)
async def test_removed_and_disabled_users_are_disconnected_and_passwords_overlap(started: RealLab) -> None:
    lab, user = started, replace(APP, rules="+ping")
    await apply(lab, user)
    async with client(lab) as connected:
        assert await connected.ping()
        with pytest.raises(NoPermissionError):
            await connected.flushall()
        await apply(lab, user.introduce("two", datetime.max.replace(tzinfo=UTC)))
        assert await connected.ping(), "a change closes no connection"
    for password in ("one", "two"):
        async with client(lab, password) as connected:
            assert await connected.ping()
    for change in (replace(user, enabled=False), replace(user, removed=True)):
        await apply(lab, user)
        async with client(lab) as connected:
            connection = await connected.connection_pool.get_connection()
            await connection.send_command("PING")
            assert await connection.read_response() == b"PONG"
            await apply(lab, change)
            await asyncio.sleep(0.1)
            with pytest.raises(CutOff):
                await connection.read_response()
        with pytest.raises(AuthenticationError):
            await client(lab).ping()
        assert change.is_applied(await found(lab), user.rules)
