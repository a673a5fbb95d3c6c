"""Engines and versions: parsing, features and allowed upgrades."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.engine_versions import (
    LEAST,
    UNSUPPORTED,
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
def test_version_is_parsed_from_every_notation(text: str, version: tuple[int, int, int]) -> None:
    assert Version.parse(text) == Version(*version)


@pytest.mark.parametrize("text", ["", "8", "latest", "8.x", "08.0.1", "8.0.2 ", "8.0.2/3", "8.0.2+1"])
def test_invalid_version_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version of redis or valkey"):
        Version.parse(text)


@pytest.mark.parametrize("text", ["", "redis", "8.0.2", "keydb 6.3.4", "Redis 8.0.2", "redis  8.0.2"])
def test_invalid_engine_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Engine.parse(text)


@given(ENGINES)
def test_engine_survives_a_round_trip_through_text(each: Engine) -> None:
    assert Engine.parse(str(each)) == each
    assert each.program == f"{each.name}-server"


@pytest.mark.parametrize(
    ("text", "keeps"),
    [
        ("redis 6.2.24", False),
        ("redis 7.0.12", False),
        ("redis 7.0.13", True),
        ("redis 7.0.15", True),
        ("redis 7.2.0", True),
        ("redis 7.2.3", True),
        ("redis 7.2.4", False),
        ("redis 8.2.9", False),
        ("valkey 7.2.0", False),
        ("valkey 9.1.0", False),
    ],
)
def test_versions_that_keep_unclaimed_marks(text: str, keeps: bool) -> None:
    assert features(engine(text)).keeps_unclaimed_marks is keeps


@pytest.mark.parametrize(
    ("text", "takes"), [("redis 8.2.9", False), ("valkey 7.2.9", False), ("valkey 8.0.0", True), ("valkey 8.1.1", True)]
)
def test_versions_whose_targets_take_over_what_they_import(text: str, takes: bool) -> None:
    assert features(engine(text)).takes_over_imports is takes


def test_version_numbers_are_compared_numerically() -> None:
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
def test_engine_is_derived_from_the_last_part_of_the_image_name(image: str, name: str) -> None:
    assert engine_named(image) == name


@pytest.mark.parametrize(
    "text",
    ["redis 3.2.8", "redis 5.0.14", "redis 6.0.20", "redis 6.1.0", "valkey 7.1.0", "valkey 6.2.14", "redis 9.0.0"],
)
def test_unsupported_version_is_rejected_with_advice(text: str) -> None:
    message = refusal(engine(text))
    assert message.startswith(f"{text} is not supported")
    assert message.endswith("Use redis 6.2 to 8.x, or valkey 7.2 to 9.x.")


@pytest.mark.parametrize("text", ["redis 6.2.0", "redis 7.0.15", "redis 8.99.0", "valkey 7.2.0", "valkey 9.1.0"])
def test_supported_version_is_accepted(text: str) -> None:
    assert refusal(engine(text)) == ""


@given(ENGINES, st.sampled_from(["", "v"]), st.sampled_from(["", "-alpine", "_1"]))
def test_admission_and_reconcile_agree_on_versions(each: Engine, before: str, after: str) -> None:
    pattern, tag = UNSUPPORTED[each.name], f"{before}{each.version}{after}"
    for image in (tag, f"example.com:5000/a/{each.name}:{tag}", f"{each.name}:{tag}@sha256:{'0' * 64}"):
        assert bool(re.search(pattern, image)) == bool(refusal(each))
    short = f"{each.version.major}.{each.version.minor}"
    assert bool(re.search(pattern, short)) == bool(refusal(each))


@pytest.mark.parametrize(
    ("text", "migration"),
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
def test_migration_path_depends_on_the_engine(text: str, migration: str) -> None:
    assert features(engine(text)).migration == migration


def test_features_of_7_0_are_missing_in_older_versions() -> None:
    old, new = features(engine("redis 6.2.14")), features(engine("redis 7.0.0"))
    for found, expected in ((old, False), (new, True), (features(engine("valkey 7.2.5")), True)):
        assert (found.hostnames, found.bus_port) == (expected,) * 2
    assert [features(engine(f"redis 6.2.{patch}")).forbids_replica_migration for patch in (1, 2)] == [False, True]


ALLOWED = [
    ([], "redis 8.0.2"),
    (["redis 7.0.15"], "redis 8.0.2"),
    (["redis 6.2.14"], "redis 8.0.2"),
    (["redis 8.0.2"], "redis 8.0.1"),  # the format is the same within a series
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
def test_upgrade_that_can_read_the_data_is_allowed(running: list[str], target: str) -> None:
    assert upgrade_refusal(map(engine, running), engine(target)) == ""


@pytest.mark.parametrize(("running", "target", "reason", "advice"), REFUSED)
def test_other_upgrade_is_refused_with_reason_and_advice(
    running: list[str], target: str, reason: str, advice: str
) -> None:
    for order in (running, running[::-1]):
        message = upgrade_refusal(map(engine, order), engine(target))
        assert reason in message
        assert advice in message


def readable(name: EngineName, number: int) -> bool:
    """Whether the newest version of an engine reads a format. Valkey continues with formats of its own from 80."""
    return number <= 11 or (number >= 80) == (name == "valkey")


@given(st.lists(ENGINES, max_size=4), ENGINES)
def test_allowed_upgrade_never_meets_an_unreadable_format(running: list[Engine], target: Engine) -> None:
    if refusal(target) or any(refusal(each) for each in running) or upgrade_refusal(running, target):
        return
    for each in running:
        assert format_of(each) <= format_of(target)
        assert readable(target.name, format_of(each))
        assert not (each.name == "valkey" and target.name == "redis")


@given(st.lists(ENGINES, min_size=1, max_size=4), ENGINES)
def test_order_of_nodes_does_not_affect_the_refusal(running: list[Engine], target: Engine) -> None:
    assert upgrade_refusal(running, target) == upgrade_refusal(running[::-1], target)


def test_every_supported_series_has_a_format() -> None:
    assert all(format_of(Engine(name, Version(*series))) for name, series in LEAST.items())
