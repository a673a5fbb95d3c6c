"""Pods as operators read them: readiness, termination, and the reason why a pod does not start."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from shared.kubernetes import accessors, ownership
from shared.kubernetes.accessors import annotation, is_terminating
from shared.kubernetes.encoding import canonical
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pod_problems import IMAGE_PULL_FAILED, NO_PROBLEM, Problem, problem_of, restarts

UNSCHEDULABLE_GRACE_SECONDS = 60.0
"""Time for which a pod may be unschedulable before that is a problem: until its volume is bound, or a node is added."""

_UNREAD = frozenset({"affinity", "securityContext", "tolerations", "topologySpreadConstraints"})
_UNREAD_OF_CONTAINER = frozenset({"livenessProbe", "readinessProbe", "startupProbe", "securityContext", "volumeMounts"})
_UNREAD_OF_STATUS = frozenset({"hostIPs", "podIPs"})

STUCK = "If its node is permanently lost, delete the pod with --force, or add the taint out-of-service to the node."
"""Advice for a pod that stays terminating: only a user knows whether an unreachable node still runs it."""


@dataclass(frozen=True, slots=True)
class Pod:
    """The observed state of a pod.

    Attributes:
        address: IP address; empty until there is one.
        controller: kind of the controller, such as `StatefulSet`; empty if there is none.
        ready: whether the pod passes its readiness probe and is not terminating.
        leaving: whether the pod is terminating.
        ended: whether all containers have permanently ended (evicted, node shut down).
        problem: reason why the pod does not start or keeps failing, from Kubernetes; empty if there is none.
        problem_reason: the same in one word.
        restarting: problem of a container that keeps exiting, and runs at the moment.
        unscheduled_since: time since which no node suits the pod, in RFC 3339; empty if one does.
    """

    name: str
    address: str
    controller: str
    ready: bool
    leaving: bool
    ended: bool
    problem: str
    unscheduled_since: str = ""
    problem_reason: str = ""
    restarting: Problem = NO_PROBLEM

    @property
    def hindrance(self) -> str:
        """Why the pod does not start, as a predicate without a period; empty if there is no problem."""
        problem = (self.problem or self.restarting.text).rstrip(".")
        return problem if not problem or self.lacks_image else f"does not start: {problem}"

    @property
    def lacks_image(self) -> bool:
        """Whether an image of the pod cannot be pulled."""
        return self.problem_reason == IMAGE_PULL_FAILED

    def is_failing(self, now: datetime) -> bool:
        """Whether the pod has a problem that a user should resolve.

        The scheduler reports each new pod as unschedulable whose volume is not bound yet, or that needs a new node.
        """
        if self.ready or not (self.problem or self.restarting.text):
            return False
        return not self.unscheduled_since or not self.seconds_to_schedule(now)

    def seconds_to_schedule(self, now: datetime) -> float:
        """Return the seconds until an unschedulable pod counts as failing; 0 if it does, or is not unschedulable."""
        if not self.unscheduled_since:
            return 0.0
        passed = (now - datetime.fromisoformat(self.unscheduled_since)).total_seconds()
        return max(0.0, UNSCHEDULABLE_GRACE_SECONDS - passed)

    @classmethod
    def of(cls, obj: Obj, *, container: str = "") -> Pod:
        """Read a pod.

        Args:
            container: container whose readiness counts if the pod has several; empty for all.
        """
        reported = obj.get("status") or {}
        leaving = is_terminating(obj)
        problem = problem_of(obj)
        return cls(
            name=obj["metadata"]["name"],
            address=reported.get("podIP") or "",
            controller=(ownership.controller_of(obj) or {}).get("kind", ""),
            ready=_is_ready(obj, reported, container) and not leaving,
            leaving=leaving,
            ended=reported.get("phase") in ("Succeeded", "Failed"),
            problem=problem.text,
            unscheduled_since=_unscheduled_since(obj),
            problem_reason=problem.reason,
            restarting=restarts(obj),
        )


def trim(pod: Obj) -> Obj:
    """Return a pod without what no operator reads of one: a third of its size."""
    spec = _without(pod.get("spec") or {}, _UNREAD)
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [_without(each, _UNREAD_OF_CONTAINER) for each in spec[field]]
    return {**pod, "spec": spec, "status": _without(pod.get("status") or {}, _UNREAD_OF_STATUS)}


def _without(obj: Obj, fields: Collection[str]) -> Obj:
    return {field: value for field, value in obj.items() if field not in fields}


def container_of(made: Obj | None, name: str) -> Obj:
    """Return a container of a pod or a template; empty if it has none of this name."""
    containers = ((made or {}).get("spec") or {}).get("containers") or ()
    return next((each for each in containers if each["name"] == name), {})


def container_status(pod: Obj | None, container: str) -> Obj:
    """Return the status of a container; empty if the kubelet has not reported it."""
    statuses = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    return next((known for known in statuses if known["name"] == container), {})


def running_since(pod: Obj | None, container: str) -> datetime | None:
    """Return the start of the running process of a container; None if none runs, or the kubelet has not reported it."""
    running = (container_status(pod, container).get("state") or {}).get("running") or {}
    return datetime.fromisoformat(running["startedAt"]) if running.get("startedAt") else None


def template_digest(template: Obj, *, labels: Collection[str], annotations: Collection[str]) -> str:
    """Return a digest of a pod template; pods with a different digest are outdated.

    Args:
        labels: labels to ignore.
        annotations: annotations to ignore.
    """
    metadata = dict(template["metadata"])
    for part, ignored in (("labels", labels), ("annotations", annotations)):
        if part in metadata:
            metadata[part] = {name: value for name, value in metadata[part].items() if name not in ignored}
    return hashlib.sha256(canonical(template | {"metadata": metadata})).hexdigest()[:32]


def is_outdated(pod: Obj | None, stateful_set: Obj | None, mark: str) -> bool:
    """Whether a pod differs from the current template of its StatefulSet.

    Args:
        mark: annotation of pod and template with the digest of the template.
    """
    if pod is None or stateful_set is None:
        return False
    return annotation(pod, mark) != annotation(stateful_set["spec"]["template"], mark)


def _is_ready(obj: Obj, reported: Obj, container: str) -> bool:
    """Whether a pod is ready, ignoring containers that do not count.

    Containers are ignored only if they are the reason: on a lost node they still report that they are ready.
    """
    ready = accessors.condition(obj, "Ready")
    if ready.get("status") == "True":
        return True
    if not container or ready.get("reason") != "ContainersNotReady":
        return False
    return any(known["name"] == container and known.get("ready") for known in reported.get("containerStatuses") or ())


def _unscheduled_since(obj: Obj) -> str:
    scheduled = accessors.condition(obj, "PodScheduled")
    return str(scheduled.get("lastTransitionTime") or "") if scheduled.get("status") == "False" else ""
