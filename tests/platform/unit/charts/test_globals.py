"""Values under `global`, which all charts of a release share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.charts import EVERYTHING, NAMES, OPERATORS, VARIANTS, Obj, Values, is_hook, only, pods, render

LABELS = {"example.com/team": "storage", "app.kubernetes.io/instance": "ignored"}
ANNOTATIONS = {"example.com/owner": "a team", "helm.sh/resource-policy": "delete"}
PLACEMENT: Obj = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    "priorityClassName": "system-cluster-critical",
}


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def pod_of(chart: Path, values: Values) -> Any:
    return only(render(chart, values), "Deployment")["spec"]["template"]["spec"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_common_labels_and_annotations_are_on_every_object(operator_chart: Path, variant: str) -> None:
    given = {"commonLabels": LABELS, "commonAnnotations": {"example.com/owner": "a team"}}
    objects = render(operator_chart, {**VARIANTS[variant], "global": given})
    assert len(objects) == len(render(operator_chart, VARIANTS[variant]))
    for obj in [*objects, *pods(objects)]:
        assert obj["metadata"]["labels"]["example.com/team"] == "storage", obj["kind"]
        assert obj["metadata"]["labels"]["app.kubernetes.io/instance"] == "platform", obj["kind"]
        assert obj["metadata"]["annotations"]["example.com/owner"] == "a team", obj["kind"]


def test_common_labels_and_annotations_never_replace_the_charts_own(operator_chart: Path) -> None:
    plain = render(operator_chart, EVERYTHING)
    objects = render(
        operator_chart, {**EVERYTHING, "global": {"commonLabels": LABELS, "commonAnnotations": ANNOTATIONS}}
    )
    for before, after in zip(plain, objects, strict=True):
        assert before["metadata"]["labels"].items() <= after["metadata"]["labels"].items()
        own = before["metadata"].get("annotations", {})
        assert own.items() <= after["metadata"]["annotations"].items()
    deployment = only(objects, "Deployment")["spec"]
    assert "example.com/team" not in deployment["selector"]["matchLabels"], "a selector cannot be changed"


def test_objects_are_the_same_without_common_values(operator_chart: Path) -> None:
    for obj in render(operator_chart):
        assert obj["metadata"]["labels"]
        assert obj["metadata"].get("annotations") != {}


def test_common_values_reach_the_objects_of_the_platform_chart(charts: Path) -> None:
    given: dict[str, Any] = {name: {"metrics": {"dashboards": {"enabled": True}}} for name in NAMES}
    given["global"] = {"commonLabels": {"example.com/team": "storage"}, "commonAnnotations": {"example.com/owner": "a"}}
    for obj in render(charts / "platform", given):
        assert obj["metadata"]["labels"]["example.com/team"] == "storage", obj["metadata"]["name"]
        assert obj["metadata"]["annotations"]["example.com/owner"] == "a"


def test_global_placement_applies_where_an_operator_sets_none(operator_chart: Path) -> None:
    pod = pod_of(operator_chart, {"global": PLACEMENT})
    assert {key: pod[key] for key in PLACEMENT} == PLACEMENT
    own = {key: EVERYTHING[key] for key in PLACEMENT}
    pod = pod_of(operator_chart, {"global": {**PLACEMENT, "priorityClassName": "low"}, **own})
    assert {key: pod[key] for key in PLACEMENT} == own
    (check,) = (pod for pod in pods(render(operator_chart, {"global": PLACEMENT})) if is_hook(pod))
    assert check["spec"]["nodeSelector"] == PLACEMENT["nodeSelector"]
    assert check["spec"]["tolerations"] == PLACEMENT["tolerations"]


def test_pull_secrets_of_the_chart_and_the_global_ones_are_used(operator_chart: Path) -> None:
    given = {"imagePullSecrets": [{"name": "own"}], "global": {"imagePullSecrets": ["shared", {"name": "own"}]}}
    for pod in pods(render(operator_chart, given)):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
    assert "imagePullSecrets" not in pod_of(operator_chart, {})


def test_global_values_of_the_platform_reach_every_operator(charts: Path) -> None:
    objects = render(charts / "platform", {"global": {**PLACEMENT, "imagePullSecrets": ["shared"]}})
    found = [pod for pod in pods(objects) if not is_hook(pod)]
    assert len(found) == len(NAMES)
    for pod in found:
        assert {key: pod["spec"][key] for key in PLACEMENT} == PLACEMENT
        assert pod["spec"]["imagePullSecrets"] == [{"name": "shared"}]
