"""The status of a resource and its Deployment as release 0.1.0 left them, as recorded."""

from __future__ import annotations

import copy
from functools import cache

import yaml

from shared.kubernetes.kinds import DEPLOYMENT, Obj
from simulator.harness import NAMESPACE
from tests.support import paths

RELEASED_STATUS: Obj = {
    "observedGeneration": 1,
    "phase": "Running",
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "2 of 2 servers are ready.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
    "nodes": [],
    "servers": [],
    "replicas": 2,
    "readyReplicas": 2,
    "selector": "app.kubernetes.io/component=server,app.kubernetes.io/instance=cache,app.kubernetes.io/name=memcached",
    "image": "memcached:1.6.38",
}
"""Status of a resource; the release recorded no kind of workload."""


def released_deployment(owner: Obj | None = None) -> Obj:
    """Return the recorded Deployment of the resource `cache`.

    Args:
        owner: resource that controls it; None for a Deployment that lost its owner, as in a restored backup.
    """
    made = copy.deepcopy(_recorded())
    if owner is not None:
        metadata = owner["metadata"]
        identity = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
        reference = identity | {"uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}
        made["metadata"]["ownerReferences"] = [reference]
    return made


@cache
def _recorded() -> Obj:
    text = (paths.REPOSITORY / "tests" / "released" / "memcached-0.1.0.yaml").read_text()
    (found,) = (
        obj for obj in yaml.safe_load_all(text) if (obj["kind"], obj["metadata"]["name"]) == (DEPLOYMENT.name, "cache")
    )
    found["metadata"]["namespace"] = NAMESPACE
    return dict(found)
