"""Helm 3 renders, installs and upgrades the charts as Helm 4 does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.platform.api.charts.cluster import IGNORE_WEBHOOK, Cluster, memcached
from tests.support.charts import NAMES, NAMESPACE, OPERATORS, VARIANTS, Obj, Values, render
from tools.local import binaries
from tools.local.machine.commands import run

pytestmark = pytest.mark.nightly

OPENSHIFT = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
GLOBALS = {"global": {"imageRegistry": "mirror.example.com", "commonLabels": {"team": "storage"}}}
OLDEST = "1.31.0"


def helm3(*arguments: str | Path, values: Values | None = None) -> str:
    given = ["--values", "-"] if values is not None else []
    return run(
        binaries.find("helm3"),
        *arguments,
        *given,
        "--namespace",
        NAMESPACE,
        stdin=json.dumps(values) if values is not None else None,
    )


def by_name(objects: list[Obj]) -> dict[tuple[str, str, str], Obj]:
    """Return objects by kind, namespace and name; the versions of Helm sort them differently."""
    found = {(obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]): obj for obj in objects}
    assert len(found) == len(objects)
    return found


@pytest.mark.parametrize("values", [*VARIANTS.values(), OPENSHIFT, GLOBALS], ids=[*VARIANTS, "openshift", "globals"])
@pytest.mark.parametrize("chart", OPERATORS)
def test_both_versions_of_helm_render_the_same(charts: Path, chart: str, values: Values) -> None:
    text = helm3("template", "platform", charts / chart, "--kube-version", OLDEST, values=values)
    rendered = [obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]
    assert by_name(rendered) == by_name(render(charts / chart, values))


@pytest.mark.parametrize("values", [dict.fromkeys(NAMES, OPENSHIFT), GLOBALS], ids=["openshift", "globals"])
def test_both_versions_of_helm_render_the_same_platform(charts: Path, values: Values) -> None:
    text = helm3("template", "platform", charts / "platform", "--kube-version", OLDEST, values=values)
    rendered = [obj for obj in yaml.load_all(text, Loader=yaml.CSafeLoader) if obj]
    assert by_name(rendered) == by_name(render(charts / "platform", values))


def test_a_release_passes_between_the_versions_of_helm(cluster: Cluster, charts: Path) -> None:
    """Helm 3 installs, Helm 4 upgrades, Helm 3 rolls back: the resources and the operators' pods do not change.

    Helm 4 keeps the client-side apply of the release, and then refuses --force-conflicts.
    """
    target = ["--kubeconfig", str(cluster.kubeconfig)]
    values: dict[str, Any] = dict.fromkeys(NAMES, IGNORE_WEBHOOK)
    helm3("install", "platform", charts / "platform", *target, values=values)
    cluster.await_established()
    cluster.apply(memcached("cache", size=2))

    def state() -> list[Any]:
        deployments = {name: cluster.get("deployment", f"platform-{name}-operator") for name in NAMES}
        resource = cluster.get("memcached", "cache")
        templates = [(each["metadata"]["uid"], each["spec"]["template"]) for each in deployments.values()]
        return [*templates, resource["metadata"]["uid"], resource["spec"]]

    before = state()
    cluster.helm("upgrade", "platform", charts / "platform", values=values)
    assert state() == before
    helm3("rollback", "platform", "1", *target)
    assert state() == before
    helm3("uninstall", "platform", *target)
    assert cluster.find("memcached", "cache"), "the CRDs and their resources stay"
