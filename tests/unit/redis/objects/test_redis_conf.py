"""redis.conf: whose word counts, what is told to running servers, and what rolls them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.reserved_directives import RESERVED
from operators.redis.api.resource import RedisCluster
from operators.redis.objects import redis_conf
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN, digest, live, problem, quoted, render
from shared.kubernetes.kinds import Obj
from tests.unit.redis.security.rotation import wished


def lines(resource: RedisCluster, template: str = "") -> dict[str, list[str]]:
    """What stands in it: the rest of each line by its first word."""
    found: dict[str, list[str]] = {}
    for line in render(resource, template).split("\n"):
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


def config_map(resource: RedisCluster, template: str = "", withdrawn: int = 0) -> Obj:
    """As it was written for a resource."""
    annotations = {WITHDRAWN: str(withdrawn)} if withdrawn else {}
    return {"metadata": {"annotations": annotations}, "data": {CONFIG_KEY: render(resource, template)}}


# Whose word counts.


def test_what_nobody_gives_is_what_keeps_data_safe() -> None:
    found = lines(wished())
    assert found["appendonly"] == ["yes"]
    assert found["save"] == ['""'], "no snapshots beside the log"
    assert found["cluster-require-full-coverage"] == ["yes"]
    assert found["cluster-allow-replica-migration"] == ["no"]
    assert found["masteruser"] == ["default"]
    assert found["include"] == ["/etc/redis/users/users.conf"]
    assert "maxmemory" not in found


def test_the_spec_wins_over_the_template_and_that_over_defaults() -> None:
    template = "appendfsync always\ncluster-node-timeout 9000\nHZ 20\n"
    found = lines(wished(config={"appendfsync": "no"}), template)
    assert (found["appendfsync"], found["cluster-node-timeout"], found["hz"]) == (["no"], ["9000"], ["20"])


@pytest.mark.parametrize(
    ("spec", "template", "bytes_"),
    [
        ({"env": [{"name": "MAXMEMORY", "value": "2gb"}]}, "maxmemory 1gb", str(2 << 30)),
        ({"config": {"maxmemory": "512mb"}, "resources": {"limits": {"memory": "4Gi"}}}, "maxmemory 1gb", "512mb"),
        ({"resources": {"limits": {"memory": "4Gi"}}}, "maxmemory 1gb", "1gb"),
        ({"resources": {"limits": {"memory": "4Gi"}}}, "", str(3 << 30)),
    ],
)
def test_how_much_a_node_takes_is_said_by_who_is_nearest_to_it(spec: Obj, template: str, bytes_: str) -> None:
    assert lines(wished(**spec), template)["maxmemory"] == [bytes_]


def test_of_a_template_what_is_ours_and_what_has_a_placeholder_is_left_out() -> None:
    template = "bind 0.0.0.0\nPORT 7000\ndir /var/lib/redis\ncluster-announce-ip {POD_IP}\nlogfile ''\n"
    template += "proc-title-template '{title} {listen-addr}'\nrepl-ping-replica-period ${PERIOD}\n# a word\n\nhz 20\n"
    found = lines(wished(), template)
    assert found["port"] == ["6379"]
    assert found["dir"] == ["/data"]
    assert found["proc-title-template"] == ['"{title} {listen-addr}"']
    assert found["hz"] == ["20"]
    assert not {"bind", "logfile", "cluster-announce-ip", "repl-ping-replica-period"} & found.keys()


def test_what_may_stand_several_times_does() -> None:
    template = (
        "save 900 1\nsave 300 10\nclient-output-buffer-limit normal 0 0 0\nloadmodule /a.so x\nloadmodule /b.so\n"
    )
    template += (
        "client-output-buffer-limit replica 1mb 1mb 60\nclient-output-buffer-limit normal 2mb 1mb 60\nhz 1\nhz 2\n"
    )
    found = lines(wished(), template)
    assert found["save"] == ["900 1", "300 10"]
    assert found["client-output-buffer-limit"] == ["replica 1mb 1mb 60", "normal 2mb 1mb 60"]
    assert found["loadmodule"] == ["/a.so x", "/b.so"]
    assert found["hz"] == ["2"], "the last one counts"


def test_several_arguments_are_a_line_each_where_the_oldest_server_wants_them_so() -> None:
    limits = "normal 0 0 0 replica 256mb 64mb 60"
    found = lines(wished(config={"save": "3600 1 300 100", "client-output-buffer-limit": limits}))
    assert found["save"] == ["3600 1", "300 100"]
    assert found["client-output-buffer-limit"] == ["normal 0 0 0", "replica 256mb 64mb 60"]


def test_without_a_log_snapshots_are_left_as_the_engine_has_them() -> None:
    assert "save" not in lines(wished(config={"appendonly": "no"}))
    assert lines(wished(config={"appendonly": "no", "save": "60 1"}))["save"] == ["60 1"]


def test_encryption_leaves_no_open_port() -> None:
    found = lines(wished(tls={"mode": "self"}))
    assert (found["port"], found["tls-port"]) == (["0"], ["6379"])
    assert found["tls-cluster"] == found["tls-replication"] == found["tls-auth-clients"] == ["yes"]
    assert found["tls-cert-file"] == ["/etc/redis/tls/tls.crt"]
    assert found["cluster-preferred-endpoint-type"] == ["hostname"], "a certificate bears names"
    found = lines(wished(tls={"mode": "self", "clientAuth": "none"}, version="6.2.14"))
    assert found["tls-auth-clients"] == ["no"]
    assert "cluster-preferred-endpoint-type" not in found, "news of 7.0"


def test_an_engine_without_a_word_for_it_is_kept_from_moving_replicas_too() -> None:
    found = lines(wished(version="6.2.1"))
    assert "cluster-allow-replica-migration" not in found
    assert found["cluster-migration-barrier"] == ["999"]


# What running servers are told.


def test_what_servers_take_while_they_run_is_told_and_rolls_nobody() -> None:
    before, after = wished(config={"hz": "10"}), wished(config={"hz": "20", "maxmemory-policy": "allkeys-lru"})
    assert live(after)["hz"] == "20"
    assert live(after)["maxmemory-policy"] == "allkeys-lru"
    assert digest(before) == digest(after)


def test_what_they_read_at_their_start_alone_is_not_told_and_rolls_them() -> None:
    before, after = wished(config={"tcp-backlog": "100"}), wished(config={"tcp-backlog": "200"})
    assert "tcp-backlog" not in live(after)
    assert digest(before) != digest(after)
    assert digest(wished(), "loadmodule /a.so") != digest(wished())


def test_a_later_engine_takes_more_while_it_runs() -> None:
    given: Obj = {"config": {"io-threads": "4"}, "repository": "valkey/valkey"}
    assert "io-threads" not in live(wished(version="8.1.1", **given))
    assert live(wished(version="9.1.0", **given))["io-threads"] == "4"
    assert "io-threads" not in live(wished(config={"io-threads": "4"}, version="8.0.2"))


def test_nothing_of_ours_is_told_beside_what_the_spec_may_give() -> None:
    assert not set(live(wished(tls={"mode": "self"}, config={"hz": "1"}))) & set(RESERVED)


def test_several_lines_are_told_as_one() -> None:
    found = live(wished(config={"save": "3600 1 300 100"}), "client-output-buffer-limit replica 1mb 1mb 60")
    assert found["save"] == "3600 1 300 100"
    assert found["client-output-buffer-limit"] == "replica 1mb 1mb 60"
    assert live(wished())["save"] == ""


def test_what_is_taken_away_rolls_for_nobody_knows_what_was_there_before() -> None:
    given, bare = wished(config={"hz": "20", "maxmemory": "1gb"}), wished(config={"maxmemory": "1gb"})
    was = config_map(given)
    once = digest(bare, "", was)
    assert once != digest(given, "", was)
    assert digest(bare, "", config_map(bare, withdrawn=1)) == once, "and does so once"
    assert digest(given, "", config_map(bare, withdrawn=1)) == once, "to give it again is told"
    assert digest(bare, "", config_map(given, withdrawn=1)) != once, "to take it away again rolls again"


def test_what_has_a_default_of_ours_is_told_that() -> None:
    given = wished(config={"cluster-node-timeout": "9000"})
    assert digest(wished(), "", config_map(given)) == digest(given)
    assert live(wished())["cluster-node-timeout"] == "5000"


# What is wrong with a template.


@pytest.mark.parametrize("name", ["requirepass", "masterauth", "USER", "aclfile"])
def test_a_password_in_a_config_map_is_refused_where_nobody_would_be_asked_for_it(name: str) -> None:
    resource = wished(pod=[{"configmap": "mine"}])
    found = problem(resource, f"hz 10\n{name} hunter2\n")
    assert found is not None
    assert found.reason == "ConfigMapInvalid"
    assert f"ConfigMap mine: line 2 is {name.lower()}" in found.message
    assert "spec.auth.secretName" in found.message
    assert "hunter2" not in found.message
    assert problem(wished(auth={"secretName": "a"}), f"{name} hunter2\n") is None


def test_quotes_that_do_not_match_are_told_with_their_line() -> None:
    found = problem(wished(pod=[{"configmap": "mine"}]), "hz 10\n\n# it's fine\nhz \"20\n")
    assert found is not None
    assert "line 4 has quotes that do not match" in found.message


# As the server reads it.


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_what_is_quoted_is_read_as_it_was(text: str) -> None:
    written = quoted(text)
    assert "\n" not in written
    assert "\r" not in written
    assert redis_conf._arguments(f"name {written}") == ["name", text]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r'a "b c" d', ["a", "b c", "d"]),
        (r'a "\x41\n\"" ', ["a", 'A\n"']),
        (r"a 'b \' \n'", ["a", r"b ' \n"]),
        ("a ''", ["a", ""]),
        ('a "b"c', None),
        ("a 'b", None),
        ("  # a 'b", []),
    ],
)
def test_a_line_is_taken_apart_as_the_server_does(line: str, words: list[str] | None) -> None:
    assert redis_conf._arguments(line) == words


@given(st.text(max_size=200))
def test_any_text_is_read_and_never_undoes_what_is_ours(text: str) -> None:
    resource = wished()
    found: dict[str, Any] = lines(resource, text)
    assert found["port"] == ["6379"]
    assert found["cluster-enabled"] == ["yes"]
    assert found["include"] == ["/etc/redis/users/users.conf"]
    problem(resource, text)
