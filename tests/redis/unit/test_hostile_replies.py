"""Replies of a server that is not Redis, to each function that reads one: each is an error of the server.

tests/platform/unit/test_hostile_replies.py has the connection and the inspection. A server may be replaced between
that and the next command of a call. A reply may occupy the event loop for at most 100 ms, and need at most 20 MiB
(tests/harness/cost.py).
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.api.engine_versions import Engine
from operators.redis.client import commands, connection, key_counts, node_inspection, responses
from operators.redis.client.command_base import NodeCall
from operators.redis.client.errors import RedisError
from operators.redis.client.handshake import Handshakes
from operators.redis.client.responses import Entries
from operators.redis.client.server import Access, Endpoint
from operators.redis.facts.lifecycles import SlotState
from operators.redis.migration import (
    acknowledgement,
    big_keys,
    claim_renewal,
    coordinator,
    duplicates,
    functions,
    server_side,
    slot_closing,
    target_check,
)
from operators.redis.migration.journal import Journal
from operators.redis.migration.key_by_key import KeyByKeyPath
from operators.redis.migration.participants import End, Limits, SingleConnection
from operators.redis.migration.redis import RedisImport
from operators.redis.migration.server_side import Job, MigrationPath
from operators.redis.migration.throttle import Throttle
from operators.redis.migration.valkey import ValkeyMigrateSlots
from operators.redis.slots.hash_slots import Slots
from operators.redis.slots.slot_planner import Doubt
from tests.harness import cost
from tests.platform.unit.test_hostile_replies import INFO, REDIS, STATE, answering, bulk
from tests.support.paths import REPOSITORY

SOURCE, TARGET = "a" * 40, "b" * 40
SLOT, KEY = 1, b"key"
SLOTS = Slots.of(SLOT)


def end(port: int, node_id: str) -> End:
    """Return an end that was inspected before, with a replica, and whose server has been replaced since."""
    lines = (
        f"{SOURCE} 10.0.0.1:6379@16379 FLAGS{SOURCE} - 0 0 1 connected 0-10",
        f"{TARGET} 10.0.0.2:6379@16379 FLAGS{TARGET} - 0 0 2 connected 20-30",
        f"{'c' * 40} 10.0.0.3:6379@16379 slave {node_id} 0 0 2 connected",
    )
    nodes = "\n".join(lines).replace(f"FLAGS{node_id}", "myself,master")
    report = responses.report_of(
        INFO.decode(),
        0,
        STATE.decode(),
        nodes.replace(f"FLAGS{SOURCE}", "master").replace(f"FLAGS{TARGET}", "master"),
        ["masterauth", ""],
        ["flags", [], "passwords", []],
    )
    at = Endpoint("demo-0", "127.0.0.1", "demo-0.demo", port, node_id)
    server = SingleConnection(connection.connect(at, Access()))
    return End(replace(report, memory=2 * big_keys.BIG_KEY_BYTES), at, server, connection.connect, Access())


@contextlib.asynccontextmanager
async def no_others() -> Any:
    yield ()


def path(source: End, target: End) -> KeyByKeyPath:
    until = asyncio.get_running_loop().time() + 5
    limits = Limits(until, keys=10, promoted=SLOTS, acknowledge=True)
    return KeyByKeyPath(source, target, SLOTS, no_others, Throttle(), limits, 0.1, Journal())


def opened(source: End, target: End) -> KeyByKeyPath:
    """Return a path whose slot is open at both ends."""
    found = path(source, target)
    found.states[SLOT] = SlotState.OPEN
    return found


def inheriting(source: End, target: End) -> KeyByKeyPath:
    """Return a path whose target imports the slot already."""
    report = target.report
    importing = [replace(node, importing={SLOT: SOURCE}) if node.is_me else node for node in report.nodes]
    found = path(source, replace(target, report=replace(report, nodes=tuple(importing))))
    assert found._begun
    return found


def call(of: type[NodeCall], **fields: Any) -> Callable[[End, End], Awaitable[object]]:
    return lambda source, _: of(access=Access(), at=source.endpoint, id=SOURCE, **fields).apply(
        source.server, source.report
    )


async def reconnected(end: End) -> None:
    async with end.reconnected():
        pass


async def handshakes(at: End) -> None:
    to = Endpoint("demo-1", "10.0.0.1", "demo-1.demo", 6379)
    await Handshakes(Access(), to, 16379, SOURCE, frozenset(), {at.endpoint: frozenset()}).verify(at.connect, ())


CANCELLED = Job("job", SOURCE, TARGET, SLOTS, "cancelled", "", ended=True, ended_at=1e12)
ENGINE = Engine.parse("redis 8.0.2")

Read = Callable[[End, End], Awaitable[object]]

READERS: Mapping[str, Read] = {
    "client/commands ApplyDirective.apply": call(commands.ApplyDirective, name="hz", value="10", engine=ENGINE),
    "client/commands ChangeUser.apply": call(commands.ChangeUser, user="app", commands=(("ACL", "DELUSER", "app"),)),
    "client/commands Configure.apply": call(commands.Configure, settings={"hz": "10"}),
    "client/handshake Handshakes._pends": lambda source, _: handshakes(source),
    "client/key_counts count_databases": lambda source, _: key_counts.count_databases(source.server),
    "client/key_counts count_hidden": lambda source, _: key_counts.count_hidden(
        source.server, replace(source.report, version="8.4.0")
    ),
    "client/key_counts count_keys": lambda source, _: key_counts.count_keys(source.server, SLOTS),
    "client/node_inspection request_report": lambda source, _: node_inspection.inspect_node(source.server),
    "migration/acknowledgement await_replica": lambda _, target: acknowledgement.await_replica(target),
    "migration/big_keys _set": lambda source, _: big_keys._set(source.server, {"hz": 1}),
    "migration/big_keys _settings": lambda source, _: big_keys._settings(source, ["hz"]),
    "migration/big_keys sizes": lambda source, _: big_keys.sizes(source, [KEY]),
    "migration/claim_renewal _table": lambda source, _: claim_renewal._table(source),
    "migration/claim_renewal _coverage": lambda _, target: claim_renewal._coverage(target),
    "migration/coordinator _node_timeout": lambda source, _: coordinator._node_timeout(source),
    "migration/duplicates _end_transfers": lambda source, target: duplicates._end_transfers(target.server, source),
    "migration/duplicates _evaluate": lambda source, target: duplicates.resolve(source, target, [KEY], keep=True),
    "migration/duplicates remove_large": lambda source, target: duplicates.remove_large(source, target, KEY),
    "migration/duplicates remove_recorded": lambda source, target: duplicates.remove_recorded(
        source, target, [Doubt.of(SLOT, KEY, "")]
    ),
    "migration/functions give": lambda source, target: functions.give(
        source,
        replace(
            target,
            report=replace(target.report, nodes=tuple(replace(node, slots=Slots()) for node in target.report.nodes)),
        ),
    ),
    "migration/key_by_key KeyByKeyPath._carry": lambda source, target: opened(source, target)._carry(SLOT, KEY, 0.1),
    "migration/key_by_key KeyByKeyPath._confirm": lambda source, target: path(source, target)._confirm(),
    "migration/key_by_key KeyByKeyPath._free": lambda source, target: path(source, target)._free(SLOTS),
    "migration/key_by_key KeyByKeyPath._hand_over": lambda source, target: path(source, target)._hand_over(
        [], acknowledge=True
    ),
    "migration/key_by_key KeyByKeyPath._migrate": lambda source, target: opened(source, target)._empty({SLOT: [KEY]}),
    "migration/key_by_key KeyByKeyPath._open": lambda source, target: path(source, target)._open([SLOT]),
    "migration/key_by_key KeyByKeyPath._send.send": lambda source, target: opened(source, target)._empty({SLOT: [KEY]}),
    "migration/key_by_key KeyByKeyPath.mark": lambda source, target: inheriting(source, target).mark(),
    "migration/participants End.reconnected": lambda source, _: reconnected(source),
    "migration/redis RedisImport.jobs": lambda source, _: RedisImport(source).jobs(),
    "migration/server_side _require_patience": lambda source, target: server_side._require_patience(
        ValkeyMigrateSlots(source), [CANCELLED], MigrationPath(source, target, SLOTS)
    ),
    "migration/slot_closing set_slots": lambda source, _: slot_closing.set_slots(source, [(SLOT, "STABLE")]),
    "migration/target_check require_target": lambda source, target: target_check.require_target(
        source, target, 1, acknowledge=True
    ),
    "migration/valkey ValkeyMigrateSlots.jobs": lambda source, _: ValkeyMigrateSlots(source).jobs(),
    "observe _with_unowned.counted": lambda source, _: node_inspection.count_strays(
        source.server, source.report, Slots.of(40), Entries()
    ),
}
"""For each function that reads a reply: a call of it, or of one that gives it what it parses."""

ELSEWHERE = {"check", "client/connection", "migration/participants SingleConnection"}
"""Commands for users, which end; and the connection itself, through which every function here reads."""


def readers() -> Iterator[str]:
    """Yield the functions of the operator that use the reply of a server."""

    def is_request(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _REQUESTS

    def visit(node: ast.AST, names: list[str]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from visit(child, [*names, child.name])
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Await) and is_request(child.value.value):
                continue  # the reply is not used
            if is_request(child):
                yield ".".join(names)
            yield from visit(child, names)

    package = REPOSITORY / "operators/redis"
    for module in package.rglob("*.py"):
        name = str(module.relative_to(package).with_suffix(""))
        for function in visit(ast.parse(module.read_text()), []):
            if name not in ELSEWHERE and f"{name} {function.partition('.')[0]}" not in ELSEWHERE:
                yield f"{name} {function}"


_REQUESTS = ("execute", "pipe")


def test_each_function_that_reads_a_reply_has_a_case() -> None:
    assert READERS.keys() == set(readers())


def many(reply: bytes) -> bytes:
    """Repeat a reply, for the commands of a pipeline."""
    return reply * 100


def job(**changed: bytes) -> bytes:
    """Return the reply about one migration job, of both engines."""
    fields = {
        **dict.fromkeys(("name", "id", "operation", "state", "message", "last_error"), b"import"),
        "source_node": SOURCE.encode(),
        "target_node": TARGET.encode(),
        "source": SOURCE.encode(),
        "dest": TARGET.encode(),
        "slot_ranges": b"0-1",
        "slots": b"0-1",
        "last_update_time": b"1",
        "retries": b"0",
        "end_time": b"1",
        **changed,
    }
    words = b"".join(bulk(name.encode()) + bulk(value) for name, value in fields.items())
    return many(b"*1\r\n*%d\r\n%s" % (2 * len(fields), words))


OPERATIONS = {"import": b"import", "export": b"EXPORT"}
MORE: Mapping[str, bytes] = {
    "OK": many(b"+OK\r\n"),
    "numbers": many(b":1\r\n"),
    "nothing": many(b"$-1\r\n"),
    "no items": many(b"*0\r\n"),
    "odd number of items": many(b"*3\r\n+a\r\n+b\r\n+c\r\n"),
    "nested items": many(b"*1\r\n*1\r\n*1\r\n+a\r\n"),
    "numbers as items": many(b"*2\r\n:1\r\n:2\r\n"),
    "nothing as items": many(b"*2\r\n$-1\r\n$-1\r\n"),
    "long texts": many(bulk(b"x" * 10_000)),
    "words": bulk(b"a=b " * 10_000) * 8,
    "lines": bulk(b"a:b\r\n" * 10_000) * 8,
    "keys of 4 MiB": b"*16000\r\n" + bulk(b"k" * 256) * 16_000,
    "keys of 7 MiB": b"*14\r\n" + bulk(b"k" * 500_000) * 14,
    **{
        f"job ({name}) with a hostile {field}": job(operation=operation, **{field: value})
        for name, operation in OPERATIONS.items()
        for field, value in {
            "slots": b"0-99999999999999999999",
            "slot_ranges": b"0 " * 10_000,
            "end_time": b"1" * 5_000,
            "last_update_time": b"1e999",
            "retries": b"x",
            "state": b"x" * 10_000,
        }.items()
    },
}


@pytest.mark.parametrize("reader", READERS)
async def test_hostile_reply_to_any_command_is_an_error_of_the_server_and_costs_little(reader: str) -> None:
    await judge(reader, MORE)


@pytest.mark.nightly
@pytest.mark.parametrize("reader", READERS)
async def test_data_that_is_not_of_redis_is_an_error_of_the_server_and_costs_little(reader: str) -> None:
    await judge(reader, REDIS)


async def judge(reader: str, replies: Mapping[str, bytes]) -> None:
    async with cost.bounded():
        for name, reply in replies.items():
            assert len(await answered(reader, name, reply)) <= 100_000, name


async def answered(reader: str, name: str, reply: bytes) -> str:
    """Let a function read a reply; return the error of the server, if there is one."""
    with answering(reply) as port:
        source, target = end(port, SOURCE), end(port, TARGET)
        try:
            async with asyncio.timeout(20):
                await READERS[reader](source, target)
        except RedisError as error:
            return str(error)
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
        finally:
            await source.server.aclose()
            await target.server.aclose()
            await asyncio.sleep(0)  # `answering` waits until the connections are closed
        return ""
