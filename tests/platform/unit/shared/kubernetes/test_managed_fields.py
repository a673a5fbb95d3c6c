"""`difference` on the record of a real API server; tests/platform/api/schema/test_fields.py covers any edit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import Obj
from shared.kubernetes.managed_fields import applied as applied_part
from shared.kubernetes.managed_fields import changed_by, difference, is_applied, managers_of, record_of, trim
from simulator.api_server.requests import merge_patch
from tests.harness import cost
from tests.support import paths

MANAGER = "memcached-operator"
APPLIED: dict[str, dict[str, Obj]] = json.loads((paths.RECORDED / "kubernetes/applied.json").read_text())

Edit = Callable[[Obj], Any]


def container(obj: Obj) -> Obj:
    found: Obj = obj["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.fixture(params=sorted(APPLIED))
def applied(request: pytest.FixtureRequest) -> dict[str, Obj]:
    """Return the applied object and the object that the API server stored."""
    return copy.deepcopy(APPLIED[request.param])


def test_applied_object_has_no_difference(applied: dict[str, Obj]) -> None:
    assert difference(applied["sent"], applied["observed"], MANAGER) == []


def test_object_applied_by_another_manager_differs(applied: dict[str, Obj]) -> None:
    assert record_of(applied["observed"], "another") is None
    assert difference(applied["sent"], applied["observed"], "another") == ["metadata.managedFields"]


def test_identity_and_status_are_ignored(applied: dict[str, Obj]) -> None:
    applied["sent"]["metadata"]["uid"] = "of the observed object"
    applied["observed"]["status"] = {"replicas": 9}
    applied["observed"]["metadata"]["annotations"] = {"theirs": "1"}
    assert difference(applied["sent"], applied["observed"], MANAGER) == []


@pytest.mark.parametrize(
    ("edit", "path"),
    [
        (lambda sent: sent["spec"].update(replicas=3), "spec.replicas"),
        (lambda sent: sent["spec"].pop("revisionHistoryLimit"), "spec.revisionHistoryLimit"),
        (lambda sent: sent["metadata"]["labels"].update(team="shop"), "metadata.labels.team"),
        (lambda sent: container(sent)["args"].append("-v"), "spec.template.spec.containers[memcached].args"),
        (
            lambda sent: container(sent)["env"][0].update(value="2"),
            "spec.template.spec.containers[memcached].env[A].value",
        ),
        (lambda sent: container(sent).pop("env"), "spec.template.spec.containers[memcached].env"),
        (lambda sent: sent["spec"]["template"]["spec"].update(tolerations=[]), "spec.template.spec.tolerations"),
    ],
)
def test_changed_field_is_named(edit: Edit, path: str) -> None:
    sent, observed = copy.deepcopy(APPLIED["Deployment"]["sent"]), APPLIED["Deployment"]["observed"]
    edit(sent)
    assert difference(sent, observed, MANAGER) == [path]


@pytest.mark.parametrize("empty", [{"namespaces": []}, {"matchLabelKeys": [], "topologyKey": "zone"}, {"key": ""}])
def test_empty_value_that_the_server_drops_inside_an_atomic_value_is_no_difference(empty: Obj) -> None:
    """Otherwise the object would be applied at each reconcile."""
    sent, observed = copy.deepcopy(APPLIED["Deployment"]["sent"]), copy.deepcopy(APPLIED["Deployment"]["observed"])
    kept = {key: value for key, value in empty.items() if value}
    sent["spec"]["template"]["spec"]["tolerations"] = [empty]
    observed["spec"]["template"]["spec"]["tolerations"] = [kept]
    assert difference(sent, observed, MANAGER) == []
    observed["spec"]["template"]["spec"]["tolerations"] = [kept | dict.fromkeys(empty, "theirs")]
    assert difference(sent, observed, MANAGER) == ["spec.template.spec.tolerations"]


@pytest.mark.parametrize("memory", ["2048Mi", "2Gi", "2147483648", 2147483648])
def test_equal_quantity_in_another_notation_is_no_difference(memory: str | int) -> None:
    sent, observed = copy.deepcopy(APPLIED["Deployment"]["sent"]), APPLIED["Deployment"]["observed"]
    container(sent)["resources"]["limits"]["memory"] = memory
    assert difference(sent, observed, MANAGER) == []


def test_trimmed_object_has_the_same_difference(applied: dict[str, Obj]) -> None:
    sent, observed = applied["sent"], applied["observed"]
    others = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": MANAGER, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]
    patched = {"manager": MANAGER, "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}}
    observed["metadata"]["managedFields"] += [*others, patched]
    trimmed = trim(observed, MANAGER)
    assert [entry["operation"] for entry in trimmed["metadata"]["managedFields"]] == ["Apply", "Update"]
    assert record_of(trimmed, MANAGER) == record_of(observed, MANAGER)
    assert difference(sent, trimmed, MANAGER) == difference(sent, observed, MANAGER) == []
    assert others[0] in observed["metadata"]["managedFields"], "the input is not modified"


VALUES = st.one_of(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=2))
OBSERVED = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)
PATCHES = st.recursive(
    st.none() | VALUES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), PATCHES), st.dictionaries(st.sampled_from("abc"), OBSERVED))
def test_patch_changes_something_exactly_if_a_path_is_named(patch: Obj, observed: Obj) -> None:
    assert bool(changed_by(patch, observed)) == (merge_patch(observed, patch) != observed)


def test_paths_that_a_patch_changes_are_named() -> None:
    observed = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    patch = {"metadata": {"labels": {"a": None, "b": "2", "c": "3"}}}
    assert changed_by(patch, observed) == ["metadata.labels.a", "metadata.labels.c"]
    assert changed_by({"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}, observed) == []


def test_extracted_object_is_what_was_applied(applied: dict[str, Obj]) -> None:
    extracted = applied_part(applied["observed"], MANAGER)
    assert extracted is not None
    assert difference(extracted, applied["observed"], MANAGER) == []
    assert difference(applied["sent"], {**extracted, "metadata": applied["observed"]["metadata"]}, MANAGER) == []
    assert "status" not in extracted
    assert applied_part(applied["observed"], "another") is None


def test_extracted_list_keeps_its_order() -> None:
    """A variable may refer to those before it."""
    sent = APPLIED["Deployment"]
    extracted = applied_part(sent["observed"], MANAGER)
    assert extracted is not None
    names = [[each["name"] for each in container(obj)["env"]] for obj in (extracted, sent["sent"])]
    assert names[0] == names[1]
    record: Obj = {
        "f:env": {'k:{"name":"b"}': {"f:name": {}, "f:value": {}}, 'k:{"name":"a"}': {"f:name": {}, "f:value": {}}}
    }
    entry = {"manager": MANAGER, "operation": "Apply", "fieldsV1": record}
    env = [{"name": "b", "value": "1"}, {"name": "a", "value": "$(b)"}]
    obj = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x", "managedFields": [entry]}, "env": env}
    assert [each["value"] for each in (applied_part(obj, MANAGER) or {})["env"]] == ["1", "$(b)"]


def test_field_that_another_client_changed_is_not_applied() -> None:
    """Such as the replicas of a StatefulSet after `kubectl scale`: the API server removes the field from the record."""

    def made(fields: Obj, operation: str = "Apply") -> Obj:
        return {"metadata": {"managedFields": [{"manager": MANAGER, "operation": operation, "fieldsV1": fields}]}}

    assert is_applied(made({"f:spec": {"f:replicas": {}}}), "spec", "replicas")
    assert not is_applied(made({"f:spec": {"f:template": {}}}), "spec", "replicas")
    assert not is_applied(made({"f:spec": {"f:replicas": {}}}, "Update"), "spec", "replicas")
    assert is_applied(made({"f:spec": {"f:replicas": {}}}, "Update"), "spec", "replicas", operation="Update")
    assert not is_applied(made({"f:spec": {"f:replicas": {}}}), "spec", "replicas", operation="Update")
    assert not is_applied({"metadata": {}}, "spec", "replicas")


# An object that another client of its namespace has changed, with the entry of the operator.


def managed(fields: Obj, manager: str = MANAGER) -> Obj:
    return {"manager": manager, "operation": "Apply" if manager == MANAGER else "Update", "fieldsV1": fields}


def owners(count: int) -> list[Obj]:
    return [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": f"u{number}"} for number in range(count)]


def reference_keys(count: int, first: int = 0) -> Obj:
    return {f'k:{{"uid":"u{number}"}}': {} for number in range(first, first + count)}


def nested(levels: int) -> Obj:
    found: Obj = {}
    for _ in range(levels):
        found = {"f:a": found}
    return found


OWNED: Obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "ownerReferences": owners(1)}}
RECORDS: dict[str, Obj] = {
    "15,000 keys": {"f:metadata": {"f:ownerReferences": reference_keys(15_000, 1)}},
    "15,000 keys of 5,000 sorts": {
        "f:metadata": {
            "f:ownerReferences": {f'k:{{"a{number}":[{number}]}}': {} for number in range(5_000)}
            | reference_keys(9_999)
        }
    },
    "60,000 labels": {"f:metadata": {"f:labels": {f"f:{'.' * 20}{number}": {} for number in range(60_000)}}},
    "1,000 levels": {"f:metadata": nested(1_000)},
    "levels of long names": {
        "f:metadata": {f"f:{'a' * 100_000}": nested(900) | {f"f:b{n}": {} for n in range(15_000)}}
    },
    "dots": {"f:metadata": {f"f:{'.' * 1_000_000}": {}}},
}


@pytest.mark.parametrize("others", RECORDS)
@pytest.mark.parametrize("own", RECORDS)
async def test_hostile_records_cost_little(own: str, others: str) -> None:
    entries = [managed(RECORDS[own]), managed(RECORDS[others], "another")]
    observed = {**OWNED, "metadata": {"name": "a", "ownerReferences": owners(6_000), "managedFields": entries}}
    async with cost.bounded():
        paths = difference(OWNED, observed, MANAGER)
        del paths[0]
    async with cost.bounded():
        managers_of(paths, observed, own=MANAGER)
    async with cost.bounded():
        applied_part(observed, MANAGER)


def test_managers_of_changed_fields_are_named() -> None:
    service: Obj = {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {"f:name": {}}}, "f:type": {}}
    entries = [
        managed({"f:spec": service}, "of the port"),
        managed({"f:metadata": {"f:labels": {"f:a.b/c": {}, "f:d": {}}}}, "of labels"),
        managed({"f:spec": {"f:selector": {}}}, "of the selector"),
        managed({"f:spec": {"f:selector": {}}}),
    ]
    obj: Obj = {"metadata": {"managedFields": entries}}

    def found(*paths: str) -> list[str]:
        return managers_of(paths, obj, own=MANAGER)

    assert found("spec.ports[80,TCP].name") == found("spec.ports[80,TCP]") == found("spec.ports") == ["of the port"]
    assert found("spec.ports[81,TCP]") == found("spec.typ") == found("metadata.labels.a") == []
    assert found("metadata.labels.a.b/c") == found("metadata.labels") == found("metadata") == ["of labels"]
    assert found("spec.selector.app") == ["of the selector"]
    assert found("spec", "metadata.labels.d") == ["of labels", "of the port", "of the selector"]
    assert managers_of(["spec.type"], obj, own="of the port") == []
