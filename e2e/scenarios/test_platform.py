"""Installation, upgrade and removal of the platform with Helm, while resources exist."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import yaml

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import RELEASE, ROOT, Helm, Kubectl, run, until
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.release import WAITING, Release
from e2e.scenarios.support.resource import uids

pytestmark = pytest.mark.nightly

RELEASED = ROOT / "tests" / "released"
BEFORE_CHART = str(RELEASED / "platform-0.1.0.tgz")
BEFORE_OBJECTS = RELEASED / "memcached-0.1.0.yaml"
CAN_RUN_HERE = ("memcached-sample", "sessions")
"""Recorded resources that need no special nodes or images."""
FIELD_MANAGER = "memcached-operator"


def owner_reference(resource: dict[str, Any]) -> dict[str, Any]:
    metadata = resource["metadata"]
    identity = {"apiVersion": resource["apiVersion"], "kind": resource["kind"]}
    return {
        **identity,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def running(kubectl: Kubectl) -> dict[str, str]:
    """Return the UID of each ready pod, by name."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in kubectl.items("pods")
        if any(found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions", ()))
    }


def make(kubectl: Kubectl, *arguments: str) -> None:
    run(["make", *arguments], kubectl.environment)


@pytest.mark.weekly
def test_upgrade_changes_the_operator_but_not_the_servers(
    kubectl: Kubectl, operator: Operator, release: Release
) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    before, servers = cache.now, uids(kubectl)
    release.upgrade("--set", "memcached.logLevel=debug")
    container = operator.system.get(operator.deployment)["spec"]["template"]["spec"]["containers"][0]
    assert "debug" in json.dumps(container)
    operator.await_rollout()
    kubectl("scale", "memcached", "cache", "--replicas=2")
    cache.await_ready(2)
    assert servers < uids(kubectl)
    assert cache.now["metadata"]["uid"] == before["metadata"]["uid"]


@pytest.mark.weekly
def test_upgrade_to_another_image_keeps_every_server_and_its_items(
    kubectl: Kubectl, operator: Operator, release: Release
) -> None:
    """The sidecar runs the operator's image: servers adopt another one when they are replaced for another reason."""
    cache = Memcached.create(kubectl, "cache", size=2, metrics={})
    cache.await_ready(2)
    servers, known = uids(kubectl), cache.now["status"]["servers"]
    for server in known:
        with cache.access.client(server) as client:
            client.set("kept", "value")
    image = operator.system.get(operator.deployment)["spec"]["template"]["spec"]["containers"][0]["image"]
    release.upgrade("--set", "memcached.agentImage=example.com/memcached-operator:next")
    operator.await_rollout()
    cache.touch()
    cache.await_ready(2)
    assert uids(kubectl) == servers
    [pod, *_] = kubectl.items("pods")
    assert {each["name"]: each["image"] for each in pod["spec"]["containers"]}["exporter"] == image
    for server in known:
        with cache.access.client(server) as client:
            assert client.get("kept") == b"value"


@pytest.mark.commit
def test_upgrade_from_the_previous_release_and_rollback_keep_the_servers(
    kubectl: Kubectl, operator: Operator, helm: Helm, release: Release
) -> None:
    """Use the chart of the previous release and recorded objects of its operator.

    The image of the previous operator is not available, so no operator runs while that release is installed.
    """
    known = release.values.with_name("known.json")  # the schema of the previous chart allows only memcached
    known.write_text(json.dumps({"memcached": json.loads(release.values.read_text())["memcached"]}))
    helm("upgrade", RELEASE, BEFORE_CHART, "-f", str(known), "--take-ownership")
    revision = json.loads(helm("list", "--filter", f"^{RELEASE}$", "-o", "json"))[0]["revision"]
    operator.system("scale", operator.deployment, "--replicas=0")
    operator.await_end()
    recorded = yaml.safe_load_all(BEFORE_OBJECTS.read_text())
    objects = [found for found in recorded if found["metadata"]["name"] in CAN_RUN_HERE]
    for found in objects:
        if found["kind"] == "Memcached":
            resource = json.loads(kubectl("apply", "-f", "-", "-o", "json", given=found))
        else:
            found["metadata"]["ownerReferences"] = [owner_reference(resource)]
            kubectl("apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "-f", "-", given=found)
    replicas = sum(found["spec"]["replicas"] for found in kubectl.items("deployments"))
    until("all servers are ready", lambda: len(running(kubectl)) == replicas)
    pods = running(kubectl)

    release.upgrade("--force-conflicts")
    for found in objects:
        if found["kind"] == "Memcached":
            cache = Memcached(kubectl, found["metadata"]["name"])
            cache.await_ready(found["spec"]["size"])
            assert cache.serves() == found["spec"]["size"]
            assert cache.now["status"]["workload"] == "Deployment"
    assert running(kubectl) == pods
    assert not kubectl.items("statefulsets")
    helm("rollback", RELEASE, revision)
    time.sleep(5)
    assert running(kubectl) == pods
    assert cache.serves() == cache.now["spec"]["size"]


def test_helm_test_passes(helm: Helm) -> None:
    assert "Phase:          Succeeded" in helm("test", RELEASE, "--logs")


def test_uninstall_keeps_resources_and_servers_for_the_next_install(
    kubectl: Kubectl, operator: Operator, helm: Helm, release: Release
) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    servers = uids(kubectl)
    helm("uninstall", RELEASE, *WAITING)
    operator.await_end()
    assert kubectl.get("crd", "memcacheds.cache.example.com")
    assert cache.serves() == 1
    assert uids(kubectl) == servers
    release.upgrade()
    kubectl("scale", "memcached", "cache", "--replicas=2")
    cache.await_ready(2)
    assert servers < uids(kubectl)


@pytest.mark.weekly
@pytest.mark.usefixtures("release")
def test_operator_deployed_alone_manages_existing_resources(kubectl: Kubectl, operator: Operator, helm: Helm) -> None:
    cache = Memcached.create(kubectl, "cache", size=1)
    cache.await_ready(1)
    image = operator.system.get(operator.deployment)["spec"]["template"]["spec"]["containers"][0]["image"]
    helm("uninstall", RELEASE, *WAITING)
    make(kubectl, "deploy", "OPERATOR=memcached", f"IMG={image}")
    try:
        kubectl("scale", "memcached", "cache", "--replicas=2")
        cache.await_ready(2)
    finally:
        make(kubectl, "undeploy", "OPERATOR=memcached")
    assert cache.serves() == 2


def test_operator_runs_with_a_restricted_security_context(operator: Operator) -> None:
    for pod in operator.pods:
        container = pod["spec"]["containers"][0]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
