"""Kubernetes' controllers of workloads and volumes, scheduler and kubelet, one deterministic action at a time.

The Deployment controller is also that of ReplicaSets, which count no pods here; an old one without pods is deleted.
Names, labels, rollouts and counts match those of a real cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from shared.kubernetes.kinds import DEPLOYMENT, POD, REPLICA_SET, Obj
from simulator.api_server.server import ApiServer
from simulator.kubelet.claims import Claims
from simulator.kubelet.disruption import Disruptions
from simulator.kubelet.kubelet import Kubelet, Processes
from simulator.kubelet.replicas import (
    encode_name,
    is_available,
    is_owned_by,
    is_ready,
    is_terminating,
    reference,
    replica,
    status_counts,
    template_hash,
)
from simulator.kubelet.statefulsets import StatefulSets
from simulator.kubelet.timing import PodTiming

HASH = "pod-template-hash"


class Workloads:
    """Simulates the controllers of Deployments, StatefulSets, claims and budgets, the scheduler and the kubelets.

    Args:
        server: API server that stores the workloads and their pods.
        pod_problem: reason why a pod is not ready, as in `kubelet.ProcessStatus`; empty if ready.
        processes: processes that run in pods.
        created: number of pods and addresses created before; new ones get other names.
        nodes: number of nodes over which pods are spread.
    """

    def __init__(
        self,
        server: ApiServer,
        *,
        pod_problem: Callable[[Obj], str] = lambda _: "",
        processes: Processes | None = None,
        created: int = 0,
        nodes: int = 1,
    ) -> None:
        self.pod_problem = pod_problem
        self.server = server
        self._controller = server.actor("kube-controller-manager")
        self._kubelet = Kubelet(server, created=created, nodes=nodes)
        self._kubelet.processes = processes
        self._claims = Claims(server)
        self._stateful_sets = StatefulSets(server)
        self._disruptions = Disruptions(server)
        self._created = created

    def fork(self, server: ApiServer, processes: Processes | None = None) -> Workloads:
        """Return a copy for a fork of the server and of the processes in its pods."""
        workloads = Workloads(server, pod_problem=self.pod_problem, created=self._created)
        workloads._kubelet = self._kubelet.fork(server)
        workloads._kubelet.processes = processes
        return workloads

    def use_hosts(self, names: Iterable[str]) -> None:
        """Bind new pods to nodes of these names; a pod returns to the node of the last pod of its name."""
        self._kubelet.hosts = tuple(names)
        self._kubelet.nodes = len(self._kubelet.hosts)

    def use_timing(self, timing: PodTiming) -> None:
        """Let the time pass that pods take to start and to stop."""
        self._kubelet.timing = timing

    def reuse_addresses(self, addresses: Iterable[str]) -> None:
        """Assign these addresses to the next pods."""
        self._kubelet.reusable.extend(addresses)

    def cordon(self, nodes: Iterable[str]) -> None:
        """Bind new pods to none of these nodes, and to all others again."""
        self._kubelet.cordoned = set(nodes)

    def ignore_stop(self, ignores: Callable[[Obj], bool]) -> None:
        """Let these pods run on although they are deleted, until their grace period ends."""
        self._kubelet.ignores_stop = ignores

    def sleep_before_stop(self) -> None:
        """Let the containers of deleted pods run on while their preStop hooks sleep."""
        self._kubelet.sleeps = True

    def settle(self, limit: int = 1000) -> int:
        """Step until nothing changes any more; return the number of steps.

        Raises:
            AssertionError: the workloads do not settle within `limit` steps.
        """
        for moves in range(limit):
            if not self.step():
                return moves
        raise AssertionError(f"the workloads did not settle within {limit} steps")

    def step(self) -> bool:
        """Take one action: stop or start a pod, create or delete one for its owner, or write the status of an owner.

        Returns:
            Whether there was anything to do.
        """
        pods = [pod for _, pod in self.server.objects(POD)]
        self._kubelet.report_deletions()
        if self._disruptions.step():  # notices an evicted pod before another one of the same name exists
            return True
        due = [self._kubelet.due(pod) for pod in pods]
        if self._claims.step() or any(self._sync(pod) for pod, at in zip(pods, due, strict=True) if at is None):
            return True
        if any(self._control(deployment) for _, deployment in self.server.objects(DEPLOYMENT)):
            return True
        if self._stateful_sets.step():
            return True
        waiting = [(at, pod) for pod, at in zip(pods, due, strict=True) if at is not None]
        return any(self._sync(pod) for _, pod in sorted(waiting, key=lambda each: each[0]))

    def _sync(self, pod: Obj) -> bool:
        return self._kubelet.sync_pod(pod, self.pod_problem(pod))

    # The Deployment controller.

    def _control(self, deployment: Obj) -> bool:
        if deployment["metadata"].get("deletionTimestamp"):
            return False
        if self._adopt_or_delete(deployment) or self._keep_replica_set(deployment):
            return True
        pods = [pod for pod in self._pods_of(deployment) if not is_terminating(pod)]
        return self._scale_and_roll(deployment, pods) or self._report(deployment, pods)

    def _scale_and_roll(self, deployment: Obj, pods: list[Obj]) -> bool:
        """Create a pod, or delete as many as the limits of the update strategy permit at once."""
        desired = deployment["spec"]["replicas"]
        old = [pod for pod in pods if pod["metadata"]["labels"][HASH] != template_hash(deployment)]
        new = [pod for pod in pods if pod not in old]
        if len(new) > desired:
            return self._delete(_first_to_delete(new))
        surge, unavailable = _update_limits(deployment)
        recreates = deployment["spec"]["strategy"]["type"] == "Recreate"
        if len(new) < desired and (len(pods) < desired + surge or not old) and not (old and recreates):
            return self._create(deployment)
        unready = [pod for pod in old if not is_ready(pod)]
        if unready:
            return self._delete(unready[0])  # the rollout does not wait for an old pod that is not ready
        excess = len(old) if recreates else self._available(deployment, pods) - (desired - unavailable)
        surplus = old[: max(0, excess)]
        for pod in surplus:
            self._delete(pod)
        return bool(surplus)

    def _create(self, deployment: Obj) -> bool:
        digest = template_hash(deployment)
        metadata = deployment["metadata"]
        owner = self.server.stored(REPLICA_SET, metadata["namespace"], f"{metadata['name']}-{digest}")
        if owner is None or not is_owned_by(owner, deployment):
            return False
        self._created += 1
        pod = replica(
            deployment, DEPLOYMENT, f"{owner['metadata']['name']}-{encode_name(self._created)}", {HASH: digest}
        )
        pod["metadata"]["ownerReferences"] = [reference(owner, REPLICA_SET)]
        self._controller.create(POD, pod)
        return True

    def _adopt_or_delete(self, deployment: Obj) -> bool:
        """Adopt a ReplicaSet that a deleted Deployment of this name has orphaned, or delete one without pods."""
        selector = deployment["spec"]["selector"]["matchLabels"].items()
        namespace = deployment["metadata"]["namespace"]
        for _, found in self.server.objects(REPLICA_SET):
            metadata = found["metadata"]
            address = (metadata["namespace"], metadata["name"])
            is_selected = metadata["namespace"] == namespace and selector <= metadata["labels"].items()
            if not is_selected or is_terminating(found):
                continue
            if not metadata.get("ownerReferences"):
                owners = {"metadata": {"ownerReferences": [reference(deployment, DEPLOYMENT)]}}
                self._controller.merge(REPLICA_SET, *address, owners)
                return True
            is_old = is_owned_by(found, deployment) and metadata["labels"][HASH] != template_hash(deployment)
            if is_old and not any(is_owned_by(pod, found) for _, pod in self.server.objects(POD)):
                self._controller.delete(REPLICA_SET, *address)
                return True
        return False

    def _keep_replica_set(self, deployment: Obj) -> bool:
        """Create the ReplicaSet of the present template, or give it the replicas of the Deployment."""
        metadata, template = deployment["metadata"], deployment["spec"]["template"]
        digest, replicas = template_hash(deployment), deployment["spec"]["replicas"]
        address = (metadata["namespace"], f"{metadata['name']}-{digest}")
        found = self.server.stored(REPLICA_SET, *address)
        if found is None:
            labels = template.get("metadata", {}).get("labels", {}) | {HASH: digest}
            owners = [reference(deployment, DEPLOYMENT)]
            created = {"name": address[1], "namespace": address[0], "labels": labels, "ownerReferences": owners}
            selector = {"matchLabels": deployment["spec"]["selector"]["matchLabels"] | {HASH: digest}}
            template = template | {"metadata": template.get("metadata", {}) | {"labels": labels}}
            spec = {"replicas": replicas, "selector": selector, "template": template}
            self._controller.create(REPLICA_SET, {"metadata": created, "spec": spec})
            return True
        if not is_owned_by(found, deployment) or found["spec"]["replicas"] == replicas:
            return False  # that of an earlier Deployment awaits garbage collection
        self._controller.merge(REPLICA_SET, *address, {"spec": {"replicas": replicas}})
        return True

    def _delete(self, pod: Obj) -> bool:
        self._controller.delete(POD, pod["metadata"]["namespace"], pod["metadata"]["name"])
        return True

    def _report(self, deployment: Obj, pods: list[Obj]) -> bool:
        desired, before = deployment["spec"]["replicas"], deployment.get("status", {})
        ready = sum(map(is_ready, pods))
        updated = sum(pod["metadata"]["labels"][HASH] == template_hash(deployment) for pod in pods)
        available = self._available(deployment, pods)
        enough = available >= desired - _update_limits(deployment)[1]
        counts = {"replicas": len(pods), "readyReplicas": ready, "updatedReplicas": updated}
        counts |= {"availableReplicas": available, "unavailableReplicas": max(0, desired - available)}
        status: Obj = {"observedGeneration": deployment["metadata"]["generation"]}
        status |= status_counts(counts)
        status["conditions"] = self._kubelet.conditions(before, [("Available", enough), ("Progressing", True)])
        if status == {key: before.get(key) for key in status}:
            return False
        address = (deployment["metadata"]["namespace"], deployment["metadata"]["name"])
        self._controller.merge(DEPLOYMENT, *address, {"status": status}, subresource="status")
        return True

    def _available(self, deployment: Obj, pods: list[Obj]) -> int:
        return sum(is_available(pod, deployment, self.server.now()) for pod in pods)

    def _pods_of(self, deployment: Obj) -> list[Obj]:
        own = [found for _, found in self.server.objects(REPLICA_SET) if is_owned_by(found, deployment)]
        return [pod for _, pod in self.server.objects(POD) if any(is_owned_by(pod, each) for each in own)]


def _first_to_delete(pods: list[Obj]) -> Obj:
    """Return the pod that a ReplicaSet deletes first: one that is not ready, otherwise the youngest."""
    return min(pods, key=lambda pod: (is_ready(pod), -int(pod["metadata"]["resourceVersion"])))


def _update_limits(deployment: Obj) -> tuple[int, int]:
    """Return the maximum surge and the maximum number of unavailable pods of a rolling update."""
    desired = deployment["spec"]["replicas"]
    rolling = deployment["spec"]["strategy"].get("rollingUpdate") or {}
    surge = _count(rolling.get("maxSurge", 0), desired, math.ceil)
    unavailable = _count(rolling.get("maxUnavailable", 0), desired, math.floor)
    return surge, unavailable if surge or unavailable else 1


def _count(value: int | str, whole: int, rounded: Callable[[float], int]) -> int:
    return value if isinstance(value, int) else rounded(int(value.rstrip("%")) * whole / 100)
