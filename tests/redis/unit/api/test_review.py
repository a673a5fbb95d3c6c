"""Admission of a RedisCluster: defaults, refused changes and warnings."""

from __future__ import annotations

import argparse
import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.admission import ADMISSION
from operators.redis.api.catalogue import REDIS
from operators.redis.api.catalogue import VALKEY as VALKEY_CATALOGUE
from operators.redis.api.resource import API, RedisCluster
from operators.redis.operator import OPERATOR
from operators.redis.settings import FLAGS
from operators.redis.settings import versions as parse_versions
from shared.cli.options import parse_options
from shared.kubernetes.kinds import Obj
from tests.support.redis.cases import NFS, SEED

IDS = ("a" * 40, "b" * 40, "c" * 40)
SLOTS = ("0-5460", "5461-10922", "10923-16383")


def obj(name: str = "demo", status: Obj | None = None, **spec: Any) -> Obj:
    given = {"replicas": 6, "version": REDIS.default_version, "storage": {}, "config": {"maxmemory": "1gb"}, **spec}
    fields = {key: value for key, value in given.items() if value is not ...}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": fields,
        **({"status": status} if status else {}),
    }


def running(*engines: str) -> Obj:
    """Return the status of three primaries of these engines; the first engine is the oldest."""
    conditions = [
        {"name": f"demo-{number}", "type": "master", "nodeId": IDS[number], "slots": SLOTS[number], "version": each}
        for number, each in enumerate(engines * (3 // len(engines)) if len(engines) < 3 else engines)
    ]
    return {"formed": True, "version": engines[0], "conditions": [*conditions, {"type": "Ready", "status": "True"}]}


def refused(new: Obj, old: Obj | None = None) -> str:
    return " ".join(ADMISSION.review(new, old).errors)


def warned(new: Obj, old: Obj | None = None) -> str:
    review = ADMISSION.review(new, old)
    assert review.errors == ()
    return " ".join((*review.warnings, *review.notes))


def test_all_errors_are_reported_together() -> None:
    wrong = obj("9", replicas=4, version="3.2.8", config={"port": "1"}, tls={"mode": "secret"})
    assert len(ADMISSION.review(wrong, None).errors) == 5


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ({}, REDIS.default_version),
        ({"repository": "library/redis"}, REDIS.default_version),
        ({"repository": "valkey/valkey"}, VALKEY_CATALOGUE.default_version),
        ({"repository": "a/kv", "engine": "valkey"}, VALKEY_CATALOGUE.default_version),
        ({"pod": [{"middlewareImage": "a/valkey"}]}, VALKEY_CATALOGUE.default_version),
        ({"pod": []}, REDIS.default_version),
    ],
)
def test_new_cluster_gets_the_default_version(spec: Obj, version: str) -> None:
    given = obj(version=..., **spec)
    before = copy.deepcopy(given)
    assert ADMISSION.default(given)["spec"]["version"] == version
    assert given == before, "the input is not modified"
    assert RedisCluster.parse(given).spec.version == version, "the reconcile uses the same default"


def test_default_versions_of_the_process_apply_at_admission_and_in_the_reconcile() -> None:
    versions = parse_versions("redis=8.0.2")
    assert versions == {"redis": "8.0.2", "valkey": VALKEY_CATALOGUE.default_version}
    configured = parse_options("redis-operator", "redis", ["--default-versions=redis=8.0.2"], {}, flags=FLAGS)
    [admission] = OPERATOR.admissions_with(configured)
    new = obj(version=...)
    assert admission.default(new)["spec"]["version"] == "8.0.2"
    [controller] = OPERATOR.controllers(configured)
    assert controller.parse(new).spec.version == "8.0.2"
    assert admission.default(obj(version=..., status=running("redis 7.0.15")))["spec"]["version"] == "7.0.15"


@pytest.mark.parametrize("text", ["8.0.2", "redis=latest", "keydb=6.3.4", "redis=3.2.8", "redis=8.0.2;valkey=9"])
def test_wrong_default_versions_are_refused_at_the_start(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_versions(text)


def test_missing_version_defaults_to_the_running_version() -> None:
    assert ADMISSION.default(obj(version=..., status=running("redis 7.0.15")))["spec"]["version"] == "7.0.15"
    other = obj(version=..., repository="valkey/valkey", status=running("redis 7.0.15"))
    assert ADMISSION.default(other)["spec"]["version"] == VALKEY_CATALOGUE.default_version, "the running engine differs"
    broken = obj(version=..., status={"version": "not a version"})
    assert ADMISSION.default(broken)["spec"]["version"] == REDIS.default_version


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "7.0.15"},
        {"version": ..., "pod": [{"middlewareImage": "redis:7.0.15"}]},
        {"version": ..., "pod": [{"middlewareImage": f"redis@sha256:{'0' * 64}"}]},
    ],
)
def test_explicit_version_or_image_is_kept(spec: Obj) -> None:
    assert ADMISSION.default(obj(**spec)) == obj(**spec)


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["redis", "a/valkey:9", "A B"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["version", "repository", "engine", "pod", "middlewareImage"]), inner)
    ),
)


@given(WRONG)
def test_defaulting_accepts_any_input_and_is_idempotent(spec: Any) -> None:
    once = ADMISSION.default({"metadata": {"name": "demo"}, "spec": spec})
    assert ADMISSION.default(once) == once


VALKEY: Obj = {"repository": "valkey/valkey", "version": "9.1"}


@pytest.mark.parametrize(
    ("engines", "new", "field", "words"),
    [
        (("redis 8.0.2",), {"version": "7.0.15"}, "version", "redis 7.0.15 is older than redis 8.0.2"),
        (("redis 7.0.15", "redis 7.0.15", "redis 8.0.2"), {"version": "7.0.15"}, "version", "redis 8.0.2, which a"),
        (("redis 8.0.2",), VALKEY, "version", "valkey reads data of redis up to 7.2"),
        (("redis 8.0.2",), {"repository": "a/valkey"}, "repository", "valkey reads data of redis up to 7.2"),
    ],
)
def test_unsupported_engine_change_is_refused(engines: tuple[str, ...], new: Obj, field: str, words: str) -> None:
    status = running(*engines)
    message = refused(obj(status=status, **new), obj(status=status))
    assert message.startswith(f"spec.{field}: ")
    assert words in message


def test_change_to_an_old_version_or_image_is_refused() -> None:
    for new in ({"version": "3.2.8"}, {"version": ..., "pod": [{"middlewareImage": "redis:3.2.8"}]}):
        message = refused(obj(**new, status=running("redis 8.0.2")), obj(status=running("redis 8.0.2")))
        assert message.startswith("spec.version: redis ")
        assert "is not supported" in message


@pytest.mark.parametrize(
    ("engines", "old", "new"),
    [
        (("redis 7.0.15",), {"version": "7.0.15"}, {"version": "8.0.2"}),
        (("redis 7.0.15",), {"version": "9.9.9"}, {"version": "7.0.15"}),  # version whose image was never pulled
        (("redis 7.0.15",), {"version": "7.0.15"}, VALKEY),
    ],
)
def test_supported_engine_change_is_accepted(engines: tuple[str, ...], old: Obj, new: Obj) -> None:
    status = running(*engines)
    assert refused(obj(status=status, **new), obj(status=status, **old)) == ""


def test_cluster_without_data_accepts_any_version() -> None:
    assert refused(obj(version="7.0.15", status={"phase": "Creating"}), obj(status={"phase": "Creating"})) == ""


def test_blocked_upgrade_does_not_prevent_other_changes() -> None:
    """The spec bypassed admission once: the reconcile blocks the upgrade and reports it."""
    status = running("redis 8.0.2")
    assert refused(obj(version="7.0.15", replicas=8, status=status), obj(version="7.0.15", status=status)) == ""


def test_invalid_resource_may_be_corrected() -> None:
    assert refused(obj(), obj(replicas="six")) == ""
    assert refused(obj(), obj(version="3.2.8")) == ""
    assert refused(obj(), obj(version=..., pod=[{"middlewareImage": "redis:latest"}])) == ""


def assign(*strategies: tuple[int, str]) -> Obj:
    entries = [{"slots": slots, "fromReplicas": nodes} for slots, nodes in strategies]
    return {"updateStrategy": {"type": "AssignReceive", "assignStrategies": entries}}


@pytest.mark.parametrize(
    ("replicas", "strategies", "words"),
    [
        (8, [(2000, "nodeId1")], "assignStrategies[0].fromReplicas names nodeId1, which owns no slots"),
        (8, [(5462, IDS[0])], f"needs 5462 slots from node {IDS[0]}, which owns 5461"),
        (8, [(11000, f"{IDS[0]},{IDS[1]}")], "which own 5461 + 5462 = 10923"),
        (10, [(4000, IDS[0]), (2000, IDS[0])], "of which earlier entries take 4000"),
        (8, [(1, f"{IDS[0]},{IDS[0]}")], "more than once"),
        (8, [(1, IDS[0]), (1, IDS[1])], "has 2 entries, and 1 new primary needs slots"),
        (10, [(1, IDS[0])], "has 1 entry, and 2 new primaries need slots"),
        (8, [], "has 0 entries, and 1 new primary needs slots"),
    ],
)
def test_assigning_slots_that_sources_do_not_own_is_refused(
    replicas: int, strategies: list[tuple[int, str]], words: str
) -> None:
    status = running("redis 8.0.2")
    message = refused(obj(replicas=replicas, status=status, **assign(*strategies)), obj(status=status))
    assert message.startswith("spec.updateStrategy.assignStrategies")
    assert words in message
    later = obj(status=status, **assign(*strategies))
    assert refused(later, obj(status=status)) == "", "without a new primary the entries have no effect"
    assert words in refused(obj(replicas=replicas, status=status, **assign(*strategies)), later)


@pytest.mark.parametrize(
    ("replicas", "strategies"),
    [
        (8, [(2000, IDS[0])]),
        (10, [(5461, IDS[0]), (1000, f"{IDS[1]},{IDS[2]}")]),
    ],
)
def test_assigning_slots_that_sources_own_is_accepted(replicas: int, strategies: list[tuple[int, str]]) -> None:
    status = running("redis 8.0.2")
    assert refused(obj(replicas=replicas, status=status, **assign(*strategies)), obj(status=status)) == ""


def test_entries_of_later_primaries_are_not_used_by_a_pending_one() -> None:
    status = running("redis 8.0.2") | {"assigned": [{"from": IDS[0], "to": "d" * 40, "slots": "0-1999"}]}
    given = assign((1000, IDS[1]))
    assert refused(obj(replicas=10, status=status, **given), obj(replicas=8, status=status, **given)) == ""


def test_slot_assignment_during_a_migration_is_not_checked() -> None:
    status = running("redis 8.0.2")
    status["conditions"][1]["slots"] = "5460-10922"
    assert refused(obj(replicas=8, status=status, **assign((2000, IDS[0]))), obj(status=status)) == ""


def test_node_ids_are_not_checked_before_the_cluster_exists() -> None:
    assert refused(obj(**SEED, storage=..., config={}), None) == ""
    assert refused(obj(replicas=8, **assign((2000, "nodeId1"))), obj()) == "", "the cluster is not formed"


def test_safe_spec_has_no_warning() -> None:
    assert warned(obj()) == ""
    assert warned(obj(), obj()) == ""
    assert warned(obj(replicas=8), obj()) == ""
    assert warned(obj(podDisruptionBudget={})) == ""
    assert warned(obj(auth={"secretName": "a"}, tls={"mode": "self"})) == ""
    assert warned(obj(version="8.2.10"), obj()) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicasPerMaster": 0}, "spec.replicasPerMaster: with 0, no replica can take over"),
        ({"replicasPerMaster": 0}, "Rolling updates interrupt them, or wait for you if their keys are only in memory."),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "with 6 pods it allows no eviction"),
        ({"podDisruptionBudget": {"minAvailable": 6}}, "with 6 pods it allows no eviction"),
        ({"podDisruptionBudget": {"maxUnavailable": 2}}, "it allows 2 of 6 pods to be evicted at once"),
        ({"updateStrategy": {"assignStrategies": [{"slots": 1, "fromReplicas": "a"}]}}, "ignores them"),
        ({"storage": ...}, "data only in memory (storage)"),
        ({"storage": ..., "pod": [{"volumes": {"type": "hostPath"}}]}, "hostPath ties data to Kubernetes nodes"),
        (
            {"storage": ..., "pod": [{"volumes": {**NFS, "persistentVolumeClaimName": "pvcName"}}]},
            "pvcName is not a valid claim name",
        ),
        ({"config": {}}, "no memory limit (resources)"),
        (
            {"resources": {"limits": {"memory": "512Mi"}}},
            "1073741824 bytes) exceeds the memory limit",
        ),
        ({"auth": {"secretName": "a"}}, "passwords are sent unencrypted"),
        ({"users": [{"name": "app", "rules": "+get"}]}, "clients that name no user have all rights"),
        (
            {"affinity": {"nodeAffinity": None, "requiredDuringSchedulingIgnoredDuringExecution": {}}},
            "spec.affinity: requiredDuringSchedulingIgnoredDuringExecution is next to nodeAffinity",
        ),
    ],
)
def test_risky_spec_has_one_warning(spec: Obj, words: str) -> None:
    review = ADMISSION.review(obj(**spec), None)
    (message,) = (*review.warnings, *review.notes)
    assert words in message


@pytest.mark.parametrize(
    "spec",
    [
        {"podDisruptionBudget": {"maxUnavailable": 1}},
        {"resources": {"limits": {"memory": "1Gi"}}},
        {"config": {}, "resources": {"limits": {"memory": "1Gi"}}},
        {"storage": ..., "pod": [{"volumes": NFS}]},
        {"updateStrategy": {"type": "AssignReceive", "assignStrategies": [{"slots": 1, "fromReplicas": "a"}]}},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
    ],
)
def test_spec_just_within_the_limits_has_no_warning(spec: Obj) -> None:
    assert warned(obj(**spec)) == ""


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({"version": "8.2.8"}, "spec.version: redis 8.2.8 is older than redis 8.2.9"),
        ({"finalizers": ""}, "deleting the resource now leaves its pods running"),
        ({"storage": {"size": "9Gi"}}, "spec.storage.size: volumes grow from 8Gi to 9Gi, and can never shrink."),
        ({"storage": {"size": "7Gi"}}, "spec.storage.size: 7Gi is below the former 8Gi."),
    ],
)
def test_risky_change_has_a_warning(new: Obj, words: str) -> None:
    assert words in warned(obj(**new), obj())
    assert words not in warned(obj(**new), obj(**new))


def test_admission_handles_redisclusters() -> None:
    assert ADMISSION.kind == API.kind


# Directives.


def of_8_0(**spec: Any) -> Obj:
    """Return a resource of the newest line whose directives are known."""
    return obj(version="8.0.2", **spec)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"maxmemory-policy": "sometimes"}, "spec.config: maxmemory-policy accepts one of noeviction, allkeys-lru"),
        ({"cluster-node-timeout": "0"}, "spec.config: cluster-node-timeout accepts an integer of at least 1000"),
        ({"maxmemory": "50%"}, "spec.config: maxmemory accepts an amount of memory"),
        ({"max-memory": "1gb"}, "spec.config: max-memory is not a directive of redis 8.0; it is set to '1gb'."),
        (
            {"appendonly": "true"},
            "spec.config: appendonly accepts yes or no; it is set to 'true'. Correct or remove it.",
        ),
    ],
)
def test_value_that_the_version_does_not_accept_is_refused(config: Obj, words: str) -> None:
    assert words in refused(of_8_0(config=config))
    assert words in refused(of_8_0(config=config), of_8_0())
    assert words in refused(of_8_0(config={**config, "hz": "20"}), of_8_0(config=dict.fromkeys(config, "1")))


def test_refused_value_that_the_resource_already_has_does_not_prevent_other_changes() -> None:
    config = {"maxmemory-policy": "sometimes"}
    assert refused(of_8_0(config=config, replicas=8), of_8_0(config=config)) == ""
    assert refused(of_8_0(config={**config, "hz": "20"}), of_8_0(config=config)) == ""
    assert "'often'" in refused(of_8_0(config={"maxmemory-policy": "often"}), of_8_0(config=config))


def test_upgrade_to_a_version_without_a_directive_is_refused() -> None:
    config = {"gopher-enabled": "yes"}
    before = obj(version="6.2.14", config=config, status=running("redis 6.2.14"))
    assert refused(before) == ""
    message = refused(obj(version="7.0.15", config=config, status=running("redis 6.2.14")), before)
    assert "gopher-enabled is not a directive of redis 7.0" in message


def test_directive_of_a_newer_version_or_of_a_module_is_left_to_the_server() -> None:
    assert refused(obj(version="8.99.9", config={"new-directive": "1"})) == ""
    assert refused(obj(config={"loadmodule": "/a.so", "my-option": "1"})) == ""


# Memory.


def limited(limit: str, **spec: Any) -> Obj:
    return obj(resources={"limits": {"memory": limit}}, config={}, **spec)


def test_memory_limit_in_which_no_node_starts_is_refused() -> None:
    message = refused(limited("1Mi"))
    assert "limits.memory is 1Mi, but an empty node uses about 15 MiB" in message
    assert "Use at least 64Mi." in message
    assert refused(limited("1Mi", replicas=8), limited("1Mi")) == "", "the resource already has it"
    assert "Use at least 64Mi." in warned(limited("32Mi"))
    assert "64Mi" not in warned(limited("64Mi"))


def test_nodes_without_persistence_are_warned_about() -> None:
    words = 'with appendonly "no" and save "", nodes keep no data on disk'
    assert words in warned(obj(config={"appendonly": "no", "save": ""}))
    assert words not in warned(obj(config={"appendonly": "no"}))
    assert words not in warned(obj(config={"save": ""}))


def test_nodes_with_snapshots_only_are_warned_about() -> None:
    words = 'with appendonly "no", nodes keep snapshots only'
    assert words in warned(obj(config={"appendonly": "no"}))
    assert words in warned(obj(config={"appendonly": "no", "save": "60 1"}))
    for config in ({"appendonly": "no", "save": ""}, {"save": "60 1"}, {}):
        assert words not in warned(obj(config=config))


def test_version_with_known_weaknesses_causes_a_warning() -> None:
    message = warned(obj(version="8.0.2"))
    assert re.fullmatch(
        rf"redis 8\.0\.2 has \d known weaknesses, fixed in {REDIS.default_version} \(version\)", message
    )
    tls = obj(version="8.2.8", tls={"mode": "self"})
    assert "1 known weakness" in warned(tls), "a weakness of TLS"
    assert warned(obj(version="8.2.8")) == ""


def test_threads_of_valkey_that_make_moves_of_slots_fail_cause_a_warning() -> None:
    given: Obj = {"repository": "valkey/valkey", "version": "9.1.4"}
    assert "moves of slots fail" in warned(obj(**given, config={"maxmemory": "1gb", "io-threads": "4"}))
    assert warned(obj(**given)) == ""
