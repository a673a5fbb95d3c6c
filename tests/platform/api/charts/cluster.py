"""An API server on which charts are installed with Helm and kubectl."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import yaml

from tests.support import charts as rendering
from tests.support.charts import NAMESPACE, Obj, Values
from tools.local.cluster import kubectl
from tools.local.controlplane import ControlPlane
from tools.local.errors import ClusterError

MEMCACHEDS = "memcacheds.cache.example.com"
PLATFORM = "app.kubernetes.io/part-of=platform"

IGNORE_WEBHOOK: Obj = {"webhook": {"failurePolicy": "Ignore"}}
"""Admits all changes, for tests in which no operator serves the webhook."""


class Cluster:
    """An API server, with Helm and kubectl in the release's namespace."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = plane.kubeconfig

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        return kubectl(*arguments, "--namespace", NAMESPACE, kubeconfig=self.kubeconfig, stdin=stdin)

    def helm(self, *arguments: str | Path, values: Values | None = None) -> str:
        target = ["--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig)]
        return rendering.helm(*arguments, *target, values=values)

    def install(self, chart: Path, values: Values | None = None, release: str = "platform") -> None:
        """Run `helm upgrade --install` without flags that would hide a conflict."""
        self.helm("upgrade", "--install", release, chart, values=values or {})
        self.await_established()

    def clear(self) -> None:
        """Delete all releases, CRDs and objects."""
        for release in json.loads(self.helm("list", "--output", "json")):
            self.helm("uninstall", release["name"])
        for crd in self.list("crd", f"--selector={PLATFORM}"):
            self.kubectl("delete", crd["metadata"]["name"], "--all")
            self.kubectl("delete", "crd", crd["metadata"]["name"])
        kinds = "deployment,replicaset,statefulset,service,networkpolicy,pod,event,lease,secret"
        self.kubectl("delete", kinds, "--all", "--grace-period=0", "--force")

    def await_established(self) -> None:
        self.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")

    def apply(self, *objects: Obj) -> None:
        self.kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(objects))

    def dry_run(self, *objects: Obj) -> None:
        """Validate objects on the API server; unknown or duplicate fields and warnings are errors."""
        flags = ["--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors"]
        self.kubectl("apply", *flags, "--filename", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> Obj:
        found: Obj = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return found

    def find(self, kind: str, name: str) -> Obj | None:
        """Return an object, or None if it or its kind does not exist."""
        try:
            return self.get(kind, name)
        except ClusterError as error:
            if "NotFound" in error.what or "doesn't have a resource type" in error.what:
                return None
            raise

    def list(self, kinds: str, *flags: str) -> list[Obj]:
        found: list[Obj] = json.loads(self.kubectl("get", kinds, *flags, "--output", "json"))["items"]
        return found

    def installed(self) -> set[str]:
        """Return the objects of releases, without CRDs, as kind/name: in the namespace and cluster-scoped."""
        namespaced = (
            "deployment,service,serviceaccount,secret,configmap,role,rolebinding,poddisruptionbudget,networkpolicy"
        )
        cluster_scoped = (
            "clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration,"
            "validatingadmissionpolicy,validatingadmissionpolicybinding,flowschema"
        )
        found = self.list(f"{namespaced},{cluster_scoped}", f"--selector={PLATFORM},app.kubernetes.io/managed-by=Helm")
        return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in found}

    def account(self, name: str, directory: Path) -> Path:
        """Write a kubeconfig of a ServiceAccount and return its path."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self.kubectl("create", "token", name).strip()}
        path = directory / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def release_bytes(self) -> int:
        """Return the size of the largest release Secret, decoded from base64, as the API server counts it."""
        listed = self.kubectl("get", "secret", "-l", "owner=helm", "-o", "jsonpath={.items[*].data.release}")
        return max(len(base64.b64decode(release)) for release in listed.split())


def memcached(name: str, **spec: object) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "metadata": metadata, "spec": spec}


def etcd(name: str, **spec: object) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "etcd.ydzs.io/v1alpha1", "kind": "EtcdCluster", "metadata": metadata, "spec": spec}


def redis(name: str, **spec: object) -> Obj:
    metadata = {"name": name, "namespace": NAMESPACE}
    api_version = "redis.middleware.hc.cn/v1alpha1"
    return {"apiVersion": api_version, "kind": "RedisCluster", "metadata": metadata, "spec": spec}
