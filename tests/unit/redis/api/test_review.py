"""What is said of a RedisCluster at the door: what is filled in, what a change may not do, and what is unwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.admission import ADMISSION
from operators.redis.api.resource import API, RedisCluster
from shared.kubernetes.kinds import Obj
from tests.support.redis.cases import NFS, SEED

IDS = ("a" * 40, "b" * 40, "c" * 40)
SLOTS = ("0-5460", "5461-10922", "10923-16383")


def obj(name: str = "demo", status: Obj | None = None, **spec: Any) -> Obj:
    given = {"replicas": 6, "version": "8.0.2", "storage": {}, "config": {"maxmemory": "1gb"}, **spec}
    whole = {key: value for key, value in given.items() if value is not ...}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": whole, **({"status": status} if status else {})}


def running(*engines: str) -> Obj:
    """The status of three masters of these engines, of which the first is the lowest."""
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
    return " ".join(review.warnings)


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = obj("9", replicas=4, version="3.2.8", config={"port": "1"}, tls={"mode": "secret"})
    assert len(ADMISSION.review(wrong, None).errors) == 5


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        ({}, "8.0.2"),
        ({"repository": "library/redis"}, "8.0.2"),
        ({"repository": "valkey/valkey"}, "8.1.1"),
        ({"repository": "a/kv", "engine": "valkey"}, "8.1.1"),
        ({"pod": [{"middlewareImage": "a/valkey"}]}, "8.1.1"),
        ({"pod": []}, "8.0.2"),
    ],
)
def test_a_version_that_is_missing_is_ours_for_a_new_cluster(spec: Obj, version: str) -> None:
    given = obj(version=..., **spec)
    before = copy.deepcopy(given)
    assert ADMISSION.default(given)["spec"]["version"] == version
    assert given == before, "what is given is not changed in place"
    assert RedisCluster.parse(given).spec.version == version, "the reconcile sees the same"


def test_a_version_that_is_missing_is_what_runs_and_so_nobody_is_upgraded_unasked() -> None:
    assert ADMISSION.default(obj(version=..., status=running("redis 7.0.15")))["spec"]["version"] == "7.0.15"
    other = obj(version=..., repository="valkey/valkey", status=running("redis 7.0.15"))
    assert ADMISSION.default(other)["spec"]["version"] == "8.1.1", "what runs is another engine"
    broken = obj(version=..., status={"version": "a long time ago"})
    assert ADMISSION.default(broken)["spec"]["version"] == "8.0.2"


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "7.0.15"},
        {"version": ..., "pod": [{"middlewareImage": "redis:7.0.15"}]},
        {"version": ..., "pod": [{"middlewareImage": f"redis@sha256:{'0' * 64}"}]},
    ],
)
def test_a_version_or_an_image_that_is_given_stays(spec: Obj) -> None:
    assert ADMISSION.default(obj(**spec)) == obj(**spec)


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["redis", "a/valkey:9", "A B"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["version", "repository", "engine", "pod", "middlewareImage"]), inner)
    ),
)


@given(WRONG)
def test_defaulting_takes_anything_and_says_the_same_of_what_it_made(spec: Any) -> None:
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
def test_an_engine_that_may_not_follow_is_refused(engines: tuple[str, ...], new: Obj, field: str, words: str) -> None:
    status = running(*engines)
    said = refused(obj(status=status, **new), obj(status=status))
    assert said.startswith(f"spec.{field}: ")
    assert words in said


def test_a_change_to_what_is_too_old_is_refused_and_so_is_one_to_it_by_another_image() -> None:
    for new in ({"version": "3.2.8"}, {"version": ..., "pod": [{"middlewareImage": "redis:3.2.8"}]}):
        said = refused(obj(**new, status=running("redis 8.0.2")), obj(status=running("redis 8.0.2")))
        assert said.startswith("spec.version: redis ")
        assert "is not supported" in said


@pytest.mark.parametrize(
    ("engines", "old", "new"),
    [
        (("redis 7.0.15",), {"version": "7.0.15"}, {"version": "8.0.2"}),
        (("redis 7.0.15",), {"version": "9.9.9"}, {"version": "7.0.15"}),  # of which no image was ever pulled
        (("redis 7.0.15",), {"version": "7.0.15"}, VALKEY),
    ],
)
def test_one_that_may_is_taken(engines: tuple[str, ...], old: Obj, new: Obj) -> None:
    status = running(*engines)
    assert refused(obj(status=status, **new), obj(status=status, **old)) == ""


def test_a_cluster_of_which_nothing_ran_yet_may_be_changed_to_anything() -> None:
    assert refused(obj(version="7.0.15", status={"phase": "Creating"}), obj(status={"phase": "Creating"})) == ""


def test_an_upgrade_that_is_held_keeps_nobody_from_changing_something_else() -> None:
    """It came past admission once: the reconcile holds it, and says so."""
    status = running("redis 8.0.2")
    assert refused(obj(version="7.0.15", replicas=8, status=status), obj(version="7.0.15", status=status)) == ""


def test_a_resource_that_came_past_admission_may_be_mended() -> None:
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
def test_slots_that_nodes_do_not_have_to_give_are_refused_when_masters_are_added(
    replicas: int, strategies: list[tuple[int, str]], words: str
) -> None:
    status = running("redis 8.0.2")
    said = refused(obj(replicas=replicas, status=status, **assign(*strategies)), obj(status=status))
    assert said.startswith("spec.updateStrategy.assignStrategies")
    assert words in said
    later = obj(status=status, **assign(*strategies))
    assert refused(later, obj(status=status)) == "", "as long as no master joins, it is of no effect"
    assert words in refused(obj(replicas=replicas, status=status, **assign(*strategies)), later)


@pytest.mark.parametrize(
    ("replicas", "strategies"),
    [
        (8, [(2000, IDS[0])]),
        (10, [(5461, IDS[0]), (1000, f"{IDS[1]},{IDS[2]}")]),
    ],
)
def test_slots_that_they_have_are_not(replicas: int, strategies: list[tuple[int, str]]) -> None:
    status = running("redis 8.0.2")
    assert refused(obj(replicas=replicas, status=status, **assign(*strategies)), obj(status=status)) == ""


def test_a_master_that_was_promised_its_slots_takes_no_entry_of_those_that_join_after_it() -> None:
    status = running("redis 8.0.2") | {"assigned": [{"from": IDS[0], "to": "d" * 40, "slots": "0-1999"}]}
    given = assign((1000, IDS[1]))
    assert refused(obj(replicas=10, status=status, **given), obj(replicas=8, status=status, **given)) == ""


def test_slots_on_their_way_are_for_the_reconcile_to_judge() -> None:
    status = running("redis 8.0.2")
    status["conditions"][1]["slots"] = "5460-10922"
    assert refused(obj(replicas=8, status=status, **assign((2000, IDS[0]))), obj(status=status)) == ""


def test_ids_of_nodes_are_of_no_effect_before_there_are_any() -> None:
    assert refused(obj(**SEED, storage=..., config={}), None) == ""
    assert refused(obj(replicas=8, **assign((2000, "nodeId1"))), obj()) == "", "it has not begun"


def test_nothing_is_said_of_what_is_well() -> None:
    assert warned(obj()) == ""
    assert warned(obj(), obj()) == ""
    assert warned(obj(replicas=8), obj()) == ""
    assert warned(obj(podDisruptionBudget={})) == ""
    assert warned(obj(auth={"secretName": "a"}, tls={"mode": "self"})) == ""
    assert warned(obj(version="8.0.3"), obj()) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicasPerMaster": 0}, "spec.replicasPerMaster: with 0, no replica can take over"),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "with 6 pods it allows no eviction"),
        ({"podDisruptionBudget": {"minAvailable": 6}}, "with 6 pods it allows no eviction"),
        ({"podDisruptionBudget": {"maxUnavailable": 2}}, "it allows 2 of 6 pods to be evicted at once"),
        ({"updateStrategy": {"assignStrategies": [{"slots": 1, "fromReplicas": "a"}]}}, "ignores them"),
        ({"storage": ...}, "a recreated pod starts empty"),
        ({"storage": ..., "pod": [{"volumes": {"type": "hostPath"}}]}, "hostPath ties data to Kubernetes nodes"),
        (
            {"storage": ..., "pod": [{"volumes": {**NFS, "persistentVolumeClaimName": "pvcName"}}]},
            "pvcName is not a valid claim name",
        ),
        ({"config": {}}, "without a memory limit or maxmemory"),
        (
            {"resources": {"limits": {"memory": "512Mi"}}},
            "1073741824 bytes) exceeds the memory limit",
        ),
        ({"auth": {"secretName": "a"}}, "passwords are sent unencrypted"),
        (
            {"affinity": {"nodeAffinity": None, "requiredDuringSchedulingIgnoredDuringExecution": {}}},
            "spec.affinity: requiredDuringSchedulingIgnoredDuringExecution is next to nodeAffinity",
        ),
    ],
)
def test_what_is_unwise_is_told_once(spec: Obj, words: str) -> None:
    (said,) = ADMISSION.review(obj(**spec), None).warnings
    assert words in said


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
def test_what_is_on_the_near_side_of_it_is_not(spec: Obj) -> None:
    assert warned(obj(**spec)) == ""


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ({"version": "8.0.1"}, "spec.version: redis 8.0.1 is older than redis 8.0.2"),
        ({"finalizers": ""}, "deleting the resource now leaves its pods running"),
    ],
)
def test_what_a_change_gives_up_is_told(new: Obj, words: str) -> None:
    assert words in warned(obj(**new), obj())
    assert words not in warned(obj(**new), obj(**new))


def test_it_is_asked_about_redisclusters() -> None:
    assert ADMISSION.kind == API.kind
