"""StatefulSet of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.api import applied_spec
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.ownership import Owner


def stateful_set(resource: Memcached, own: Owner, template: Obj, pause: int) -> Obj:
    """Return a StatefulSet that starts and stops servers in parallel, and replaces them one by one.

    Args:
        pause: seconds for which a new server must be ready before the next one is replaced.
    """
    spec = {
        "serviceName": resource.name,
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "template": template,
    }
    if pause:
        spec["minReadySeconds"] = pause
    made = own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)
    made["metadata"]["annotations"] = applied_spec.note(resource)
    return made
