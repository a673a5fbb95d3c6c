"""Deployment of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.api import applied_spec
from shared.kubernetes.kinds import DEPLOYMENT, Obj
from shared.kubernetes.ownership import Owner

PROGRESS_DEADLINE_SECONDS = 600
"""Default of Kubernetes, which rejects a deadline within minReadySeconds."""


def deployment(resource: Memcached, own: Owner, template: Obj, pause: int) -> Obj:
    """Return a Deployment that replaces servers one by one, the new server first.

    Args:
        pause: seconds for which a new server must be ready before the next one is replaced.
    """
    spec = {
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": template,
    }
    if pause:
        spec["minReadySeconds"] = pause
        longest = resource.spec.update_strategy.pause_seconds
        spec["progressDeadlineSeconds"] = PROGRESS_DEADLINE_SECONDS + longest
    made = own.object(DEPLOYMENT, resource.name, component=COMPONENT, spec=spec)
    made["metadata"]["annotations"] = applied_spec.note(resource)
    return made
