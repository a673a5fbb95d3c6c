"""EtcdBackups and their pods in every state, as data."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from operators.etcd.api.backup import SCHEDULED, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.backup import pods
from operators.etcd.client.server import EndpointStatus
from shared.kubernetes.kinds import Obj
from tests.etcd.unit.world import CLUSTER_ID, SETTINGS, UID, cluster, member_id

VOLUME: Obj = {"volume": {"claimName": "snapshots", "path": "etcd"}}
BUCKET: Obj = {"s3": {"bucket": "orders", "prefix": "etcd", "credentialsSecret": "keys"}}

BEGAN = "2026-01-01T11:59:00Z"
ENDED = "2026-01-01T11:59:30Z"

KEPT: Obj = {
    "file": "demo-u-1/nightly-b-1.db",
    "size": 4128,
    "sha256": "0" * 64,
    "revision": 7,
    "version": "3.6.0",
    "member": "demo-1",
    "current": True,
}
"""Termination message of the program that has taken a snapshot."""


def backup(status: Obj | None = None, *, name: str = "nightly", scheduled: bool = False, **spec: Any) -> EtcdBackup:
    """Build an EtcdBackup `default/nightly` of the cluster demo."""
    labels = {SCHEDULED: UID} if scheduled else {}
    metadata = {"name": name, "namespace": "default", "uid": "b-1", "generation": 1, "labels": labels}
    given = {"clusterName": "demo", "destination": VOLUME, **spec}
    return EtcdBackup.parse({"metadata": metadata, "spec": given, "status": status or {}})


def status_of(number: int, *, leader: int = 0, applied: int = 1000, **more: Any) -> EndpointStatus:
    """Build the status that a member reports.

    Args:
        leader: number of the leader; -1 for none.
    """
    leader_id = member_id(leader) if leader >= 0 else 0
    given = {"cluster_id": CLUSTER_ID, "member_id": member_id(number), **more}
    cluster_id, own = given.pop("cluster_id"), given.pop("member_id")
    return EndpointStatus(cluster_id, own, leader_id, "3.6.8", 10, 2, applied, applied, 4096, 2048, **given)


def snapshot_pod(
    resource: EtcdBackup | None = None, *, attempt: int = 1, of: EtcdCluster | None = None, **status: Any
) -> Obj:
    """Build the pod that takes a snapshot of demo-1, as the API server stores it."""
    resource = resource or backup()
    made = pods.snapshot_pod(
        SETTINGS,
        resource,
        of or cluster(),
        "demo-1",
        status_of(1),
        attempt=attempt,
        now=at(BEGAN),
        message="Taking the snapshot.",
        keep=None,
    )
    return there(made, "p-1", **status)


def there(made: Obj, uid: str, **status: Any) -> Obj:
    """Return an applied object as the API server stores it."""
    metadata = made["metadata"] | {"uid": uid, "creationTimestamp": BEGAN}
    return made | {"metadata": metadata, "status": {"phase": "Running", "startTime": BEGAN, **status}}


def ended(*messages: Obj | str, code: int = 0, finished: str = ENDED, **status: Any) -> Obj:
    """Build the status of a pod that has ended; its last container may have failed.

    Args:
        messages: termination message of each container.
    """
    texts = [each if isinstance(each, str) else json.dumps(each) for each in messages]
    codes = [0] * (len(texts) - 1) + [code]
    known = [
        {"name": f"c-{n}", "state": {"terminated": {"exitCode": code, "message": text, "finishedAt": finished}}}
        for n, (text, code) in enumerate(zip(texts, codes, strict=True))
    ]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": known, **status}


def failed(reason: str = "StoreFull", message: str = "The volume is full.", **more: Any) -> Obj:
    return ended({"reason": reason, "message": message}, code=1, **more)


def leaving(pod: Obj) -> Obj:
    return pod | {"metadata": pod["metadata"] | {"deletionTimestamp": ENDED}}


def names_in(path: Path) -> list[str]:
    """List the names in a directory."""
    return sorted(entry.name for entry in path.iterdir())


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)
