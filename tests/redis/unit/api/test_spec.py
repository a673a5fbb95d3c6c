"""Values derived from a RedisCluster's spec: engine, image, primaries, memory and pod settings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.redis.api.directives import FORM, RESERVED
from operators.redis.api.memory import parse_memory
from operators.redis.api.pod_template import normalized_affinity
from operators.redis.api.spec import DEFAULT_EXPORTER, Recovery, RedisClusterSpec
from operators.redis.slots.slot_planner import Strategy
from shared.api.spec import InvalidSpec
from tests.support.redis.cases import SEED, SEED_POD

NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "HC_Status", "operator": "In", "values": ["C"]}]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def spec(**given: Any) -> RedisClusterSpec:
    return RedisClusterSpec.model_validate({"replicas": 6, "version": "8.0.2", **given})


def podded(**pod: Any) -> RedisClusterSpec:
    return spec(pod=[pod])


@pytest.mark.parametrize(
    ("given", "image", "engine"),
    [
        ({}, "here/redis:8.0.2", "redis 8.0.2"),
        ({"version": "v7.0.15-alpine"}, "here/redis:v7.0.15-alpine", "redis 7.0.15"),
        ({"repository": "library/redis"}, "library/redis:8.0.2", "redis 8.0.2"),
        ({"repository": "valkey/valkey", "version": "9.1"}, "valkey/valkey:9.1", "valkey 9.1.0"),
        ({"repository": "a.b:5000/kv", "engine": "valkey"}, "a.b:5000/kv:8.0.2", "valkey 8.0.2"),
        ({"pod": [{"middlewareImage": "kept"}]}, "kept:8.0.2", "redis 8.0.2"),
        ({"pod": [{"middlewareImage": "a.b:5000/kept"}]}, "a.b:5000/kept:8.0.2", "redis 8.0.2"),
        ({"pod": [{"middlewareImage": "kept:7.0.15"}], "version": None}, "kept:7.0.15", "redis 7.0.15"),
        ({"pod": [{"middlewareImage": "x/valkey:stable"}], "version": "8.1.1"}, "x/valkey:stable", "valkey 8.1.1"),
        ({"pod": [{"middlewareImage": f"a@sha256:{'0' * 64}"}]}, f"a@sha256:{'0' * 64}", "redis 8.0.2"),
        (SEED, "string:7.0.15", "redis 7.0.15"),
    ],
)
def test_image_and_engine_follow_from_the_spec(given: Any, image: str, engine: str) -> None:
    assert spec(**given).image_reference("here/redis") == image
    assert str(spec(**given).target) == engine


@pytest.mark.parametrize("image", ["redis:latest", f"redis@sha256:{'0' * 64}", "No Image", None])
def test_unknown_version_is_rejected_with_advice(image: str | None) -> None:
    with pytest.raises(InvalidSpec, match=r"set it, for example to 8\.2\.9"):
        _ = spec(version=None, pod=[{"middlewareImage": image}] if image else []).target


@pytest.mark.parametrize(
    ("replicas", "each", "primaries"), [(6, 1, 3), (7, 1, 3), (8, 1, 4), (3, 0, 3), (9, 2, 3), (11, 2, 3), (12, 2, 4)]
)
def test_primaries_follow_from_pods_and_the_rest_are_replicas(replicas: int, each: int, primaries: int) -> None:
    assert spec(replicas=replicas, replicasPerMaster=each).primaries == primaries


@given(st.integers(0, 9), st.integers(3, 500))
def test_number_of_primaries_is_the_maximum_with_full_replicas(each: int, replicas: int) -> None:
    primaries = spec(replicas=replicas, replicasPerMaster=each).primaries
    assert primaries * (1 + each) <= replicas < (primaries + 1) * (1 + each)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1073741824", 1 << 30),
        ("100b", 100),
        ("2gb", 2 << 30),
        ("2GB", 2 << 30),
        ("2g", 2 * 10**9),
        ("512mb", 512 << 20),
        ("1M", 10**6),
        ("10kb", 10240),
        ("3k", 3000),
    ],
)
def test_memory_units_are_those_of_redis(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "2Gi", "1.5gb", "-1", "50%", "gb", "1 gb", "1tb", "1gb\n"])
def test_memory_that_redis_rejects_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_memory(text)


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ({}, None),
        ({"resources": {"limits": {"memory": "1Gi"}}}, 768 << 20),
        ({"pod": [{"resources": {"limits": {"memory": "1Gi"}}}]}, 768 << 20),
        ({"resources": {"limits": {"memory": "1Gi"}}, "config": {"maxmemory": "100mb"}}, 100 << 20),
        ({"env": [{"name": "MAXMEMORY", "value": "2gb"}]}, 2 << 30),
        (SEED, 2 << 30),
        ({"config": {"maxmemory": "0"}, "resources": {"limits": {"memory": "1Gi"}}}, 0),
    ],
)
def test_max_memory_is_explicit_or_three_quarters_of_the_limit(given: Any, size: int | None) -> None:
    assert spec(**given).max_memory == size


@pytest.mark.parametrize("given", [{"env": [{"name": "MAXMEMORY", "value": "x"}]}, {"config": {"maxmemory": "x"}}])
def test_max_memory_that_is_not_an_amount_counts_as_not_set(given: Any) -> None:
    assert spec(**given).max_memory is None
    assert spec(**given, resources={"limits": {"memory": "1Gi"}}).max_memory == 768 << 20


@pytest.mark.parametrize("where", ["spec", "pod"])
def test_pod_settings_are_equal_in_spec_and_in_pod(where: str) -> None:
    given = {key: SEED_POD[key] for key in ("labels", "annotations", "env", "affinity", "resources")}
    found = (spec(**given) if where == "spec" else podded(**given)).pods
    assert found.labels == {"key": "value"} == found.annotations
    assert found.environment() == SEED_POD["env"]
    assert found.resources.limits == {"cpu": "2", "memory": "4Gi"}
    assert found.placement() == {"affinity": {"podAntiAffinity": {}, "nodeAffinity": {REQUIRED: NODES}}}


def test_pod_settings_of_spec_and_pod_are_merged() -> None:
    found = spec(nodeSelector={"a": "b"}, labels={"c": "d"}, pod=[{"annotations": {"e": "f"}}]).pods
    assert (found.node_selector, found.labels, found.annotations) == ({"a": "b"}, {"c": "d"}, {"e": "f"})
    assert found.spread({"app": "x"})[0]["topologyKey"] == "kubernetes.io/hostname"


def test_pods_have_no_settings_by_default() -> None:
    assert spec().pods.placement() == {}
    assert spec().pods.environment() == []
    assert spec(pod=[]).pods == spec().pods == podded().pods


@pytest.mark.parametrize(
    ("given", "normalized"),
    [
        (None, None),
        ({}, {}),
        ({"nodeAffinity": None}, {}),
        ({"nodeAffinity": None, REQUIRED: NODES}, {"nodeAffinity": {REQUIRED: NODES}}),
        ({"podAffinity": {"a": 1}}, {"podAffinity": {"a": 1}}),
        ({REQUIRED: None}, {}),
        (
            {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}, REQUIRED: NODES},
            {"nodeAffinity": {REQUIRED: NODES, "preferredDuringSchedulingIgnoredDuringExecution": []}},
        ),
    ],
)
def test_misplaced_node_affinity_rules_are_moved(given: Any, normalized: Any) -> None:
    assert normalized_affinity(given) == normalized


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ({}, ""),
        ({"metrics": {}}, DEFAULT_EXPORTER),
        ({"metrics": {"image": "a"}}, "a"),
        ({"pod": [{"monitorImage": "b"}]}, "b"),
        ({"metrics": {}, "pod": [{"monitorImage": "b"}]}, "b"),
        ({"metrics": {"enabled": False}, "pod": [{"monitorImage": "b"}]}, ""),
        ({"metrics": {"enabled": False, "image": "a"}}, ""),
    ],
)
def test_exporter_runs_only_if_requested(given: Any, image: str) -> None:
    assert spec(**given).exporter_image == image


def test_slot_assignment_strategies_are_parsed() -> None:
    strategies = [{"slots": 2000, "fromReplicas": "a"}, {"slots": 1000, "fromReplicas": " b , c"}]
    found = spec(updateStrategy={"type": "AssignReceive", "pipeline": "25", "assignStrategies": strategies})
    assert found.update_strategy.strategies == (Strategy(2000, ("a",)), Strategy(1000, ("b", "c")))
    assert found.update_strategy.keys_at_once == 25
    assert (spec().update_strategy.strategies, spec().update_strategy.keys_at_once) == ((), 100)


@pytest.mark.parametrize(("kind", "rolls"), [(None, True), ("RollingUpdate", True), ("OnDelete", False)])
def test_pods_are_replaced_unless_strategy_is_on_delete(kind: str | None, rolls: bool) -> None:
    assert podded(updateStrategy={"type": kind} if kind else {}).rolls is rolls


def test_reserved_directives_are_unique_and_well_formed() -> None:
    assert len(set(RESERVED)) == len(RESERVED) > 50
    assert all(re.fullmatch(FORM, directive) for directive in RESERVED)


def test_description_of_the_consent_names_both_outcomes() -> None:
    """The token of a loss that names nodes with older keys lets these serve them; any other one empties the slots."""
    for of in (RedisClusterSpec.model_fields["recovery"], Recovery.model_fields["confirm"]):
        assert of.description
        assert "older keys" in of.description
        assert "empty" in of.description
