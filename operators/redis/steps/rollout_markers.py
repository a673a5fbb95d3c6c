"""What running servers have heard of what their files say by now, as their pods' annotations tell. Pure.

A server reads its files when it starts. What changes later it is told, and then the pod is marked with what it was
told, and with how often the server had restarted: one that restarts reads its files again, and these may lag, for the
kubelet brings a change to a pod only after a while. One whose pod was made with the mark needs not be told.
"""

from __future__ import annotations

from operators.redis.instance import Instance
from operators.redis.objects.names import CERTIFICATE_MARK, CONTAINER, USERS_MARK
from operators.redis.observe import Observed
from operators.redis.security.secrets import Secrets
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import container_status
from shared.runtime.plan import Patch


def made_with(secrets: Secrets) -> dict[str, str]:
    """The marks of pods whose servers read these Secrets when they start."""
    marks = {USERS_MARK: secrets.users_mark}
    return marks | ({CERTIFICATE_MARK: secrets.mounted.mark} if secrets.mounted else {})


def marker(instance: Instance, mark: str) -> str:
    """The annotation of a pod whose server has heard of it."""
    restarts = container_status(instance.pod_obj, CONTAINER).get("restartCount") or 0
    return f"{mark}.{restarts}" if restarts else mark


def is_applied(instance: Instance, name: str, mark: str) -> bool:
    """Whether the server at a place has heard of what a mark stands for."""
    return annotation(instance.pod_obj, name) == marker(instance, mark)


def running(seen: Observed) -> list[Instance]:
    """Whose server runs, whether it answers or not."""
    return [instance for instance in seen.instances if instance.pod is not None and instance.runs]


def applied_everywhere(seen: Observed, name: str, mark: str) -> bool:
    """Whether every server that runs has heard of it, and those to come will read it."""
    made = (seen.stateful_set or {"spec": {"template": {}}})["spec"]["template"]
    return annotation(made, name) == mark and all(is_applied(instance, name, mark) for instance in running(seen))


def mark_pod(instance: Instance, name: str, value: str) -> Patch:
    """Marks a pod. The kubelet, which notices, then brings what else changed for the pod, too."""
    assert instance.pod_obj is not None
    return Patch(POD, instance.pod_obj, {"metadata": {"annotations": {name: value}}})
