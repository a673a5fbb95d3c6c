"""The Memcached resource: what it takes, what it refuses and how, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from operators.memcached.api import API, Memcached, validate
from operators.memcached.memory import overhead_mib
from operators.memcached.observe import Crew, Observed
from operators.memcached.resources import WORKLOADS
from operators.memcached.secrets import Secrets
from operators.memcached.spec import MemcachedSpec
from shared.crd import to_dict, to_yaml
from shared.kube import Obj
from shared.plan import Apply
from shared.spec import InvalidSpec
from tests.cases import Case
from tests.memcached_cases import ACCEPTED, CHANGES, REFUSED
from tests.unit.memcached.world import plan

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


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_bad_specs_are_refused_with_advice(case: Case) -> None:
    said = complaints(case)
    assert said
    assert case.advises in said


Constraint = tuple[str, str]
"""Where in the schema, and the keyword or the rule."""

TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
MEASURES: dict[str, Callable[[Any, Any], bool]] = {
    "type": lambda value, kind: type(value) is not TYPES[kind],
    "minimum": lambda value, least: type(value) is int and value < least,
    "maximum": lambda value, most: type(value) is int and value > most,
    "minLength": lambda value, least: len(value) < least,
    "maxLength": lambda value, most: isinstance(value, str) and len(value) > most,
    "maxItems": lambda value, most: len(value) > most,
    "maxProperties": lambda value, most: len(value) > most,
    "pattern": lambda value, pattern: isinstance(value, str) and not re.search(pattern, value),
    "enum": lambda value, known: value not in known,
}
WEIGHTLESS = {"description", "default", "format", "properties", "items", "additionalProperties", "required"}


def parts(schema: Obj, path: str) -> Iterator[tuple[Obj, str]]:
    """A schema and every schema in it."""
    yield schema, path
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in schema:
            yield from parts(schema[name], f"{path}[]")


def constraints(schema: Obj) -> set[Constraint]:
    """What a schema demands; types of strings and objects go without saying where a case for one of them is there."""
    found = set()
    for part, path in parts(schema, "spec"):
        keywords = part.keys() - WEIGHTLESS - {"type"}
        found |= {(path, keyword) for keyword in keywords if not keyword.startswith("x-kubernetes-")}
        found |= {(path, f"required {name}") for name in part.get("required", ())}
        found |= {(path, rule["rule"]) for rule in part.get("x-kubernetes-validations", ())}
    return found


def broken_constraints(schema: Obj, value: Any, path: str) -> Iterator[Constraint]:
    """What of a schema's keywords a value breaks."""
    wrong = {keyword for keyword, breaks in MEASURES.items() if keyword in schema and breaks(value, schema[keyword])}
    yield from ((path, keyword) for keyword in wrong)
    if "type" in wrong:
        return
    if isinstance(value, list):
        for item in value:
            yield from broken_constraints(schema["items"], item, f"{path}[]")
    elif isinstance(value, dict):
        yield from ((path, f"required {name}") for name in schema.get("required", ()) if name not in value)
        for name, inner in value.items():
            known = schema.get("properties", {}).get(name)
            if known is not None or "additionalProperties" in schema:
                deeper = f"{path}.{name}" if known is not None else f"{path}[]"
                yield from broken_constraints(known or schema["additionalProperties"], inner, deeper)


def broken_rules(case: Case) -> Iterator[str]:
    """The CEL of each rule that a case breaks, as far as it can be parsed."""
    try:
        resource = Memcached.parse({"metadata": {"name": case.resource}, "spec": case.whole_spec})
    except InvalidSpec:
        return
    spec = resource.spec
    parts = (spec.pod_disruption_budget, spec.autoscaling)
    for model in (spec, spec.resources, *spec.tolerations, *spec.env, *parts):
        if model is not None:
            yield from (rule.cel for rule in model.RULES if not rule.holds(model))
    yield from (rule.cel for rule in API.rules if not rule.holds(resource))


def test_every_constraint_of_the_crd_has_a_refused_case() -> None:
    root = to_dict(API)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema = root["properties"]["spec"]
    found = {one for case in REFUSED for one in broken_constraints(schema, case.whole_spec, "spec")}
    rules = {cel for case in REFUSED for cel in broken_rules(case)}
    wanted = constraints(schema)
    assert {one for one in wanted - found if one[1] not in rules} == set()
    assert {rule["rule"] for rule in root["x-kubernetes-validations"]} <= rules
    assert len(wanted) > 60


def test_every_accepted_case_breaks_nothing_that_the_schema_says() -> None:
    """Or else the cases above prove less than they seem to."""
    schema = to_dict(API)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert [one for case in ACCEPTED for one in broken_constraints(schema, case.whole_spec, "spec")] == []


def leaves(schema: Obj, path: str = "") -> Iterator[str]:
    """The fields of a schema in which nothing further is."""
    inner = {f".{name}": part for name, part in schema.get("properties", {}).items()}
    if part := schema.get("items") or schema.get("additionalProperties"):
        inner["[]"] = part
    if not inner:
        yield path.removeprefix(".")
    for name, part in inner.items():
        yield from leaves(part, path + name)


def test_every_leaf_of_the_spec_becomes_something() -> None:
    """What no object reflects is a field that does nothing."""
    schema = to_dict(API)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(leaves(schema)) - CHANGES.keys() == set()
    objects = {leaf: made_of(spec) for leaf, spec in CHANGES.items()} | {"nothing": made_of({})}
    same = [(one, other) for one, other in combinations(objects, 2) if objects[one] == objects[other]]
    assert same == []


def made_of(changed: Obj) -> list[Obj]:
    """The objects of a Memcached, as a spec changes them."""
    parsed = Memcached.parse(
        {"metadata": {"name": "cache", "namespace": "default", "uid": "u-1"}, "spec": {"size": 1, **changed}}
    )
    seen = Observed(Crew(WORKLOADS[parsed.spec.workload]), secrets=Secrets(digest="d" if parsed.spec.auth else ""))
    return [action.obj for action in plan(parsed, seen).actions if isinstance(action, Apply)]


def test_the_committed_crd_is_the_generated_one() -> None:
    committed = ROOT / "charts/memcached-operator/files/crds/memcacheds.yaml"
    assert committed.read_text() == to_yaml(API), "run: make manifests"


def spec(**given: object) -> MemcachedSpec:
    return MemcachedSpec.model_validate({"size": 1, **given})


def test_the_memory_limit_follows_the_flags() -> None:
    assert overhead_mib(64, 1024, 4) == 48 + 10 + 21 + 4
    assert spec().container_resources() == {
        "limits": {"memory": "147Mi"},
        "requests": {"cpu": "50m", "memory": "147Mi"},
    }


@pytest.mark.parametrize(
    ("memory", "connections", "threads", "peak"),
    [(64, 1024, 4, 140), (600, 1024, 4, 746), (64, 8000, 4, 248), (8, 16, 1, 53)],
)
def test_the_memory_limit_covers_what_was_measured(memory: int, connections: int, threads: int, peak: int) -> None:
    assert memory + overhead_mib(memory, connections, threads) >= peak


def test_the_memory_limit_covers_tls_on_every_connection() -> None:
    """45 KiB a connection were measured with records half read and half written, of 21 that are reckoned without."""
    for connections in (64, 1024, 8000):
        with_tls = overhead_mib(64, connections, 4, tls=True) - overhead_mib(64, connections, 4)
        assert with_tls >= connections * (45 - 21) / 1024
    assert spec(tls={"secretName": "a"}).memory_limit == "183Mi"


def test_given_resources_win_and_requests_follow_the_given_limit() -> None:
    given = spec(resources={"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "1"}})
    assert given.container_resources() == {
        "limits": {"memory": "1Gi", "cpu": 2},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_a_request_is_never_above_its_limit() -> None:
    """Kubernetes refuses such pods; and the person gave only one of the two."""
    larger = spec(resources={"requests": {"memory": "1Gi"}}).container_resources()
    assert larger["limits"]["memory"] == larger["requests"]["memory"] == "1Gi"
    slow = spec(resources={"limits": {"cpu": "20m"}}).container_resources()
    assert slow["limits"]["cpu"] == slow["requests"]["cpu"] == "20m"
    smaller = spec(resources={"requests": {"memory": "64Mi"}}).container_resources()
    assert (smaller["limits"]["memory"], smaller["requests"]["memory"]) == ("147Mi", "64Mi")


def test_a_resource_that_breaks_several_rules_hears_of_each() -> None:
    case = Case("", {"maxItemSizeMB": 64, "extraArgs": ["-m5"], "labels": {"app.kubernetes.io/name": ""}}, resource="9")
    said = complaints(case)
    assert all(word in said for word in ("metadata.name", "spec.maxItemSizeMB", "'-m5'", "spec.labels"))


def test_the_image_wins_over_the_version() -> None:
    assert spec().image_reference("memcached") == "memcached:1.6.38"
    assert spec(version="1.6.18").image_reference("example.com:5000/memcached") == "example.com:5000/memcached:1.6.18"
    assert spec(image="a/b:c", version="1.6.18").image_reference("memcached") == "a/b:c"
