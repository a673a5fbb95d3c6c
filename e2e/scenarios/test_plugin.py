"""`kubectl platform`, as a user runs it: kubectl finds the plugin on the PATH."""

from __future__ import annotations

import base64
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.scenarios.support.commands import ROOT, Kubectl, Refused, run
from shared.kubernetes.kinds import Obj

pytestmark = pytest.mark.nightly

READY_SECONDS = 240

ORDERS: Obj = {
    "apiVersion": "redis.middleware.hc.cn/v1alpha1",
    "kind": "RedisCluster",
    "metadata": {"name": "orders"},
    "spec": {"replicas": 6, "storage": {"size": "128Mi"}, "auth": {}, "tls": {"mode": "self"}},
}
SETTINGS: Obj = {
    "apiVersion": "etcd.ydzs.io/v1alpha1",
    "kind": "EtcdCluster",
    "metadata": {"name": "settings"},
    "spec": {"size": 1, "version": "3.6.16", "storage": {"size": "256Mi"}},
}
SNAPSHOTS: Obj = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "snapshots"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "256Mi"}}},
}

Platform = Callable[..., str]


@pytest.fixture
def platform(kubectl: Kubectl) -> Platform:
    """Return `kubectl platform` in the namespace of the test."""
    programs = str(ROOT / ".venv/bin")
    environment = {**kubectl.environment, "PATH": f"{programs}:{os.environ['PATH']}"}

    def command(*words: str) -> str:
        return run(["kubectl", "platform", *words, "--namespace", kubectl.namespace], environment)

    return command


def create(kubectl: Kubectl, manifest: Obj) -> str:
    """Create a resource, wait until it is Ready, and return its name as KIND/NAME."""
    kubectl.apply(manifest)
    name = f"{manifest['kind'].lower()}/{manifest['metadata']['name']}"
    kubectl("wait", "--for=condition=Ready", f"--timeout={READY_SECONDS}s", name)
    return name


def test_user_sees_restarts_and_connects_to_a_redis_cluster(
    kubectl: Kubectl, platform: Platform, tmp_path: Path
) -> None:
    orders = create(kubectl, ORDERS)
    assert "RedisCluster/orders" in platform("status")
    servers = json.loads(platform("status", orders, "-o", "json"))["servers"]
    assert [server["status"] for server in servers] == ["True"] * 6
    assert "is Ready" in platform("why", orders)
    assert "It was created" in platform("why", "orders-0")

    # The password is in no command line: neither of kubectl nor of a process in the pod.
    assert platform("connect", orders, "-c", "set greeting hello").strip() == "OK"
    assert platform("connect", orders, "-c", "get greeting").strip() in ("hello", '"hello"')

    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.items("pods")}
    replica = next(server["name"] for server in servers if server["role"] == "replica")
    platform("restart", orders, "--yes", "--pod", replica)
    after = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl.items("pods")}
    assert {name for name in before if before[name] != after[name]} == {replica}

    platform("failover", orders, "--to", replica)
    servers = json.loads(platform("status", orders, "-o", "json"))["servers"]
    assert replica in {server["name"] for server in servers if server["role"] == "primary"}
    with pytest.raises(Refused, match=f"{replica} is no replica"):
        platform("failover", orders, "--to", replica)

    platform("pause", orders)
    kubectl("wait", "--for=condition=ReconciliationPaused", "--timeout=30s", orders)
    platform("resume", orders)
    kubectl("wait", "--for=condition=Ready", "--timeout=60s", orders)

    path = tmp_path / "report.tar.gz"
    platform("report", orders, "--file", str(path))
    password = base64.b64decode(kubectl.get("secret/orders-connection")["data"]["password"])
    with tarfile.open(path) as archive:
        content = {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]
    assert not [name for name, found in content.items() if password in found]
    assert b"Creating" in content["orders-report/operator.log"]
    assert json.loads(content["orders-report/resource.json"])["kind"] == "RedisCluster"


def test_user_backs_up_an_etcd_cluster(kubectl: Kubectl, platform: Platform) -> None:
    settings = create(kubectl, SETTINGS)
    with pytest.raises(Refused, match="has no destination for scheduled snapshots"):
        platform("backup", settings)
    kubectl.apply(SNAPSHOTS)
    assert "volume://snapshots/" in platform("backup", settings, "--claim", "snapshots")
    assert "settings" in platform("logs", settings)


def test_doctor_finds_nothing_wrong(platform: Platform) -> None:
    findings = json.loads(platform("doctor", "-o", "json"))
    assert {finding["state"] for finding in findings} == {"ok"}, findings
    assert {"leader of redis-operator", "storage", "time"} <= {finding["check"] for finding in findings}


def test_refused_confirmation_names_the_state(kubectl: Kubectl, platform: Platform) -> None:
    settings = create(kubectl, SETTINGS)
    with pytest.raises(Refused, match=r"nothing of EtcdCluster .*/settings waits for a confirmation"):
        platform("confirm", settings, "--token", "t")
