"""What follows from an EtcdCluster's spec: its version and image, its quota, and what a container asks for."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.etcd.api.reserved_arguments import RESERVED_FLAGS
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.spec import GIB, MAX_ADVISED_QUOTA_BYTES, MIB, EtcdClusterSpec
from operators.etcd.api.versions import Version
from operators.etcd.objects.command_line import arguments
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
def test_the_image_is_what_is_pulled_and_the_version_what_it_can_do(given: Any, image: str, version: str) -> None:
    assert spec(**given).image_reference("here/etcd") == image
    assert str(spec(**given).target) == version


@pytest.mark.parametrize("image", ["etcd", "etcd:latest", "a.b:5000/etcd", f"etcd@sha256:{'0' * 64}", "No Image", None])
def test_a_version_that_nothing_tells_is_asked_for(image: str | None) -> None:
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
def test_the_quota_follows_the_volume(size: str | int, quota: int) -> None:
    assert spec(storage={"size": size}).quota == quota


def test_a_given_quota_wins() -> None:
    assert spec(quotaBackendBytes=GIB).quota == GIB


@given(st.integers(MIB, 4096 * GIB))
def test_a_quota_that_follows_is_one_that_etcd_takes_and_the_volume_holds(size: int) -> None:
    quota = spec(storage={"size": size}).quota
    assert 16 * MIB <= quota <= MAX_ADVISED_QUOTA_BYTES
    if size >= 256 * MIB:
        assert 2 * quota < size, "a second copy has room, and something is left for the log"
    if size >= GIB:
        assert spec(storage={"size": size}).needed_storage <= size


def test_nothing_is_limited_unasked_and_what_is_given_wins() -> None:
    assert spec().container_resources() == {"requests": {"cpu": "100m", "memory": "128Mi"}}
    given = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "20m"}}
    assert spec(resources=given).container_resources() == given, "a request of what is limited follows the limit"


def test_the_target_is_a_version_that_compares() -> None:
    assert spec(version="3.6.9").target < spec(version="3.6.16").target == Version(3, 6, 16)


@pytest.mark.parametrize("spec_of", FLAGGED, ids=lambda given: f"{given['version']}-{given['tls']['mode']}")
def test_no_flag_that_the_operator_sets_can_be_given_again(spec_of: Any) -> None:
    """Of two, etcd takes the last: an argument of a person's would win over what the operator rests on."""
    resource = EtcdCluster.parse(
        {"metadata": {"name": "demo", "namespace": "default", "uid": "u-1"}, "spec": {"size": 3, **spec_of}}
    )
    given = [argument.partition("=")[0] for argument in arguments(resource)]
    may_be_given_more_than_once = {"--feature-gates"}
    taken = [flag for flag in given if not re.match(RESERVED_FLAGS, flag) and not re.match(RESERVED_FLAGS, f"{flag}=x")]
    assert set(taken) <= may_be_given_more_than_once
    assert len(given) > 10
