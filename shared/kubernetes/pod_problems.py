"""Why a pod does not start, in words that stay the same while the cause does. Pure.

The kubelet alternates between the states of one failure: ErrImagePull and ImagePullBackOff, or a container that runs,
has terminated, and waits for its next start. Its messages name the pod and the current back-off. A message in a status
that quoted them would change, and be written, every few seconds, and would differ for each pod.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import NamedTuple

from shared.kubernetes import accessors
from shared.kubernetes.exit_reason import exit_reason
from shared.kubernetes.kinds import Obj

IMAGE_PULL_FAILED = "ImagePullFailed"
"""Reason of a pod whose image cannot be pulled."""

UNSCHEDULABLE = "Unschedulable"

NORMAL_WAITS = frozenset({"ContainerCreating", "PodInitializing", ""})
"""Reasons of a waiting container that are expected during startup."""

MIN_RESTARTS = 2
"""Restarts after which a container that runs, and is not ready, counts as one that keeps exiting."""

MAX_ERROR_CHARACTERS, MAX_CAUSE_CHARACTERS = 8_192, 150
"""Length of the part of a registry's error that is read, and of one of an unknown kind."""

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_IMAGE_WAITS: dict[str, str] = _TABLE["waits"]
_CAUSES = {re.compile(pattern, re.IGNORECASE): cause for pattern, cause in _TABLE["causes"].items()}


class Problem(NamedTuple):
    """Why a pod does not start.

    Attributes:
        reason: one word: `ImagePullFailed`, `Unschedulable`, or the reason of Kubernetes; empty without a problem.
        text: the whole problem, which a message quotes after "does not start: "; empty without a problem.
    """

    reason: str = ""
    text: str = ""


NO_PROBLEM = Problem()


def problem_of(pod: Obj) -> Problem:
    """Return why a pod is not scheduled, or why one of its containers waits."""
    scheduled = accessors.condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        reason = scheduled.get("reason") or UNSCHEDULABLE
        return Problem(reason, f"{reason}: {scheduled.get('message', '')}".strip(": "))
    for container in _containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        reason, message = waiting.get("reason") or "", waiting.get("message") or ""
        if reason in _IMAGE_WAITS:
            return Problem(IMAGE_PULL_FAILED, cannot_pull(_image(pod, container), reason, message))
        if reason == "CrashLoopBackOff":
            return Problem(reason, _keeps_exiting(container))
        if reason not in NORMAL_WAITS:
            return Problem(reason, f"{reason}: {message}".strip(": ") + _last_end(container))
    return NO_PROBLEM


def restarts(pod: Obj) -> Problem:
    """Return the problem of a container that keeps exiting, also while it runs or has just terminated.

    Unlike `problem_of`, this is no evidence that the server does not run now.
    """
    has_ended = accessors.status_of(pod).get("phase") in ("Succeeded", "Failed")
    for container in () if has_ended else _containers(pod):
        count, state = container.get("restartCount", 0), container.get("state") or {}
        last = (container.get("lastState") or {}).get("terminated") or {}
        ended = (state.get("terminated") or {}).get("exitCode")
        is_down = bool(ended) and count > 0
        is_starting = "running" in state and count >= MIN_RESTARTS and bool(last.get("exitCode"))
        if not container.get("ready") and (is_down or is_starting):
            return Problem("CrashLoopBackOff", _keeps_exiting(container))
    return NO_PROBLEM


def cannot_pull(image: str, reason: str, message: str) -> str:
    """Return that an image cannot be pulled, with the cause instead of the error of the runtime.

    Args:
        reason: reason of the waiting container, such as `ErrImagePull`.
        message: error of the container runtime, which repeats the reference up to four times; older kubelets report
            none during a back-off.
    """
    cause = _IMAGE_WAITS[reason] or _cause(message[:MAX_ERROR_CHARACTERS].replace(image, ""))
    return f"cannot pull {image}{cause and ': '}{cause}"


def _cause(error: str) -> str:
    known = next((cause for pattern, cause in _CAUSES.items() if pattern.search(error)), "")
    if known or (error.startswith("Back-off pulling image") and "ErrImagePull" not in error):
        return known
    return re.split(r"""desc = |": """, error)[-1].strip(" :.\"'\n")[:MAX_CAUSE_CHARACTERS]


def _containers(pod: Obj) -> list[Obj]:
    reported = accessors.status_of(pod)
    return [*(reported.get("initContainerStatuses") or ()), *(reported.get("containerStatuses") or ())]


def _image(pod: Obj, container: Obj) -> str:
    """Return the image of a container as in the spec: its status may have the name that the runtime resolved."""
    spec = pod.get("spec") or {}
    given = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    found = next((each["image"] for each in given if each["name"] == container.get("name") and "image" in each), "")
    return str(found or container.get("image") or "its image")


def _keeps_exiting(container: Obj) -> str:
    return f"CrashLoopBackOff: container {container['name']} keeps exiting" + _last_end(container)


def _last_end(container: Obj) -> str:
    """Return how a container ended: the newest end, which is the state until it waits for its next start."""
    states = (container.get("state") or {}, container.get("lastState") or {})
    ended: Obj = next((state["terminated"] for state in states if state.get("terminated")), {})
    reason, why = ended.get("reason") or "", exit_reason(ended.get("message") or "")
    if not reason or reason == "Completed":
        return ""
    return f" (last ended: {reason}: {why})" if why else f" (last ended: {reason})"
