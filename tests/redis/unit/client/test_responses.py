"""Parsing of server responses about themselves and their peers."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from typing import Any

import pytest

from operators.redis.client import responses
from operators.redis.client.responses import Entries, Follower, Node, NodeReport, parse_facts, parse_nodes, report_of
from operators.redis.slots.hash_slots import Slots

ONE, TWO, THREE = (letter * 40 for letter in "abc")

NODES = f"""\
{ONE} 10.0.0.1:6379@16379,demo-0.test,,shard-id=5f0 myself,master - 0 0 7 connected 0-5460 9 [5-<-{TWO}] [7->-{TWO}]
{TWO} 10.0.0.2:6379@16379 slave,fail {ONE} 1 2 7 disconnected
{THREE} fd00::1:6379@16379,,tls-port=0 master,fail? - 1795313142647 1795313142000 0 connected
{"d" * 40} :0@0 master,noaddr,fail - 1 2 3 disconnected
{"e" * 40} 10.0.0.5:6379@16379,? handshake - 0 0 0 connected
{"f" * 40} 10.0.0.6:6379 noflags - 0 0 0 connected
"""

REDIS = """# Server\r
redis_version:7.0.15\r
run_id:0123\r
loading:0\r
async_loading:0\r
used_memory:1048576\r
maxmemory:0\r
maxmemory_policy:noeviction\r
role:master\r
connected_slaves:2\r
slave0:ip=10.0.0.2,port=6379,state=online,offset=42,lag=0\r
slave1:ip=10.0.0.3,port=6379,state=wait_bgsave,offset=0,lag=0\r
master_repl_offset:43\r
db0:keys=3,expires=1,avg_ttl=0\r
"""

VALKEY = """# Server\r
redis_version:7.2.4\r
server_name:valkey\r
valkey_version:9.1.2\r
run_id:0123\r
loading:0\r
async_loading:1\r
used_memory:1\r
maxmemory:2\r
maxmemory_policy:allkeys-lru\r
role:slave\r
master_host:10.0.0.2\r
master_port:6379\r
master_link_status:down\r
master_sync_in_progress:1\r
slave_repl_offset:41\r
master_repl_offset:43\r
db0:keys=3,expires=1,avg_ttl=0,subexpiry=0\r
db3:keys=4,expires=0,avg_ttl=0,subexpiry=0\r
"""

GIVEN = ["masterauth", ""]
USER = ["flags", ["on", "sanitize-payload"], "passwords", ["bb", "aa"], "commands", "+@all", "keys", "~*"]


def test_nodes_line_of_the_server_itself() -> None:
    me, *_ = parse_nodes(NODES)
    assert (me.id, me.address, me.port, me.host) == (ONE, "10.0.0.1", 6379, "demo-0.test")
    assert me.is_me
    assert me.is_primary
    assert me.slots == Slots.parse("0-5460 9")
    assert me.migrating == {7: TWO}
    assert me.importing == {5: TWO}
    assert (me.primary, me.epoch, me.linked) == ("", 7, True)


def test_nodes_lines_of_peers() -> None:
    _, two, three, lost, met, old = parse_nodes(NODES)
    assert two.is_replica
    assert two.failing
    assert not two.suspected
    assert (two.primary, two.linked) == (ONE, False)
    assert three.suspected
    assert not three.failing
    assert (three.address, three.port, three.host) == ("fd00::1", 6379, "")
    assert lost.noaddr
    assert (lost.address, lost.port) == ("", 0)
    assert met.handshake
    assert met.host == ""
    assert (old.address, old.port, old.flags) == ("10.0.0.6", 6379, frozenset())


def test_engine_versions_are_read_from_info() -> None:
    redis, valkey = parse_facts(REDIS), parse_facts(VALKEY)
    assert (redis.engine, redis.version) == ("redis", "7.0.15")
    assert (valkey.engine, valkey.version) == ("valkey", "9.1.2")
    assert (redis.keys, valkey.keys) == (3, 7)
    assert (redis.evicts, valkey.evicts) == (False, True)
    assert (redis.loading, valkey.loading) == (False, True)
    assert (redis.memory, redis.max_memory) == (1048576, 0)


@pytest.mark.parametrize(
    ("down", "seconds"),
    [("0", 0), ("3", 3), ("60", 60), ("-1", math.inf), ("1795891399", math.inf), ("", math.inf)],
    ids=["just now", "since", "since the start", "never", "never, before redis 6.2.2", "missing"],
)
def test_replica_without_a_link_reports_for_how_long(down: str, seconds: float) -> None:
    """Values of redis 7.0, where the process runs for a minute."""
    line = f"master_link_down_since_seconds:{down}\r\n" if down else ""
    assert parse_facts(f"{VALKEY}uptime_in_seconds:60\r\n{line}").unlinked_seconds == seconds
    assert parse_facts(VALKEY.replace("link_status:down", "link_status:up")).unlinked_seconds == 0
    assert parse_facts(REDIS).unlinked_seconds == 0


def test_server_reports_that_it_shuts_down() -> None:
    assert not parse_facts(REDIS).shuts_down
    assert parse_facts(f"{REDIS}shutdown_in_milliseconds:9000\r\n").shuts_down


@pytest.mark.parametrize(
    ("fields", "rewrites"),
    [
        ("aof_rewrite_in_progress:0 aof_rewrite_scheduled:0 aof_last_bgrewrite_status:ok", False),
        ("aof_rewrite_in_progress:1 aof_rewrite_scheduled:0 aof_last_bgrewrite_status:ok", True),
        ("aof_rewrite_in_progress:0 aof_rewrite_scheduled:1 aof_last_bgrewrite_status:ok", True),
        ("aof_rewrite_in_progress:0 aof_rewrite_scheduled:0 aof_last_bgrewrite_status:err", True),
        ("aof_enabled:1 aof_rewrite_in_progress:0", False),
        ("aof_enabled:0 aof_rewrite_in_progress:0", True),
        ("aof_enabled:1 async_loading:1", True),
        ("aof_enabled:1 loading:1", True),
    ],
)
def test_log_is_complete_once_its_rewrite_is(fields: str, rewrites: bool) -> None:
    report = parse_facts(REDIS + fields.replace(" ", "\r\n") + "\r\n")
    assert report.rewrites_log == rewrites
    for appends in ("yes", "no"):
        assert NodeReport("a", rewrites_log=rewrites, settings={"appendonly": appends}).has_log == (
            appends == "yes" and not rewrites
        )


@pytest.mark.parametrize(
    ("fields", "complete"),
    [
        ("aof_enabled:1 aof_rewrite_scheduled:0 aof_last_bgrewrite_status:err", True),
        ("aof_enabled:1 aof_rewrite_scheduled:1 aof_last_bgrewrite_status:err", False),
        ("aof_enabled:1 aof_rewrite_in_progress:1 aof_last_bgrewrite_status:ok", False),
        ("aof_enabled:0 aof_last_bgrewrite_status:ok", False),
    ],
)
def test_log_stays_complete_although_a_rewrite_failed(fields: str, complete: bool) -> None:
    """A failed first rewrite, also the first since a full sync, is scheduled again at once."""
    report = parse_facts(REDIS + fields.replace(" ", "\r\n") + "\r\n")
    assert report.log_pending != complete


@pytest.mark.parametrize(
    ("saved", "uptime", "age"),
    [
        *((990, 3600, 10), (1000, 3600, 0), (990, 10, math.inf), (990, 12, math.inf), (990, 13, 10)),
        *((2000, 60, math.inf), (990, -500, 10), (990, 5, 10)),
    ],
    ids=[
        *("ten seconds ago", "now", "of the start", "as precise as the start", "after the start"),
        *("the clock was set back", "the clock was set back before", "since then, the process ran for some seconds"),
    ],
)
def test_age_of_the_last_snapshot_of_the_process(saved: int, uptime: int, age: float) -> None:
    """A server takes the time of its start for that of the last snapshot."""
    fields = f"server_time_usec:1000900000\r\nuptime_in_seconds:{uptime}\r\nrdb_last_save_time:{saved}\r\n"
    assert parse_facts(REDIS + fields).snapshot_age == age


@pytest.mark.parametrize(
    ("uptime", "now", "answered"),
    [
        (60, "server_time_usec:1795313150000000\r\n", {THREE: 8.0}),
        (9, "server_time_usec:1795313150000000\r\n", {}),
        (60, "", {}),
    ],
    ids=["a failed node answered", "the server started at that time", "the server does not report its time"],
)
def test_last_answers_of_failed_nodes(uptime: int, now: str, answered: dict[str, float]) -> None:
    """A server takes the time of its start for that of the last answers."""
    information = f"{REDIS}{now}uptime_in_seconds:{uptime}\r\n"
    found = report_of(information, 3, "cluster_state:ok\r\ncluster_current_epoch:7\r\n", NODES, GIVEN, USER)
    assert found.answered == answered


def test_replication_state_of_primary_and_replica() -> None:
    redis, valkey = parse_facts(REDIS), parse_facts(VALKEY)
    assert (redis.link_up, redis.syncing, redis.offset) == (True, False, 43)
    assert redis.replicas == (Follower("10.0.0.2", 6379, True, 42), Follower("10.0.0.3", 6379, False, 0))
    assert (valkey.link_up, valkey.syncing, valkey.offset) == (False, True, 41)
    assert (redis.replicates, valkey.replicates) == ("", "10.0.0.2:6379")
    assert valkey.replicas == ()


def test_history_that_a_primary_continues() -> None:
    lines = "master_replid:aa\r\nmaster_replid2:bb\r\nsecond_repl_offset:44\r\n"
    found = parse_facts(f"{REDIS}{lines}")
    assert (found.history, found.former_history, found.forked_at) == ("aa", "bb", 44)


def test_report_combines_all_responses() -> None:
    found = report_of(REDIS, 3, "cluster_state:ok\r\ncluster_current_epoch:9\r\n", NODES, GIVEN, USER)
    assert (found.id, found.state_ok, found.epoch, found.keys, found.run_id) == (ONE, True, 9, 3, "0123")
    assert found.me is found.nodes[0]
    assert found.node(TWO) is found.nodes[1]
    assert found.node("unknown") is None
    assert not report_of(REDIS, 3, "cluster_state:fail\r\ncluster_current_epoch:9\r\n", NODES, GIVEN, USER).state_ok


@pytest.mark.parametrize(
    ("count", "jobs", "trimming"), [(3, "", 0), (1, "0", 2), (0, "0", 3), (4, "", 0), (3, "1", 1), (1, "2", 2)]
)
def test_keys_that_the_server_is_deleting_are_those_that_only_info_counts(count: int, jobs: str, trimming: int) -> None:
    state = "cluster_state:ok\r\ncluster_current_epoch:9\r\n"
    state += f"cluster_slot_migration_active_trim_running:{jobs}\r\n" if jobs else ""
    found = report_of(REDIS, count, state, NODES, GIVEN, USER)
    assert (found.keys, found.trimming) == (3, trimming)
    assert report_of(VALKEY, count, state, NODES, GIVEN, USER).trimming == 0, "its keys are those of several databases"


@pytest.mark.parametrize(
    ("unreached", "missing"),
    [
        ({}, ""),
        ({"b": {"linked": False}}, ""),
        ({"b": {"linked": False}, "c": {"flags": frozenset({"master", "fail?"})}}, "bc"),
        ({"a": {"flags": frozenset({"master", "fail"})}, "c": {"flags": frozenset({"master", "noaddr"})}}, "ac"),
        ({"e": {"linked": False}, "r": {"linked": False}}, ""),
    ],
    ids=["none", "one of three", "two", "two by flags", "nodes without a vote"],
)
def test_replica_needs_a_majority_of_the_primaries_with_slots(unreached: dict[str, Any], missing: str) -> None:
    kinds = {name: Node(name, flags=frozenset({"master"}), slots=Slots.of(*range(3))) for name in "abc"}
    kinds |= {"e": Node("e", flags=frozenset({"master"})), "r": Node("r", flags=frozenset({"slave"}), primary="b")}
    me = Node("m", flags=frozenset({"myself", "slave"}), primary="a")
    nodes = (me, *(replace(node, **unreached.get(name, {})) for name, node in kinds.items()))
    assert "".join(node.id for node in NodeReport("m", nodes=nodes).missing_voters) == missing


def test_report_keeps_only_digests_of_passwords() -> None:
    state, given = "cluster_state:ok\r\ncluster_current_epoch:9\r\n", ["masterauth", "hunter2"]
    found = report_of(REDIS, 3, state, NODES, given, USER)
    assert found.gives == hashlib.sha256(b"hunter2").hexdigest()
    assert found.takes == ("aa", "bb")
    assert not any(word in repr(found) for word in ("hunter2", found.gives))
    user_without_password = ["flags", ["on", "nopass"], "passwords", [], "commands", "+@all"]
    found = report_of(REDIS, 3, "cluster_state:ok\r\ncluster_current_epoch:9\r\n", NODES, GIVEN, user_without_password)
    assert (found.gives, found.takes) == ("", ())


@pytest.mark.parametrize(
    ("information", "cluster", "nodes"),
    [
        ("", "cluster_state:ok\ncluster_current_epoch:9", NODES),
        (REDIS, "", NODES),
        (REDIS, "cluster_state:ok\ncluster_current_epoch:9", ""),
        (REDIS, "cluster_state:ok\ncluster_current_epoch:9", NODES.replace("myself,", "")),
        (REDIS, "cluster_state:ok\ncluster_current_epoch:9", NODES.replace("0-5460", "5460-0")),
        (REDIS, "cluster_state:ok\ncluster_current_epoch:9", "a page of something else"),
        (None, None, None),
    ],
)
def test_malformed_response_is_an_error(information: str, cluster: str, nodes: str) -> None:
    with pytest.raises(responses.MALFORMED):
        report_of(information, 3, cluster, nodes, GIVEN, USER)


def table(*ids: int, me: int = 0, epoch: int = 1) -> str:
    """Return CLUSTER NODES of a node that knows others."""
    line = "{:040x} 10.0.0.1:6379@16379 {} - 0 0 {} connected"
    return "\n".join(line.format(each, "myself,master" if each == me else "master", epoch) for each in ids)


def test_reports_of_500_nodes_fit_while_half_of_them_are_outdated() -> None:
    entries, nodes = Entries(500), range(500)
    reports = [parse_nodes(table(*nodes, me=me, epoch=me % 2), entries) for me in nodes]
    assert {len(report) for report in reports} == {500}
    assert len({id(node) for report in reports for node in report}) == 4 * 250 + 500, "equal entries are one object"


def test_server_that_knows_many_nodes_hides_no_other_server() -> None:
    """Another process may answer at the address of a former node."""
    entries = Entries(6)
    parse_nodes(table(*range(1_000, 1_500)), entries)
    with pytest.raises(ValueError, match="more than a cluster has"):
        parse_nodes(table(*range(2_000, 3_000)), entries)
    for me in range(6):
        assert len(parse_nodes(table(*range(6), me=me), entries)) == 6
