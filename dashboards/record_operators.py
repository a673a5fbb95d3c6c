"""Records what the operators tell Prometheus: their own processes on a real API server, with resources in many states.

There are no pods: what servers would have told is written into the status of resources that are paused, where operators
find it. What they show before and after their first looks is one recording.
"""

from __future__ import annotations

import json
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dashboards.scraping import merged, running, scrape
from e2e.cluster.cluster import kubectl
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.machine.network import free_ports

Obj = dict[str, Any]

OPERATORS = ("memcached", "etcd", "redis")
NAMESPACE = "default"
MAX_LOOKS = 60
"""How often each is scraped, every quarter of a second."""


def operators(directory: Path) -> str:
    """All three operators, one after the other."""
    with ControlPlane.alone(directory / "api") as plane:
        return merged([_operator(plane, directory, name) for name in OPERATORS])


def _operator(plane: ControlPlane, directory: Path, name: str) -> str:
    metrics, webhook, probes = free_ports(3)
    crds = Path(__file__).parents[1] / f"charts/{name}-operator/files/crds"
    for file in sorted(crds.glob("*.yaml")):
        kubectl("apply", "--server-side", "-f", file, kubeconfig=plane.kubeconfig)
    kubectl("wait", "crd", "--all", "--for=condition=Established", kubeconfig=plane.kubeconfig)
    for resource, status in _resources(name):
        _create(plane, resource, status)
    flags = [
        f"--kubeconfig={plane.kubeconfig}",
        "--leader-elect",
        f"--leader-elect-namespace={NAMESPACE}",
        f"--metrics-bind-address=127.0.0.1:{metrics}",
        "--no-metrics-secure",
        f"--webhook-bind-address=127.0.0.1:{webhook}",
        f"--health-probe-bind-address=127.0.0.1:{probes}",
        f"--certificates=self:{NAMESPACE}/{name}-certificates",
        "--agent-image=agent",
        "--resync=2",
    ]
    url = f"http://127.0.0.1:{metrics}/metrics"
    looks: list[str] = []
    with running(directory, name, url, sys.executable, "-m", f"operators.{name}", *flags):
        _ask_webhook(webhook)
        for _ in range(MAX_LOOKS):
            looks.append(scrape(url))
            time.sleep(0.25)
    return merged(looks)


def _ask_webhook(port: int) -> None:
    """Ask whether a Memcached of -1 servers may be: it is refused, and operators that serve no Memcached say so."""
    kind = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached"}
    obj = {**_resource("cache.example.com/v1alpha1", "Memcached", "wrong", {"size": -1}), "metadata": {"name": "wrong"}}
    asked = {"uid": "1", "kind": kind, "operation": "CREATE", "namespace": NAMESPACE, "name": "wrong", "object": obj}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/validate", data=body, headers={"Content-Type": "application/json"}
    )
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with suppress(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=10, context=trusting).close()  # noqa: S310 (loopback)


def _create(plane: ControlPlane, resource: Obj, status: Obj) -> None:
    name = f"{resource['kind'].lower()}/{resource['metadata']['name']}"
    within = ["--namespace", NAMESPACE]
    kubectl("apply", "--server-side", *within, "-f", "-", stdin=json.dumps(resource), kubeconfig=plane.kubeconfig)
    if status:
        patch = json.dumps({"status": {"observedGeneration": 1, **status}})
        merge = ["--subresource=status", "--type=merge", f"--patch={patch}"]
        kubectl("patch", name, *within, *merge, kubeconfig=plane.kubeconfig)


def _resources(operator: str) -> list[tuple[Obj, Obj]]:
    """Resources and what their status says, as operators write it."""
    later = _moment(timedelta(hours=1))
    conditions = [
        _condition("Ready", "False", "Paused"),
        _condition("Reconciling", "False", "Paused"),
        _condition("Stalled", "True", "InvalidSpec"),
    ]
    if operator == "memcached":
        spec: Obj = {"size": 2, "memoryMB": 32}
        api = "cache.example.com/v1alpha1"
        told = {"phase": "Running", "readyReplicas": 1, "conditions": conditions}
        return [
            (_resource(api, "Memcached", "cache", {**spec, "paused": True}), told),
            (_resource(api, "Memcached", "fresh", spec), {}),
        ]
    if operator == "etcd":
        api = "etcd.ydzs.io/v1alpha1"
        members = [
            {"name": "orders-0", "id": "1" * 16, "role": "leader", "healthy": True, "dbSize": 1000},
            {"name": "orders-1", "id": "2" * 16, "role": "voter", "healthy": True, "alarms": ["NOSPACE"]},
            {"name": "orders-2", "id": "3" * 16, "role": "learner", "healthy": False, "alarms": ["CORRUPT"]},
        ]
        told = {
            "phase": "Running",
            "conditions": conditions,
            "members": members,
            "leader": "orders-0",
            "readyMembers": 2,
            "backup": {"lastTime": _moment(), "nextTime": later},
        }
        cluster = {"size": 3, "version": "3.6.16"}
        secure = {**cluster, "size": 1, "tls": {"mode": "self"}}
        destination = {"volume": {"claimName": "snapshots"}}
        backup = {"clusterName": "orders", "destination": destination}
        by_the_clock = {"backup": {"schedule": "0 */6 * * *", "destination": destination}}
        complete = {
            "phase": "Complete",
            "completedAt": _moment(),
            "conditions": [_condition("Ready", "True", "Complete")],
        }
        failed = {"phase": "Failed", "conditions": [_condition("Ready", "False", "ProgramFailed")]}
        return [
            (_resource(api, "EtcdCluster", "orders", {**cluster, **by_the_clock, "paused": True}), told),
            (_resource(api, "EtcdCluster", "secure", secure), {}),
            (_resource(api, "EtcdBackup", "nightly", backup), complete),
            (_resource(api, "EtcdBackup", "broken", backup), failed),
        ]
    api = "redis.middleware.hc.cn/v1alpha1"
    told = {"phase": "Running", "conditions": conditions, "formed": True, "masters": 3, "readyReplicas": 6}
    spec = {"replicas": 6, "version": "8.0.2"}
    return [
        (_resource(api, "RedisCluster", "carts", {**spec, "pause": True}), told),
        (_resource(api, "RedisCluster", "secure", {**spec, "tls": {"mode": "self"}}), {}),
    ]


def _resource(api: str, kind: str, name: str, spec: Mapping[str, Any]) -> Obj:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def _condition(name: str, status: str, reason: str) -> Obj:
    moment = {"lastTransitionTime": _moment(), "observedGeneration": 1}
    return {"type": name, "status": status, "reason": reason, "message": "as told", **moment}


def _moment(ahead: timedelta = timedelta()) -> str:
    return f"{datetime.now(UTC) + ahead:%Y-%m-%dT%H:%M:%SZ}"
