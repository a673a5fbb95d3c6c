"""Steps for the servers. Each answers one question. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.greeter.api.resource import Greeter
from operators.greeter.objects import web_server
from operators.greeter.objects.config_map import owner
from operators.greeter.observe import Observed
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.status.phases import CREATING


def keep_service(settings: Settings, resource: Greeter, _observed: Observed, _now: datetime) -> Step:
    """Keep the Service as specified."""
    return Step.do(Apply(SERVICE, web_server.service(resource, owner(resource, settings.operator))))


def keep_servers(settings: Settings, resource: Greeter, _observed: Observed, _now: datetime) -> Step:
    """Keep the Deployment as specified."""
    own = owner(resource, settings.operator)
    return Step.do(Apply(DEPLOYMENT, web_server.deployment(resource, own, settings.image_repository)))


def wait_until_available(resource: Greeter, observed: Observed, _now: datetime) -> Step:
    """Wait until all servers are ready."""
    if all_serve(resource, observed):
        return PASS
    return Step.progressing(CREATING, f"{observed.ready_replicas} of {resource.spec.replicas} servers are ready.")


def all_serve(resource: Greeter, observed: Observed) -> bool:
    return observed.deployment is not None and observed.ready_replicas == resource.spec.replicas


def summary(resource: Greeter, observed: Observed) -> str:
    return f"{observed.ready_replicas} of {resource.spec.replicas} servers are ready."
