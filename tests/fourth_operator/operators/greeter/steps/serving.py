"""The steps around the servers. Each answers one question. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.greeter.api.resource import Greeter
from operators.greeter.objects import web_server
from operators.greeter.objects.config_map import owner
from operators.greeter.observe import Observed
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE
from shared.runtime.plan import PASS, Apply, Step


def keep_service(operator: str, resource: Greeter, _observed: Observed, _now: datetime) -> Step:
    """Keep a name before the servers that it stands for."""
    return Step.do(Apply(SERVICE, web_server.service(resource, owner(resource, operator))))


def keep_servers(operator: str, image_repository: str, resource: Greeter, _observed: Observed, _now: datetime) -> Step:
    """Keep the Deployment as the spec says."""
    made = web_server.deployment(resource, owner(resource, operator), image_repository)
    return Step.do(Apply(DEPLOYMENT, made))


def wait_until_available(resource: Greeter, observed: Observed, _now: datetime) -> Step:
    """Wait until all servers are ready."""
    if observed.deployment is not None and observed.ready_replicas == resource.spec.replicas:
        return PASS
    return Step.progressing("Creating", f"{observed.ready_replicas} of {resource.spec.replicas} servers are ready.")
