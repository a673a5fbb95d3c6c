"""Volume provisioner of the cluster: a host process that creates, expands and deletes a directory for each claim.

The host-path provisioner of Kubernetes is not sufficient: fsGroup does not apply to host paths, so only root can write
to them, and they cannot be expanded. The provisioner creates `local` volumes instead, which every node can mount.
"""

import argparse
import http.client
import json
import shutil
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shared.kubernetes.quantity import parse_quantity
from tools.local.controlplane import ControlPlane
from tools.local.machine import processes
from tools.local.machine.processes import Process
from tools.local.paths import REPOSITORY

PROVISIONER = "example.com/directories"
"""Name of the provisioner, as in manifests/storage.yaml."""

PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
CLAIM_PROVISIONER = "volume.kubernetes.io/storage-provisioner"

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"

Obj = dict[str, Any]


def start(plane: ControlPlane, directory: Path) -> Process:
    """Start the provisioner.

    Args:
        plane: control plane of the cluster.
        directory: parent directory of the volumes; created if missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "tools.local.volumes", plane.url]
    files = [plane.authority.pair.certificate, plane.admin.certificate, plane.admin.key, directory]
    return processes.start("volumes", [*command, *files], log=plane.directory / "logs" / "volumes.log")


def volume_for(claim: Obj, directory: Path) -> Obj:
    """Return the PersistentVolume for a claim."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    on_any_node = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: PROVISIONER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "local": {"path": str(directory / name)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [on_any_node]}},
        },
    }


def has_no_volume(claim: Obj) -> bool:
    """Return whether a claim waits for a volume of this provisioner."""
    responsible = (claim["metadata"].get("annotations") or {}).get(CLAIM_PROVISIONER) == PROVISIONER
    return responsible and not claim["spec"].get("volumeName") and not claim["metadata"].get("deletionTimestamp")


def growth(claim: Obj, volume: Obj) -> Obj | None:
    """Return the capacity that a claim requests if its volume has less, else None."""
    requested = claim["spec"]["resources"]["requests"]["storage"]
    actual = (claim.get("status") or {}).get("capacity", volume["spec"]["capacity"])["storage"]
    return {"storage": requested} if parse_quantity(requested) > parse_quantity(actual) else None


class Api:
    """Minimal client of the API server, without dependencies."""

    def __init__(self, url: str, authority: str, certificate: str, key: str) -> None:
        self._address = urlsplit(url)
        self._context = ssl.create_default_context(cafile=authority)
        self._context.load_cert_chain(certificate, key)

    def list(self, path: str) -> list[Obj]:
        found: list[Obj] = self.request("GET", path)["items"]
        return found

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Send a request; raises OSError if it fails, except for the deletion of an object that does not exist."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = self._connect()
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": kind})
            response = connection.getresponse()
            content: Obj = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 400 and not (method == "DELETE" and response.status == 404):
            raise OSError(f"{method} {path}: {content.get('message')}")
        return content

    def watch(self, path: str) -> Iterator[bytes]:
        """Yield a line for each change until the API server ends the watch."""
        connection = self._connect()
        try:
            connection.request("GET", f"{path}?watch=true")
            yield from connection.getresponse()
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        assert self._address.hostname is not None
        return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._context)


def reconcile(api: Api, directory: Path) -> None:
    """Create and expand volumes as claims request, and delete released ones."""
    claims = {claim["metadata"]["uid"]: claim for claim in api.list(CLAIMS)}
    volumes = {volume["metadata"]["name"]: volume for volume in api.list(VOLUMES) if _is_provisioned_here(volume)}
    for uid, claim in claims.items():
        volume = volumes.get(f"pvc-{uid}")
        if volume is None and has_no_volume(claim):
            new_volume = volume_for(claim, directory)
            Path(new_volume["spec"]["local"]["path"]).mkdir(exist_ok=True)
            api.request("POST", VOLUMES, new_volume)
        elif volume is not None and claim["spec"].get("volumeName") and (capacity := growth(claim, volume)):
            namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            api.request("PATCH", f"{VOLUMES}/{volume['metadata']['name']}", {"spec": {"capacity": capacity}})
            claim_status = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status"
            api.request("PATCH", claim_status, {"status": {"capacity": capacity}})
    for name, volume in volumes.items():
        if volume.get("status", {}).get("phase") == "Released":
            shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
            api.request("DELETE", f"{VOLUMES}/{name}")


def _is_provisioned_here(volume: Obj) -> bool:
    return bool((volume["metadata"].get("annotations") or {}).get(PROVISIONED_BY) == PROVISIONER)


def _watch(api: Api, path: str, changed: threading.Event) -> None:
    while True:
        try:
            for _ in api.watch(path):
                changed.set()
        except (OSError, http.client.HTTPException) as error:
            print(f"{path}: {error}", flush=True)
        time.sleep(1)
        changed.set()


def main() -> None:
    """Provision volumes until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "authority", "certificate", "key"):
        parser.add_argument(name)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    api = Api(options.url, options.authority, options.certificate, options.key)
    changed = threading.Event()
    for path in (CLAIMS, VOLUMES):
        threading.Thread(target=_watch, args=(api, path, changed), daemon=True).start()
    while True:
        changed.wait()
        changed.clear()
        try:
            reconcile(api, options.directory)
        except (OSError, http.client.HTTPException) as error:
            print(error, flush=True)
            time.sleep(1)
            changed.set()


if __name__ == "__main__":
    main()
