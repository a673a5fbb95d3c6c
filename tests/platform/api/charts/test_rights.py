"""Permissions on a real API server.

The operator runs as its ServiceAccount with the chart's flags, `helm test` runs as the test's ServiceAccount, and users
get the permissions of the aggregated ClusterRoles.
"""

from __future__ import annotations

import base64
import socket
import socketserver
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from simulator.kubelet.kubelet import Exit, Kubelet, ProcessStatus
from tests.harness import Workloads
from tests.platform.api.charts.cluster import IGNORE_WEBHOOK, MEMCACHEDS, Cluster, memcached
from tests.platform.api.support.live import LiveServer
from tests.support.charts import NAMESPACE, Obj, only, render
from tests.support.memcached.server import Forgetting, Keeping, serving
from tools.local.cluster import kubectl
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError
from tools.local.machine.commands import succeeds
from tools.local.machine.network import free_ports
from tools.local.machine.processes import wait_until
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

FULL = "platform-memcached-operator"
ALONE: Obj = {"etcd": {"enabled": False}, "redis": {"enabled": False}}
KUBECTL = Path(sys.executable).parent / "kubectl"


class Running:
    """The memcached operator as a process, with the chart's flags and ServiceAccount.

    Attributes:
        metrics: address at which it serves /metrics.
    """

    def __init__(self, cluster: Cluster, objects: list[Obj], directory: Path) -> None:
        self.log = directory / "operator.log"
        metrics, webhook, probes = free_ports(3)
        self.metrics = ("127.0.0.1", metrics)
        self._ready = f"http://127.0.0.1:{probes}/readyz"
        container = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        local = [
            f"--kubeconfig={cluster.account(FULL, directory)}",
            f"--metrics-bind-address=127.0.0.1:{metrics}",
            f"--webhook-bind-address=127.0.0.1:{webhook}",
            f"--health-probe-bind-address=127.0.0.1:{probes}",
        ]
        self._command = [sys.executable, "-m", "operators.memcached", *container["args"], *local]

    @contextmanager
    def up(self) -> Iterator[None]:
        with self.log.open("ab") as output:
            process = subprocess.Popen(self._command, cwd=REPOSITORY, stdout=output, stderr=output)
        try:
            self.wait(self._is_ready)
            yield
        finally:
            process.terminate()
            process.wait(30)

    def wait(self, holds: Callable[[], Any], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"timed out; the operator's log:\n{self.log.read_text()[-4000:]}"
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def scrape(self, authority: str, token: str) -> int:
        """Request the metrics under the name of the Service, and return the HTTP status code."""
        context = ssl.create_default_context(cadata=authority)
        name = f"{FULL}-metrics.{NAMESPACE}.svc"
        sent = ["GET /metrics HTTP/1.0", f"Host: {name}", f"Authorization: Bearer {token}"]
        plain = socket.create_connection(self.metrics, timeout=10)
        with context.wrap_socket(plain, server_hostname=name) as connection:
            connection.sendall(("\r\n".join(sent) + "\r\n\r\n").encode())
            return int(connection.recv(1000).split()[1])


@pytest.mark.commit
@pytest.mark.parametrize("namespaces", [[], [NAMESPACE]], ids=["everywhere", "one-namespace"])
def test_chart_grants_all_permissions_that_the_operator_uses(
    cluster: Cluster, charts: Path, tmp_path: Path, namespaces: list[str]
) -> None:
    """The operator uses leader election, its certificate, the caBundle, objects, status, events and token reviews."""
    values = ALONE | {"memcached": {**IGNORE_WEBHOOK, "watchNamespaces": namespaces, "logLevel": "debug"}}
    cluster.install(charts / "platform", values)
    operator = Running(cluster, render(charts / "platform", values), tmp_path)
    cluster.kubectl("create", "service", "clusterip", "taken", "--tcp=1")
    cluster.kubectl("create", "deployment", "foreign", "--image=other", "--replicas=0")
    with operator.up():
        operator.wait(lambda: cluster.get("lease", "memcached-operator")["spec"]["holderIdentity"])
        trusted(cluster, operator)
        cluster.apply(*(memcached(name, size=1) for name in ("cache", "taken")))
        cluster.apply(memcached("foreign", size=1, workload="Deployment"))
        operator.wait(lambda: reason(cluster, "taken") == reason(cluster, "foreign") == "ForeignObject")
        operator.wait(lambda: cluster.find("statefulset", "cache") and reason(cluster, "cache"))
        cluster.kubectl("scale", "memcached/cache", "--replicas=2")
        operator.wait(lambda: cluster.get("statefulset", "cache")["spec"]["replicas"] == 2)
        cluster.kubectl("patch", "service", "cache", "--type=merge", "-p", '{"spec":{"ports":null}}')
        operator.wait(lambda: cluster.get("service", "cache")["spec"].get("ports"))
        operator.wait(lambda: events(cluster, "taken"))
    clear_status = ["--subresource=status", "--type=merge", "--patch", '{"status":null}']
    cluster.kubectl("patch", "memcached/taken", *clear_status)
    cluster.kubectl("delete", "secret", f"{FULL}-certificates")
    with operator.up():
        operator.wait(lambda: max(event["count"] for event in events(cluster, "taken")) > 1)
        trusted(cluster, operator)
    assert "forbidden" not in operator.log.read_text().lower()


def trusted(cluster: Cluster, operator: Running) -> None:
    """Check that the caBundle is the CA of the serving certificate, and that metrics require a permission."""
    authority = cluster.get("secret", f"{FULL}-certificates")["data"]["ca.crt"]
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        (webhook,) = cluster.get(kind, FULL)["webhooks"]
        assert webhook["clientConfig"]["caBundle"] == authority
    pem = base64.b64decode(authority).decode()
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "prometheus"}})
    token = cluster.kubectl("create", "token", "prometheus").strip()
    binding = f"{FULL}-metrics"
    cluster.kubectl("delete", "clusterrolebinding", binding, "--ignore-not-found")
    assert operator.scrape(pem, "") == 401
    assert operator.scrape(pem, token) == 403
    role = f"--clusterrole={FULL}-metrics-reader"
    cluster.kubectl("create", "clusterrolebinding", binding, role, f"--serviceaccount={NAMESPACE}:prometheus")
    new_token = cluster.kubectl("create", "token", "prometheus").strip()  # the operator caches reviews by token
    assert operator.scrape(pem, new_token) == 200


def reason(cluster: Cluster, name: str) -> str:
    """Return the reason of a Memcached's Ready condition, or an empty string without a condition."""
    conditions = cluster.get("memcached", name).get("status", {}).get("conditions", ())
    return next((str(each["reason"]) for each in conditions if each["type"] == "Ready"), "")


def events(cluster: Cluster, name: str) -> list[Obj]:
    """Return the events of a Memcached."""
    return cluster.list("events", f"--field-selector=involvedObject.kind=Memcached,involvedObject.name={name}")


# helm test.


HERE = "127.77.0.1"
"""A loopback address that nothing else uses."""


class Here(Kubelet):
    """A kubelet that runs all pods at one address."""

    def _address(self) -> str:
        return HERE


class Machine(Workloads):
    """Fake workload controllers: pods of Deployments run at one address, the pod of `helm test` as a process."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        live = LiveServer(cluster.plane, NAMESPACE)
        super().__init__(live.as_server)
        self._kubelet = Here(live.as_server)
        self._kubelet.processes = self
        self._cluster = cluster
        self._directory = directory
        self._check: subprocess.Popen[bytes] | None = None

    def run(self, pod: Obj, _claims: Mapping[str, Obj]) -> ProcessStatus:
        if pod["metadata"]["labels"].get("app.kubernetes.io/component") != "check":
            return ProcessStatus()
        (container,) = pod["spec"]["containers"]
        if self._check is None:
            account = self._cluster.account(pod["spec"]["serviceAccountName"], self._directory)
            program = [sys.executable, *container["command"][1:], *container["args"], f"--kubeconfig={account}"]
            with (self._directory / "check.log").open("wb") as log:
                self._check = subprocess.Popen(program, cwd=REPOSITORY, stdout=log, stderr=log)
        code = self._check.poll()
        return ProcessStatus() if code is None else ProcessStatus(exits={container["name"]: Exit(code)})

    def end(self, _uid: str) -> None:
        """Do nothing: the process exits by itself."""


@pytest.mark.parametrize(
    ("behaviour", "passes"), [(Keeping, True), (Forgetting, False)], ids=["data-kept", "data-lost"]
)
def test_helm_test_reports_the_state_of_the_platform_with_its_own_permissions(
    cluster: Cluster, charts: Path, tmp_path: Path, behaviour: type[socketserver.BaseRequestHandler], passes: bool
) -> None:
    values = ALONE | {"memcached": {**IGNORE_WEBHOOK, "networkPolicy": {"enabled": True}}}
    cluster.install(charts / "platform", values)
    operator = Running(cluster, render(charts / "platform", values), tmp_path)
    machine = Machine(cluster, tmp_path)
    name = f"check-{FULL}"
    with ExitStack() as stack:
        stack.enter_context(serving(behaviour, HERE, 11211))
        stack.enter_context(operator.up())
        pool = stack.enter_context(ThreadPoolExecutor(1))
        test = pool.submit(cluster.helm, "test", "platform", "--timeout=60s")
        while not test.done():
            machine.step()
            time.sleep(0.05)
    log = (tmp_path / "check.log").read_text()
    if passes:
        test.result()
        assert "1 of 1 servers stored and returned a value" in log
    else:
        with pytest.raises(ClusterError, match="failed"):
            test.result()
        assert "instead of" in log
    assert not cluster.find("memcached", name)
    assert bool(cluster.find("pod", name)) != passes, "the pod of a failed test stays for inspection"
    assert not cluster.find("role", name)


# Users.


USERS = {"view": {"get"}, "edit": {"get", "create", "delete", "scale"}, "admin": {"get", "create", "delete", "scale"}}
"""Permitted operations on resources by default ClusterRole. Only the operator may write the status."""


def test_users_get_the_permissions_of_their_default_cluster_role(tmp_path: Path, charts: Path) -> None:
    operations: dict[str, list[str]] = {
        "get": [],
        "create": [],
        "delete": [],
        "scale": ["--subresource=scale"],
        "report": ["--subresource=status"],
    }
    with ControlPlane.alone(tmp_path / "plane", controllers=True) as plane:  # a controller aggregates the roles
        Cluster(plane).helm("install", "platform", charts / "platform", "--create-namespace")

        def may(role: str) -> set[str]:
            requests = {verb: ["update" if flags else verb, MEMCACHEDS, *flags] for verb, flags in operations.items()}
            on = ["--as", role, "--namespace", NAMESPACE, "--kubeconfig", str(plane.kubeconfig)]
            return {verb for verb, words in requests.items() if succeeds(KUBECTL, "auth", "can-i", *words, *on)}

        for role in USERS:
            binding = ["create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "-n", NAMESPACE]
            kubectl(*binding, kubeconfig=plane.kubeconfig)
        wait_until(lambda: may("view") == USERS["view"], "aggregated roles", needs=plane.processes)
        assert {role: may(role) for role in USERS} == USERS
