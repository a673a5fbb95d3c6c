"""Install, upgrade and uninstall the platform by Helm, with resources that live through it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.scenarios.conftest import RELEASE, ROOT, Helm, Kubectl, until
from e2e.scenarios.memcached import Memcached, uids

CHART = "charts/platform"
OPERATOR = "deployment/platform-memcached-operator"


@pytest.fixture
def values(helm: Helm, system: Kubectl, tmp_path: Path) -> Iterator[str]:
    """A file with the values of the release as it was found; afterwards the release is as it was."""
    file = tmp_path / "values.json"
    file.write_text(helm("get", "values", RELEASE, "-o", "json"))
    [release] = system.items("secrets", "-l", f"owner=helm,name={RELEASE},status=deployed")
    digest = (
        f"--labels=platform-digest={release['metadata']['labels'].get('platform-digest', '')}"  # make up's own mark
    )
    yield str(file)
    # The CRD stays with the release that came last, and that may have been another.
    helm(
        "upgrade", "--install", RELEASE, CHART, "-f", str(file), "--take-ownership", digest, "--wait", "--timeout=120s"
    )


def make(kubectl: Kubectl, *arguments: str) -> None:
    subprocess.run(
        ["make", *arguments], cwd=ROOT, env=kubectl.environment, check=True, capture_output=True, timeout=180
    )


def test_an_upgrade_changes_the_operator_and_leaves_the_servers(
    kubectl: Kubectl, system: Kubectl, helm: Helm, values: str
) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    before, servers = cache.now, uids(kubectl)
    helm(
        "upgrade", RELEASE, CHART, "-f", values, "--set", "memcached.logLevel=debug", "--wait", "--timeout=120s"
    )  # fmt: skip
    container = system.get(OPERATOR)["spec"]["template"]["spec"]["containers"][0]
    assert "debug" in json.dumps(container)
    until("the new operator leads", lambda: system("rollout", "status", OPERATOR, "--timeout=60s"))
    kubectl("scale", "memcached", "cache", "--replicas=2")
    cache.await_ready(2)
    assert servers < uids(kubectl)
    assert cache.now["metadata"]["uid"] == before["metadata"]["uid"]


def test_uninstalling_keeps_the_resources_and_their_servers_and_a_new_install_takes_them_up(
    kubectl: Kubectl, system: Kubectl, helm: Helm, values: str
) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    servers = uids(kubectl)
    helm("uninstall", RELEASE, "--wait", "--timeout=120s")
    until("no operator", lambda: not system.items("pods", "-l", "app.kubernetes.io/name=memcached-operator"))
    assert kubectl.get("crd", "memcacheds.cache.example.com")
    assert cache.serves() == 1
    assert uids(kubectl) == servers
    helm("upgrade", "--install", RELEASE, CHART, "-f", values, "--wait", "--timeout=120s")
    kubectl("scale", "memcached", "cache", "--replicas=2")
    cache.await_ready(2)
    assert servers < uids(kubectl)


@pytest.mark.usefixtures("values")
def test_one_operator_deployed_alone_takes_the_resources_up(kubectl: Kubectl, system: Kubectl, helm: Helm) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    image = system.get(OPERATOR)["spec"]["template"]["spec"]["containers"][0]["image"]
    helm("uninstall", RELEASE, "--wait", "--timeout=120s")
    make(kubectl, "deploy", "OPERATOR=memcached", f"IMG={image}")
    try:
        kubectl("scale", "memcached", "cache", "--replicas=2")
        cache.await_ready(2)
    finally:
        make(kubectl, "undeploy", "OPERATOR=memcached")
    assert cache.serves() == 2


def test_the_operator_runs_restricted_and_tells_its_metrics(system: Kubectl) -> None:
    [pod] = system.items("pods", "-l", "app.kubernetes.io/name=memcached-operator")
    container = pod["spec"]["containers"][0]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    scraped = system(
        "get", "--raw", f"/api/v1/namespaces/{system.namespace}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
    )
    for name in ("controller_runtime_reconcile_total", "workqueue_depth", "rest_client_requests_total"):
        assert f"\n{name}{{" in scraped, name
