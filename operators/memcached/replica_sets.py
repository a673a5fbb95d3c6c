"""The ReplicaSets of a Deployment, by UID: a pod can name any object as its controller.

They are read by name, once for each template that pods have. A watch would deliver each change of their counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from shared.kubernetes import ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import REPLICA_SET, Obj

TEMPLATE_HASH = "pod-template-hash"
"""Label of a Deployment's pods and ReplicaSets."""

MAX_REMEMBERED = 50_000
"""Maximum number of ReplicaSets whose owner is remembered: those of 10,000 Deployments take 3 MiB."""

_Claim = tuple[str, str, str]
"""UID of a Deployment; name and UID of a ReplicaSet."""


class ReplicaSets:
    """Which ReplicaSets belong to which Deployment; remembers what it has read.

    A ReplicaSet stays one of its Deployment as long as that exists. One that is none may become one: the Deployment
    adopts what a deleted one of its name has orphaned. It counts the pods then, and so has another version.
    """

    def __init__(self) -> None:
        self._versions: dict[_Claim, str | None] = {}  # version of the Deployment as of a refusal; None: it is its own

    async def of(self, deployment: Obj, pods: Iterable[Obj], kube: Kube) -> frozenset[str]:
        """Return the UIDs of those controllers of pods that are ReplicaSets of a Deployment.

        Raises:
            KubeError: a ReplicaSet cannot be read.
        """
        uid, version = deployment["metadata"]["uid"], deployment["metadata"]["resourceVersion"]
        named = [_replica_set_of(pod, deployment["metadata"]["name"]) for pod in pods]
        claims = {(uid, each["name"], each["uid"]) for each in named if each is not None}
        unknown = sorted(claim for claim in claims if self._versions.get(claim, "") not in (None, version))
        namespace = deployment["metadata"]["namespace"]
        are_own = await asyncio.gather(*(_is_own(kube, namespace, *claim) for claim in unknown))
        for claim, is_own in zip(unknown, are_own, strict=True):
            self._versions[claim] = None if is_own else version
        found = frozenset(claim[2] for claim in claims if self._versions[claim] is None)
        while len(self._versions) > MAX_REMEMBERED:
            del self._versions[next(iter(self._versions))]
        return found


def _replica_set_of(pod: Obj, deployment: str) -> Obj | None:
    """Return the owner reference to a ReplicaSet with the name that one of a Deployment has for the template of a pod.

    Source of the name: https://kubernetes.io/docs/concepts/workloads/controllers/deployment/#pod-template-hash-label
    """
    controller = ownership.controller_of(pod) or {}
    template = (pod["metadata"].get("labels") or {}).get(TEMPLATE_HASH, "")
    expected = (REPLICA_SET.api_version, REPLICA_SET.name, f"{deployment}-{template}")
    return controller if tuple(controller.get(key) for key in ("apiVersion", "kind", "name")) == expected else None


async def _is_own(kube: Kube, namespace: str, deployment: str, name: str, uid: str) -> bool:
    found = await kube.find(REPLICA_SET, namespace, name)
    return found is not None and bool(found["metadata"]["uid"] == uid) and ownership.belongs_to(found, deployment, {})
