"""The cluster's volumes: a process of the host that makes a directory for each claim, lets it grow, and removes it.

Kubernetes' own host-path provisioner cannot serve: only root may write what it makes, for no fsGroup applies to host
paths, and nothing of it can grow. So these are `local` volumes. Every node of this machine sees them.
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

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.machine import processes
from e2e.cluster.machine.processes import Process
from e2e.cluster.paths import REPOSITORY
from shared.kubernetes.quantity import parse_quantity

PROVISIONER = "example.com/directories"
"""The name that manifests/storage.yaml says."""

MADE_BY = "pv.kubernetes.io/provisioned-by"
ASKED_OF = "volume.kubernetes.io/storage-provisioner"

CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"

Obj = dict[str, Any]


def start(plane: ControlPlane, directory: Path) -> Process:
    """Start it.

    Args:
        directory: where volumes lie; made if missing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = ["env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-m", "e2e.cluster.volumes", plane.url]
    files = [plane.authority.pair.certificate, plane.admin.certificate, plane.admin.key, directory]
    return processes.start("volumes", [*command, *files], log=plane.directory / "logs" / "volumes.log")


def volume_for(claim: Obj, directory: Path) -> Obj:
    """The volume that a claim asks for."""
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pvc-{metadata['uid']}"
    on_any_node = {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "annotations": {MADE_BY: PROVISIONER}},
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
    """Whether a claim waits for a volume of ours."""
    asked = (claim["metadata"].get("annotations") or {}).get(ASKED_OF) == PROVISIONER
    return asked and not claim["spec"].get("volumeName") and not claim["metadata"].get("deletionTimestamp")


def growth(claim: Obj, volume: Obj) -> Obj | None:
    """The capacity that a claim's volume should have, if it has less."""
    wanted = claim["spec"]["resources"]["requests"]["storage"]
    has = (claim.get("status") or {}).get("capacity", volume["spec"]["capacity"])["storage"]
    return {"storage": wanted} if parse_quantity(wanted) > parse_quantity(has) else None


class Api:
    """The API server, as far as volumes ask for it."""

    def __init__(self, url: str, authority: str, certificate: str, key: str) -> None:
        self._address = urlsplit(url)
        self._context = ssl.create_default_context(cafile=authority)
        self._context.load_cert_chain(certificate, key)

    def list(self, path: str) -> list[Obj]:
        found: list[Obj] = self.request("GET", path)["items"]
        return found

    def request(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Ask; raises OSError where the answer is no success, but what is gone already may be deleted again."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = self._connect()
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": kind})
            answer = connection.getresponse()
            said: Obj = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status >= 400 and not (method == "DELETE" and answer.status == 404):
            raise OSError(f"{method} {path}: {said.get('message')}")
        return said

    def watch(self, path: str) -> Iterator[bytes]:
        """A line for each change, until the API server ends it."""
        connection = self._connect()
        try:
            connection.request("GET", f"{path}?watch=true")
            yield from connection.getresponse()
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        assert self._address.hostname is not None
        return http.client.HTTPSConnection(self._address.hostname, self._address.port, context=self._context)


def settle(api: Api, directory: Path) -> None:
    """Make what claims ask for, and remove what nobody claims any more."""
    claims = {claim["metadata"]["uid"]: claim for claim in api.list(CLAIMS)}
    volumes = {volume["metadata"]["name"]: volume for volume in api.list(VOLUMES) if _is_ours(volume)}
    for uid, claim in claims.items():
        volume = volumes.get(f"pvc-{uid}")
        if volume is None and has_no_volume(claim):
            made = volume_for(claim, directory)
            Path(made["spec"]["local"]["path"]).mkdir(exist_ok=True)
            api.request("POST", VOLUMES, made)
        elif volume is not None and claim["spec"].get("volumeName") and (capacity := growth(claim, volume)):
            namespace, name = claim["metadata"]["namespace"], claim["metadata"]["name"]
            api.request("PATCH", f"{VOLUMES}/{volume['metadata']['name']}", {"spec": {"capacity": capacity}})
            own = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}/status"
            api.request("PATCH", own, {"status": {"capacity": capacity}})
    for name, volume in volumes.items():
        if volume.get("status", {}).get("phase") == "Released":
            shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
            api.request("DELETE", f"{VOLUMES}/{name}")


def _is_ours(volume: Obj) -> bool:
    return bool((volume["metadata"].get("annotations") or {}).get(MADE_BY) == PROVISIONER)


def _listen(api: Api, path: str, changed: threading.Event) -> None:
    while True:
        try:
            for _ in api.watch(path):
                changed.set()
        except (OSError, http.client.HTTPException) as error:
            print(f"{path}: {error}", flush=True)
        time.sleep(1)
        changed.set()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "authority", "certificate", "key"):
        parser.add_argument(name)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    api = Api(options.url, options.authority, options.certificate, options.key)
    changed = threading.Event()
    for path in (CLAIMS, VOLUMES):
        threading.Thread(target=_listen, args=(api, path, changed), daemon=True).start()
    while True:
        changed.wait()
        changed.clear()
        try:
            settle(api, options.directory)
        except (OSError, http.client.HTTPException) as error:
            print(error, flush=True)
            time.sleep(1)
            changed.set()


if __name__ == "__main__":
    main()
