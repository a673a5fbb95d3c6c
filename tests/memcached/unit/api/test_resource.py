"""The Memcached resource: accepted and rejected specs, and the values derived from a spec."""

from __future__ import annotations

from itertools import combinations

import pytest

from operators.memcached.api.memory import overhead_mib
from operators.memcached.api.resource import API, Memcached, validate, workload_kind
from operators.memcached.api.spec import MemcachedSpec
from operators.memcached.objects.names import owner
from operators.memcached.security.secrets import Secrets
from operators.memcached.state.observed import Observed, Workload
from shared.api.crd import to_yaml
from shared.api.spec import InvalidSpec
from shared.kubernetes.kinds import SERVICE, Obj
from shared.runtime.plan import Apply, WriteSecret
from shared.steps.connection import ConnectionSecret
from tests.memcached.unit.world import plan
from tests.support import paths
from tests.support.cases import Case
from tests.support.memcached.cases import ACCEPTED, CHANGES, REFUSED
from tests.support.memcached.changes import REFUSED_CHANGES
from tests.support.schema import broken_constraints, leaves, spec_schema, uncovered

ROOT = paths.REPOSITORY


def validation_errors(case: Case) -> str:
    """Return the errors of the operator's own validation of a case."""
    metadata = {"name": case.resource, "namespace": "default"}
    try:
        return " ".join(validate(Memcached.parse({"metadata": metadata, "spec": case.whole_spec})))
    except InvalidSpec as refusal:
        return str(refusal)


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_valid_specs_are_accepted(case: Case) -> None:
    assert validation_errors(case) == ""


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_invalid_specs_are_rejected_with_advice(case: Case) -> None:
    errors = validation_errors(case)
    assert errors
    assert case.operator_error in errors


def parsed(case: Case) -> Memcached:
    return Memcached.parse({"metadata": {"name": case.resource}, "spec": case.whole_spec})


def test_every_constraint_of_the_crd_has_a_rejected_case() -> None:
    changes = [(parsed(one.new), parsed(one.old)) for one in REFUSED_CHANGES]
    constraints, unproven = uncovered(API, parsed, REFUSED, changes)
    assert unproven == set()
    assert len(constraints) > 60


def test_accepted_cases_violate_no_constraint_of_the_schema() -> None:
    schema = spec_schema(API)
    assert [left for case in ACCEPTED for left in broken_constraints(schema, case.whole_spec, "spec")] == []


def test_every_field_of_the_spec_changes_an_object() -> None:
    """A field that changes no object has no effect, except `changes`, which determines when later changes apply."""
    assert set(leaves(spec_schema(API))) - CHANGES.keys() == {"changes"}
    objects = {leaf: objects_of(spec) for leaf, spec in CHANGES.items()} | {"nothing": objects_of({})}
    same = [(left, right) for left, right in combinations(objects, 2) if objects[left] == objects[right]]
    assert same == []


def objects_of(changed: Obj) -> list[Obj]:
    """Return the objects of a Memcached with a changed spec."""
    parsed = Memcached.parse(
        {"metadata": {"name": "cache", "namespace": "default", "uid": "u-1"}, "spec": {"size": 1, **changed}}
    )
    observed = Observed(
        Workload(workload_kind(parsed)),
        secrets=Secrets(users="app:one\n" if parsed.spec.auth else ""),
        connection=ConnectionSecret(service=owner(parsed, "memcached-operator").object(SERVICE, "cache", component="")),
    )
    return [action.obj for action in plan(parsed, observed).actions if isinstance(action, Apply | WriteSecret)]


def test_committed_crd_is_the_generated_one() -> None:
    committed = ROOT / "charts/memcached-operator/files/crds/memcacheds.yaml"
    assert committed.read_text() == to_yaml(API), "run: make manifests"


def spec(**given: object) -> MemcachedSpec:
    return MemcachedSpec.model_validate({"size": 1, **given})


def test_memory_limit_follows_the_flags() -> None:
    assert overhead_mib(64, 1024, 4) == 48 + 10 + 21 + 4
    assert spec().container_resources() == {
        "limits": {"memory": "147Mi"},
        "requests": {"cpu": "50m", "memory": "147Mi"},
    }


@pytest.mark.parametrize(
    ("memory", "connections", "threads", "peak"),
    [(64, 1024, 4, 140), (600, 1024, 4, 746), (64, 8000, 4, 248), (8, 16, 1, 53)],
)
def test_memory_limit_covers_the_measured_peaks(memory: int, connections: int, threads: int, peak: int) -> None:
    assert memory + overhead_mib(memory, connections, threads) >= peak


def test_memory_limit_covers_tls_on_every_connection() -> None:
    """Measured: 45 KiB per connection with partly transferred records, compared to 21 KiB without TLS."""
    for connections in (64, 1024, 8000):
        with_tls = overhead_mib(64, connections, 4, tls=True) - overhead_mib(64, connections, 4)
        assert with_tls >= connections * (45 - 21) / 1024
    assert spec(tls={"secretName": "a"}).memory_limit == "183Mi"


def test_resources_of_the_spec_take_precedence_and_requests_follow_the_limit() -> None:
    given = spec(resources={"limits": {"memory": "1Gi", "cpu": 2}, "requests": {"cpu": "1"}})
    assert given.container_resources() == {
        "limits": {"memory": "1Gi", "cpu": 2},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }


def test_request_never_exceeds_its_limit() -> None:
    """Kubernetes rejects such pods, and the user set only one of the two."""
    larger = spec(resources={"requests": {"memory": "1Gi"}}).container_resources()
    assert larger["limits"]["memory"] == larger["requests"]["memory"] == "1Gi"
    slow = spec(resources={"limits": {"cpu": "20m"}}).container_resources()
    assert slow["limits"]["cpu"] == slow["requests"]["cpu"] == "20m"
    smaller = spec(resources={"requests": {"memory": "64Mi"}}).container_resources()
    assert (smaller["limits"]["memory"], smaller["requests"]["memory"]) == ("147Mi", "64Mi")


def test_every_violated_rule_is_reported() -> None:
    case = Case("", {"maxItemSizeMB": 64, "extraArgs": ["-m5"], "labels": {"app.kubernetes.io/name": ""}}, resource="9")
    errors = validation_errors(case)
    assert all(word in errors for word in ("metadata.name", "spec.maxItemSizeMB", "'-m5'", "spec.labels"))


def test_image_takes_precedence_over_version() -> None:
    assert spec().image_reference("memcached") == "memcached:1.6.45"
    assert spec(version="1.6.18").image_reference("example.com:5000/memcached") == "example.com:5000/memcached:1.6.18"
    assert spec(image="a/b:c", version="1.6.18").image_reference("memcached") == "a/b:c"
