"""Values of the operator's Deployment: arguments, volumes, security contexts, probes, metadata, namespace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.values.umbrella import create_smallest
from e2e.scenarios.test_first_manifests import manifests_in
from operators import installed
from shared.cli.options import parse_options
from tests.support.charts import (
    EVERYTHING,
    NAMES,
    NAMESPACE,
    OPERATORS,
    Obj,
    Values,
    helm,
    is_hook,
    manifest,
    only,
    pods,
    render,
)
from tests.support.openshift import violations
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY

OPENSHIFT: Obj = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
"""Removes the fixed IDs, so that restricted-v2 assigns those of the namespace."""


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def deployment(chart: Path, values: Values) -> Obj:
    return only(render(chart, values), "Deployment")


def pod_of(chart: Path, values: Values) -> Any:
    return deployment(chart, values)["spec"]["template"]["spec"]


def container_of(chart: Path, values: Values) -> Any:
    return pod_of(chart, values)["containers"][0]


def test_extra_arguments_follow_those_of_the_chart_and_take_precedence(operator_chart: Path) -> None:
    plain = container_of(operator_chart, {})["args"]
    given = ["--log-level=debug", "--certificate-lifetime=864000"]
    arguments = container_of(operator_chart, {"extraArgs": given})["args"]
    assert arguments == [*plain, *given]
    (operator,) = (each for each in installed() if each.process_name == operator_chart.name)
    options = parse_options("other", "other", arguments, {}, flags=operator.flags)
    assert (options.log_level, options.certificate_lifetime) == ("debug", 864_000)


@pytest.mark.parametrize("argument", ["log-level=debug", "", 5])
def test_extra_argument_that_is_no_flag_is_refused(charts: Path, argument: object) -> None:
    with pytest.raises(ClusterError, match="/extraArgs/0"):
        manifest(charts / "redis-operator", {"extraArgs": [argument]})


@pytest.mark.parametrize("certificates", [{}, {"certificates": {"source": "certManager"}}], ids=["self", "mounted"])
def test_extra_volumes_are_mounted_next_to_those_of_the_chart(operator_chart: Path, certificates: Values) -> None:
    before = pod_of(operator_chart, certificates)
    volume = {"name": "ca", "configMap": {"name": "company-ca", "items": [{"key": "ca.pem", "path": "ca.pem"}]}}
    mount = {"name": "ca", "mountPath": "/etc/ssl/company", "readOnly": True}
    given = {**certificates, "extraVolumes": [volume], "extraVolumeMounts": [mount]}
    pod = pod_of(operator_chart, given)
    assert pod["volumes"] == [*before.get("volumes", ()), volume]
    assert pod["containers"][0]["volumeMounts"] == [*before["containers"][0].get("volumeMounts", ()), mount]


def test_volume_without_a_name_is_refused(charts: Path) -> None:
    with pytest.raises(ClusterError, match=r"/extraVolumes/0.*name"):
        manifest(charts / "redis-operator", {"extraVolumes": [{"emptyDir": {}}]})


def test_pods_run_with_the_restricted_profile_by_default(operator_chart: Path) -> None:
    for pod in pods(render(operator_chart)):
        assert pod["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod["spec"]["containers"][0]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_null_removes_the_fixed_ids_for_openshift(operator_chart: Path) -> None:
    for pod in pods(render(operator_chart, OPENSHIFT)):
        assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_restricted_v2_of_openshift_admits_every_pod_without_fixed_ids(operator_chart: Path, values: Values) -> None:
    found = pods(render(operator_chart, {**values, **OPENSHIFT, "hostNetwork": False}))
    assert [problem for pod in found for problem in violations(pod["spec"])] == []


def test_null_removes_the_fixed_ids_of_every_operator_of_the_platform(charts: Path) -> None:
    found = pods(render(charts / "platform", dict.fromkeys(NAMES, OPENSHIFT)))
    assert len(found) == 2 * len(NAMES)
    for pod in found:
        assert "runAsUser" not in pod["spec"]["securityContext"]


def test_null_on_the_command_line_removes_the_fixed_id(charts: Path) -> None:
    text = helm("template", "platform", charts / "redis-operator", "--set", "podSecurityContext.runAsUser=null")
    for pod in pods([obj for obj in yaml.safe_load_all(text) if obj]):
        assert "runAsUser" not in pod["spec"]["securityContext"]
        assert pod["spec"]["securityContext"]["runAsGroup"] == 65532


def test_security_contexts_can_be_set(operator_chart: Path) -> None:
    given = {
        "podSecurityContext": {"runAsUser": 1_000_680_000, "fsGroup": 1_000_680_000, "supplementalGroups": [7]},
        "securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}, "runAsGroup": 5},
    }
    for pod in pods(render(operator_chart, given)):
        assert pod["spec"]["securityContext"].items() >= given["podSecurityContext"].items()
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["containers"][0]["securityContext"].items() >= given["securityContext"].items()
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_probes_can_be_set(operator_chart: Path) -> None:
    plain = container_of(operator_chart, {})
    given = {
        "startupProbe": {"failureThreshold": 300},
        "livenessProbe": {"initialDelaySeconds": 7, "timeoutSeconds": 30},
        "readinessProbe": {"periodSeconds": 1},
    }
    container = container_of(operator_chart, given)
    for name, values in given.items():
        assert container[name] == {**plain[name], **values}
    assert plain["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "probes"}
    assert plain["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "probes"}
    with pytest.raises(ClusterError, match="/livenessProbe/periodSeconds"):
        manifest(operator_chart, {"livenessProbe": {"periodSeconds": 0}})


def test_deployment_has_annotations_and_labels_of_its_own(operator_chart: Path) -> None:
    given = {
        "deploymentAnnotations": {"reloader.example.com/auto": "true"},
        "deploymentLabels": {"team": "storage", "app.kubernetes.io/name": "ignored"},
    }
    found = deployment(operator_chart, given)
    assert found["metadata"]["annotations"]["reloader.example.com/auto"] == "true"
    assert found["metadata"]["labels"]["team"] == "storage"
    assert found["metadata"]["labels"]["app.kubernetes.io/name"] == operator_chart.name
    assert found["spec"]["template"] == deployment(operator_chart, {})["spec"]["template"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, {"certificates": {"source": "secret", "secretName": "a"}}], ids=repr
)
def test_namespace_of_all_objects_can_be_set(operator_chart: Path, values: Values) -> None:
    moved = render(operator_chart, {**values, "namespaceOverride": "elsewhere"}, namespace="release-namespace")
    assert "release-namespace" not in repr(moved)
    assert moved == render(operator_chart, values, namespace="elsewhere")
    assert render(operator_chart, values, namespace=NAMESPACE) != moved


@pytest.mark.nightly
@pytest.mark.parametrize("chart", OPERATORS)
@pytest.mark.parametrize(
    ("deprecated", "conventional"),
    [
        ({"replicas": 3}, {"replicaCount": 3}),
        (
            {"topologySpread": EVERYTHING["topologySpreadConstraints"]},
            {"topologySpreadConstraints": EVERYTHING["topologySpreadConstraints"]},
        ),
    ],
    ids=["replicas", "topologySpread"],
)
def test_deprecated_names_still_work_and_the_notes_name_the_new_ones(
    charts: Path, chart: str, deprecated: Obj, conventional: Obj
) -> None:
    assert render(charts / chart, deprecated) == render(charts / chart, conventional)
    ((old,), (new,)) = (deprecated, conventional)
    assert f"{old} is deprecated: rename it to {new}" in notes(charts / chart, deprecated)
    assert "deprecated" not in notes(charts / chart, conventional)
    name = chart.removesuffix("-operator")
    assert f"{name}.{old} is deprecated: rename it to {name}.{new}" in notes(charts / "platform", {name: deprecated})
    assert "deprecated" not in notes(charts / "platform", {name: conventional})


def test_notes_create_the_smallest_resource_without_a_file(charts: Path) -> None:
    texts = {name: notes(charts / name, {}) for name in [*OPERATORS, "platform"]}
    for operator in installed():
        for name in (operator.process_name, "platform"):
            assert create_smallest(operator) in texts[name]
    assert not [name for name, text in texts.items() if "samples/" in text]


def test_smallest_specs_of_the_readme_are_those_of_the_notes() -> None:
    found = manifests_in((REPOSITORY / "README.md").read_text())
    for operator in installed():
        smallest = yaml.safe_load(f"{{{operator.smallest}}}")
        assert smallest.items() <= found[f"readme-{operator.main.kind.name.lower()}"]["spec"].items()


def notes(chart: Path, values: Values) -> str:
    """Return what Helm prints after an installation, with its line breaks removed."""
    text = helm("install", "platform", chart, "--dry-run=client", "--namespace", NAMESPACE, values=values)
    return " ".join(text.rpartition("NOTES:")[2].split())


@pytest.mark.nightly
@pytest.mark.parametrize("chart", [*OPERATORS, "platform"])
def test_keys_for_yaml_anchors_are_accepted_at_the_top(charts: Path, chart: str) -> None:
    for anchor in ({"enabled": True, "metrics": {"dashboards": {"enabled": True}}}, ["a"], "text"):
        assert render(charts / chart, {"x-common": anchor}) == render(charts / chart)
    with pytest.raises(ClusterError, match="additional properties 'xcommon' not allowed"):
        manifest(charts / chart, {"xcommon": {}})


def test_keys_for_yaml_anchors_are_accepted_for_an_operator_of_the_platform(charts: Path) -> None:
    assert render(charts / "platform", {"redis": {"x-common": {}}}) == render(charts / "platform")


def test_test_pod_uses_the_charts_contexts_but_no_arguments_of_the_operator(operator_chart: Path) -> None:
    given = {"extraArgs": ["--log-level=debug"], "extraVolumes": [{"name": "a", "emptyDir": {}}]}
    (before,), (after,) = ([pod for pod in pods(render(operator_chart, each)) if is_hook(pod)] for each in ({}, given))
    assert before == after
