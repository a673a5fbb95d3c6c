"""What is said of an EtcdCluster at the door: what is filled in, what a change may not do, and what is unwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.resource import ADMISSION, API, EtcdCluster
from operators.etcd.api.spec import DEFAULT_VERSION
from shared.kubernetes.kinds import Obj


def obj(name: str = "demo", status: Obj | None = None, **spec: Any) -> Obj:
    usual = {"size": 3, "version": "3.6.16", "autoCompaction": {"retention": "1h"}}
    whole = {key: value for key, value in {**usual, **spec}.items() if value is not ...}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": whole, **({"status": status} if status else {})}


def running(lowest: str, *members: str) -> Obj:
    return {
        "clusterID": "cdf818194e3a8c32",
        "version": lowest,
        "members": [
            {"name": f"demo-{number}", "version": version} for number, version in enumerate(members or (lowest,))
        ],
    }


def refused(new: Obj, old: Obj | None = None) -> str:
    return " ".join(ADMISSION.review(new, old).errors)


def warned(new: Obj, old: Obj | None = None) -> str:
    review = ADMISSION.review(new, old)
    assert review.errors == ()
    return " ".join(review.warnings)


def test_all_that_is_wrong_is_said_at_once() -> None:
    wrong = obj("9", version="2.3.8", extraArgs=["--name=a"], tls={"mode": "secret"})
    assert len(ADMISSION.review(wrong, None).errors) == 4


def test_a_version_that_is_missing_is_ours_for_a_new_cluster() -> None:
    given = obj(version=...)
    before = copy.deepcopy(given)
    assert ADMISSION.default(given)["spec"]["version"] == DEFAULT_VERSION
    assert given == before, "what is given is not changed in place"
    assert str(EtcdCluster.parse(given).version) == DEFAULT_VERSION, "the reconcile sees the same"


def test_a_version_that_is_missing_is_what_runs_and_so_nobody_is_upgraded_unasked() -> None:
    assert ADMISSION.default(obj(version=..., status=running("3.5.35")))["spec"]["version"] == "3.5.35"


@pytest.mark.parametrize("given", [{"version": "3.5.35"}, {"version": ..., "image": "etcd:v3.5.35"}, {"image": "a"}])
def test_a_version_or_an_image_that_is_given_stays(given: Obj) -> None:
    assert ADMISSION.default(obj(**given)) == obj(**given)


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["size", "version", "image", "storage"]), inner),
)


@given(WRONG)
def test_defaulting_takes_anything_and_says_the_same_of_what_it_made(spec: Any) -> None:
    once = ADMISSION.default({"metadata": {"name": "demo"}, "spec": spec})
    assert ADMISSION.default(once) == once


@pytest.mark.parametrize(
    ("status", "old", "new", "words"),
    [
        (running("3.5.35"), "3.5.35", "3.7.3", "3.7.3 is more than one minor version above 3.5"),
        (running("3.5.25"), "3.5.25", "3.6.16", "a member runs 3.5.25"),
        (running("3.5.25", "3.5.25", "3.5.35"), "3.5.35", "3.6.16", "a member runs 3.5.25"),
        (running("3.6.8"), "3.6.8", "3.7.3", "Set 3.6.11 or a later 3.6 first"),
        (running("3.6.16"), "3.6.16", "3.5.35", "3.5.35 is below 3.6"),
        (running("3.5.35", "3.5.35", "3.6.16"), "3.6.16", "3.7.3", "3.7.3 is more than one minor version above 3.5"),
    ],
)
def test_a_version_that_may_not_follow_is_refused(status: Obj, old: str, new: str, words: str) -> None:
    said = refused(obj(version=new, status=status), obj(version=old, status=status))
    assert said.startswith("spec.version: ")
    assert words in said
    by_image: Obj = {"version": ..., "image": f"etcd:v{new}"}
    assert refused(obj(**by_image, status=status), obj(version=old, status=status)).startswith("spec.image: ")


@pytest.mark.parametrize(
    ("status", "old", "new"),
    [
        (running("3.5.35"), "3.5.35", "3.6.16"),
        (running("3.5.35", "3.5.35", "3.6.16"), "3.6.16", "3.5.35"),
        (None, "3.5.35", "3.7.3"),
        ({"phase": "Creating"}, "3.7.3", "3.5.35"),
    ],
)
def test_one_that_may_is_taken(status: Obj | None, old: str, new: str) -> None:
    assert refused(obj(version=new, status=status), obj(version=old, status=status)) == ""


def test_a_step_that_is_held_keeps_nobody_from_changing_something_else() -> None:
    """It came past admission once: the reconcile holds it, and says so."""
    held = running("3.5.25")
    assert refused(obj(size=5, status=held), obj(size=3, status=held)) == ""


def test_a_resource_that_came_past_admission_may_be_mended() -> None:
    assert refused(obj(), obj(size="three")) == ""
    assert refused(obj(), obj(version=..., image="etcd:latest")) == ""


def test_nothing_is_said_of_what_is_well() -> None:
    assert warned(obj()) == ""
    assert warned(obj(), obj()) == ""
    assert warned(obj(size=5), obj()) == ""
    assert warned(obj(podDisruptionBudget={})) == ""
    assert warned(obj(auth={"rootSecretName": "a"}, tls={"mode": "self"})) == ""
    assert warned(obj(quotaBackendBytes=2**31, storage={"size": "5Gi"})) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"size": 2}, "spec.size: 2 members tolerate the failure of 0, as 1 would"),
        ({"size": 4}, "spec.size: 4 members tolerate the failure of 1, as 3 would"),
        ({"size": 9}, "spec.size: each write waits for 5 of 9 members"),
        (
            {"size": 1, "storage": {"medium": "Memory"}},
            "a single member with medium Memory loses all data with its pod",
        ),
        (
            {"storage": {"medium": "Memory"}, "resources": {"limits": {"memory": "1Gi"}}},
            "memory 1Gi is below storage.size 8Gi",
        ),
        ({"quotaBackendBytes": 9 * 2**30, "storage": {"size": "40Gi"}}, "is above 8589934592 (8Gi)"),
        (
            {"quotaBackendBytes": 2**31, "storage": {"size": "4Gi"}},
            "with 2147483648 a volume needs 5Gi, for the log and for a second copy",
        ),
        ({"podDisruptionBudget": {"maxUnavailable": 0}}, "allows no eviction with 3 members"),
        ({"podDisruptionBudget": {"minAvailable": 3}}, "allows no eviction with 3 members"),
        ({"podDisruptionBudget": {"maxUnavailable": 2}}, "allows the eviction of 2 of 3 members at once"),
        ({"podDisruptionBudget": {"minAvailable": 1}}, "allows the eviction of 2 of 3 members at once"),
        ({"version": "3.5.0"}, "3.5.0 to 3.5.2 can lose acknowledged writes"),
        ({"version": "3.5.2"}, "3.5.0 to 3.5.2 can lose acknowledged writes"),
        ({"version": "3.4.13"}, "3.4.13 does not compare data between members"),
        ({"auth": {"rootSecretName": "a"}}, "passwords are sent over the network in plain text"),
        ({"autoCompaction": ...}, "every former value is kept until a client compacts"),
    ],
)
def test_what_is_unwise_is_told_once(spec: Obj, words: str) -> None:
    (said,) = ADMISSION.review(obj(**spec), None).warnings
    assert words in said


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "3.5.3"},
        {"size": 1, "podDisruptionBudget": {"maxUnavailable": 1}},
        {"size": 5, "podDisruptionBudget": {"maxUnavailable": 2}},
        {"auth": {"enabled": False, "rootSecretName": "a"}},
        {"storage": {"medium": "Memory", "size": "1Gi"}, "resources": {"limits": {"memory": "2Gi"}}},
    ],
)
def test_what_is_on_the_near_side_of_it_is_not(spec: Obj) -> None:
    assert warned(obj(**spec)) == ""


def test_an_older_patch_is_told() -> None:
    was = running("3.6.16")
    assert "3.6.8 is older than the running version 3.6.16" in warned(obj(version="3.6.8", status=was), obj(status=was))


def test_a_cluster_that_survives_less_is_told() -> None:
    assert warned(obj(size=1), obj()) == "spec.size: 3 members tolerate the failure of 1, but 1 only of 0."


def test_it_is_asked_about_etcdclusters() -> None:
    assert ADMISSION.kind == API.kind
