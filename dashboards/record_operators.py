"""Record the metrics of the operators: their processes run on a real API server, with resources in many states.

No pods run. The status of paused resources holds the values that servers would have reported. A recording merges the
metrics from before and after the first reconciles.
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
from shared.status.reconciliation_pause import PAUSE
from tools.local.cluster import kubectl
from tools.local.controlplane import ControlPlane
from tools.local.machine.network import free_ports

Obj = dict[str, Any]

OPERATORS = ("memcached", "etcd", "redis")
NAMESPACE = "default"
SCRAPE_COUNT = 60
"""Scrapes of each operator, 0.25 s apart."""


def operators(directory: Path) -> str:
    """Record the three operators, one after the other."""
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
    scrapes: list[str] = []
    with running(directory, name, url, sys.executable, "-m", f"operators.{name}", *flags):
        _request_admission(webhook)
        for _ in range(SCRAPE_COUNT):
            scrapes.append(scrape(url))
            time.sleep(0.25)
    return merged(scrapes)


def _request_admission(port: int) -> None:
    """Request admission of an invalid Memcached: its operator denies it, the others do not serve the kind."""
    kind = {"group": "cache.example.com", "version": "v1alpha1", "kind": "Memcached"}
    obj = {**_resource("cache.example.com/v1alpha1", "Memcached", "wrong", {"size": -1}), "metadata": {"name": "wrong"}}
    review = {"uid": "1", "kind": kind, "operation": "CREATE", "namespace": NAMESPACE, "name": "wrong", "object": obj}
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": review}).encode()
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
    """Return resources with their status, in the form that the operators write."""
    later = _moment(timedelta(hours=1))
    conditions = [
        _condition("Ready", "False", "Paused"),
        _condition("Reconciling", "False", "Paused"),
        _condition("Stalled", "True", "InvalidSpec"),
        _condition("Available", "True", "Served"),
        _condition("Degraded", "False", "Redundant"),
        _condition("Observed", "True", "Observed"),
    ]
    if operator == "memcached":
        spec: Obj = {"size": 2, "memoryMB": 32}
        api = "cache.example.com/v1alpha1"
        status = {"phase": "Running", "readyReplicas": 1, "conditions": conditions}
        return [
            (_resource(api, "Memcached", "cache", {**spec, "paused": True}), status),
            (_resource(api, "Memcached", "fresh", {**spec, "tls": {"mode": "self"}}), {}),
            (_resource(api, "Memcached", "by-hand", spec, **{PAUSE: "true"}), {}),
        ]
    if operator == "etcd":
        api = "etcd.ydzs.io/v1alpha1"
        members = [
            {"name": "orders-0", "id": "1" * 16, "role": "leader", "healthy": True, "dbSize": 1000},
            {"name": "orders-1", "id": "2" * 16, "role": "voter", "healthy": True, "alarms": ["NOSPACE"]},
            {"name": "orders-2", "id": "3" * 16, "role": "learner", "healthy": False, "alarms": ["CORRUPT"]},
        ]
        status = {
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
        scheduled = {"backup": {"schedule": "0 */6 * * *", "destination": destination}}
        complete = {
            "phase": "Complete",
            "completedAt": _moment(),
            "current": True,
            "conditions": [_condition("Ready", "True", "Complete")],
        }
        failed = {"phase": "Failed", "conditions": [_condition("Ready", "False", "ProgramFailed")]}
        return [
            (_resource(api, "EtcdCluster", "orders", {**cluster, **scheduled, "paused": True}), status),
            (_resource(api, "EtcdCluster", "secure", secure), {}),
            (_resource(api, "EtcdBackup", "nightly", backup), complete),
            (_resource(api, "EtcdBackup", "broken", backup), failed),
        ]
    api = "redis.middleware.hc.cn/v1alpha1"
    status = {"phase": "Running", "conditions": conditions, "formed": True, "masters": 3, "readyReplicas": 6}
    status |= {"version": "Redis 8.0.2"}  # has published advisories
    spec = {"replicas": 6, "version": "8.0.2"}
    return [
        (_resource(api, "RedisCluster", "carts", {**spec, "pause": True}), status),
        (_resource(api, "RedisCluster", "secure", {**spec, "tls": {"mode": "self"}}), {}),
    ]


def _resource(api: str, kind: str, name: str, spec: Mapping[str, Any], **annotations: str) -> Obj:
    metadata: Obj = {"name": name} | ({"annotations": annotations} if annotations else {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _condition(name: str, status: str, reason: str) -> Obj:
    moment = {"lastTransitionTime": _moment(), "observedGeneration": 1}
    return {"type": name, "status": status, "reason": reason, "message": "recorded", **moment}


def _moment(ahead: timedelta = timedelta()) -> str:
    return f"{datetime.now(UTC) + ahead:%Y-%m-%dT%H:%M:%SZ}"
