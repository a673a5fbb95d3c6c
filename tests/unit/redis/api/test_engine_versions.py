"""Engines and versions: how they are read, what each can do, and which may follow which."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.engine_versions import (
    LEAST,
    TOO_OLD,
    Engine,
    EngineName,
    Version,
    engine_named,
    features,
    format_of,
    refusal,
    upgrade_refusal,
)

NAMES = st.sampled_from(["redis", "valkey"])
ENGINES = st.builds(Engine, NAMES, st.builds(Version, st.integers(5, 10), st.integers(0, 9), st.integers(0, 30)))


def engine(text: str) -> Engine:
    return Engine.parse(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8.0.2", (8, 0, 2)),
        ("v8.0.2", (8, 0, 2)),
        ("8.0", (8, 0, 0)),
        ("7.0.15-alpine3.20", (7, 0, 15)),
        ("9.1.0-rc1", (9, 1, 0)),
        ("255.255.255", (255, 255, 255)),
    ],
)
def test_a_version_is_read_however_it_is_written(text: str, version: tuple[int, int, int]) -> None:
    assert Version.parse(text) == Version(*version)


@pytest.mark.parametrize("text", ["", "8", "latest", "8.x", "08.0.1", "8.0.2 ", "8.0.2/3", "8.0.2+1"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version of redis or valkey"):
        Version.parse(text)


@pytest.mark.parametrize("text", ["", "redis", "8.0.2", "keydb 6.3.4", "Redis 8.0.2", "redis  8.0.2"])
def test_what_is_no_engine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Engine.parse(text)


@given(ENGINES)
def test_an_engine_is_read_as_it_is_written(one: Engine) -> None:
    assert Engine.parse(str(one)) == one
    assert one.program == f"{one.name}-server"


def test_numbers_are_compared_as_numbers() -> None:
    assert Version(7, 0, 9) < Version(7, 0, 15) < Version(7, 2) < Version(10, 0)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("", "redis"),
        ("library/redis", "redis"),
        ("valkey/valkey", "valkey"),
        ("example.com:5000/mirror/valkey-bundle:9.1", "valkey"),
        ("valkey.example.com/cache/redis", "redis"),
        ("valkey/redis:8", "redis"),
        ("example.com/kv:valkey", "redis"),
    ],
)
def test_what_an_image_holds_is_told_by_the_last_part_of_its_name(image: str, name: str) -> None:
    assert engine_named(image) == name


@pytest.mark.parametrize(
    "text", ["redis 3.2.8", "redis 5.0.14", "redis 6.0.20", "redis 6.1.0", "valkey 7.1.0", "valkey 6.2.14"]
)
def test_what_is_too_old_is_refused_with_what_to_give(text: str) -> None:
    said = refusal(engine(text))
    assert said.startswith(f"{text} is not supported")
    assert said.endswith("Use redis 6.2 or later, or valkey 7.2 or later.")


@pytest.mark.parametrize("text", ["redis 6.2.0", "redis 7.0.15", "redis 10.0.0", "valkey 7.2.0", "valkey 9.1.0"])
def test_what_is_new_enough_is_taken(text: str) -> None:
    assert refusal(engine(text)) == ""


@given(ENGINES, st.sampled_from(["", "v"]), st.sampled_from(["", "-alpine", "_1"]))
def test_admission_calls_too_old_what_the_reconcile_does(one: Engine, before: str, after: str) -> None:
    pattern, tag = TOO_OLD[one.name], f"{before}{one.version}{after}"
    for told in (tag, f"example.com:5000/a/{one.name}:{tag}", f"{one.name}:{tag}@sha256:{'0' * 64}"):
        assert bool(re.search(pattern, told)) == bool(refusal(one))
    short = f"{one.version.major}.{one.version.minor}"
    assert bool(re.search(pattern, short)) == bool(refusal(one))


@pytest.mark.parametrize(
    ("text", "way"),
    [
        ("redis 6.2.14", "keys"),
        ("redis 8.3.9", "keys"),
        ("redis 8.4.0", "import"),
        ("redis 9.0.0", "import"),
        ("valkey 8.1.1", "keys"),
        ("valkey 9.0.0", "export"),
        ("valkey 9.1.0", "export"),
    ],
)
def test_slots_move_as_the_engine_can(text: str, way: str) -> None:
    assert features(engine(text)).migration == way


def test_what_came_with_7_0_is_known_of_no_older_one() -> None:
    old, new = features(engine("redis 6.2.14")), features(engine("redis 7.0.0"))
    for found, expected in ((old, False), (new, True), (features(engine("valkey 7.2.5")), True)):
        said = (found.slot_ranges, found.hostnames, found.sets_many, found.reloads_certificates)
        assert said == (expected,) * 4
    assert [features(engine(f"redis 6.2.{patch}")).forbids_replica_migration for patch in (1, 2)] == [False, True]


ALLOWED = [
    ([], "redis 8.0.2"),
    (["redis 7.0.15"], "redis 8.0.2"),
    (["redis 6.2.14"], "redis 8.0.2"),
    (["redis 8.0.2"], "redis 8.0.1"),  # an older patch reads the same
    (["redis 7.0.15", "redis 7.2.5"], "redis 7.2.5"),
    (["redis 7.2.5"], "valkey 8.1.1"),
    (["redis 7.0.15"], "valkey 9.1.0"),
    (["redis 7.0.15", "valkey 9.1.0"], "valkey 9.1.0"),
    (["valkey 8.1.1"], "valkey 9.1.0"),
    (["valkey 7.2.6"], "valkey 8.1.1"),
]
REFUSED = [
    (["redis 8.0.2"], "redis 7.2.5", "redis 7.2.5 is older than redis 8.0.2", "12; its own is 11"),
    (["redis 7.0.15"], "redis 6.2.14", "redis 6.2.14 is older than redis 7.0.15", "Use 7.0 or later."),
    (["redis 8.2.1"], "redis 8.0.2", "downgrades to an older series are not supported", "Use 8.2 or later."),
    (["redis 7.0.15", "redis 8.0.2"], "redis 7.0.15", "redis 8.0.2, which a node runs", "Use 8.0 or later."),
    (["valkey 9.1.0"], "valkey 8.1.1", "80; its own is 11", "Use 9.1 or later."),
    (["valkey 8.1.1"], "valkey 8.0.1", "valkey 8.0.1 is older than valkey 8.1.1", "Use 8.1 or later."),
    (["valkey 8.1.1"], "redis 8.0.2", "redis 8.0.2 cannot read the data of valkey 8.1.1", "Use a version of valkey"),
    (["redis 7.4.0"], "valkey 9.1.0", "valkey reads data of redis up to 7.2", "Keep redis."),
    (["redis 8.0.2"], "valkey 8.1.1", "valkey 8.1.1 cannot read the data of redis 8.0.2", "Keep redis."),
    (
        ["redis 7.0.15", "valkey 9.1.0"],
        "redis 7.0.15",
        "cannot read the data of valkey 9.1.0",
        "Use a version of val",
    ),
]


@pytest.mark.parametrize(("running", "target"), ALLOWED)
def test_a_step_that_the_data_survives_is_allowed(running: list[str], target: str) -> None:
    assert upgrade_refusal(map(engine, running), engine(target)) == ""


@pytest.mark.parametrize(("running", "target", "why", "instead"), REFUSED)
def test_any_other_is_refused_with_the_reason_and_what_to_do(
    running: list[str], target: str, why: str, instead: str
) -> None:
    for order in (running, running[::-1]):
        said = upgrade_refusal(map(engine, order), engine(target))
        assert why in said
        assert instead in said


def readable(name: EngineName, number: int) -> bool:
    """Whether an engine's newest reads a format at all: valkey went on from 11 by itself."""
    return number <= 11 or (number >= 80) == (name == "valkey")


@given(st.lists(ENGINES, max_size=4), ENGINES)
def test_no_allowed_step_makes_an_engine_read_what_it_does_not(running: list[Engine], target: Engine) -> None:
    if refusal(target) or any(refusal(one) for one in running) or upgrade_refusal(running, target):
        return
    for one in running:
        assert format_of(one) <= format_of(target)
        assert readable(target.name, format_of(one))
        assert not (one.name == "valkey" and target.name == "redis")


@given(st.lists(ENGINES, min_size=1, max_size=4), ENGINES)
def test_the_order_of_nodes_says_nothing(running: list[Engine], target: Engine) -> None:
    assert upgrade_refusal(running, target) == upgrade_refusal(running[::-1], target)


def test_every_series_that_is_supported_has_a_format() -> None:
    assert all(format_of(Engine(name, Version(*series))) for name, series in LEAST.items())
