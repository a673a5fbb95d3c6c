"""Deferred parts of a template: kept while nothing else changes, adopted with the next other change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shared.kubernetes.kinds import Obj
from shared.kubernetes.managed_fields import difference
from shared.steps.deferred import Deferred, Digest, keep_deferred
from tests.support.applied_workloads import container

MANAGER = "memcached-operator"
PARTS = (Deferred("memcached", "image"), Deferred("memcached", "livenessProbe"))


def upgraded(known: dict[str, Obj]) -> Obj:
    """Return the workload that a newer operator builds from the same spec."""
    made = copy.deepcopy(known["sent"])
    container(made).update(image="memcached:new", livenessProbe={"httpGet": {"path": "/livez", "port": "memcached"}})
    return made


def test_new_values_of_deferred_parts_alone_change_nothing(known: dict[str, Obj]) -> None:
    made = keep_deferred(upgraded(known), known["observed"], PARTS, MANAGER)
    assert made == known["sent"]
    assert difference(made, known["observed"], MANAGER) == []


def test_change_outside_the_template_does_not_adopt_them(known: dict[str, Obj]) -> None:
    newer = upgraded(known)
    newer["spec"]["replicas"] += 1
    made = keep_deferred(newer, known["observed"], PARTS, MANAGER)
    assert difference(made, known["observed"], MANAGER) == ["spec.replicas"]


@pytest.mark.parametrize(
    "change",
    [
        lambda template: template["spec"]["containers"][0]["args"].append("-v"),
        lambda template: template["metadata"]["labels"].update(team="shop"),
        lambda template: template["spec"].pop("terminationGracePeriodSeconds"),
        lambda template: template["spec"]["containers"].append({"name": "exporter", "image": "e:1"}),
    ],
)
def test_any_other_change_of_the_template_adopts_them(known: dict[str, Obj], change: Any) -> None:
    newer = upgraded(known)
    change(newer["spec"]["template"])
    assert keep_deferred(newer, known["observed"], PARTS, MANAGER) == newer


def test_change_of_the_deferred_field_of_another_container_is_adopted(known: dict[str, Obj]) -> None:
    newer = upgraded(known)
    assert keep_deferred(newer, known["observed"], [Deferred("exporter", "image")], MANAGER) == newer


def test_part_that_was_not_set_before_is_not_added(known: dict[str, Obj]) -> None:
    newer = copy.deepcopy(known["sent"])
    container(newer)["lifecycle"] = {"preStop": {"sleep": {"seconds": 1}}}
    assert keep_deferred(newer, known["observed"], [Deferred("memcached", "lifecycle")], MANAGER) == known["sent"]


def test_only_changes_in_the_digest_adopt_them_if_pods_have_one(known: dict[str, Obj]) -> None:
    def of(template: Obj) -> str:
        return str([template["spec"]["containers"][0][part] for part in ("image", "args")])

    def signed(workload: Obj) -> Obj:
        template = copy.deepcopy(workload)["spec"]["template"]
        template["metadata"].setdefault("annotations", {})["digest"] = of(template)
        return {**workload, "spec": {**workload["spec"], "template": template}}

    def kept(newer: Obj) -> Obj:
        return keep_deferred(signed(newer), signed(known["observed"]), PARTS, MANAGER, Digest("digest", of))

    assert kept(upgraded(known)) == signed(known["sent"])
    newer = upgraded(known)
    newer["spec"]["template"]["metadata"]["labels"]["serves"] = "clients"
    assert container(kept(newer)) == container(known["sent"]), "a label that restarts no pod"
    container(newer)["args"].append("-v")
    assert kept(newer) == signed(newer)


def test_new_workload_and_one_without_a_record_are_as_desired(known: dict[str, Obj]) -> None:
    newer = upgraded(known)
    assert keep_deferred(newer, None, PARTS, MANAGER) == newer
    assert keep_deferred(newer, known["observed"], PARTS, "another") == newer
