"""`difference` on what a real API server recorded of an apply; `tests/api/schema/test_fields.py` covers any edit."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kubernetes.kinds import Obj
from shared.kubernetes.managed_fields import changed_by, difference, record_of, trim
from shared.testing.api_server.requests import merge_patch
from tests.support import paths

MANAGER = "memcached-operator"
APPLIED: dict[str, dict[str, Obj]] = json.loads((paths.RECORDED / "kubernetes/applied.json").read_text())

Edit = Callable[[Obj], Any]


def container(obj: Obj) -> Obj:
    found: Obj = obj["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.fixture(params=sorted(APPLIED))
def applied(request: pytest.FixtureRequest) -> dict[str, Obj]:
    """What was sent, and what the API server made of it."""
    return copy.deepcopy(APPLIED[request.param])


def test_what_was_just_applied_differs_in_nothing(applied: dict[str, Obj]) -> None:
    assert difference(applied["sent"], applied["observed"], MANAGER) == []


def test_what_another_applied_is_not_ours(applied: dict[str, Obj]) -> None:
    assert record_of(applied["observed"], "another") is None
    assert difference(applied["sent"], applied["observed"], "another") == ["metadata.managedFields"]


def test_identity_and_status_are_no_difference(applied: dict[str, Obj]) -> None:
    applied["sent"]["metadata"]["uid"] = "of the object that was seen"
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
def test_what_we_want_otherwise_is_named(edit: Edit, path: str) -> None:
    sent, observed = copy.deepcopy(APPLIED["Deployment"]["sent"]), APPLIED["Deployment"]["observed"]
    edit(sent)
    assert difference(sent, observed, MANAGER) == [path]


@pytest.mark.parametrize("memory", ["2048Mi", "2Gi", "2147483648", 2147483648])
def test_a_quantity_written_otherwise_is_the_same(memory: str | int) -> None:
    sent, observed = copy.deepcopy(APPLIED["Deployment"]["sent"]), APPLIED["Deployment"]["observed"]
    container(sent)["resources"]["limits"]["memory"] = memory
    assert difference(sent, observed, MANAGER) == []


def test_what_is_trimmed_differs_no_more_and_no_less(applied: dict[str, Obj]) -> None:
    sent, observed = applied["sent"], applied["observed"]
    others = [
        {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}},
        {"manager": MANAGER, "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {}}},
    ]
    observed["metadata"]["managedFields"] += others
    trimmed = trim(observed, MANAGER)
    assert [entry["operation"] for entry in trimmed["metadata"]["managedFields"]] == ["Apply"]
    assert record_of(trimmed, MANAGER) == record_of(observed, MANAGER)
    assert difference(sent, trimmed, MANAGER) == difference(sent, observed, MANAGER) == []
    assert others[0] in observed["metadata"]["managedFields"], "what was given stays as it was"


VALUES = st.one_of(st.integers(0, 2), st.lists(st.integers(0, 1), max_size=2))
OBSERVED = st.recursive(VALUES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8)
PATCHES = st.recursive(
    st.none() | VALUES, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(st.sampled_from("abc"), PATCHES), st.dictionaries(st.sampled_from("abc"), OBSERVED))
def test_a_patch_changes_something_exactly_if_a_path_is_named(patch: Obj, observed: Obj) -> None:
    assert bool(changed_by(patch, observed)) == (merge_patch(observed, patch) != observed)


def test_what_a_patch_changes_is_named() -> None:
    observed = {"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    patch = {"metadata": {"labels": {"a": None, "b": "2", "c": "3"}}}
    assert changed_by(patch, observed) == ["metadata.labels.a", "metadata.labels.c"]
    assert changed_by({"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}, observed) == []
