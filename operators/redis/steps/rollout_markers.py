"""Which changes running servers have applied, according to annotations of their pods. Pure.

A server reads its files when it starts. Later changes are sent to it, and then its pod is annotated with a marker of
the change and the restart count of the container: a restarted server reads its files again, and these may be older,
because the kubelet updates them with a delay. A pod that was created with the marker needs no update.
"""

from __future__ import annotations

from operators.redis.objects.names import CERTIFICATE_MARK, CONTAINER, USERS_MARK
from operators.redis.security.secrets import Secrets
from operators.redis.state.instance import Instance
from operators.redis.state.observed import Observed
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD
from shared.kubernetes.pods import container_status
from shared.runtime.plan import Patch


def made_with(secrets: Secrets) -> dict[str, str]:
    """Return the markers of pods whose servers read these Secrets when they start."""
    marks = {USERS_MARK: secrets.users_mark}
    return marks | ({CERTIFICATE_MARK: secrets.mounted.mark} if secrets.mounted else {})


def marker(instance: Instance, mark: str) -> str:
    """Return the annotation of a pod whose server applied the change."""
    restarts = container_status(instance.pod_obj, CONTAINER).get("restartCount") or 0
    return f"{mark}.{restarts}" if restarts else mark


def is_applied(instance: Instance, name: str, mark: str) -> bool:
    """Return whether the server of an instance applied the change of a marker."""
    return annotation(instance.pod_obj, name) == marker(instance, mark)


def running(seen: Observed) -> list[Instance]:
    """Return the instances whose server runs, whether it is reachable or not."""
    return [instance for instance in seen.instances if instance.pod is not None and instance.runs]


def applied_everywhere(seen: Observed, name: str, mark: str) -> bool:
    """Return whether every running server applied the change, and the template of new pods has it."""
    made = (seen.stateful_set or {"spec": {"template": {}}})["spec"]["template"]
    return annotation(made, name) == mark and all(is_applied(instance, name, mark) for instance in running(seen))


def mark_pod(instance: Instance, name: str, value: str) -> Patch:
    """Return the patch that annotates a pod. The kubelet notices it, and then also updates the mounted files."""
    assert instance.pod_obj is not None
    return Patch(POD, instance.pod_obj, {"metadata": {"annotations": {name: value}}})
