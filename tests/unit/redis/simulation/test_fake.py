"""The Redis that is not there does what a real one did, and cries out where data would be at risk."""

from __future__ import annotations

import json

import pytest

from operators.redis.client.errors import Denied, Refused, Unreachable
from operators.redis.client.server import Access, Endpoint
from shared.testing.harness.scenario import Unsafe
from tests.support import paths
from tests.support.redis.recorded_conformance import ELECTED, FOO, SEEN, STORIES
from tests.unit.redis.simulation.data import KEYS
from tests.unit.redis.simulation.lab import FakeLab, Watched
from tests.unit.redis.simulation.node import slot_of
from tests.unit.redis.simulation.process import digest

RECORDED: dict[str, list[str]] = json.loads((paths.RECORDED / "redis.json").read_text())


@pytest.mark.parametrize("name", STORIES)
async def test_a_story_goes_as_it_went_with_a_real_redis(name: str) -> None:
    lab = FakeLab()
    await STORIES[name](lab)
    assert lab.told == RECORDED[name]


def test_every_recorded_story_is_told() -> None:
    assert RECORDED.keys() == STORIES.keys()


@pytest.fixture
async def lab() -> Watched:
    return await Watched.begin()


async def test_a_failover_that_was_asked_for_loses_nothing(lab: Watched) -> None:
    await lab.cluster("f", "FAILOVER")
    await lab.wait(SEEN)
    assert not lab.process("f").node.me.primary
    assert not lab.redis.violations
    assert lab.redis.counts()["failovers"] == 1


async def test_a_replica_that_lags_does_not_take_over_and_the_master_serves_again(lab: Watched) -> None:
    lab.redis.lagging.add("story-f")
    await lab.wait(1)
    await lab.cluster("f", "FAILOVER")
    await lab.wait(SEEN)
    before = lab.redis.client.refused
    await lab.wait(12)
    assert lab.process("f").node.me.primary, "the time for it is over"
    assert lab.redis.client.refused > before, "the master waited for a while"
    refused = lab.redis.client.refused
    await lab.wait(SEEN)
    assert lab.redis.client.refused == refused


async def test_keys_that_move_are_never_lost_and_those_left_behind_are_a_violation(lab: Watched) -> None:
    slot = slot_of(KEYS[-1])
    source, target = await lab.opened(slot)
    await lab.server(source).execute("MIGRATE", *lab.address(target), "", 0, 1000, "KEYS", *KEYS[-2:])
    await lab.wait(SEEN)
    assert not lab.redis.violations
    with pytest.raises(Unsafe, match=f"while {source} holds 1 of its keys"):
        await lab.cluster(target, "SETSLOT", slot, "NODE", lab.id(target))


@pytest.mark.parametrize(
    ("at", "words", "said"),
    [
        ("a", ("FORGET", "{b}"), "a forgets b, which owns 5462 slots"),
        ("f", ("RESET", "SOFT"), "f is reset, and it has"),
        ("f", ("RESET", "HARD"), "f is reset hard"),
        ("f", ("FAILOVER", "TAKEOVER"), "f takes over by TAKEOVER, while its master story-c runs"),
        ("f", ("FAILOVER", "FORCE"), "f takes over by FORCE, while its master story-c runs"),
    ],
)
async def test_what_no_operator_may_do_is_a_violation(lab: Watched, at: str, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(Unsafe, match=said):
        await lab.tell.asks(at, "CLUSTER", *words)
    assert lab.redis.violations


async def test_slots_are_given_once(lab: Watched) -> None:
    await lab.stop("c")
    await lab.stop("f")
    await lab.wipe("c")
    await lab.wipe("f")
    await lab.wait(ELECTED)
    for name in "ab":
        lab.process(name).node.forget(lab.id("c"))
    with pytest.raises(Unsafe, match="a is given slots anew, though the cluster is formed, and nobody allowed it"):
        await lab.cluster("a", "ADDSLOTS", FOO)


async def test_a_flush_is_a_violation(lab: Watched) -> None:
    with pytest.raises(Unsafe, match="FLUSHALL at story-a"):
        await lab.server("a").execute("FLUSHALL")


async def test_two_clusters_that_meet_are_a_violation(lab: Watched) -> None:
    await lab.start("x")
    lab.process("x").node.me.slots = 1
    with pytest.raises(Unsafe, match="a and x meet, though each is of a cluster that owns slots"):
        await lab.server("a").execute("CLUSTER", "MEET", *lab.address("x"))


async def test_a_crash_may_cost_what_was_not_replicated_yet_and_nothing_else(lab: Watched) -> None:
    lab.redis.lagging.add("story-f")
    await lab.wait(1)
    await lab.stop("c")
    lab.redis.lagging.clear()
    await lab.wait(ELECTED)
    await lab.tell.starts("c")
    await lab.wait(2 * SEEN)
    assert not lab.redis.violations
    assert not lab.redis.guard.shaken, "all is well again, and counts again"
    lab.process("f").node.keys.pop(next(iter(lab.process("f").node.keys)))
    lab.redis.client.idle = True
    with pytest.raises(Unsafe, match="acknowledged are lost"):
        lab.redis.settle("a key is gone")


async def test_an_old_view_is_told_until_gossip_comes_by(lab: Watched) -> None:
    await lab.cluster("f", "FAILOVER")
    await lab.wait(0.25)
    before = {node.id for node in await lab.tell.nodes("a") if node.slots}
    await lab.wait(SEEN)
    after = {node.id for node in await lab.tell.nodes("a") if node.slots}
    assert lab.id("c") in before
    assert lab.id("c") not in after


async def test_passwords_are_asked_for_and_replicas_need_one_too(lab: Watched) -> None:
    process = lab.process("c")
    process.passwords = {digest("secret")}
    await lab.wait(SEEN)
    assert not lab.process("f").linked
    with pytest.raises(Denied, match="NOAUTH"):
        await lab.server("c").execute("PING")
    there = Endpoint("c", *lab.address("c")[:1], "c")
    with pytest.raises(Denied, match="WRONGPASS"):
        await lab.redis.connect(there, Access(password="other")).execute("PING")
    assert await lab.redis.connect(there, Access(password="other", former=("secret",))).execute("PING") == "PONG"
    await lab.server("f").execute("CONFIG", "SET", "masterauth", "secret")
    await lab.wait(SEEN)
    assert lab.process("f").linked


async def test_a_command_may_be_lost_or_its_answer() -> None:
    lab = await Watched.begin("")
    lab.redis.fault = lambda what: False if "MEET" in what else None
    with pytest.raises(Unreachable):
        await lab.server("a").execute("CLUSTER", "MEET", "10.9.9.9", 6379)
    assert len(lab.process("a").node.known) == 3
    lab.redis.fault = lambda what: True if "MEET" in what else None
    with pytest.raises(Unreachable):
        await lab.server("a").execute("CLUSTER", "MEET", "10.9.9.9", 6379)
    assert len(lab.process("a").node.known) == 4
    lab.redis.fault = None
    with pytest.raises(Refused, match="ERR unknown command 'SORT'"):
        await lab.server("a").execute("SORT", "x")


async def test_slots_move_at_once_where_the_engine_can() -> None:
    lab = await Watched.begin("")
    for name in "abc":
        lab.process(name).engine, lab.process(name).version = "valkey", "9.0.1"
    await lab.cluster("a", "MIGRATESLOTS", "SLOTSRANGE", 0, 99, "NODE", lab.id("b"))
    await lab.wait(SEEN)
    assert lab.process("b").node.me.slots & 1
    [job] = await lab.server("a").execute("CLUSTER", "GETSLOTMIGRATIONS")
    assert job[job.index("state") + 1] == "success"
    assert not lab.redis.violations
