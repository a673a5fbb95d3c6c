from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from e2e.cluster.paths import REPOSITORY
from operators.memcached import api
from operators.memcached.spec import MemcachedSpec
from shared.spec import Review

SAMPLES = REPOSITORY / "samples" / "memcached"


@pytest.mark.parametrize("sample", sorted(SAMPLES.iterdir()), ids=lambda path: path.stem)
def test_the_operator_finds_no_fault_with_a_sample(sample: Path) -> None:
    objects = list(yaml.safe_load_all(sample.read_text()))
    assert all("namespace" not in obj["metadata"] for obj in objects)
    (resource,) = (obj for obj in objects if obj["kind"] == api.API.kind.name)
    assert api.ADMISSION.review(resource, None) == Review()


def test_the_seeds_manifest_is_as_the_seed_has_it() -> None:
    assert yaml.safe_load((SAMPLES / "seed.yaml").read_text()) == {
        "apiVersion": "cache.example.com/v1alpha1",
        "kind": "Memcached",
        "metadata": {"name": "memcached-sample"},
        "spec": {"size": 3},
    }


def test_the_complete_sample_shows_every_field() -> None:
    """Set, or in a comment where no value would suit every cluster."""
    shown = set(re.findall(r"^  (?:# )?(\w+):", (SAMPLES / "complete.yaml").read_text(), re.MULTILINE))
    assert shown >= {field.alias for field in MemcachedSpec.model_fields.values()}
