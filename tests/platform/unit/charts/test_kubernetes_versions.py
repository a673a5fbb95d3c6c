"""Rendered charts, and the objects that the operators make, have only fields that older versions of Kubernetes know.

Kubernetes drops an unknown field, and `helm install` prints a warning at most. The tests on a real API server
(tests/platform/api/charts/test_validity.py) use one version; these use the schemas of the others.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.compatibility import older_minors
from tests.support import kubernetes_types
from tests.support.charts import OPERATORS, VARIANTS, render
from tests.support.kubernetes_types import problems, types_of
from tools.local.paths import REPOSITORY
from tools.local.release import CHARTS

GOLDEN = sorted((REPOSITORY / "tests").glob("*/unit/objects/golden/*/objects.yaml"))

TYPES: dict[str, Any] = {
    "io.k8s.api.core.v1.Service": {
        "map": {
            "fields": [
                {"name": "apiVersion", "type": {"scalar": "string"}},
                {"name": "kind", "type": {"scalar": "string"}},
                {"name": "metadata", "type": {"namedType": "meta"}},
                {"name": "spec", "type": {"map": {"elementType": {"scalar": "numeric"}}}},
                {"name": "ports", "type": {"list": {"elementType": {"scalar": "boolean"}}}},
            ]
        }
    },
    "meta": {"map": {"fields": [{"name": "name", "type": {"scalar": "string"}}]}},
}


def service(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, **fields}


@pytest.mark.parametrize(
    ("obj", "found"),
    [
        (service(spec={"port": 1}, ports=[True]), []),
        (service(spec={"port": "1"}), ["Service a.spec.port: '1' has another type: scalar numeric"]),
        (service(spec={"port": True}), ["Service a.spec.port: True has another type: scalar numeric"]),
        (service(ports=[True, 1]), ["Service a.ports[1]: 1 has another type: scalar boolean"]),
        (service(ports={}), ["Service a.ports: {} has another type: list"]),
        (service(extra=1), ["Service a.extra: this version of Kubernetes has no such field"]),
        (
            service(apiVersion="v2"),
            ["v2 Service: this version of Kubernetes has no such kind"],
        ),
        (service(apiVersion="cert-manager.io/v1", extra=1), []),
    ],
)
def test_unknown_fields_and_other_types_are_found(obj: dict[str, Any], found: list[str]) -> None:
    assert problems(obj, TYPES) == found


CRDS = sorted(CHARTS.glob("*/files/crds/*.yaml"))
LATER_CEL = r"\b(isIP|ip|isCIDR|cidr|format\.\w+|isSemver|semver|sign|jsonpatch|transformList|transformMap)\("
"""Functions that new CEL rules may call only after Kubernetes 1.30: it admits those of the version before it, 1.29.

Source: https://kubernetes.io/docs/reference/using-api/cel/#cel-options-language-features-and-libraries
"""


MAX_QUANTITIES = 31
"""Quantities that a rule may read, over all items of the lists that it is in: Kubernetes before 1.34 estimates that
each has 3 MiB, and costs 314573 of 10000000 units.
"""


def rules(schema: dict[str, Any], times: int = 1) -> Iterator[tuple[str, int]]:
    """Yield the CEL expressions of a schema, each with the number of quantities that it reads at most."""
    properties = schema.get("properties", {})
    for rule in schema.get("x-kubernetes-validations", ()):
        iterated = re.findall(r"self\.(\w+)\.all\(", rule["rule"])
        most = max((properties[name].get("maxProperties", 1) for name in iterated if name in properties), default=1)
        yield rule["rule"], times * most * len(re.findall(r"\bquantity\(", rule["rule"]))
        yield rule.get("messageExpression", ""), 0
    for inner in properties.values():
        yield from rules(inner, times)
    for name, limit in (("items", "maxItems"), ("additionalProperties", "maxProperties")):
        if isinstance(schema.get(name), dict):
            yield from rules(schema[name], times * schema.get(limit, sys.maxsize))


@pytest.mark.parametrize("crd", CRDS, ids=lambda path: path.stem)
def test_oldest_version_accepts_the_rules_of_crds(crd: Path) -> None:
    """An older API server rejects the whole CRD (seen with 1.30)."""
    [version] = yaml.load(crd.read_text(), yaml.CSafeLoader)["spec"]["versions"]
    found = list(rules(version["schema"]["openAPIV3Schema"]))
    assert found
    assert [rule for rule, reads in found if re.search(LATER_CEL, rule) or reads > MAX_QUANTITIES] == []


@pytest.fixture(scope="module", params=older_minors(), ids=[f"1.{minor}" for minor in older_minors()])
def types(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Types of one version of Kubernetes."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: the schemas of older versions of Kubernetes are in a Go module")
    try:
        return types_of(request.param)
    except kubernetes_types.Unavailable as error:
        pytest.skip(f"the Go module with the schema of Kubernetes 1.{request.param} cannot be downloaded: {error}")


@pytest.mark.weekly
@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("operator", OPERATORS)
def test_charts_have_only_known_fields(charts: Path, types: dict[str, Any], operator: str, values: Any) -> None:
    assert [each for obj in render(charts / operator, values) for each in problems(obj, types)] == []


@pytest.mark.weekly
@pytest.mark.parametrize("golden", GOLDEN, ids=[f"{path.parts[-6]}-{path.parts[-2]}" for path in GOLDEN])
def test_objects_of_operators_have_only_known_fields(types: dict[str, Any], golden: Path) -> None:
    objects = list(yaml.safe_load_all(golden.read_text()))
    assert [each for obj in objects for each in problems(obj, types)] == []
