"""The pause of a rolling update by what is known about the servers, and their gets from their statistics."""

from __future__ import annotations

import pytest

from operators.memcached.facts.pause import Filling, Pause, pause
from operators.memcached.traffic import Meter, Sample, Traffic
from tests.support import paths

RECORDED = paths.RECORDED / "memcached" / "stats-1.6.38.txt"
LIMIT = 300
FULL = Traffic(30, 279, 21)
OLD = Filling("cache-0", 86400, FULL)


def new(ready_seconds: float, traffic: Traffic | None = None, name: str = "cache-1") -> Filling:
    return Filling(name, ready_seconds, traffic)


WAITS = {
    "no look yet": (new(45), "cache-1 has been ready for less than 30 s: waiting at most 5 min more"),
    "too new": (new(10, Traffic(12, 90, 10)), "cache-1 has been ready for less than 30 s: waiting at most 5 min more"),
    "its process is too new": (
        new(40, Traffic(5, 40, 0)),
        "cache-1 has been ready for less than 30 s: waiting at most 5 min more",
    ),
    "few hits": (
        new(60, Traffic(30, 123, 177)),
        "cache-1 has hit ratio 0.41, the others 0.93: waiting at most 4 min more",
    ),
    "not near enough": (
        new(60, Traffic(30, 249, 51)),
        "cache-1 has hit ratio 0.83, the others 0.93: waiting at most 4 min more",
    ),
    "clients do not use it": (
        new(250, Traffic(30)),
        "cache-1 gets 0.0 requests per second, the others 10.0 on average: waiting at most 1 min more",
    ),
    "few clients use it": (
        new(250, Traffic(30, 20, 0)),
        "cache-1 gets 0.7 requests per second, the others 10.0 on average: waiting at most 1 min more",
    ),
    "unknown": (
        new(60, Traffic(error="10.0.0.1:11211 is unreachable: no route.")),
        "The hit ratio of cache-1 is unknown: 10.0.0.1:11211 is unreachable: no route: waiting at most 4 min more",
    ),
}


@pytest.mark.parametrize(("server", "message"), WAITS.values(), ids=WAITS)
def test_update_waits_and_names_what_is_missing(server: Filling, message: str) -> None:
    assert pause(LIMIT, LIMIT, [OLD, server]) == Pause(LIMIT, message)


GOES_ON = {
    "near": new(90, Traffic(30, 252, 48)),
    "better": new(90, Traffic(30, 300, 0)),
    "fewer gets": new(90, Traffic(30, 28, 2)),
}


@pytest.mark.parametrize("server", GOES_ON.values(), ids=GOES_ON)
def test_update_goes_on_when_the_new_server_is_filled(server: Filling) -> None:
    assert pause(LIMIT, LIMIT, [OLD, server]) == Pause(90)


def test_servers_that_no_client_uses_are_not_waited_for() -> None:
    assert pause(LIMIT, LIMIT, [Filling("cache-0", 86400, Traffic(30)), new(31, Traffic(30))]) == Pause(31)


def test_unknown_others_are_no_evidence() -> None:
    others = [Filling("cache-0", 86400), Filling("cache-2", 86400, Traffic(error="no route"))]
    found = pause(LIMIT, LIMIT, [*others, new(60, FULL)])
    assert found.seconds == LIMIT
    assert found.waits_for.startswith("The hit ratio of the other servers, with which that of cache-1 is compared")


def test_every_new_server_must_be_filled() -> None:
    filled, empty = new(200, FULL, "cache-2"), new(100, Traffic(30, 10, 290))
    assert pause(LIMIT, LIMIT, [OLD, filled, empty]).seconds == LIMIT
    assert pause(LIMIT, LIMIT, [OLD, empty, filled]).waits_for.startswith("cache-1 has hit ratio 0.03")


def test_new_servers_are_compared_with_those_that_are_not_new() -> None:
    """A second empty server must not lower what is expected of the first."""
    half = Traffic(30, 150, 150)
    assert pause(LIMIT, LIMIT, [OLD, new(60, half), new(60, half, "cache-2")]).seconds == LIMIT
    assert pause(LIMIT, LIMIT, [new(60, half), new(60, half, "cache-2")]) == Pause(60), "there is no other one"


def test_pause_stays_as_long_as_the_evidence_took_so_that_an_operator_that_fails_speeds_up_nothing() -> None:
    assert pause(LIMIT, 90, [OLD, new(200, FULL)]) == Pause(90)
    assert pause(LIMIT, 0, [OLD, new(200, FULL)]) == Pause(200), "an edit by another client"
    assert pause(LIMIT, LIMIT, [OLD, new(200, FULL)]) == Pause(200)


@pytest.mark.parametrize("limit", [0, 30])
def test_short_pause_is_fixed(limit: int) -> None:
    assert pause(limit, limit, [OLD, new(5, Traffic(5))]) == Pause(limit)


def test_server_that_was_ready_for_the_longest_pause_is_not_waited_for() -> None:
    assert pause(LIMIT, LIMIT, [OLD, new(LIMIT, Traffic(30, 0, 300))]) == Pause(LIMIT)


def test_gets_are_those_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.add("u", "a", Sample(1000, 900, 100)) == Traffic(1000, 900, 100), "since the start, at first"
    assert meter.add("u", "a", Sample(1010, 901, 109)) == Traffic(1010, 901, 109)
    assert meter.add("u", "a", Sample(1030, 903, 127)) == Traffic(30, 3, 27)
    assert meter.add("u", "a", Sample(1045, 918, 127)) == Traffic(35, 17, 18)


def test_restarted_server_is_judged_by_its_gets_since_the_restart() -> None:
    meter = Meter()
    meter.add("u", "a", Sample(1000, 900, 100))
    assert meter.add("u", "a", Sample(12, 1, 9)) == Traffic(12, 1, 9)


def test_samples_of_former_servers_are_forgotten() -> None:
    meter = Meter()
    for server in ("a", "b"):
        meter.add("u", server, Sample(1000, 900, 100))
    meter.forget("u", but=["a"])
    assert meter.add("u", "a", Sample(1030, 930, 100)) == Traffic(30, 30, 0)
    assert meter.add("u", "b", Sample(1030, 930, 100)) == Traffic(1030, 930, 100)


def test_statistics_of_memcached_have_its_gets() -> None:
    lines = RECORDED.read_text().splitlines()
    stats = dict(line.removeprefix("STAT ").split(" ", 1) for line in lines if line.startswith("STAT "))
    assert Sample.of(stats) == Sample(4, 3, 1)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "9" * 30, "²"])
def test_statistics_that_are_no_numbers_are_unknown(value: str) -> None:
    with pytest.raises(ValueError, match="get_hits"):
        Sample.of({"uptime": "1", "get_hits": value, "get_misses": "0"})
