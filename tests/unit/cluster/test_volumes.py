"""A directory for each claim, for as long as it is claimed."""

from __future__ import annotations

import copy
from pathlib import Path

import yaml

from e2e.cluster import volumes
from e2e.cluster.cluster import MANIFESTS
from e2e.cluster.volumes import ASKED_OF, CLAIMS, PROVISIONER, VOLUMES, Api, Obj


class Kubernetes(Api):
    """Keeps claims and volumes, and binds them as the controller manager does."""

    def __init__(self) -> None:
        self.kept: dict[str, Obj] = {}

    def list(self, path: str) -> list[Obj]:
        return copy.deepcopy([obj for at, obj in self.kept.items() if f"/{path.rpartition('/')[2]}/" in at])

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        if method == "DELETE":
            return self.kept.pop(path)
        assert body is not None
        if method == "POST":
            self.kept[f"{path}/{body['metadata']['name']}"] = body
            asked = body["spec"]["claimRef"]
            claim = self.kept[place(asked["name"])]
            claim["spec"]["volumeName"] = body["metadata"]["name"]
            claim["status"] = {"capacity": dict(body["spec"]["capacity"])}
        elif path.endswith("/status"):
            self.kept[path.removesuffix("/status")]["status"] |= body["status"]
        else:
            self.kept[path]["spec"] |= body["spec"]
        return body


def place(name: str) -> str:
    return f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"


def claim(name: str, size: str = "1Gi", asked_of: str = PROVISIONER) -> Obj:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "standard",
        "resources": {"requests": {"storage": size}},
    }
    metadata = {"name": name, "namespace": "default", "uid": f"of-{name}", "annotations": {ASKED_OF: asked_of}}
    return {"metadata": metadata, "spec": spec}


def test_a_claim_gets_a_directory_which_goes_when_it_is_released(tmp_path: Path) -> None:
    kubernetes = Kubernetes()
    kubernetes.kept = {place("mine"): claim("mine"), place("others"): claim("others", asked_of="example.com/other")}
    for _ in range(2):
        volumes.settle(kubernetes, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["pvc-of-mine"]
    (volume,) = kubernetes.list(VOLUMES)
    assert volume["spec"]["capacity"] == {"storage": "1Gi"}
    (tmp_path / "pvc-of-mine" / "data").write_text("kept")
    kubernetes.kept[f"{VOLUMES}/pvc-of-mine"]["status"] = {"phase": "Released"}
    del kubernetes.kept[place("mine")]
    volumes.settle(kubernetes, tmp_path)
    assert not list(tmp_path.iterdir())
    assert not kubernetes.list(VOLUMES)


def test_a_volume_grows_with_its_claim_and_keeps_what_is_in_it(tmp_path: Path) -> None:
    kubernetes = Kubernetes()
    kubernetes.kept = {place("mine"): claim("mine")}
    volumes.settle(kubernetes, tmp_path)
    (tmp_path / "pvc-of-mine" / "data").write_text("kept")
    kubernetes.kept[place("mine")]["spec"]["resources"]["requests"]["storage"] = "2Gi"
    for _ in range(2):
        volumes.settle(kubernetes, tmp_path)
        assert kubernetes.kept[f"{VOLUMES}/pvc-of-mine"]["spec"]["capacity"] == {"storage": "2Gi"}
        assert kubernetes.kept[place("mine")]["status"]["capacity"] == {"storage": "2Gi"}
    assert (tmp_path / "pvc-of-mine" / "data").read_text() == "kept"


def test_the_clusters_class_asks_this_provisioner() -> None:
    (manifest,) = yaml.safe_load_all((MANIFESTS / "storage.yaml").read_text())
    assert manifest["provisioner"] == PROVISIONER
    assert CLAIMS.endswith("persistentvolumeclaims")
