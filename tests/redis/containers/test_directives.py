"""The table of directives, compared with the parsers of real servers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from operators.redis.api.directives import (
    RESERVED,
    RESTART,
    TABLE,
    BufferLimits,
    Directive,
    Ignored,
    Memory,
    OneOf,
    Words,
    find,
    refusal,
    same,
)
from operators.redis.api.engine_versions import Engine
from operators.redis.client.errors import Refused
from operators.redis.client.responses import mapping
from operators.redis.client.server import Server
from operators.redis.objects.redis_conf import is_live
from tools.databases import redis_programs
from tools.databases.redis_servers import Redis

pytestmark = pytest.mark.nightly

VALUES = (
    *("", " ", "yes", "NO", "true", "0", "1", "-1", "-2", "007", "+7", "5", "99", "100", "101", "1000", "1001"),
    *("65536", "100000", "100001", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("5%", "0%", "100%", "101%", "05%", "1b", "16k", "1kb", "1mb", "64MB", "1g", "1gib", "1.5gb", "mb", "sometimes"),
    *("60", "60 1", "3600 1 300 100", "0 1", "60 -1", "0 200 800", "0 200", "0 200 3000", "50 99.9", "50 101", "x y"),
    *("normal 0 0 0", "replica 1mb 1mb 60 pubsub 2mb 1mb 30", "slave 1 1 1", "master 0 0 0", "normal 0 0", "KEA", "Q"),
    *("now save", "save nope", "default", "{title}", "{nonsense}", "a b"),
)
"""Values that are tried for each directive, in addition to its own words."""

SURROUNDINGS = frozenset(
    {
        "activedefrag",
        "array-sparse-kmax",
        "array-sparse-kmin",
        "import-mode",
        "jemalloc-bg-thread",
        "locale-collate",
        "maxclients",
        "oom-score-adj",
        "rdma-bind",
    }
    | {
        "rdma-port",
        "io-threads",
        "oom-score-adj-values",
        "proc-title-template",
        "tls-ciphers",
        "tls-ciphersuites",
        "tls-protocols",
    }
)
"""Directives that a server may refuse because of its build, its modules, its machine or another directive."""

UNTRIED = frozenset({"watchdog-period", "timeout", "maxclients", "loadmodule"})
"""Directives whose values would disturb the test; hidden ones with parsers of their own."""

STRICTER = {
    "cluster-node-timeout": {"0", "1", "5", "60", "99", "100", "101"},
    "cluster-blacklist-ttl": {"-1", "-2"},
    "cluster-databases": {"5", "60", "99", "100", "101", "1000", "1001", "65536", "100000", "100001", "2147483647"},
    "latency-tracking-info-percentiles": {"+7"},
}
"""Values that servers accept and the operator does not."""

STRANGE_AMOUNTS = {"mb", "9223372036854775807", "9223372036854775808"}
"""Amounts of memory that servers accept and the operator does not: without digits, or of more than 15 digits."""

BUILDS = frozenset(
    {"client-default-resp", "req-res-logfile", "cluster-slot-stats-enabled", "debug-context", "key-load-delay"}
    | {"enable-debug-assert", "loading-process-events-interval-bytes", "rdb-key-save-delay", "events-per-io-thread"}
    | {"use-exit-on-panic", "watchdog-period", "cluster-ping-interval", "aof-disable-auto-gc"}
    | {"tls-auto-reload-interval", "repl-compression", "repl-compression-max-latency"}
    | {"vset-force-single-threaded-execution"}
)
"""Directives for debugging, or of some builds."""


def entries(engine: Engine) -> Iterator[Directive]:
    """Yield the directives that the table has for an engine."""
    for name in TABLE:
        if (found := find(name, engine)) is not None:
            yield found


def is_ignored(directive: Directive) -> bool:
    return isinstance(directive.kind, Ignored)


async def value_of(server: Server, name: str) -> str | None:
    return mapping(await server.execute("CONFIG", "GET", name)).get(name)


@pytest.mark.commit
async def test_table_has_the_directives_of_the_server(redis: Redis, engine: tuple[str, str]) -> None:
    judged = Engine.parse(" ".join(engine))
    with redis.cluster(engine) as cluster:
        async with cluster.add().connected() as server:
            reported = set(mapping(await server.execute("CONFIG", "GET", "*"))) - {*RESERVED}
            assert {name for name in reported if find(name, judged) is None} == set()
            missing = {each.name for each in entries(judged) if not isinstance(each.kind, Ignored)}
            missing = {name for name in missing - reported if await value_of(server, name) is None}
            assert missing - BUILDS - {"loadmodule"} == set()


async def test_table_judges_values_as_the_server_does(redis: Redis, engine: tuple[str, str]) -> None:
    judged = Engine.parse(" ".join(engine))
    wrong = []
    with redis.cluster(engine) as cluster:
        async with cluster.add().connected() as server:
            for directive in entries(judged):
                if not is_live(directive.name, judged) or directive.name in UNTRIED | BUILDS or is_ignored(directive):
                    continue
                wrong += [text async for text in differences(server, directive, judged)]
    assert not wrong, "\n".join(wrong)


async def differences(server: Server, directive: Directive, engine: Engine) -> Any:
    """Yield how the table differs from the server about the values of a directive."""
    name, kind = directive.name, directive.kind
    before = await value_of(server, name)
    assert before is not None, name
    for value in (*VALUES, *(kind.values if isinstance(kind, OneOf | Words) else ()), before):
        try:
            await server.execute("CONFIG", "SET", name, value)
            taken = ""
        except Refused as error:
            taken = str(error)
        judged = refusal(name, value, engine)
        stricter = STRICTER.get(name, set()) | (STRANGE_AMOUNTS if isinstance(kind, Memory) else set())
        if not taken and judged and value.strip() and value not in stricter:
            yield f"{name} {value!r}: the server accepts it, but {judged}"
        elif taken and not judged and name not in SURROUNDINGS and value != " ":
            yield f"{name} {value!r}: the table accepts it, but {taken}"
        elif not taken and not judged:
            found = await value_of(server, name)
            if found is None or not same(name, value, found, engine):
                yield f"{name} {value!r}: the server reports {found!r}, which the table takes for another value"
            if not isinstance(kind, BufferLimits) and found is not None and not same(name, found, value, engine):
                yield f"{name}: {found!r} and {value!r} differ in one direction"
        await restore(server, name, before)


async def restore(server: Server, name: str, value: str) -> None:
    with suppress(Refused):
        await server.execute("CONFIG", "SET", name, value)
    found = await value_of(server, name)
    assert found == value or name in SURROUNDINGS


def test_settings_of_the_start_are_judged_as_the_server_does(engine: tuple[str, str], tmp_path: Any) -> None:
    judged = Engine.parse(" ".join(engine))
    program = redis_programs.server(*engine)
    for directive in entries(judged):
        if directive.name not in RESTART or directive.name in BUILDS | {"loadmodule"}:
            continue
        bad = next((value for value in ("nonsense", "0", "-5") if refusal(directive.name, value, judged)), None)
        if bad is None:
            continue
        command = [*program, "--port", "0", "--dir", tmp_path, f"--{directive.name}", bad]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        assert done.returncode == 1, (directive.name, bad)
        assert "FATAL CONFIG FILE ERROR" in done.stderr, (directive.name, bad)


@pytest.mark.parametrize("name", ["max-memory", "maxmemory-clientz"])
def test_unknown_directive_prevents_the_start(engine: tuple[str, str], tmp_path: Any, name: str) -> None:
    assert refusal(name, "1", Engine.parse(" ".join(engine)))
    command = [*redis_programs.server(*engine), "--port", "0", "--dir", tmp_path, f"--{name}", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode != 0
