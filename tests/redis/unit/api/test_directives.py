"""The table of directives: which values are refused, and which values mean the same."""

from __future__ import annotations

import pytest

from operators.redis.api import directives
from operators.redis.api.catalogue import CATALOGUES
from operators.redis.api.directives import KNOWN, RESERVED, TABLE, find, present_name, refusal, same
from operators.redis.api.engine_versions import Engine
from shared.api.catalogue import Catalogue

OLD, REDIS, VALKEY = (Engine.parse(text) for text in ("redis 6.2.14", "redis 8.0.2", "valkey 9.1.0"))
LINES = [
    Engine.parse(f"{catalogue.engine} {line.newest}") for catalogue in CATALOGUES.values() for line in catalogue.lines
]
"""Newest release of each line that the catalogues have, the default ones among them."""


@pytest.mark.parametrize("catalogue", CATALOGUES.values(), ids=lambda each: each.engine)
def test_table_knows_every_line_of_the_catalogue(catalogue: Catalogue) -> None:
    series = max(line.series for line in catalogue.lines)
    assert next(known for name, known in KNOWN.items() if name == catalogue.engine) >= series


@pytest.mark.parametrize("engine", LINES, ids=str)
def test_misspelled_name_and_unknown_word_are_refused_for_every_line(engine: Engine) -> None:
    assert "is not a directive of" in refusal("maxmemory-polcy", "allkeys-lru", engine)
    assert "accepts one of noeviction" in refusal("maxmemory-policy", "sometimes", engine)


@pytest.mark.parametrize(
    ("name", "value", "since"),
    [
        ("lookahead", "16", "redis 8.4.0"),
        ("aof-load-corrupt-tail-max-size", "1024", "redis 8.4.0"),
        ("cluster-slot-migration-handoff-max-lag-bytes", "1mb", "redis 8.4.0"),
        ("maxmemory-policy", "allkeys-lrm", "redis 8.6.0"),
        ("repl-diskless-load", "flushdb", "redis 8.6.0"),
        ("cluster-slot-stats-enabled", "cpu net", "redis 8.6.0"),
        ("stream-idmp-duration", "86400", "redis 8.6.0"),
        ("slowlog-entry-max-argc", "64", "redis 8.8.0"),
        ("array-slice-size", "4096", "redis 8.8.0"),
        ("notify-keyspace-events", "KaS", "redis 8.8.0"),
        ("repl-compression", "3", "redis 8.10.0"),
        ("hash-min-template-entries", "8", "redis 8.10.0"),
        ("hash-seed", "abc", "valkey 9.1.0"),
        ("cluster-config-save-behavior", "best-effort", "valkey 9.1.0"),
    ],
)
def test_directive_or_word_is_accepted_from_its_series_on(name: str, value: str, since: str) -> None:
    first = Engine.parse(since)
    of_engine = [engine for engine in LINES if engine.name == first.name]
    accepting = {engine for engine in of_engine if not refusal(name, value, engine)}
    assert accepting == {engine for engine in of_engine if engine.version.series >= first.version.series}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("maxmemory-policy", "sometimes", "one of noeviction, allkeys-lru"),
        ("cluster-node-timeout", "0", "an integer of at least 1000"),
        ("cluster-node-timeout", "5s", "an integer of at least 1000"),
        ("hz", "007", "an integer of at least 0"),
        ("repl-backlog-size", "1gib", "an amount of memory"),
        ("proto-max-bulk-len", "1kb", "an amount of memory of at least 1048576 bytes"),
        ("maxmemory-clients", "101%", "or a percentage such as 5%"),
        ("appendonly", "true", "yes or no"),
        ("save", "60", "pairs of seconds"),
        ("save", "0 1", "pairs of seconds"),
        ("client-output-buffer-limit", "master 0 0 0", "normal, replica or pubsub"),
        ("notify-keyspace-events", "Q", "letters of the classes"),
        ("shutdown-on-sigterm", "failover", "default, or some of save, nosave, now, force"),
        ("oom-score-adj-values", "0 1", "three integers"),
        ("proc-title-template", "{nonsense}", "placeholders"),
        ("max-memory", "1gb", "is not a directive of redis 8.0"),
        ("gopher-enabled", "yes", "is not a directive of redis 8.0"),
    ],
)
def test_value_that_the_server_would_refuse_is_refused_with_what_is_accepted(name: str, value: str, words: str) -> None:
    assert words in refusal(name, value, REDIS)


@pytest.mark.parametrize(
    ("name", "value", "engine"),
    [
        ("maxmemory-policy", "ALLKEYS-LRU", REDIS),
        ("cluster-node-timeout", "1000", REDIS),
        ("slowlog-log-slower-than", "-1", REDIS),
        ("maxmemory-clients", "5%", REDIS),
        ("save", "", REDIS),
        ("save", "3600 1 300 100", REDIS),
        ("client-output-buffer-limit", "normal 0 0 0 slave 256mb 64mb 60", REDIS),
        ("shutdown-on-sigterm", "save failover", VALKEY),
        ("hash-max-ziplist-entries", "128", REDIS),
        ("hash-max-ziplist-entries", "128", OLD),
        ("search-threads", "4", REDIS),
        ("mymodule.size", "4", REDIS),
        ("lua-replicate-commands", "yes", REDIS),
    ],
)
def test_value_that_the_server_accepts_is_accepted(name: str, value: str, engine: Engine) -> None:
    assert refusal(name, value, engine) == ""


def test_directive_of_other_versions_is_refused() -> None:
    assert "is not a directive of redis 6.2" in refusal("maxmemory-clients", "5%", OLD)
    assert "is not a directive of redis 6.2" in refusal("hash-max-listpack-entries", "5", OLD)
    assert refusal("max-memory", "5", Engine.parse("redis 9.9.0")) == "", "the table does not know this version"
    assert refusal("maxmemory-policy", "newest", Engine.parse("redis 9.9.0")) == ""
    assert refusal("appendonly", "true", Engine.parse("redis 9.9.0")) != ""
    assert refusal("max-memory", "5", REDIS, modules=True) == "", "a module may define it"


@pytest.mark.parametrize(
    ("name", "desired", "actual", "equal"),
    [
        ("maxmemory", "1gb", "1073741824", True),
        ("maxmemory", "1g", "1073741824", False),
        ("appendonly", "YES", "yes", True),
        ("hz", "1000", "500", True),
        ("repl-backlog-size", "100", "16384", True),
        ("save", "3600 1 300 100", "3600 1 300 100", True),
        ("save", "", "3600 1", False),
        ("client-output-buffer-limit", "replica 1mb 1mb 60", "normal 0 0 0 slave 1048576 1048576 60", True),
        ("client-output-buffer-limit", "replica 2mb 1mb 60", "normal 0 0 0 slave 1048576 1048576 60", False),
        ("notify-keyspace-events", "KEA", "AKE", True),
        ("notify-keyspace-events", "Kg$lshzxetd", "AK", True),
        ("oom-score-adj", "relative", "yes", True),
        ("shutdown-on-sigterm", "now save", "save now", True),
        ("latency-tracking-info-percentiles", "50.0 99.90", "50 99.9", True),
        ("cluster-node-timeout", "500", "500", True),
        ("cluster-node-timeout", "5000", "276000", False),
        ("cluster-node-timeout", "5000", "0", False),
        ("mymodule.size", "4", "4", True),
        ("mymodule.size", "4kb", "4096", None),
    ],
)
def test_values_are_compared_by_meaning(name: str, desired: str, actual: str, equal: bool | None) -> None:
    assert same(name, desired, actual, REDIS) is equal


def test_words_for_several_are_compared_by_meaning() -> None:
    newest = Engine.parse("redis 8.10.2")
    assert same("cluster-slot-stats-enabled", "mem cpu net", "yes", newest)
    assert same("cluster-slot-stats-enabled", "no", "cpu", newest) is False
    assert same("notify-keyspace-events", "Kg$lshzxetda", "AK", newest)


def test_equal_values_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each server reports up to 500 values, and nearly all of them are the desired ones."""
    read: list[str] = []
    monkeypatch.setattr(directives, "find", lambda name, _: read.append(name))
    assert same("mod.limit", "an equal value of this test", "an equal value of this test", REDIS)
    assert read == []


def test_table_is_consistent() -> None:
    assert not set(TABLE) & set(RESERVED)
    for name, entries in TABLE.items():
        for engine in LINES:
            assert sum(each.exists_in(engine) for each in entries) <= 1, (name, engine)
        assert any(find(name, engine) for engine in LINES), name
        assert find(present_name(name), VALKEY) or any(find(present_name(name), engine) for engine in LINES), name


def test_several_databases_are_refused() -> None:
    """Slots move key by key if the servers fail to move them, and only the keys of database 0 do."""
    why = refusal("cluster-databases", "16", VALKEY)
    assert why.startswith("accepts only 1: ")
    assert refusal("cluster-databases", "1", VALKEY) == ""
