"""Steps for the servers. Each answers one question. Pure."""

from __future__ import annotations

from operators.greeter.facts.assessment import Assessment
from operators.greeter.objects import web_server
from operators.greeter.objects.config_map import owner
from shared.kubernetes.kinds import DEPLOYMENT, SERVICE
from shared.runtime.plan import PASS, Apply, Step
from shared.status.phases import CREATING


def keep_service(seen: Assessment) -> Step:
    """Keep the Service as specified."""
    return Step.do(Apply(SERVICE, web_server.service(seen.resource, owner(seen.resource, seen.settings.operator))))


def keep_servers(seen: Assessment) -> Step:
    """Keep the Deployment as specified."""
    own = owner(seen.resource, seen.settings.operator)
    return Step.do(Apply(DEPLOYMENT, web_server.deployment(seen.resource, own, seen.settings.image_repository)))


def wait_until_available(seen: Assessment) -> Step:
    """Wait until all servers are ready."""
    return PASS if all_serve(seen) else Step.progressing(CREATING, summary(seen))


def all_serve(seen: Assessment) -> bool:
    return seen.deployment is not None and seen.ready_replicas == seen.resource.spec.replicas


def summary(seen: Assessment) -> str:
    return f"{seen.ready_replicas} of {seen.resource.spec.replicas} servers are ready."
