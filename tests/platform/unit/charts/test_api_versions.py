"""The charts use only API versions that every supported Kubernetes serves.

Source of the versions: https://kubernetes.io/docs/reference/using-api/deprecation-guide/ and the release notes. None of
them has been removed from any release of Kubernetes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.support.charts import NAMES, VARIANTS, Values, render
from tools.local.release import CHARTS

SINCE = {
    ("v1", "ConfigMap"): 0,
    ("v1", "Pod"): 0,
    ("v1", "Secret"): 0,
    ("v1", "Service"): 0,
    ("v1", "ServiceAccount"): 0,
    ("networking.k8s.io/v1", "NetworkPolicy"): 7,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): 8,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): 8,
    ("rbac.authorization.k8s.io/v1", "Role"): 8,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): 8,
    ("apps/v1", "Deployment"): 9,
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): 16,
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): 16,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): 16,
    ("policy/v1", "PodDisruptionBudget"): 21,
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): 29,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): 30,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): 30,
}
"""First minor version of Kubernetes 1 that serves each API version."""

FOREIGN = {"cert-manager.io/v1", "monitoring.coreos.com/v1"}
"""API versions of projects that a value enables."""


def oldest() -> int:
    """Return the oldest minor version of Kubernetes that the charts accept."""
    accepted = {yaml.safe_load(path.read_text()).get("kubeVersion") for path in CHARTS.glob("*/Chart.yaml")} - {None}
    (constraint,) = accepted
    found = re.fullmatch(r">=1\.(\d+)\.0-0", str(constraint))
    assert found
    return int(found[1])


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_every_supported_kubernetes_serves_the_api_versions(charts: Path, values: Values) -> None:
    for obj in render(charts / "platform", dict.fromkeys(NAMES, values)):
        if obj["apiVersion"] not in FOREIGN:
            assert SINCE[obj["apiVersion"], obj["kind"]] <= oldest()
