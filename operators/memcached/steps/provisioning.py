"""Steps that create and update the owned objects of a Memcached. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.assessment import Assessment
from operators.memcached.objects import autoscaler, deployment, disruption_budget, service, stateful_set
from operators.memcached.objects.names import owner
from operators.memcached.objects.pod import pod
from operators.memcached.reasons import NO_EXPORTER_IMAGE
from shared.kubernetes.kinds import AUTOSCALER, SERVICE, STATEFUL_SET
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.steps import certificates, provisioning


def require_exporter_image(settings: Settings, resource: Memcached, _facts: Assessment, _now: datetime) -> Step:
    """Require an image for the metrics sidecar, if metrics are enabled."""
    if resource.spec.metrics_port is None or settings.agent_image:
        return PASS
    return Step.blocked(
        NO_EXPORTER_IMAGE,
        "spec.metrics: the operator has no image for the metrics exporter. Start the operator with --agent-image, as "
        "its chart does, or set spec.metrics.enabled to false. Nothing was changed.",
    )


def require_secrets(_resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Require valid Secrets for the servers; running servers are not changed until then."""
    problem = facts.observed.secrets.problem
    return provisioning.report_unusable_secret(problem) if problem is not None else PASS


def require_valid_certificates(_resource: Memcached, facts: Assessment, now: datetime) -> Step:
    """Change no servers while their certificate is outside its validity; a deleted workload is recreated."""
    if facts.observed.workload.obj is None:
        return PASS
    return certificates.require_valid_certificates(facts.observed.secrets.validity, now)


def report_ending_certificates(_resource: Memcached, facts: Assessment, now: datetime) -> Step:
    """Report a certificate that ends soon."""
    return certificates.report_ending_certificates(facts.observed.secrets.validity, now)


def ensure_service(settings: Settings, resource: Memcached, _facts: Assessment, _now: datetime) -> Step:
    """Ensure that the headless Service matches the spec."""
    return Step.do(Apply(SERVICE, service.service(resource, owner(resource, settings.operator))))


def ensure_servers(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the Deployment or StatefulSet matches the spec."""
    own, image = owner(resource, settings.operator), resource.spec.image_reference(settings.image_repository)
    template = pod(resource, own, image, settings.agent_image, facts.observed.secrets.digest)
    kind = facts.observed.workload.kind
    build = stateful_set.stateful_set if kind == STATEFUL_SET else deployment.deployment
    return Step.do(Apply(kind, build(resource, own, template)))


def ensure_disruption_budget(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the PodDisruptionBudget matches the spec, or is deleted."""
    desired = disruption_budget.disruption_budget(resource, owner(resource, settings.operator))
    return provisioning.keep_disruption_budget(desired, facts.observed.disruption_budget)


def ensure_autoscaler(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the HorizontalPodAutoscaler matches the spec, or is deleted."""
    desired = autoscaler.autoscaler(resource, owner(resource, settings.operator))
    return provisioning.keep(AUTOSCALER, desired, facts.observed.autoscaler)
