"""What admission takes and refuses, and the sample."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from operators.greeter.api.resource import ADMISSION, API
from tests.support.paths import REPOSITORY


def resource(name: str = "a", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API.kind.api_version, "kind": API.kind.name, "metadata": metadata, "spec": spec}


def test_the_sample_is_accepted() -> None:
    sample = yaml.safe_load((REPOSITORY / "samples/greeter/small.yaml").read_text())
    assert ADMISSION.review(sample, None).errors == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (resource(), "spec.text: is required"),
        (resource(text=1), "is not a string"),
        (resource(text="hello", replicas=-1), "give at least 0"),
        (resource("a" * 51, text="hello"), "at most 50 characters"),
    ],
)
def test_a_wrong_resource_is_refused_with_what_to_change(wrong: dict[str, Any], message: str) -> None:
    (error,) = ADMISSION.review(wrong, None).errors
    assert message in error
