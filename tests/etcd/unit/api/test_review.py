"""Admission of EtcdClusters: defaults, refused changes and warnings."""

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
    return " ".join((*review.warnings, *review.notes))


def test_all_errors_of_a_spec_are_reported_together() -> None:
    wrong = obj("9", version="2.3.8", extraArgs=["--name=a"], tls={"mode": "secret"})
    assert len(ADMISSION.review(wrong, None).errors) == 4


def test_version_of_a_new_cluster_defaults_to_the_operators_version() -> None:
    given = obj(version=...)
    before = copy.deepcopy(given)
    assert ADMISSION.default(given)["spec"]["version"] == DEFAULT_VERSION
    assert given == before, "the argument is not modified"
    assert str(EtcdCluster.parse(given).version) == DEFAULT_VERSION, "the reconcile uses the same default"


def test_version_of_a_running_cluster_defaults_to_the_running_version() -> None:
    assert ADMISSION.default(obj(version=..., status=running("3.5.35")))["spec"]["version"] == "3.5.35"


@pytest.mark.parametrize("given", [{"version": "3.5.35"}, {"version": ..., "image": "etcd:v3.5.35"}, {"image": "a"}])
def test_defaulting_keeps_an_explicit_version_or_image(given: Obj) -> None:
    assert ADMISSION.default(obj(**given)) == obj(**given)


WRONG = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["size", "version", "image", "storage"]), inner),
)


@given(WRONG)
def test_defaulting_accepts_any_spec_and_is_idempotent(spec: Any) -> None:
    once = ADMISSION.default({"metadata": {"name": "demo"}, "spec": spec})
    assert ADMISSION.default(once) == once


@pytest.mark.parametrize(
    ("status", "old", "new", "words"),
    [
        (running("3.5.35"), "3.5.35", "3.7.3", "3.7.3 is more than one minor version above 3.5"),
        (running("3.5.25"), "3.5.25", "3.6.16", "a member runs 3.5.25"),
        (running("3.5.25", "3.5.25", "3.5.35"), "3.5.35", "3.6.16", "a member runs 3.5.25"),
        (running("3.6.8"), "3.6.8", "3.7.3", "Set 3.6.11 or a later 3.6 first"),
        (running("3.6.16"), "3.6.16", "3.5.25", "3.5.25 is below 3.5.26"),
        (running("3.5.35"), "3.5.35", "3.4.45", "3.4.45 is below 3.5"),
        (running("3.5.35", "3.5.35", "3.6.16"), "3.6.16", "3.7.3", "3.7.3 is more than one minor version above 3.5"),
    ],
)
def test_unsupported_version_change_is_refused(status: Obj, old: str, new: str, words: str) -> None:
    message = refused(obj(version=new, status=status), obj(version=old, status=status))
    assert message.startswith("spec.version: ")
    assert words in message
    by_image: Obj = {"version": ..., "image": f"etcd:v{new}"}
    assert refused(obj(**by_image, status=status), obj(version=old, status=status)).startswith("spec.image: ")


@pytest.mark.parametrize(
    ("status", "old", "new"),
    [
        (running("3.5.35"), "3.5.35", "3.6.16"),
        (running("3.5.35", "3.5.35", "3.6.16"), "3.6.16", "3.5.35"),
        (running("3.6.16"), "3.6.16", "3.5.35"),
        (None, "3.5.35", "3.7.3"),
        ({"phase": "Creating"}, "3.7.3", "3.5.35"),
    ],
)
def test_supported_version_change_is_accepted(status: Obj | None, old: str, new: str) -> None:
    assert refused(obj(version=new, status=status), obj(version=old, status=status)) == ""


def test_blocked_upgrade_does_not_prevent_other_changes() -> None:
    """The upgrade bypassed admission; the reconcile blocks it and reports the reason."""
    status = running("3.5.25")
    assert refused(obj(size=5, status=status), obj(size=3, status=status)) == ""


def test_invalid_resource_that_bypassed_admission_can_be_fixed() -> None:
    assert refused(obj(), obj(size="three")) == ""
    assert refused(obj(), obj(version=..., image="etcd:latest")) == ""


def test_sound_spec_causes_no_warning() -> None:
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
        ({"version": "3.5.5"}, "with 3.5.0 to 3.5.5, a member that is stopped during a defragmentation may apply"),
        ({"version": "3.4.13"}, "3.4.13 does not compare data between members"),
        ({"auth": {"rootSecretName": "a"}}, "passwords are sent over the network in plain text"),
        ({"autoCompaction": ...}, "no compaction, unless clients compact (autoCompaction)"),
    ],
)
def test_unwise_setting_causes_one_warning(spec: Obj, words: str) -> None:
    review = ADMISSION.review(obj(**spec), None)
    (message,) = (*review.warnings, *review.notes)
    assert words in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"version": "3.5.0"}, "with 3.5.0 to 3.5.2, acknowledged writes can be lost"),
        ({"version": "3.5.2"}, "with 3.5.0 to 3.5.2, acknowledged writes can be lost"),
        ({"version": "3.5.5", "auth": {"rootSecretName": "a"}}, "with 3.5.5, a new member may skip writes"),
        ({"version": "3.4.21", "auth": {"rootSecretName": "a"}}, "with 3.4.20 to 3.4.21, a new member may skip writes"),
    ],
)
def test_version_with_several_defects_causes_several_warnings(spec: Obj, words: str) -> None:
    assert words in warned(obj(**spec))


@pytest.mark.parametrize(
    "spec",
    [
        {"version": "3.5.6"},
        {"size": 1, "podDisruptionBudget": {"maxUnavailable": 1}},
        {"size": 5, "podDisruptionBudget": {"maxUnavailable": 2}},
        {"auth": {"enabled": False, "rootSecretName": "a"}},
        {"storage": {"medium": "Memory", "size": "1Gi"}, "resources": {"limits": {"memory": "2Gi"}}},
    ],
)
def test_setting_within_the_limits_causes_no_warning(spec: Obj) -> None:
    assert warned(obj(**spec)) == ""


def test_weaknesses_of_authentication_are_warned_of_only_with_authentication() -> None:
    assert warned(obj(version="3.6.8")) == ""
    assert "known weaknesses, fixed in 3.6." in warned(obj(version="3.6.8", auth={"rootSecretName": "a"}))


def test_patch_downgrade_causes_a_warning() -> None:
    status = running("3.6.16")
    assert "3.6.8 is older than the running version 3.6.16" in warned(
        obj(version="3.6.8", status=status), obj(status=status)
    )


def test_downgrade_to_an_earlier_series_causes_a_warning() -> None:
    status = running("3.6.16")
    warning = warned(obj(version="3.5.35", status=status), obj(status=status))
    assert "3.5.35 is below the running version 3.6.16" in warning
    assert "Take an EtcdBackup first" in warning


def test_lower_fault_tolerance_causes_a_warning() -> None:
    assert warned(obj(size=1), obj()) == "spec.size: 3 members tolerate the failure of 1, but 1 only of 0."


def test_removed_storage_causes_a_warning_about_its_default() -> None:
    former = obj(storage={"size": "4Gi"})
    assert "spec.storage.size: volumes grow from 4Gi to 8Gi, and can never shrink." in warned(obj(), former)
    assert "7Gi is below the former 8Gi" in warned(obj(storage={"size": "7Gi"}), obj())


def test_disabled_authentication_causes_a_warning() -> None:
    enabled, disabled = ({"rootSecretName": "root", "enabled": each} for each in (True, False))
    before = obj(auth=enabled)
    for after in (obj(), obj(auth=disabled)):
        assert "spec.auth: authentication is disabled now" in warned(after, before)
    assert "is disabled now" not in warned(obj(), obj(auth=disabled))
    assert "is disabled now" not in warned(before, before)


def test_admission_covers_etcdclusters() -> None:
    assert ADMISSION.kind == API.kind
