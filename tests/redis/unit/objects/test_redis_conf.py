"""redis.conf: precedence of settings, runtime changes, and changes that need a restart."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.directives import RESERVED
from operators.redis.api.resource import RedisCluster
from operators.redis.objects import redis_conf
from operators.redis.objects.conf_syntax import NAME, Malformed, arguments, quoted
from operators.redis.objects.redis_conf import CONFIG_KEY, WITHDRAWN, live, problem, render
from shared.kubernetes.kinds import Obj
from tests.harness import cost
from tests.redis.unit.security.rotation import wished


def lines(resource: RedisCluster, template: str = "") -> dict[str, list[str]]:
    """Return the values of each directive in redis.conf."""
    found: dict[str, list[str]] = {}
    for line in render(resource, template).split("\n"):
        if line and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            found.setdefault(name, []).append(rest)
    return found


def config_map(resource: RedisCluster, template: str = "", withdrawn: int | str = 0) -> Obj:
    """Return the ConfigMap of a resource."""
    annotations = {WITHDRAWN: str(withdrawn)} if withdrawn else {}
    return {"metadata": {"annotations": annotations}, "data": {CONFIG_KEY: render(resource, template)}}


NUMBERS = itertools.count()
EDITED = ["a\n" * 131_000, 'a "' + "b" * 262_000, "".join(f'a{number:04} "{"b" * 118}"\n' for number in range(2_040))]


@pytest.mark.parametrize("text", EDITED, ids=["lines", "a quote", "quotes"])
async def test_file_that_is_changed_by_hand_costs_little(text: str) -> None:
    """A plan on the event loop reads it, and does more."""
    async with cost.bounded(seconds=0.06):
        redis_conf.present({"data": {CONFIG_KEY: f"# {next(NUMBERS)}\n{text}"}})  # another one if it is repeated


def test_longest_file_of_the_operator_is_read() -> None:
    template = "loadmodule a.so\n" + "".join(f"a.b{number} '{'x' * 40}'\n" for number in range(511))
    config = {f"c.d{number}": "'" * 1024 for number in range(126)} | {"save": "1 1 " * 256}
    found = redis_conf.present(config_map(wished(config=config), template))
    assert {"a.b510", "c.d125", "save"} <= set(found)


def test_file_that_is_changed_by_hand_adds_few_requests_to_an_inspection() -> None:
    """Each is a command to each of 500 nodes."""
    edited = {"data": {CONFIG_KEY: EDITED[2]}}
    assert len(redis_conf.names(wished(), "", edited)) <= len(redis_conf.names(wished(), "", None)) + 512


# Precedence.


def test_defaults_keep_data_safe() -> None:
    found = lines(wished())
    assert found["appendonly"] == ["yes"]
    assert found["save"] == ['""'], "no snapshots in addition to the append-only file"
    assert found["cluster-require-full-coverage"] == ["yes"]
    assert found["cluster-allow-replica-migration"] == ["no"]
    assert found["masteruser"] == ["default"]
    assert found["include"] == ["/etc/redis/users/users.conf"]
    assert "maxmemory" not in found


def test_spec_overrides_template_and_template_overrides_defaults() -> None:
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
def test_most_specific_max_memory_is_used(spec: Obj, template: str, bytes_: str) -> None:
    assert lines(wished(**spec), template)["maxmemory"] == [bytes_]


def test_reserved_and_placeholder_directives_of_a_template_are_ignored() -> None:
    template = "bind 0.0.0.0\nPORT 7000\ndir /var/lib/redis\ncluster-announce-ip {POD_IP}\nlogfile ''\n"
    template += "proc-title-template '{title} {listen-addr}'\nrepl-ping-replica-period ${PERIOD}\n# a word\n\nhz 20\n"
    found = lines(wished(), template)
    assert found["port"] == ["6379"]
    assert found["dir"] == ["/data"]
    assert found["proc-title-template"] == ['"{title} {listen-addr}"']
    assert found["hz"] == ["20"]
    assert not {"bind", "logfile", "cluster-announce-ip", "repl-ping-replica-period"} & found.keys()


def test_repeatable_directives_are_repeated() -> None:
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
    assert found["hz"] == ["2"], "the last value is used"


def test_grouped_arguments_are_split_into_lines_for_old_servers() -> None:
    limits = "normal 0 0 0 replica 256mb 64mb 60"
    found = lines(wished(config={"save": "3600 1 300 100", "client-output-buffer-limit": limits}))
    assert found["save"] == ["3600 1", "300 100"]
    assert found["client-output-buffer-limit"] == ["normal 0 0 0", "replica 256mb 64mb 60"]


def test_snapshots_are_those_of_the_engine_without_append_only_file() -> None:
    """Written in the file, so that running servers get them if the append-only file is switched off."""
    assert lines(wished(config={"appendonly": "no"}))["save"] == ["3600 1", "300 100", "60 10000"]
    assert lines(wished(config={"appendonly": "no", "save": "60 1"}))["save"] == ["60 1"]


def test_tls_disables_the_plaintext_port() -> None:
    found = lines(wished(tls={"mode": "self"}))
    assert (found["port"], found["tls-port"]) == (["0"], ["6379"])
    assert found["tls-cluster"] == found["tls-replication"] == found["tls-auth-clients"] == ["yes"]
    assert found["tls-cert-file"] == ["/etc/redis/tls/tls.crt"]
    assert found["cluster-preferred-endpoint-type"] == ["hostname"], "certificates are issued for host names"
    found = lines(wished(tls={"mode": "self", "clientAuth": "none"}, version="6.2.14"))
    assert found["tls-auth-clients"] == ["no"]
    assert "cluster-preferred-endpoint-type" not in found, "the directive is new in 7.0"


def test_replica_migration_is_prevented_before_6_2_2() -> None:
    found = lines(wished(version="6.2.1"))
    assert "cluster-allow-replica-migration" not in found
    assert found["cluster-migration-barrier"] == ["999"]


# Runtime changes.


def digest(resource: RedisCluster, template: str = "", before: Obj | None = None) -> str:
    """Return the digest of the settings that need a restart after a ConfigMap."""
    return redis_conf.digest(resource, template, times=redis_conf.withdrawn(resource, template, before))


def test_runtime_setting_is_applied_without_restart() -> None:
    before, after = wished(config={"hz": "10"}), wished(config={"hz": "20", "maxmemory-policy": "allkeys-lru"})
    assert live(after)["hz"] == "20"
    assert live(after)["maxmemory-policy"] == "allkeys-lru"
    assert digest(before) == digest(after)


def test_startup_setting_is_applied_by_restart() -> None:
    before, after = wished(config={"tcp-backlog": "100"}), wished(config={"tcp-backlog": "200"})
    assert "tcp-backlog" not in live(after)
    assert digest(before) != digest(after)
    assert digest(wished(), "loadmodule /a.so") != digest(wished())


def test_newer_engine_applies_more_settings_at_runtime() -> None:
    given: Obj = {"config": {"io-threads": "4"}, "repository": "valkey/valkey"}
    assert "io-threads" not in live(wished(version="8.1.1", **given))
    assert live(wished(version="9.1.0", **given))["io-threads"] == "4"
    assert "io-threads" not in live(wished(config={"io-threads": "4"}, version="8.0.2"))


def test_setting_that_would_begin_to_track_memory_is_applied_by_restart() -> None:
    given: Obj = {"config": {"cluster-slot-stats-enabled": "yes"}}
    assert "cluster-slot-stats-enabled" in live(wished(version="8.2.9", **given))
    assert "cluster-slot-stats-enabled" not in live(wished(version="8.6.7", **given))


def test_reserved_directives_are_never_applied_at_runtime() -> None:
    assert not set(live(wished(tls={"mode": "self"}, config={"hz": "1"}))) & set(RESERVED)


def test_repeated_directives_are_applied_as_one_value() -> None:
    found = live(wished(config={"save": "3600 1 300 100"}), "client-output-buffer-limit replica 1mb 1mb 60")
    assert found["save"] == "3600 1 300 100"
    assert found["client-output-buffer-limit"] == "replica 1mb 1mb 60"
    assert live(wished())["save"] == ""


def test_removed_setting_needs_a_restart() -> None:
    given, bare = wished(config={"hz": "20", "maxmemory": "1gb"}), wished(config={"maxmemory": "1gb"})
    was = config_map(given)
    once = digest(bare, "", was)
    assert once != digest(given, "", was)
    assert digest(bare, "", config_map(bare, withdrawn=1)) == once, "only one restart"
    assert digest(given, "", config_map(bare, withdrawn=1)) == once, "setting it again needs no restart"
    assert digest(bare, "", config_map(given, withdrawn=1)) != once, "removing it again needs another restart"


@pytest.mark.parametrize("edited", ["abc", "9" * 5_000, "-1", "1.1"])
def test_edited_number_of_removed_directives_counts_as_none(edited: str) -> None:
    resource = wished()
    assert redis_conf.withdrawn(resource, "", config_map(resource, withdrawn=edited)) == 0


def test_other_name_of_the_same_directive_needs_no_restart() -> None:
    given, renamed = wished(config={"min-slaves-to-write": "1"}), wished(config={"min-replicas-to-write": "1"})
    assert digest(renamed, "", config_map(given)) == digest(given)


def test_removed_setting_with_a_default_is_applied_at_runtime() -> None:
    given = wished(config={"cluster-node-timeout": "9000"})
    assert digest(wished(), "", config_map(given)) == digest(given)
    assert live(wished())["cluster-node-timeout"] == "5000"


def test_value_that_nodes_keep_replaces_a_default_under_another_name() -> None:
    """Of two lines for one directive, the last counts in the file, and each replaces the other at runtime."""
    refused, kept = wished(config={"min-slaves-to-write": "x", "appendonly": "no"}), {"min-slaves-to-write": [["1"]]}
    found = live(refused, "", kept)
    assert {name: value for name, value in found.items() if name.endswith("-to-write")} == {"min-slaves-to-write": "1"}


# Invalid templates.


@pytest.mark.parametrize("name", ["requirepass", "masterauth", "USER", "aclfile"])
def test_password_in_a_config_map_is_refused_without_auth(name: str) -> None:
    resource = wished(pod=[{"configmap": "mine"}])
    found = problem(resource, f"hz 10\n{name} hunter2\n")
    assert found is not None
    assert found.reason == "ConfigMapInvalid"
    assert f"ConfigMap mine: line 2 sets {name.lower()}" in found.message
    assert "spec.auth.secretName" in found.message
    assert "hunter2" not in found.message
    assert (problem(wished(auth={"secretName": "a"}), f"{name} hunter2\n") is None) is (
        name in ("requirepass", "masterauth")
    )


@pytest.mark.parametrize("auth", [{}, {"auth": {"secretName": "a"}}])
@pytest.mark.parametrize("line", ["rename-command FLUSHALL hunter2", 'rename-command CONFIG ""'])
def test_renamed_command_is_refused_and_not_ignored(line: str, auth: Obj) -> None:
    found = problem(wished(pod=[{"configmap": "mine"}], **auth), f"hz 10\n{line}\n")
    assert found is not None
    assert found.message == (
        "spec.pod[0].configmap: ConfigMap mine: line 2 sets rename-command, which is not applied: the operator and the "
        "exporter need all commands. Remove the line."
    )


@pytest.mark.parametrize("line", ["user default off", "user app on >hunter2 ~* +@all", "aclfile /data/users.acl"])
def test_users_of_a_config_map_are_refused_and_not_ignored(line: str) -> None:
    """Without a word, `user default off` would leave a user that the file switches off."""
    found = problem(wished(pod=[{"configmap": "mine"}], auth={"secretName": "a"}), f"{line}\n")
    assert found is not None
    assert found.message == (
        f"spec.pod[0].configmap: ConfigMap mine: line 1 sets {line.split()[0]}, which is not applied: the operator "
        "defines the users of the nodes (spec.auth). Remove the line."
    )


def test_unbalanced_quotes_are_reported_with_the_line() -> None:
    found = problem(wished(pod=[{"configmap": "mine"}]), "hz 10\n\n# it's fine\nhz \"20\n")
    assert found is not None
    assert "line 4 has unbalanced quotes" in found.message


# Syntax.


@given(st.text(st.characters(codec="utf-8", exclude_characters="\x00")))
def test_quoted_text_survives_a_round_trip(text: str) -> None:
    written = quoted(text)
    assert "\n" not in written
    assert "\r" not in written
    assert arguments(f"name {written}") == ("name", text)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r'a "b c" d', ["a", "b c", "d"]),
        (r'a "\x41\n\"" ', ["a", 'A\n"']),
        (r'a "\xc3\xa9\xzz"', ["a", "éxzz"]),
        (r"a 'b \' \n'", ["a", r"b ' \n"]),
        ("a ''", ["a", ""]),
        ('a b"c d"', ["a", "bc d"]),
        ("a\x0bb  c\x0b", ["a\x0bb", "c\x0b"]),
        ("  # a 'b", []),
        (" \r\t", []),
    ],
)
def test_line_is_split_as_the_server_does(line: str, words: list[str]) -> None:
    assert list(arguments(line)) == words


@pytest.mark.parametrize("line", ['a "b"c', "a 'b", 'a b"', r'a "\xe9"', "a \x00b", r'a "\x00"', 'a "b\\'])
def test_line_that_the_server_cannot_read_as_text_is_malformed(line: str) -> None:
    with pytest.raises(Malformed):
        arguments(line)


# Injection.

INJECTIONS = (
    r'"hz\x0auser evil on nopass ~* &* +@all\x0ahz" 10',
    r'"hz\nport" 7000',
    "'hz 10' 20",
    '"" 10',
    "hz\x0bport 10",
    "п 10",
)
"""Lines with names that are not names."""


@pytest.mark.parametrize("line", INJECTIONS)
def test_name_that_is_not_a_name_is_refused_and_never_rendered(line: str) -> None:
    resource = wished(pod=[{"configmap": "mine"}], auth={"secretName": "a"})
    found = problem(resource, f"hz 10\n{line}\n")
    assert found is not None
    assert "line 2 does not begin with the name of a directive" in found.message
    assert render(resource, f"hz 10\n{line}\n") == render(resource, "hz 10\n")


WORD = st.text(st.sampled_from("hzport \"'\\nx0aA7#\t\x0b{}$-_.é\x00\u2028"), max_size=12)
NAMES = st.sampled_from(["hz", "save", "user", "port", "loadmodule", "client-output-buffer-limit", "HZ"])
VALUES = st.sampled_from(["10", "60 1", "a b"])


@given(st.lists(st.builds(lambda name, rest: f"{name} {rest}", WORD | NAMES, WORD | VALUES)))
def test_rendered_file_has_only_names_of_directives(template: list[str]) -> None:
    """For any redis.conf of a user, each rendered line sets a directive, and the operator's are its own."""
    resource = wished()
    text = "\n".join(template)
    own = {*lines(resource)}
    for line in render(resource, text).split("\n"):
        words = arguments(line)
        assert not words or re.fullmatch(NAME, words[0]), line
        assert not words or words[0] in own or words[0] not in RESERVED, line
    assert "user" not in lines(resource, text)
    assert lines(resource, text)["port"] == ["6379"]


# Values.


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("maxmemory-policy sometimes", "sets maxmemory-policy, which accepts one of noeviction"),
        ("max-memory 1gb", "sets max-memory, which is not a directive of redis 8.0"),
        ("hz 10 20", "sets hz, which needs one value"),
        ("hz", "sets hz, which needs a value"),
        ("cluster-node-timeout 0", "sets cluster-node-timeout, which accepts an integer of at least 1000"),
    ],
)
def test_line_that_prevents_the_start_is_reported_without_its_value(line: str, words: str) -> None:
    found = problem(wished(pod=[{"configmap": "mine"}]), f"appendonly yes\n{line}\n")
    assert found is not None
    assert f"ConfigMap mine: line 2 {words}" in found.message
    assert "sometimes" not in found.message


def test_directives_of_modules_are_left_to_the_server() -> None:
    resource = wished(pod=[{"configmap": "mine"}])
    assert problem(resource, "loadmodule /a.so x y\nmy-option 5 6\n") is None
    assert problem(resource, "search.size 5\nbf-initial-size 100\n") is None
    assert problem(resource, "my-option 5\n") is not None


def test_later_name_of_a_directive_replaces_the_earlier_one() -> None:
    found = lines(wished(config={"replica-serve-stale-data": "no"}), "slave-serve-stale-data yes\n")
    assert "slave-serve-stale-data" not in found
    assert found["replica-serve-stale-data"] == ["no"]


def test_empty_save_point_replaces_the_earlier_ones() -> None:
    assert lines(wished(), 'save 60 1\nsave ""\n')["save"] == ['""']
    assert lines(wished(), 'save 60 1\nsave ""\nsave 300 10\n')["save"] == ["300 10"]


@given(st.text(max_size=200))
def test_no_template_overrides_reserved_directives(text: str) -> None:
    resource = wished()
    found: dict[str, Any] = lines(resource, text)
    assert found["port"] == ["6379"]
    assert found["cluster-enabled"] == ["yes"]
    assert found["include"] == ["/etc/redis/users/users.conf"]
    problem(resource, text)
