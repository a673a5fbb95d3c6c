"""Install, upgrade and uninstall the platform by Helm, with resources that live through it."""

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

RELEASED = ROOT / "tests" / "released"
BEFORE_CHART = str(RELEASED / "platform-0.1.0.tgz")
BEFORE_OBJECTS = RELEASED / "memcached-0.1.0.yaml"
CAN_RUN_HERE = ("memcached-sample", "sessions")
"""Of the recorded ones, those that want no special nodes or images."""
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
    """The UID of each pod that is ready, by its name."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in kubectl.items("pods")
        if any(found["type"] == "Ready" and found["status"] == "True" for found in pod["status"].get("conditions", ()))
    }


def make(kubectl: Kubectl, *arguments: str) -> None:
    run(["make", *arguments], kubectl.environment)


@pytest.mark.long
def test_an_upgrade_changes_the_operator_and_leaves_the_servers(
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


def test_an_upgrade_from_the_release_before_and_the_way_back_leave_the_servers(
    kubectl: Kubectl, operator: Operator, helm: Helm, release: Release
) -> None:
    """With that release's own chart, and with the objects that its operator made, as they were recorded.

    Its operator's image is not here, so that no operator runs while it is installed.
    """
    known = release.values.with_name("known.json")  # it had one operator, and its schema knows no other
    known.write_text(json.dumps({"memcached": json.loads(release.values.read_text())["memcached"]}))
    helm("upgrade", RELEASE, BEFORE_CHART, "-f", str(known), "--take-ownership")
    revision = json.loads(helm("list", "--filter", f"^{RELEASE}$", "-o", "json"))[0]["revision"]
    operator.system("scale", operator.deployment, "--replicas=0")
    operator.await_end()
    recorded = yaml.safe_load_all(BEFORE_OBJECTS.read_text())
    made = [found for found in recorded if found["metadata"]["name"] in CAN_RUN_HERE]
    for found in made:
        if found["kind"] == "Memcached":
            resource = json.loads(kubectl("apply", "-f", "-", "-o", "json", given=found))
        else:
            found["metadata"]["ownerReferences"] = [owner_reference(resource)]
            kubectl("apply", "--server-side", f"--field-manager={FIELD_MANAGER}", "-f", "-", given=found)
    wanted = sum(found["spec"]["replicas"] for found in kubectl.items("deployments"))
    until("the servers run", lambda: len(running(kubectl)) == wanted)
    pods = running(kubectl)

    release.upgrade("--force-conflicts")
    for found in made:
        if found["kind"] == "Memcached":
            cache = Memcached(kubectl, found["metadata"]["name"])
            cache.await_ready(found["spec"]["size"])
            assert cache.serves() == found["spec"]["size"]
    assert running(kubectl) == pods
    helm("rollback", RELEASE, revision)
    time.sleep(5)
    assert running(kubectl) == pods
    assert cache.serves() == cache.now["spec"]["size"]


def test_helm_test_passes(helm: Helm) -> None:
    assert "Phase:          Succeeded" in helm("test", RELEASE, "--logs")


def test_uninstalling_keeps_the_resources_and_their_servers_and_a_new_install_takes_them_up(
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


@pytest.mark.long
@pytest.mark.usefixtures("release")
def test_one_operator_deployed_alone_takes_the_resources_up(kubectl: Kubectl, operator: Operator, helm: Helm) -> None:
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


def test_the_operator_runs_restricted(operator: Operator) -> None:
    for pod in operator.pods:
        container = pod["spec"]["containers"][0]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
