"""StatefulSet of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.api import applied_spec
from shared.kubernetes import objects
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner


def stateful_set(resource: Memcached, own: Owner, template: Obj, pause: int) -> Obj:
    """Return a StatefulSet that starts and stops servers in parallel, and replaces them one by one.

    Args:
        pause: seconds for which a new server must be ready before the next one is replaced.
    """
    fields: Obj = {"updateStrategy": {"type": "RollingUpdate"}} | ({"minReadySeconds": pause} if pause else {})
    made = objects.stateful_set(own, COMPONENT, template, resource.spec.size, **fields)
    made["metadata"]["annotations"] = applied_spec.note(resource)
    return made
