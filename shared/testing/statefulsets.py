"""Kubernetes' StatefulSet controller, one deterministic move at a time; volumes are not made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.kube import POD, STATEFUL_SET, AlreadyExists, Obj
from shared.testing.replicas import counted, is_leaving, is_of, is_ready, replica, template_hash

if TYPE_CHECKING:
    from shared.testing.apiserver import ApiServer

REVISION = "controller-revision-hash"


class StatefulSets:
    """Makes what StatefulSets ask for happen."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._controller = server.actor("kube-controller-manager")

    def step(self) -> bool:
        """Create or delete one pod, or write one status; returns whether there was anything to do."""
        return any(self._control(owner) for _, owner in self._server.objects(STATEFUL_SET))

    def _control(self, owner: Obj) -> bool:
        if owner["metadata"].get("deletionTimestamp"):
            return False
        pods = {_number(pod): pod for _, pod in self._server.objects(POD) if is_of(pod, owner)}
        return self._scale(owner, pods) or self._roll(owner, pods) or self._report(owner, list(pods.values()))

    def _scale(self, owner: Obj, pods: dict[int, Obj]) -> bool:
        wanted = owner["spec"]["replicas"]
        ordered = owner["spec"]["podManagementPolicy"] == "OrderedReady"
        for number in range(wanted):
            if number not in pods:
                return self._create(owner, number)
            if ordered and (is_leaving(pods[number]) or not is_ready(pods[number])):
                return False
        surplus = [pods[number] for number in sorted(pods, reverse=True) if number >= wanted]
        if ordered and any(map(is_leaving, surplus)):
            return False
        return any(self._delete(pod) for pod in surplus if not is_leaving(pod))

    def _roll(self, owner: Obj, pods: dict[int, Obj]) -> bool:
        """Replace one outdated pod, the highest first, while all of the new ones are ready."""
        if owner["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return False
        for number in sorted(pods, reverse=True):
            pod = pods[number]
            if is_leaving(pod):
                return False
            if not self._is_updated(owner, pod):
                return self._delete(pod)
            if not is_ready(pod):
                return False
        return False

    def _create(self, owner: Obj, number: int) -> bool:
        name, revision = f"{owner['metadata']['name']}-{number}", _revision(owner)
        labels = {REVISION: revision, "statefulset.kubernetes.io/pod-name": name}
        labels["apps.kubernetes.io/pod-index"] = str(number)
        pod = replica(owner, STATEFUL_SET, name, labels)
        pod["spec"] = {**pod["spec"], "hostname": name, "subdomain": owner["spec"].get("serviceName", "")}
        try:
            self._controller.create(POD, pod)
        except AlreadyExists:  # one of an earlier StatefulSet, that the garbage collector has still to take away
            return False
        return True

    def _delete(self, pod: Obj) -> bool:
        self._controller.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        return True

    def _is_updated(self, owner: Obj, pod: Obj) -> bool:
        return bool(pod["metadata"]["labels"][REVISION] == _revision(owner))

    def _report(self, owner: Obj, pods: list[Obj]) -> bool:
        before = owner.get("status", {})
        ready = sum(map(is_ready, pods))
        staying = [pod for pod in pods if not is_leaving(pod)]
        updated = sum(self._is_updated(owner, pod) for pod in staying)
        status: Obj = {"observedGeneration": owner["metadata"]["generation"], "replicas": len(pods)}
        status |= {"availableReplicas": ready, "updateRevision": _revision(owner)}
        status |= counted({"readyReplicas": ready, "updatedReplicas": updated})
        if updated == len(pods):
            status["currentRevision"] = status["updateRevision"]
        if status == {key: before.get(key) for key in status}:
            return False
        place = (owner["metadata"]["namespace"], owner["metadata"]["name"])
        self._controller.merge(STATEFUL_SET, *place, {"status": status}, subresource="status")
        return True


def _number(pod: Obj) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def _revision(owner: Obj) -> str:
    return f"{owner['metadata']['name']}-{template_hash(owner)}"
