"""Errors and warnings of the admission review of a Memcached."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.memcached.api.resource import ADMISSION, API, Memcached
from operators.memcached.api.spec import DEFAULT_VERSION, MemcachedSpec
from operators.memcached.objects.names import copies, owner
from operators.memcached.objects.pod import Sidecar, pod
from shared.kubernetes.kinds import Obj
from tests.support.cases import Case, Change
from tests.support.memcached import changes
from tests.support.memcached.cases import ACCEPTED, CHANGES, REFUSED
from tests.support.memcached.released import RELEASED_STATUS


def obj(name: str = "cache", **spec: Any) -> Obj:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"size": 3, "extraArgs": ["-FX"], **spec}}


def of(case: Case) -> Obj:
    return {"metadata": {"name": case.resource, "namespace": "default"}, "spec": case.whole_spec}


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_review_accepts_every_case_that_the_schema_accepts(case: Case) -> None:
    assert ADMISSION.review(of(case), None).errors == ()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_review_rejects_with_advice_every_case_that_the_schema_rejects(case: Case) -> None:
    assert case.operator_error in " ".join(ADMISSION.review(of(case), None).errors)


@pytest.mark.parametrize("change", changes.CHANGES, ids=str)
def test_valid_change_is_accepted(change: Change) -> None:
    assert ADMISSION.review(of(change.new), of(change.old)).errors == ()


@pytest.mark.parametrize("change", changes.REFUSED_CHANGES, ids=str)
def test_change_that_clients_cannot_follow_is_rejected_with_the_way_to_go(change: Change) -> None:
    new, old = of(change.new), of(change.old)
    (error,) = ADMISSION.review(new, old).errors
    assert change.operator_error in error
    assert ADMISSION.review(new, None).errors == (), "the new spec is valid at creation"
    assert ADMISSION.review(new, new).errors == (), "the new spec is valid without a change"


def test_review_returns_all_errors_at_once() -> None:
    errors = ADMISSION.review(obj("9", maxItemSizeMB=64, extraArgs=["-m5"]), None).errors
    assert len(errors) == 3


@pytest.mark.parametrize(
    ("size", "low", "high", "becomes"), [(1, 2, 5, 2), (3, 2, 5, 3), (9, 2, 5, 5), (0, 1, 1, 1), (3, ..., 2, 2)]
)
def test_autoscaling_clamps_size_to_its_bounds(size: int, low: Any, high: int, becomes: int) -> None:
    bounds = {"maxReplicas": high} | ({} if low is ... else {"minReplicas": low})
    given = obj(size=size, autoscaling=bounds)
    before = copy.deepcopy(given)
    assert ADMISSION.default(given)["spec"]["size"] == becomes
    assert given == before, "the input is not changed"
    assert Memcached.parse(given).spec.size == becomes, "the reconcile sees the same"


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["size", "autoscaling", "minReplicas", "maxReplicas"]), inner),
)


@given(WRONG)
def test_defaulting_is_idempotent_and_accepts_any_input(spec: Any) -> None:
    once = ADMISSION.default({"metadata": {"name": "cache"}, "spec": spec})
    assert ADMISSION.default(once) == once


def warnings_of(new: Obj, old: Obj | None = None) -> str:
    review = ADMISSION.review(new, old)
    assert review.errors == ()
    return " ".join((*review.warnings, *review.notes))


def test_good_configuration_gives_no_warnings() -> None:
    assert warnings_of(obj()) == ""
    assert warnings_of(obj(), obj()) == ""
    assert warnings_of(obj(podDisruptionBudget={})) == ""


def test_budget_that_blocks_drains_gives_a_warning() -> None:
    assert "with size 1 the budget allows no evictions" in warnings_of(
        obj(size=1, podDisruptionBudget={"minAvailable": 1})
    )
    assert warnings_of(obj(size=2, podDisruptionBudget={"minAvailable": 1})) == ""


def test_autoscaling_without_a_cpu_request_gives_a_warning() -> None:
    assert "which defaults to 50m" in warnings_of(obj(autoscaling={"maxReplicas": 4}))
    assert warnings_of(obj(autoscaling={"maxReplicas": 4}, resources={"requests": {"cpu": 1}})) == ""


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"memoryMB": 32}, "spec.memoryMB:"),
        ({"version": "1.6.46", "labels": {"a": "b"}}, "spec.labels, spec.version:"),
        ({"image": "a:1"}, "spec.image:"),
        ({"tls": {"secretName": "a"}}, "spec.tls:"),
        ({"warmRestart": True}, "spec.warmRestart:"),
        ({"metrics": {}}, "spec.metrics:"),
    ],
)
def test_change_that_replaces_servers_gives_a_warning(change: Obj, names: str) -> None:
    warning = f"{names} the change replaces all servers, one by one, and the new servers start empty."
    assert warnings_of(obj(**change), obj()) == warning
    unpaused: Obj = {"updateStrategy": {"pauseSeconds": 0}}
    hint = " Set spec.updateStrategy.pauseSeconds to let clients fill each one before the next."
    assert warnings_of(obj(**change, **unpaused), obj(**unpaused)) == warning + hint
    assert warnings_of(obj(), obj(**change)) == warning, "the reverse change too"
    assert warnings_of(obj(**change)) == "", "a new resource has no items to lose"
    assert warnings_of(obj(**change), obj(size=0)) == "", "a resource without servers has no items to lose"


@pytest.mark.parametrize("change", [{"size": 5}, {"paused": True}, {"podDisruptionBudget": {}}, {"version": "1.6.45"}])
def test_change_that_keeps_servers_gives_no_warning(change: Obj) -> None:
    assert warnings_of(obj(**change), obj()) == ""


def template_of(spec: Obj) -> Obj:
    given = obj(**spec)
    given["metadata"]["uid"] = "00000000-0000-4000-8000-000000000001"
    resource = Memcached.parse(given)
    own = owner(resource, "memcached-operator")
    sidecar = Sidecar("example.com/exporter:1", reloads=True)
    return pod(resource, own, resource.spec.image_reference(""), sidecar, "", copies(resource))


@pytest.mark.parametrize("leaf", [leaf for leaf in CHANGES if leaf != "workload"])
def test_change_gives_a_warning_exactly_if_it_changes_the_pods(leaf: str) -> None:
    warnings = warnings_of(obj(**CHANGES[leaf]), obj())
    warns = "replaces all servers" in warnings
    assert warns == (template_of(CHANGES[leaf]) != template_of({})), warnings


ORDERED: Obj = {"mode": "certManager", "issuer": {"name": "ours"}}
REQUIRED: Obj = {"clientAuth": "required"}


@pytest.mark.parametrize(
    ("former", "new", "others"),
    [
        ({"auth": {"secretName": "a"}}, {"auth": {"secretName": "b"}}, ""),
        ({"tls": {"secretName": "a"}}, {"tls": {"secretName": "b"}}, ""),
        ({"tls": {"secretName": "a"}}, {"tls": ORDERED}, ""),
        ({"tls": ORDERED}, {"tls": {"secretName": "a"}}, ""),
        ({"tls": ORDERED}, {"tls": {**ORDERED, "issuer": {"name": "theirs"}}}, ""),
        (
            {"tls": {"secretName": "a", **REQUIRED}},
            {"tls": {"secretName": "b", **REQUIRED}},
            ", or verify clients by another ca.crt,",
        ),
    ],
)
def test_another_secret_warns_only_of_the_servers_that_it_replaces(former: Obj, new: Obj, others: str) -> None:
    assert template_of(former) == template_of(new)
    warnings = warnings_of(obj(**new), obj(**former))
    (field,) = new
    assert "replaces all servers" not in warnings
    mounting = f"spec.{field}: servers that mount the Secret itself (SecretsNotCopied){others} are replaced, one by one"
    assert mounting in warnings
    assert mounting not in warnings_of(obj(**new), obj(size=0, **former))
    assert "replaces all servers" in warnings_of(obj(**new, memoryMB=32), obj(**former))


def test_description_of_tls_names_the_change_of_a_secret_that_replaces_servers() -> None:
    described = str(MemcachedSpec.model_fields["tls"].description)
    assert "replaces none that mount copies, unless clientAuth is required and ca.crt changes." in described


def test_another_certificate_warns_of_servers_that_cannot_load_it() -> None:
    kept = "those that respond to no ASCII command, which keep the certificate until their pods end"
    former: Obj = {"tls": {"secretName": "a"}}
    new: Obj = {"tls": {"secretName": "b"}}
    args: Obj = {"extraArgs": ["-Bbinary"]}
    assert f"The others, except {kept}, load the new content" in warnings_of(obj(**new, **args), obj(**former, **args))
    none: Obj = {"extraArgs": []}
    assert "The others load the new content" in warnings_of(obj(**new, **none), obj(**former, **none))


@pytest.mark.parametrize(
    ("former", "new"),
    [
        ({"auth": {"secretName": "a"}}, {"auth": {}}),
        ({"auth": {"secretName": "a"}}, {}),
        ({"tls": {"mode": "self"}}, {"tls": {"secretName": "a"}}),
        ({"tls": {"secretName": "a"}}, {"tls": {"secretName": "b", **REQUIRED}}),
        ({"tls": {"secretName": "a"}}, {"tls": {"mode": "none"}}),
    ],
)
def test_another_kind_of_secret_warns_that_all_servers_are_replaced(former: Obj, new: Obj) -> None:
    assert template_of(former) != template_of(new)
    assert "replaces all servers" in warnings_of(obj(**new), obj(**former))


def test_another_issuer_warns_that_clients_must_trust_its_authority_first() -> None:
    given = {"mode": "certManager", "issuer": {"name": "ours"}}
    warnings = warnings_of(obj(tls={**given, "issuer": {"name": "theirs"}}), obj(tls=given))
    assert "spec.tls.issuer: clients must trust the authority of the new issuer before this change" in warnings
    assert "spec.tls.issuer" not in warnings_of(obj(tls={**given, "clientAuth": "required"}), obj(tls=given))


def reported(status: Obj, **spec: Any) -> Obj:
    return obj(**spec) | {"status": status}


@pytest.mark.parametrize("status", [{"workload": "Deployment"}, RELEASED_STATUS], ids=["this release", "release 0.1.0"])
def test_workload_change_warns_that_every_key_moves(status: Obj) -> None:
    moved = "spec.workload: the servers of the StatefulSet start empty"
    kept = reported(status)
    assert warnings_of(reported(status, workload="StatefulSet", memoryMB=32), kept).startswith(moved)
    assert warnings_of(reported(status, workload="Deployment"), kept) == "", "they are in a Deployment already"
    assert warnings_of(kept, reported(status, workload="Deployment")) == "", "and stay in it"
    assert warnings_of(kept, reported(status, workload="StatefulSet")).startswith(
        "spec.workload: the servers of the Deployment start empty"
    ), "a change that is not complete is cancelled"


def test_workload_of_a_new_resource_is_a_stateful_set() -> None:
    assert warnings_of(obj(workload="StatefulSet"), obj()) == ""
    assert "the servers of the Deployment start empty" in warnings_of(obj(workload="Deployment"), obj())


def test_spec_that_bypassed_admission_can_be_repaired() -> None:
    assert warnings_of(obj(), obj(size="three")) == ""


def test_admission_is_registered_for_memcacheds() -> None:
    assert ADMISSION.kind == API.kind


@pytest.mark.parametrize(
    ("status", "spec", "version"),
    [
        ({}, {}, DEFAULT_VERSION),
        ({"version": "1.6.38"}, {}, "1.6.38"),  # a new operator replaces no server
        ({"version": "1.6.38-alpine"}, {}, "1.6.38-alpine"),
        ({"version": "sha256:00"}, {}, DEFAULT_VERSION),  # of a former image
        ({"version": "1.6.38"}, {"version": "1.6.18"}, "1.6.18"),
        ({"version": "1.6.38"}, {"image": "a/b:1.6.2"}, None),
    ],
)
def test_missing_version_defaults_to_the_running_one(status: Obj, spec: Obj, version: str | None) -> None:
    given = {**obj(**spec), "status": status}
    assert ADMISSION.default(given)["spec"].get("version") == version
    assert Memcached.parse(given).spec.version == version, "the reconcile uses the same default"


def test_version_with_known_weaknesses_causes_a_warning() -> None:
    warning = warnings_of(obj(version="1.6.38"))
    assert re.fullmatch(r"memcached 1\.6\.38 has \d known weakness(es)?, fixed in 1\.6\.45 \(version\)", warning)
    assert warnings_of(obj(image="a.b/memcached:1.6.45")) == ""
    assert "has 4 known weaknesses" in warnings_of(obj(version="1.6.42", auth={"secretName": "a"}))
    assert warnings_of(obj(image="a.b/memcached")) == "", "nothing is known of it"


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ([], "clients may use flush_all, key dumps (extraArgs -F, -X)"),
        (["-F"], "clients may use key dumps (extraArgs -X)"),
        (["-vX"], "clients may use flush_all (extraArgs -F)"),
        (["--disable-dumping", "-v", "--disable-flush-all"], ""),
        (["-FX"], ""),
    ],
)
def test_commands_that_harm_other_clients_are_noted(arguments: list[str], note: str) -> None:
    notes = ADMISSION.review(obj(extraArgs=arguments), None).notes
    assert [each for each in notes if "clients may use" in each] == ([note] if note else [])


@pytest.mark.parametrize(
    ("spec", "noted"),
    [
        ({"version": "1.6.18"}, True),
        ({"version": "1.6.18-alpine"}, True),
        ({"image": "registry.example.com/mirror/memcached:1.6.18"}, True),
        ({"version": "1.6"}, False),
        ({"version": "latest"}, False),
        ({"image": "registry.example.com/cache:1.0.3"}, False),
        ({"image": f"memcached:1.6.18@sha256:{'0' * 64}"}, False),
    ],
)
def test_only_an_exact_tag_of_memcached_names_a_version_with_weaknesses(spec: Obj, noted: bool) -> None:
    assert any("known weakness" in each for each in ADMISSION.review(obj(**spec), None).notes) == noted
