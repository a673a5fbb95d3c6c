"""Kubernetes' StatefulSet controller, one deterministic action at a time."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

from shared.kubernetes.errors import AlreadyExists
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Obj
from simulator.kubelet.replicas import (
    is_available,
    is_owned_by,
    is_ready,
    is_terminating,
    reference,
    replica,
    status_counts,
    template_hash,
)

if TYPE_CHECKING:
    from simulator.api_server.server import ApiServer

REVISION = "controller-revision-hash"


class StatefulSets:
    """Simulates the StatefulSet controller."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._controller = server.actor("kube-controller-manager")

    def step(self) -> bool:
        """Take one action on a pod, its claims or a status; return whether there was anything to do."""
        return any(self._control(owner) for _, owner in self._server.objects(STATEFUL_SET))

    def _control(self, owner: Obj) -> bool:
        if owner["metadata"].get("deletionTimestamp"):
            return False
        if self._release(owner) or self._adopt(owner):
            return True
        pods = {_number(pod): pod for _, pod in self._server.objects(POD) if is_owned_by(pod, owner)}
        return (
            self._own_claims(owner, pods)
            or self._scale(owner, pods)
            or self._roll(owner, pods)
            or self._report(owner, list(pods.values()))
        )

    def _release(self, owner: Obj) -> bool:
        """Remove the owner reference from a pod without a label of the selector.

        Source: PodControllerRefManager.ClaimPods in pkg/controller/controller_ref_manager.go of Kubernetes 1.33.
        """
        desired = owner["spec"]["selector"]["matchLabels"].items()
        for _, pod in self._server.objects(POD):
            metadata = pod["metadata"]
            is_released = is_terminating(pod) or desired <= (metadata.get("labels") or {}).items()
            if is_owned_by(pod, owner) and not is_released:
                address = (metadata["namespace"], metadata["name"])
                self._controller.merge(POD, *address, {"metadata": {"ownerReferences": None}})
                return True
        return False

    def _adopt(self, owner: Obj) -> bool:
        """Adopt a pod without a controller whose labels and name match."""
        desired, name = owner["spec"]["selector"]["matchLabels"], re.escape(owner["metadata"]["name"])
        for _, pod in self._server.objects(POD):
            metadata = pod["metadata"]
            labels, adoptable = (
                metadata.get("labels") or {},
                not metadata.get("ownerReferences") and not is_terminating(pod),
            )
            if not adoptable or metadata["namespace"] != owner["metadata"]["namespace"]:
                continue
            if desired.items() <= labels.items() and re.fullmatch(rf"{name}-\d+", metadata["name"]):
                self._controller.merge(
                    POD,
                    metadata["namespace"],
                    metadata["name"],
                    {"metadata": {"ownerReferences": [reference(owner, STATEFUL_SET)]}},
                )
                return True
        return False

    def _scale(self, owner: Obj, pods: dict[int, Obj]) -> bool:
        desired = owner["spec"]["replicas"]
        ordered = owner["spec"]["podManagementPolicy"] == "OrderedReady"
        for number in range(desired):
            if number not in pods:
                if self._claim(owner, number) or self._create(owner, number):
                    return True
                if ordered:
                    return False
                continue
            pod = pods[number]
            if pod["status"].get("phase") in ("Succeeded", "Failed") and not is_terminating(pod):
                return self._delete(pod)
            if not pod["spec"].get("nodeName") and not is_terminating(pod) and self._claim(owner, number):
                return True
            if ordered and (is_terminating(pod) or not is_ready(pod)):
                return False
        surplus = [pods[number] for number in sorted(pods, reverse=True) if number >= desired]
        if ordered and any(map(is_terminating, surplus)):
            return False
        return any(self._delete(pod) for pod in surplus if not is_terminating(pod))

    def _roll(self, owner: Obj, pods: dict[int, Obj]) -> bool:
        """Delete one outdated pod, the highest ordinal first, once every updated pod is ready."""
        if owner["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return False
        revision = _revision(owner)
        for number in sorted(pods, reverse=True):
            pod = pods[number]
            if is_terminating(pod):
                return False
            if not _is_updated(pod, revision):
                return self._delete(pod)
            if not is_available(pod, owner, self._server.now()):
                return False
        return False

    def _claim(self, owner: Obj, number: int) -> bool:
        """Create a missing claim of an ordinal; existing claims are used unchanged."""
        for template in owner["spec"].get("volumeClaimTemplates", ()):
            if self._claim_of(owner, template, number) is None:
                labels = (template["metadata"].get("labels") or {}) | owner["spec"]["selector"]["matchLabels"]
                metadata = template["metadata"] | {"labels": labels, "name": _claim_name(owner, template, number)}
                metadata["namespace"] = owner["metadata"]["namespace"]
                self._controller.create(PERSISTENT_VOLUME_CLAIM, {"metadata": metadata, "spec": template["spec"]})
                return True
        return False

    def _own_claims(self, owner: Obj, pods: Collection[int]) -> bool:
        """Set or remove the owner of the claims as persistentVolumeClaimRetentionPolicy.whenDeleted requires.

        Only claims with the names of its pods' volumes, with any labels, and only if no other object controls them.
        Only `whenScaled: Retain` is supported. Source: UpdatePodClaimForRetentionPolicy in
        pkg/controller/statefulset/stateful_pod_control.go of Kubernetes 1.33.
        """
        policy = owner["spec"]["persistentVolumeClaimRetentionPolicy"]
        assert policy["whenScaled"] == "Retain", "only whenScaled: Retain is supported"
        desired = [reference(owner, STATEFUL_SET)] if policy["whenDeleted"] == "Delete" else []
        names = {f"{stem}-{number}" for stem in _claim_stems(owner) for number in pods}
        for _, claim in self._server.objects(PERSISTENT_VOLUME_CLAIM):
            metadata = claim["metadata"]
            here = metadata["namespace"] == owner["metadata"]["namespace"] and metadata["name"] in names
            others = [ref for ref in metadata.get("ownerReferences", ()) if ref["uid"] != owner["metadata"]["uid"]]
            if here and not others and (metadata.get("ownerReferences") or []) != desired:
                patch = {"metadata": {"ownerReferences": desired or None}}
                self._controller.merge(PERSISTENT_VOLUME_CLAIM, metadata["namespace"], metadata["name"], patch)
                return True
        return False

    def _claim_of(self, owner: Obj, template: Obj, number: int) -> Obj | None:
        name = _claim_name(owner, template, number)
        return self._server.stored(PERSISTENT_VOLUME_CLAIM, owner["metadata"]["namespace"], name)

    def _create(self, owner: Obj, number: int) -> bool:
        templates = owner["spec"].get("volumeClaimTemplates", ())
        claims = [self._claim_of(owner, template, number) for template in templates]
        if any(claim is None or is_terminating(claim) for claim in claims):
            return False
        name, revision = f"{owner['metadata']['name']}-{number}", _revision(owner)
        labels = {REVISION: revision, "statefulset.kubernetes.io/pod-name": name}
        labels["apps.kubernetes.io/pod-index"] = str(number)
        pod = replica(owner, STATEFUL_SET, name, labels)
        names = {template["metadata"]["name"] for template in templates}
        volumes = [volume for volume in pod["spec"].get("volumes", ()) if volume["name"] not in names]
        volumes += [
            {"name": name, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
            for name, claim in zip((template["metadata"]["name"] for template in templates), claims, strict=True)
            if claim is not None
        ]
        identity = {"hostname": name, "subdomain": owner["spec"].get("serviceName", ""), "volumes": volumes}
        pod["spec"] = {**pod["spec"], **identity}
        try:
            self._controller.create(POD, pod)
        except AlreadyExists:  # the pod of an earlier StatefulSet awaits garbage collection
            return False
        return True

    def _delete(self, pod: Obj) -> bool:
        self._controller.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        return True

    def _report(self, owner: Obj, pods: list[Obj]) -> bool:
        before, revision = owner.get("status", {}), _revision(owner)
        ready = sum(map(is_ready, pods))
        staying = [pod for pod in pods if not is_terminating(pod)]
        updated = sum(_is_updated(pod, revision) for pod in staying)
        status: Obj = {"observedGeneration": owner["metadata"]["generation"], "replicas": len(pods)}
        available = sum(is_available(pod, owner, self._server.now()) for pod in pods)
        status |= {"availableReplicas": available, "updateRevision": revision}
        status |= status_counts({"readyReplicas": ready, "updatedReplicas": updated})
        rolls = owner["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        if (rolls and updated == len(pods)) or not before.get("currentRevision"):
            status["currentRevision"] = status["updateRevision"]
        if status == {key: before.get(key) for key in status}:
            return False
        address = (owner["metadata"]["namespace"], owner["metadata"]["name"])
        self._controller.merge(STATEFUL_SET, *address, {"status": status}, subresource="status")
        return True


def _number(pod: Obj) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _is_updated(pod: Obj, revision: str) -> bool:
    return bool(pod["metadata"]["labels"][REVISION] == revision)


def _claim_name(owner: Obj, template: Obj, number: int) -> str:
    return f"{template['metadata']['name']}-{owner['metadata']['name']}-{number}"


def _claim_stems(owner: Obj) -> list[str]:
    """Return the prefixes of the claim names of a StatefulSet."""
    templates = owner["spec"].get("volumeClaimTemplates", ())
    return [f"{template['metadata']['name']}-{owner['metadata']['name']}" for template in templates]


def _revision(owner: Obj) -> str:
    return f"{owner['metadata']['name']}-{template_hash(owner)}"
