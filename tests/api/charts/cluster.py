"""An API server as people who install charts use it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import yaml

from e2e.cluster.cluster import kubectl
from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.errors import ClusterError
from tests.support import charts as rendering
from tests.support.charts import NAMESPACE, Obj, Values

MEMCACHEDS = "memcacheds.cache.example.com"
OURS = "app.kubernetes.io/part-of=platform"

UNASKED: Obj = {"webhook": {"failurePolicy": "Ignore"}}
"""Where no operator answers the webhook: what comes is let pass."""


class Cluster:
    """One API server, and what Helm and kubectl do there in the release's namespace."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.kubeconfig = plane.kubeconfig

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> str:
        return kubectl(*arguments, "--namespace", NAMESPACE, kubeconfig=self.kubeconfig, stdin=stdin)

    def helm(self, *arguments: str | Path, values: Values | None = None) -> str:
        place = ["--namespace", NAMESPACE, "--kubeconfig", str(self.kubeconfig)]
        return rendering.helm(*arguments, *place, values=values)

    def install(self, chart: Path, values: Values | None = None, release: str = "platform") -> None:
        """`helm upgrade --install`, without any flag that would hide a conflict."""
        self.helm("upgrade", "--install", release, chart, values=values or {})
        self.await_established()

    def clear(self) -> None:
        """Take away whatever was installed and made."""
        for release in json.loads(self.helm("list", "--output", "json")):
            self.helm("uninstall", release["name"])
        for crd in self.list("crd", f"--selector={OURS}"):
            self.kubectl("delete", crd["metadata"]["name"], "--all")
            self.kubectl("delete", "crd", crd["metadata"]["name"])
        self.kubectl("delete", "deployment,service,pod,event,lease,secret", "--all", "--grace-period=0", "--force")

    def await_established(self) -> None:
        self.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")

    def apply(self, *objects: Obj) -> None:
        self.kubectl("apply", "--filename", "-", stdin=yaml.safe_dump_all(objects))

    def dry_run(self, *objects: Obj) -> None:
        """Have the API server judge objects, strictly: an unknown or doubled field and any warning is a failure."""
        flags = ["--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors"]
        self.kubectl("apply", *flags, "--filename", "-", stdin=yaml.safe_dump_all(objects))

    def get(self, kind: str, name: str) -> Obj:
        found: Obj = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return found

    def find(self, kind: str, name: str) -> Obj | None:
        """An object, or None if there is none, or no such kind."""
        try:
            return self.get(kind, name)
        except ClusterError as error:
            if "NotFound" in error.what or "doesn't have a resource type" in error.what:
                return None
            raise

    def list(self, kinds: str, *flags: str) -> list[Obj]:
        found: list[Obj] = json.loads(self.kubectl("get", kinds, *flags, "--output", "json"))["items"]
        return found

    def ours(self) -> set[str]:
        """What there is of a release but its CRDs, as kind/name, in the namespace and in none."""
        inside = "deployment,service,serviceaccount,secret,configmap,role,rolebinding,poddisruptionbudget,networkpolicy"
        outside = "clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration"
        found = self.list(f"{inside},{outside}", f"--selector={OURS},app.kubernetes.io/managed-by=Helm")
        return {f"{obj['kind']}/{obj['metadata']['name']}" for obj in found}

    def account(self, name: str, directory: Path) -> Path:
        """A kubeconfig of a service account."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self.kubectl("create", "token", name).strip()}
        path = directory / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def release_bytes(self) -> int:
        """Bytes of the largest release Secret as the API server counts them: what it decodes, not its base64."""
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
