from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from operators import installed
from operators.etcd.api.spec import EtcdClusterSpec
from operators.memcached.api.spec import MemcachedSpec
from operators.redis.api.spec import RedisClusterSpec
from shared.api.admission import AdmissionRequest, _validate
from shared.api.policy import PlatformPolicy, governed
from shared.api.spec import SpecModel
from tests.support.redis.cases import SEED, SEED_POD
from tools.local.paths import REPOSITORY

SAMPLES = REPOSITORY / "samples"
FILES = sorted(SAMPLES.rglob("*.yaml"))
KINDS = {kind.resource.kind.name: kind for operator in installed() for kind in operator.kinds}

KNOWN_WARNINGS = {
    "etcd/seed.yaml": ("spec.version: 3.4.13 does not compare data between members",),
    "redis/seed.yaml": (
        "spec.pod[0].volumes.persistentVolumeClaimName: pvcName is not a valid claim name",
        "spec.pod[0].affinity: requiredDuringSchedulingIgnoredDuringExecution is next to nodeAffinity",
    ),
}
"""Expected admission warnings of samples, by their first words; that about what is not set may follow."""

SMALLEST: dict[str, dict[str, Any]] = {
    operator.main.kind.name: yaml.safe_load(f"{{{operator.smallest}}}") for operator in installed()
}
"""Specs with the required fields only, as in README.md and in the charts' notes."""


def name_of(sample: Path) -> str:
    return "/".join(sample.parts[-2:])


def printed(resource: Any) -> list[str]:
    """Return the warnings that kubectl prints for a new resource."""
    admission = KINDS[resource["kind"]].admission
    assert admission is not None
    governing = governed(admission, PlatformPolicy())
    obj = admission.default(resource)
    answer = _validate(AdmissionRequest("u-1", governing, obj, None))
    assert answer["allowed"], answer
    found: list[str] = answer.get("warnings", [])
    assert all(len(warning) <= 200 and "more characters" not in warning for warning in found), found
    return found


@pytest.mark.parametrize("kind", SMALLEST)
def test_smallest_manifests_print_one_warning(kind: str) -> None:
    (warning,) = printed({"kind": kind, "metadata": {"name": "a", "namespace": "d"}, "spec": SMALLEST[kind]})
    assert warning.startswith("spec: no TLS (tls); no password (auth); open to all (network.allowFrom)")


def test_plainest_resource_with_the_most_notes_prints_one_whole_warning() -> None:
    spec = {"replicas": 6, "version": "7.0.15"}
    assert len(printed({"kind": "RedisCluster", "metadata": {"name": "a", "namespace": "d"}, "spec": spec})) == 1


@pytest.mark.parametrize("sample", FILES, ids=name_of)
def test_samples_pass_admission_without_unexpected_warnings(sample: Path) -> None:
    objects = list(yaml.safe_load_all(sample.read_text()))
    assert all("namespace" not in obj["metadata"] for obj in objects) or name_of(sample) == "redis/seed.yaml"
    (resource,) = (obj for obj in objects if obj["kind"] in KINDS)
    admission = KINDS[resource["kind"]].admission
    assert admission is not None
    review = admission.review(resource, None)
    assert review.errors == ()
    expected = KNOWN_WARNINGS.get(name_of(sample), ())
    assert len(review.warnings) == len(expected)
    assert len(printed(resource)) <= len(expected) + 1
    assert all(warning.startswith(words) for warning, words in zip(review.warnings, expected, strict=True))


def test_samples_of_all_operators_have_distinct_names() -> None:
    """Most resources have a Service of the same name, so equal names would conflict in one namespace."""
    objects = [obj for sample in FILES for obj in yaml.safe_load_all(sample.read_text())]
    names = [obj["metadata"]["name"] for obj in objects if obj["kind"] in KINDS]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize(
    ("sample", "seed"),
    [
        (
            "memcached",
            {
                "apiVersion": "cache.example.com/v1alpha1",
                "kind": "Memcached",
                "metadata": {"name": "memcached-sample"},
                "spec": {"size": 3},
            },
        ),
        (
            "etcd",
            {
                "apiVersion": "etcd.ydzs.io/v1alpha1",
                "kind": "EtcdCluster",
                "metadata": {"name": "demo"},
                "spec": {"size": 3, "image": "cnych/etcd:v3.4.13"},
            },
        ),
    ],
    ids=["memcached", "etcd"],
)
def test_seed_sample_equals_the_seed_manifest(sample: str, seed: dict[str, Any]) -> None:
    assert yaml.safe_load((SAMPLES / sample / "seed.yaml").read_text()) == seed


def test_redis_seed_sample_equals_the_seed_manifest_with_a_new_version() -> None:
    manifest = yaml.safe_load((SAMPLES / "redis" / "seed.yaml").read_text())
    pod = {**SEED_POD, "affinity": {"nodeAffinity": None, **SEED_POD["affinity"]}}
    assert manifest["metadata"] == {"name": "example000-redis-cluster", "namespace": "kube-system"}
    assert manifest["spec"] == {**SEED, "pod": [pod]}


@pytest.mark.parametrize(
    ("operator", "spec"), [("memcached", MemcachedSpec), ("etcd", EtcdClusterSpec), ("redis", RedisClusterSpec)]
)
def test_complete_sample_contains_every_field(operator: str, spec: type[SpecModel]) -> None:
    """Fields without a generally valid value are commented out."""
    shown = set(re.findall(r"^  (?:# )?(\w+):", (SAMPLES / operator / "complete.yaml").read_text(), re.MULTILINE))
    assert shown >= {field.alias for field in spec.model_fields.values()}
