"""The Memcached resource: what it takes, what it refuses and how, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.memcached.api import API, Memcached, MemcachedSpec, overhead_mib, validate
from shared.crd import to_dict, to_yaml
from shared.spec import InvalidSpec
from tests.memcached_cases import ACCEPTED, REFUSED, Case

ROOT = Path(__file__).resolve().parents[3]


def complaints(case: Case) -> str:
    """All that the operator's own validation says of a case."""
    metadata = {"name": case.resource, "namespace": "default"}
    try:
        return " ".join(validate(Memcached.parse({"metadata": metadata, "spec": case.whole_spec})))
    except InvalidSpec as refusal:
        return str(refusal)


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_good_specs_are_taken(case: Case) -> None:
    assert complaints(case) == ""


@pytest.mark.parametrize("case", [case for case in REFUSED if case.advises], ids=str)
def test_bad_specs_are_refused_with_advice(case: Case) -> None:
    assert case.advises in complaints(case)


def test_every_constraint_of_the_crd_has_a_refused_case() -> None:
    """A bound added to the model without a case here would be untested: count them."""
    spec = to_dict(API)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    bounds = (
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "maxProperties",
        "pattern",
        "enum",
    )

    def count(node: object) -> int:
        if isinstance(node, dict):
            here = sum(name in node for name in bounds) if "description" in node or "pattern" in node else 0
            return here + len(node.get("x-kubernetes-validations", ())) + sum(count(inner) for inner in node.values())
        return sum(count(inner) for inner in node) if isinstance(node, list) else 0

    constraints = count(spec["properties"]["spec"]) + count(spec.get("x-kubernetes-validations", []))
    assert constraints <= len(REFUSED)


def test_the_committed_crd_is_the_generated_one() -> None:
    committed = ROOT / "charts/memcached-operator/files/crds/memcacheds.yaml"
    assert committed.read_text() == to_yaml(API), "run: make manifests"


def spec(**given: object) -> MemcachedSpec:
    return MemcachedSpec.model_validate({"size": 1, **given})


def test_the_memory_limit_follows_the_flags() -> None:
    assert overhead_mib(64, 1024, 4) == 32
    assert spec().memory_limit == "96Mi"
    assert spec().container_resources() == {
        "limits": {"memory": "96Mi"},
        "requests": {"cpu": "50m", "memory": "96Mi"},
    }


def test_given_resources_win_and_requests_follow_the_given_limit() -> None:
    given = spec(resources={"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "1"}})
    assert given.container_resources() == {
        "limits": {"memory": "1Gi", "cpu": 2},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_the_image_wins_over_the_version() -> None:
    assert spec().image_reference("memcached") == "memcached:1.6.38"
    assert spec(version="1.6.18").image_reference("example.com:5000/memcached") == "example.com:5000/memcached:1.6.18"
    assert spec(image="a/b:c", version="1.6.18").image_reference("memcached") == "a/b:c"
