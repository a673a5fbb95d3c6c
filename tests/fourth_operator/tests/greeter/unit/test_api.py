"""Resources that admission accepts and rejects, and the sample."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from operators.greeter.api.resource import ADMISSION, API
from tests.support.paths import REPOSITORY


def resource(name: str = "a", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": API.kind.api_version, "kind": API.kind.name, "metadata": metadata, "spec": spec}


def test_sample_is_accepted() -> None:
    sample = yaml.safe_load((REPOSITORY / "samples/greeter/small.yaml").read_text())
    assert ADMISSION.review(sample, None).errors == ()


@pytest.mark.parametrize(
    ("invalid", "message"),
    [
        (resource(), "spec.text: is required"),
        (resource(text=1), "is not a string"),
        (resource(text="hello", replicas=-1), "use at least 0"),
        (resource("a" * 51, text="hello"), "at most 50 characters"),
    ],
)
def test_invalid_resource_is_rejected_with_an_explanation(invalid: dict[str, Any], message: str) -> None:
    (error,) = ADMISSION.review(invalid, None).errors
    assert message in error
