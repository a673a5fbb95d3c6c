"""Certificates of a ClusterIssuer are issued to all tenants: each operator warns if its servers trust all of them."""

from __future__ import annotations

import pytest

import operators
from shared.kubernetes.kinds import Obj
from shared.runtime.operator import Operator

ISSUED: Obj = {"mode": "certManager", "issuer": {"name": "all"}}
SPECS: dict[str, Obj] = {
    "memcached": {"size": 1, "tls": {**ISSUED, "clientAuth": "required"}},
    "etcd": {"size": 3, "tls": ISSUED},
    "redis": {"replicas": 6, "tls": ISSUED},
}


@pytest.mark.parametrize("operator", operators.installed(), ids=lambda operator: operator.name)
@pytest.mark.parametrize("kind", ["Issuer", "ClusterIssuer"])
def test_issuer_of_all_namespaces_is_a_warning(operator: Operator, kind: str) -> None:
    served = operator.kinds[0]
    spec = SPECS[operator.name]
    spec = {**spec, "tls": {**spec["tls"], "issuer": {"name": "all", "kind": kind}}}
    obj = {
        "apiVersion": served.resource.kind.api_version,
        "kind": served.resource.kind.name,
        "metadata": {"name": "cache", "namespace": "default"},
        "spec": spec,
    }
    assert served.admission is not None
    review = served.admission.review(obj, None)
    assert not review.errors
    found = [warning for warning in review.warnings if "ClusterIssuer" in warning]
    assert len(found) == (kind == "ClusterIssuer")
    assert all(len(warning) <= 200 and "Use an Issuer of this namespace." in warning for warning in found)
