"""Changes of CPU and memory in running pods, without a restart of their containers. Pure.

The pods get the amounts through their subresource `resize`; their template keeps the former ones, because a changed
template replaces pods. A pod that is created meanwhile starts with the former amounts, and is resized at once. The
template adopts the new amounts with its next other change, or when a pod cannot be resized: then pods are replaced, as
in any rolling update. Clusters before Kubernetes 1.33 have no such subresource, and always replace pods.

Source: https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime

from shared.kubernetes import accessors, managed_fields
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.pods import Pod, container_of, container_status, is_outdated
from shared.kubernetes.quantity import parse_quantity
from shared.runtime.plan import PASS, Patch, Step
from shared.status.reasons import RESIZING
from shared.status.verdict import Progress
from shared.steps.instance import Instance

REFUSED = "platform.ydzs.io/resize-refused"
"""Annotation of a pod: digest of the amounts that the API server refused to set, and the reason."""

CHECK_INTERVAL_SECONDS = 15.0
"""Time between two inspections while the kubelet resizes a pod; its progress is also watched."""

AMOUNTS = frozenset({"cpu", "memory"})
"""Resources that a kubelet can change in a running container."""

_PENDING, _IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
_CONTAINERS = ("spec", "template", "spec", "containers")


def resizable(instances: Sequence[Instance], stateful_set: Obj | None, mark: str) -> list[Obj]:
    """Return the pods of the current template that are not being deleted.

    Args:
        mark: annotation of pod and template with the digest of the template.
    """
    pods = [each.pod_obj for each in instances if each.pod_obj is not None]
    return [pod for pod in pods if not is_terminating(pod) and not is_outdated(pod, stateful_set, mark)]


def can_resize(
    desired: Obj,
    current: Obj | None,
    pods: Sequence[Obj],
    container: str,
    manager: str,
    now: datetime,
    changes: frozenset[str] = AMOUNTS,
) -> bool:
    """Return whether the pods of a workload can get the resources of a new template without a restart.

    Args:
        desired: the workload as built from the spec.
        current: the workload as observed; None if it does not exist.
        pods: pods of the workload that are not being deleted.
        container: name of the container.
        manager: field manager that applies the workload.
        changes: resources that may change without a restart.
    """
    if current is None or not any(pod["spec"].get("nodeName") for pod in pods):
        return False
    item = (*_CONTAINERS, managed_fields.named(container))
    applied = managed_fields.applied(current, manager, (*item, "name"), (*item, "resources")) or {}
    amounts, former = (_resources(each.get("spec", {}).get("template", {}), container) for each in (desired, applied))
    if not former or _is_met(amounts, former) or not _changes_only(amounts, former, changes):
        return False
    return not any(_prevents(pod, amounts, now) for pod in pods)


def resize_pods(pods: Sequence[Obj], amounts: Obj, container: str, now: datetime) -> Step:
    """Set the resources of a container in pods that have others, and wait until the kubelets have done so.

    Args:
        pods: pods of the current template that are not being deleted.
        amounts: resources of the container, as in the template.
    """
    scheduled = [pod for pod in pods if pod["spec"].get("nodeName") and not _prevents(pod, amounts, now)]
    scheduled = [pod for pod in scheduled if _has(amounts, _resources(pod, container))]
    others = [pod for pod in scheduled if not _is_met(amounts, _resources(pod, container))]
    if others:
        names = ", ".join(pod["metadata"]["name"] for pod in others)
        actions = tuple(_resize(pod, amounts, container) for pod in others)
        message = f"Setting the CPU and memory of {names} without a restart."
        return Step(actions, Progress.PROGRESSING, RESIZING, message)
    for pod in scheduled:
        if why := _unfinished(pod, amounts, container):
            name = pod["metadata"]["name"]
            message = f"Waiting for the kubelet to set the CPU and memory of {name} without a restart: {why}."
            return Step.progressing(RESIZING, message, requeue=CHECK_INTERVAL_SECONDS)
    return PASS


def _unfinished(pod: Obj, amounts: Obj, container: str) -> str:
    """Return why the kubelet has not resized a pod yet; empty if it has, or does not report it."""
    for condition in (accessors.condition(pod, _PENDING), accessors.condition(pod, _IN_PROGRESS)):
        if condition.get("status") == "True":
            return str(condition.get("message") or condition["type"]).rstrip(".")
    reported = container_status(pod, container).get("resources")
    return "in progress" if reported and not _is_met(amounts, reported) else ""


def _resize(pod: Obj, amounts: Obj, container: str) -> Patch:
    resources = _merged(_resources(pod, container), amounts)
    change = {"spec": {"containers": [{"name": container, "resources": resources}]}}
    return Patch(POD, pod, change, noted=(REFUSED, _digest(amounts)), subresource="resize")


def _merged(present: Obj, amounts: Obj) -> Obj:
    """Return the resources of a container with other amounts; an admission controller may have added further ones."""
    return present | {part: present.get(part, {}) | given for part, given in amounts.items()}


def _resources(holder: Obj, container: str) -> Obj:
    return container_of(holder, container).get("resources") or {}


def _has(amounts: Obj, present: Obj) -> bool:
    """Return whether a container has amounts of all these resources: the kubelet cannot add one."""
    return all(given.keys() <= present.get(part, {}).keys() for part, given in amounts.items())


def _is_met(amounts: Obj, present: Obj) -> bool:
    """Return whether a container has these amounts; others are ignored."""
    return all(
        name in present.get(part, {}) and parse_quantity(present[part][name]) == parse_quantity(amount)
        for part, given in amounts.items()
        for name, amount in given.items()
    )


def _changes_only(amounts: Obj, former: Obj, changes: frozenset[str]) -> bool:
    """Return whether only amounts of these resources differ: the kubelet can neither add nor remove one."""
    parts = {*amounts, *former}
    if any(amounts.get(part, {}).keys() != former.get(part, {}).keys() for part in parts):
        return False
    changed = {
        name
        for part in parts
        for name, amount in amounts.get(part, {}).items()
        if parse_quantity(amount) != parse_quantity(former[part][name])
    }
    return changed <= changes


def _prevents(pod: Obj, amounts: Obj, now: datetime) -> bool:
    """Return whether a pod cannot be resized to these amounts: refused, infeasible on its node, or unschedulable."""
    if annotation(pod, REFUSED).startswith(_digest(amounts)):
        return True
    observed = Pod.of(pod)
    if observed.unscheduled_since and not observed.seconds_to_schedule(now):
        return True
    return accessors.condition(pod, _PENDING).get("reason") == "Infeasible"


def _digest(amounts: Obj) -> str:
    return hashlib.sha256(json.dumps(amounts, sort_keys=True).encode()).hexdigest()[:16]
