"""Deployment of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.api.resource import Memcached
from operators.memcached.objects.pod import COMPONENT
from shared.kubernetes.kinds import DEPLOYMENT, Obj
from shared.kubernetes.ownership import Owner


def deployment(resource: Memcached, own: Owner, template: Obj) -> Obj:
    """Return a Deployment that replaces servers one by one, the new server first."""
    spec = {
        "replicas": resource.spec.size,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": template,
    }
    return own.object(DEPLOYMENT, resource.name, component=COMPONENT, spec=spec)
