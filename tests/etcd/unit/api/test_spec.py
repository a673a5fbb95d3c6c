"""Values derived from the spec of an EtcdCluster: version, image, quota and container resources."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.arguments import RESERVED_FLAGS
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.spec import GIB, MAX_ADVISED_QUOTA_BYTES, MIB, EtcdClusterSpec
from operators.etcd.api.versions import DOWNGRADES, Version
from operators.etcd.objects.command_line import arguments
from shared.api.catalogue import dotted
from shared.api.spec import InvalidSpec

FLAGGED = [
    {"version": version, "tls": {"mode": mode}, "snapshotCount": 5000, "autoCompaction": {}}
    for version in ("3.4.13", "3.5.35", "3.6.16", "3.7.3")
    for mode in ("none", "self")
]


def spec(**given: Any) -> EtcdClusterSpec:
    return EtcdClusterSpec.model_validate({"size": 3, "version": "3.6.16", **given})


@pytest.mark.parametrize(
    ("given", "image", "version"),
    [
        ({"version": "3.6.16"}, "here/etcd:v3.6.16", "3.6.16"),
        ({"version": "v3.6.16"}, "here/etcd:v3.6.16", "3.6.16"),
        ({"version": "3.6.16-0"}, "here/etcd:v3.6.16-0", "3.6.16"),
        ({"image": "cnych/etcd:v3.4.13", "version": None}, "cnych/etcd:v3.4.13", "3.4.13"),
        ({"image": "a.b:5000/etcd:3.5.35-0", "version": None}, "a.b:5000/etcd:3.5.35-0", "3.5.35"),
        ({"image": "etcd:stable", "version": "3.7.3"}, "etcd:stable", "3.7.3"),
        ({"image": f"etcd@sha256:{'0' * 64}", "version": "3.7.3"}, f"etcd@sha256:{'0' * 64}", "3.7.3"),
    ],
)
def test_image_and_version_are_derived_from_either_field(given: Any, image: str, version: str) -> None:
    assert spec(**given).image_reference("here/etcd") == image
    assert str(spec(**given).target) == version


@pytest.mark.parametrize("image", ["etcd", "etcd:latest", "a.b:5000/etcd", f"etcd@sha256:{'0' * 64}", "No Image", None])
def test_unknown_version_is_refused(image: str | None) -> None:
    with pytest.raises(InvalidSpec, match=r"Set it, for example to 3\.6\.16"):
        _ = spec(image=image, version=None).target


@pytest.mark.parametrize(
    ("size", "quota"),
    [
        ("8Gi", 3840 * MIB),
        ("1Gi", 256 * MIB),
        ("2Gi", 768 * MIB),
        ("512Mi", 128 * MIB),
        ("256Mi", 64 * MIB),
        ("100Gi", MAX_ADVISED_QUOTA_BYTES),
        (20 * GIB, MAX_ADVISED_QUOTA_BYTES),
    ],
)
def test_default_quota_follows_the_volume_size(size: str | int, quota: int) -> None:
    assert spec(storage={"size": size}).quota == quota


def test_explicit_quota_takes_precedence() -> None:
    assert spec(quotaBackendBytes=GIB).quota == GIB


@given(st.integers(MIB, 4096 * GIB))
def test_default_quota_is_valid_for_etcd_and_fits_the_volume(size: int) -> None:
    quota = spec(storage={"size": size}).quota
    assert 16 * MIB <= quota <= MAX_ADVISED_QUOTA_BYTES
    if size >= 256 * MIB:
        assert 2 * quota < size, "the volume fits a second copy of the database and the log"
    if size >= GIB:
        assert spec(storage={"size": size}).needed_storage <= size


def test_limits_are_unset_by_default_and_explicit_resources_take_precedence() -> None:
    assert spec().container_resources() == {"requests": {"cpu": "100m", "memory": "128Mi"}}
    given = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "20m"}}
    assert spec(resources=given).container_resources() == given, "Kubernetes derives a missing request from the limit"


def test_target_versions_are_ordered() -> None:
    assert spec(version="3.6.9").target < spec(version="3.6.16").target == Version(3, 6, 16)


@pytest.mark.parametrize("spec_of", FLAGGED, ids=lambda given: f"{given['version']}-{given['tls']['mode']}")
def test_flags_set_by_the_operator_are_reserved(spec_of: Any) -> None:
    """Of two equal flags, etcd uses the last: a user's argument would override one that the operator depends on."""
    resource = EtcdCluster.parse(
        {"metadata": {"name": "demo", "namespace": "default", "uid": "u-1"}, "spec": {"size": 3, **spec_of}}
    )
    given = [argument.partition("=")[0] for argument in arguments(resource)]
    repeatable = {"--feature-gates"}
    unreserved = [
        flag for flag in given if not re.match(RESERVED_FLAGS, flag) and not re.match(RESERVED_FLAGS, f"{flag}=x")
    ]
    assert set(unreserved) <= repeatable
    assert len(given) > 10


def test_explanation_of_the_version_names_every_downgrade_that_etcd_supports() -> None:
    """D1: according to kubectl explain, downgrades were rejected."""
    text = EtcdClusterSpec.model_fields["version"].description or ""
    for series, below in DOWNGRADES.items():
        assert f"{dotted(series)} to {dotted(below)}" in text
    assert "rejected" not in text
