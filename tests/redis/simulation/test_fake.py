"""`FakeRedis` behaves as the recorded Redis, and its guard detects operations that risk data."""

from __future__ import annotations

import json

import pytest

from operators.redis.client.errors import Denied, Refused, Unreachable
from operators.redis.client.server import Access, Endpoint
from simulator.redis import atomic_migration
from simulator.redis.client import KEYS, OLD_KEYS, Entry
from simulator.redis.command_line import Command
from simulator.redis.node import bits, slot_of
from simulator.redis.process import digest
from tests.harness.scenario import Unsafe
from tests.redis.simulation.lab import FakeLab, GuardedLab
from tests.support import paths
from tests.support.redis.recorded_conformance import ELECTED, FOO, SCRIPTS, SEEN

RECORDED: dict[str, list[str]] = json.loads((paths.RECORDED / "redis.json").read_text())


@pytest.mark.parametrize("name", SCRIPTS)
async def test_script_matches_the_recording_of_a_real_redis(name: str) -> None:
    lab = FakeLab()
    await SCRIPTS[name](lab)
    assert lab.transcript == RECORDED[name]


def test_recordings_and_scripts_have_the_same_names() -> None:
    assert RECORDED.keys() == SCRIPTS.keys()


@pytest.fixture
async def lab() -> GuardedLab:
    return await GuardedLab.begin()


async def test_manual_failover_loses_no_write(lab: GuardedLab) -> None:
    await lab.cluster("f", "FAILOVER")
    await lab.wait(SEEN)
    assert not lab.process("f").node.me.primary
    assert not lab.redis.violations
    assert lab.redis.counts()["failovers"] == 1


async def test_handshake_that_has_not_ended_can_be_cancelled(lab: GuardedLab) -> None:
    """CLUSTER FORGET accepts the id of a handshake: clusterStartHandshake adds it to the nodes that it looks up."""
    await lab.cluster("a", "MEET", "10.9.9.9", 6379)
    [handshake] = [known for known in lab.process("a").node.others if known.in_handshake]
    await lab.cluster("a", "FORGET", handshake.id)
    assert handshake.id not in lab.process("a").node.known


async def test_nodes_that_had_lost_each_others_address_are_not_suspected_when_they_meet_again(lab: GuardedLab) -> None:
    """A node does not contact one whose address another node has (noaddr), nor suspects it. A message counts as much
    as an answer: `node_delay` in clusterCron, `data_received` in clusterProcessPacket in cluster.c of Redis 7.0.
    """
    one, other = lab.process("a").node, lab.process("b").node
    for known in (one.known[other.id], other.known[one.id]):
        known.address = ""
        known.flags.add("noaddr")
    await lab.wait(SEEN)
    assert "noaddr" in one.known[other.id].flags
    await lab.cluster("a", "MEET", *lab.address("b"))
    for _ in range(20):
        await lab.wait(0.25)
        assert not {"fail?", "fail"} & (one.known[other.id].flags | other.known[one.id].flags)
    assert not one.known[other.id].flags


async def test_lagging_replica_is_not_promoted_and_its_primary_resumes(lab: GuardedLab) -> None:
    lab.redis.lagging.add("demo-f")
    await lab.wait(1)
    await lab.cluster("f", "FAILOVER")
    await lab.wait(SEEN)
    before = lab.redis.client.refused
    await lab.wait(12)
    assert lab.process("f").node.me.primary, "the failover timed out"
    assert lab.redis.client.refused > before, "the primary paused writes for the failover"
    refused = lab.redis.client.refused
    await lab.wait(SEEN)
    assert lab.redis.client.refused == refused


async def test_keys_left_behind_when_a_slot_changes_owner_are_a_violation(lab: GuardedLab) -> None:
    slot = slot_of(KEYS[-1])
    source, target = await lab.opened(slot)
    await lab.server(source).execute("MIGRATE", *lab.address(target), "", 0, 1000, "KEYS", *KEYS[-2:])
    await lab.wait(SEEN)
    assert not lab.redis.violations
    with pytest.raises(Unsafe, match=f"while {source} has 1 of its keys"):
        await lab.cluster(target, "SETSLOT", slot, "NODE", lab.id(target))


@pytest.mark.parametrize(
    ("at", "words", "violation"),
    [
        ("a", ("FORGET", "{b}"), "a forgets b, which owns 5462 slots"),
        ("f", ("RESET", "SOFT"), "f is reset with"),
        ("f", ("RESET", "HARD"), "f is reset hard"),
        ("f", ("FAILOVER", "TAKEOVER"), "f takes over by TAKEOVER, while its primary demo-c runs"),
        ("f", ("FAILOVER", "FORCE"), "f takes over by FORCE, while its primary demo-c runs"),
    ],
)
async def test_unsafe_command_is_a_violation(lab: GuardedLab, at: str, words: tuple[str, ...], violation: str) -> None:
    with pytest.raises(Unsafe, match=violation):
        await lab.recorder.send(at, "CLUSTER", *words)
    assert lab.redis.violations


async def test_assigning_slots_twice_is_a_violation(lab: GuardedLab) -> None:
    await lab.stop("c")
    await lab.stop("f")
    await lab.wipe("c")
    await lab.wipe("f")
    await lab.wait(ELECTED)
    for name in "ab":
        lab.process(name).node.forget(lab.id("c"))
    with pytest.raises(Unsafe, match="a is assigned slots again without consent, though the cluster is formed"):
        await lab.cluster("a", "ADDSLOTS", FOO)


async def test_flushing_a_server_is_a_violation(lab: GuardedLab) -> None:
    with pytest.raises(Unsafe, match="FLUSHALL at demo-a"):
        await lab.server("a").execute("FLUSHALL")


async def test_merging_two_clusters_is_a_violation(lab: GuardedLab) -> None:
    await lab.start("x")
    lab.process("x").node.me.slots = 1
    with pytest.raises(Unsafe, match="a and x meet, though each is of a cluster that owns slots"):
        await lab.server("a").execute("CLUSTER", "MEET", *lab.address("x"))


async def test_crash_may_lose_only_unreplicated_writes(lab: GuardedLab) -> None:
    guard = lab.redis.guard
    lab.redis.lagging.add("demo-f")
    await lab.wait(1)
    before = lab.keys("f")
    newer = [key for key, value in lab.keys("c").items() if value != before.get(key)]
    await lab.stop("c")
    assert guard.lowered >= {*newer}, "c's last writes may be lost"
    assert newer
    lab.redis.lagging.clear()
    await lab.wait(ELECTED)
    await lab.recorder.start("c")
    await lab.wait(2 * SEEN)
    assert not lab.redis.violations
    assert not guard.lowered, "all servers recovered"


async def test_key_that_vanishes_is_a_violation_at_any_time(lab: GuardedLab) -> None:
    await lab.stop("a")
    lab.process("f").node.keys.pop(OLD_KEYS[1], None)
    key = next(key for key in OLD_KEYS if key in lab.process("c").node.keys)
    del lab.process("c").node.keys[key]
    with pytest.raises(Unsafe, match="acknowledged writes are lost"):
        lab.redis.settle("a key is deleted, while another server is down")


async def test_crash_loses_nothing_that_was_replicated(lab: GuardedLab) -> None:
    key = next(key for key in OLD_KEYS if key in lab.keys("c"))
    await lab.stop("c")
    await lab.wait(1)
    del lab.process("f").node.keys[key]
    lab.redis.disk("c").keys.clear()
    with pytest.raises(Unsafe, match="acknowledged writes are lost: no server has"):
        await lab.wait(ELECTED)


async def test_deleted_key_that_comes_back_is_a_violation(lab: GuardedLab) -> None:
    key = next(key for key in OLD_KEYS if key in lab.keys("c"))
    value = lab.keys("c")[key]
    assert lab.redis.client.send(lab.redis, key, "DEL")
    await lab.wait(1)
    lab.process("c").node.keys[key] = value
    with pytest.raises(Unsafe, match="was deleted, and comes back as 1,000,000"):
        await lab.wait(1)


async def test_counter_that_begins_again_is_a_violation(lab: GuardedLab) -> None:
    key = next(key for key in OLD_KEYS if key in lab.keys("c"))
    del lab.process("c").node.keys[key]
    with pytest.raises(Unsafe, match=r"was 1,000,000 .*, and clients find None"):
        lab.redis.client.send(lab.redis, key, "INCR")


async def test_wait_covers_only_what_was_written_before_the_last_command_of_the_connection(lab: GuardedLab) -> None:
    server = lab.server("c")
    for command in (("PING",), ("WAIT", 1, 100)):
        await server.execute(*command)
    key = next(key for key in KEYS if key in lab.keys("c"))
    assert lab.redis.client.send(lab.redis, key, "INCR")
    assert await server.execute("WAIT", 1, 100) == 1
    assert lab.keys("f").get(key) != lab.keys("c")[key], "WAIT knows nothing of others' writes"
    await server.execute("PING")
    assert await server.execute("WAIT", 1, 100) == 1
    assert lab.keys("f")[key] == lab.keys("c")[key]


async def test_restarted_primary_marks_slots_of_its_stray_keys_as_importing(lab: GuardedLab) -> None:
    lab.redis.client.idle = lab.redis.guard.disabled = True
    process = lab.process("c")
    process.node.keys[b"foo"] = Entry(0)
    for name in "abc":
        node = lab.process(name).node
        node.give(FOO, node.known[lab.id("a")])
    lab.redis.stop(process, "killed")
    lab.redis.begin(process.uid, process.pod, process.address, Command(process.disk, "c"))
    assert lab.process("c").node.importing == {FOO: lab.id("a")}


async def test_cluster_view_is_stale_until_gossip_arrives(lab: GuardedLab) -> None:
    await lab.cluster("f", "FAILOVER")
    await lab.wait(0.25)
    before = {node.id for node in await lab.recorder.nodes("a") if node.slots}
    await lab.wait(SEEN)
    after = {node.id for node in await lab.recorder.nodes("a") if node.slots}
    assert lab.id("c") in before
    assert lab.id("c") not in after


async def test_clients_and_replicas_need_the_password(lab: GuardedLab) -> None:
    process = lab.process("c")
    process.passwords = {digest("secret")}
    await lab.wait(SEEN)
    assert not lab.process("f").linked
    with pytest.raises(Denied, match="NOAUTH"):
        await lab.server("c").execute("PING")
    endpoint = Endpoint("c", *lab.address("c")[:1], "c")
    with pytest.raises(Denied, match="WRONGPASS"):
        await lab.redis.connect(endpoint, Access(password="other")).execute("PING")
    assert await lab.redis.connect(endpoint, Access(password="other", former=("secret",))).execute("PING") == "PONG"
    await lab.server("f").execute("CONFIG", "SET", "masterauth", "secret")
    await lab.wait(SEEN)
    assert lab.process("f").linked


async def test_replicas_authenticate_as_a_user_of_the_primary(lab: GuardedLab) -> None:
    """The same on real servers: tests/redis/containers/test_replication_user.py."""
    for name, value in (("masteruser", "replication"), ("masterauth", "secret")):
        await lab.server("f").execute("CONFIG", "SET", name, value)
    await lab.wait(SEEN)
    assert not lab.process("f").linked
    primary = lab.server("c")
    assert await primary.execute("ACL", "GETUSER", "replication") is None
    await primary.execute("ACL", "SETUSER", "replication", "reset", "on", f"#{digest('other')}", "+@all")
    await lab.wait(SEEN)
    assert not lab.process("f").linked
    await primary.execute("ACL", "SETUSER", "replication", f"#{digest('secret')}")
    await lab.wait(SEEN)
    assert lab.process("f").linked


async def test_faults_lose_a_command_or_its_answer() -> None:
    lab = await GuardedLab.begin("")
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


async def test_valkey_9_migrates_slots_atomically() -> None:
    lab = await GuardedLab.begin("")
    for name in "abc":
        lab.process(name).engine, lab.process(name).version = "valkey", "9.0.1"
    await lab.cluster("a", "MIGRATESLOTS", "SLOTSRANGE", 0, 99, "NODE", lab.id("b"))
    await lab.wait(SEEN)
    assert lab.process("b").node.me.slots & 1
    [job] = await lab.server("a").execute("CLUSTER", "GETSLOTMIGRATIONS")
    assert job[job.index("state") + 1] == "success"
    assert not lab.redis.violations


async def test_redis_retries_an_import_until_its_source_is_free() -> None:
    """Source: cluster_asm.c of Redis 8.4."""
    lab = await GuardedLab.begin("")
    for name in "abc":
        lab.process(name).version = "8.4.6"
    first, second = list(bits(lab.process("a").node.me.slots))[:2]
    await lab.cluster("b", "MIGRATION", "IMPORT", first, first)
    with pytest.raises(Refused, match="another ASM task is already in progress"):
        await lab.cluster("b", "MIGRATION", "IMPORT", second, second)
    await lab.cluster("c", "MIGRATION", "IMPORT", second, second)
    for _ in range(atomic_migration.POLLS + 1):
        await lab.cluster("c", "MIGRATION", "STATUS", "ALL")
    [job] = lab.process("c").migrations
    assert (job.state, job.message) == ("failed", "The source takes part in another migration")
    await lab.wait(2)
    assert (job.state, job.retries) == ("success", 1)
    assert lab.process("b").node.me.slots >> first & lab.process("c").node.me.slots >> second & 1
    await lab.cluster("b", "MIGRATION", "IMPORT", second, second)
    assert await lab.cluster("b", "MIGRATION", "CANCEL", "ALL") == 1
    assert [each.state for each in lab.process("b").migrations] == ["success", "cancelled"]
