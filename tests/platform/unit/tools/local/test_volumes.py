"""Creation, expansion and deletion of volume directories."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from tools.local import volumes
from tools.local.cluster import MANIFESTS
from tools.local.volumes import CLAIM_PROVISIONER, CLAIMS, PROVISIONER, VOLUMES, Api, Obj


class Kubernetes(Api):
    """In-memory claims and volumes; binds them as the controller manager does."""

    def __init__(self) -> None:
        self.objects: dict[str, Obj] = {}

    def list(self, path: str) -> list[Obj]:
        return copy.deepcopy([obj for at, obj in self.objects.items() if f"/{path.rpartition('/')[2]}/" in at])

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        if method == "DELETE":
            return self.objects.pop(path)
        assert body is not None
        if method == "POST":
            self.objects[f"{path}/{body['metadata']['name']}"] = body
            claim_ref = body["spec"]["claimRef"]
            claim = self.objects[claim_path(claim_ref["name"])]
            claim["spec"]["volumeName"] = body["metadata"]["name"]
            claim["status"] = {"capacity": dict(body["spec"]["capacity"])}
        elif path.endswith("/status"):
            self.objects[path.removesuffix("/status")]["status"] |= body["status"]
        else:
            self.objects[path]["spec"] |= body["spec"]
        return body


def claim_path(name: str) -> str:
    return f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"


def claim(name: str, size: str = "1Gi", provisioner: str = PROVISIONER) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": size}},
    }
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"of-{name}",
        "annotations": {CLAIM_PROVISIONER: provisioner},
    }
    return {"metadata": metadata, "spec": spec}


def test_claim_gets_a_directory_that_is_deleted_on_release(tmp_path: Path) -> None:
    kubernetes = Kubernetes()
    kubernetes.objects = {
        claim_path("mine"): claim("mine"),
        claim_path("others"): claim("others", provisioner="example.com/other"),
    }
    for _ in range(2):
        volumes.reconcile(kubernetes, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["pvc-of-mine"]
    (volume,) = kubernetes.list(VOLUMES)
    assert volume["spec"]["capacity"] == {"storage": "1Gi"}
    (tmp_path / "pvc-of-mine" / "data").write_text("kept")
    kubernetes.objects[f"{VOLUMES}/pvc-of-mine"]["status"] = {"phase": "Released"}
    del kubernetes.objects[claim_path("mine")]
    volumes.reconcile(kubernetes, tmp_path)
    assert not list(tmp_path.iterdir())
    assert not kubernetes.list(VOLUMES)


def test_volume_expands_with_its_claim_and_keeps_its_content(tmp_path: Path) -> None:
    kubernetes = Kubernetes()
    kubernetes.objects = {claim_path("mine"): claim("mine")}
    volumes.reconcile(kubernetes, tmp_path)
    (tmp_path / "pvc-of-mine" / "data").write_text("kept")
    kubernetes.objects[claim_path("mine")]["spec"]["resources"]["requests"]["storage"] = "2Gi"
    for _ in range(2):
        volumes.reconcile(kubernetes, tmp_path)
        assert kubernetes.objects[f"{VOLUMES}/pvc-of-mine"]["spec"]["capacity"] == {"storage": "2Gi"}
        assert kubernetes.objects[claim_path("mine")]["status"]["capacity"] == {"storage": "2Gi"}
    assert (tmp_path / "pvc-of-mine" / "data").read_text() == "kept"


def test_default_storage_class_names_this_provisioner() -> None:
    (manifest,) = yaml.safe_load_all((MANIFESTS / "storage.yaml").read_text())
    assert manifest["provisioner"] == PROVISIONER
    assert CLAIMS.endswith("persistentvolumeclaims")
