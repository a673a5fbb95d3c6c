"""The local cluster. `make test-e2e` runs this file last, in a separate session: its last test removes the cluster."""

import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from e2e.scenarios.support.commands import until
from tools.local.cluster import Cluster
from tools.local.errors import ClusterError
from tools.local.machine import snapshot
from tools.local.paths import REPOSITORY
from tools.local.record import Record

POD_OF_EACH_NODE = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe, namespace: default}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 0
      containers:
        - {name: memcached, image: "memcached:1.6.45", imagePullPolicy: Never}
---
apiVersion: v1
kind: Service
metadata: {name: probe, namespace: default}
spec: {selector: {app: probe}, ports: [{port: 11211}]}
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: probe, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
"""


@pytest.fixture
def cluster() -> Cluster:
    running = Cluster.running()
    assert running is not None, "no local cluster is running; fix: make up"
    return running


def test_pods_on_different_nodes_reach_each_other_by_ip_service_and_name(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--filename", "-", stdin=POD_OF_EACH_NODE)
    try:
        cluster.kubectl("rollout", "status", "daemonset/probe", "--timeout=60s")
        pods = json.loads(cluster.kubectl("get", "pods", "--selector=app=probe", "--output=json"))["items"]
        assert {pod["spec"]["nodeName"] for pod in pods} == {node.at.name for node in cluster.nodes}
        service = cluster.kubectl("get", "service", "probe", "--output=jsonpath={.spec.clusterIP}")
        for pod in pods:
            for target in [*(other["status"]["podIP"] for other in pods), service, "probe.default.svc.cluster.local"]:
                what = f"{pod['spec']['nodeName']} reaches {target}"
                until(what, partial(_answers, cluster, pod["metadata"]["name"], target), seconds=20)
    finally:
        cluster.kubectl("delete", "--filename", "-", "--wait=false", stdin=POD_OF_EACH_NODE)


def test_volume_is_provisioned_immediately(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--filename", "-", stdin=CLAIM)
    try:
        cluster.kubectl("wait", "--for=jsonpath={.status.phase}=Bound", "pvc/probe", "--timeout=30s")
    finally:
        cluster.kubectl("delete", "--filename", "-", stdin=CLAIM)


def test_nodes_have_no_default_route(cluster: Cluster) -> None:
    for node in cluster.nodes:
        assert "default" not in node.inside("ip", "route", "show")


def test_repeated_up_changes_nothing(cluster: Cluster) -> None:
    before = _identities(cluster)
    subprocess.run(["make", "up", f"NODES={len(cluster.nodes)}"], cwd=REPOSITORY, check=True, timeout=60)
    assert _identities(cluster) == before


@pytest.mark.timeout(600)
def test_down_leaves_nothing_behind(cluster: Cluster) -> None:
    before = cluster.record.before
    state = cluster.record.state

    subprocess.run(["make", "down"], cwd=REPOSITORY, check=True, timeout=300)

    assert snapshot.differences(before, snapshot.take()) == []
    assert not Path(state).exists()
    assert Record.load() is None


def _answers(cluster: Cluster, pod: str, host: str) -> bool:
    """Return whether a server responds to a pod; uses bash, because the images have no memcached client.

    A Service's address responds only a moment after its pods are ready, once kube-proxy has updated its rules.
    """
    request = f"exec 3<>/dev/tcp/{host}/11211; printf 'version\\r\\n' >&3; head -n 1 <&3"
    try:
        return cluster.kubectl("exec", pod, "--", "bash", "-c", request).startswith("VERSION 1.6.45")
    except ClusterError:
        return False


def _identities(cluster: Cluster) -> object:
    """Return UIDs and restarts of pods, and Helm's revisions; ignores namespaces of scenarios, which may terminate."""
    found = json.loads(cluster.kubectl("get", "pods", "--all-namespaces", "--output=json"))["items"]
    pods = [pod for pod in found if not pod["metadata"]["namespace"].startswith("e2e-")]
    releases = cluster.kubectl("get", "secrets", "--all-namespaces", "--selector=owner=helm", "--output=name")
    return (
        sorted((pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]) for pod in pods),
        sorted(releases.split()),
    )
