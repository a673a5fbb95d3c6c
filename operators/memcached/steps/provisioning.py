"""Steps that create and update the owned objects of a Memcached. Pure."""

from __future__ import annotations

from datetime import datetime

from operators.memcached.api.resource import Memcached
from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import autoscaler, deployment, disruption_budget, network_policy, service, stateful_set
from operators.memcached.objects.names import mounted_secret, owner, server_secret
from operators.memcached.objects.pod import (
    CONTAINER,
    EXPORTER,
    RELOADER,
    Sidecar,
    mounted_certificate,
    pod,
    sidecar_image,
)
from operators.memcached.reasons import CERTIFICATE_WITHOUT_NAME, NO_EXPORTER_IMAGE
from operators.memcached.security.secrets import has_copy
from shared.kubernetes.kinds import AUTOSCALER, SERVICE, STATEFUL_SET, Obj
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.steps import certificates, provisioning
from shared.steps import network_policy as policies
from shared.steps.deferred import AFFINITY, Deferred, keep_deferred, restarts_pods
from shared.steps.resize import can_resize, resize_pods


def require_exporter_image(settings: Settings, resource: Memcached, _facts: Assessment, _now: datetime) -> Step:
    """Require an image for the metrics sidecar, if metrics are enabled."""
    if resource.spec.metrics_port is None or resource.spec.metrics_image or settings.agent_image:
        return PASS
    return Step.blocked(
        NO_EXPORTER_IMAGE,
        "spec.metrics: the operator has no image for the metrics exporter. Set spec.metrics.image, or start the "
        "operator with --agent-image, as its chart does. Nothing was changed.",
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


def report_certificate_without_name(resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Report a certificate of running servers without their DNS name: only by this very one are they recognized."""
    host = facts.observed.secrets.missing_name
    if not host:
        return PASS
    return Step.note(
        CERTIFICATE_WITHOUT_NAME,
        f"Secret {server_secret(resource)}: tls.crt has no DNS name {host}, and with spec.auth, passwords are sent "
        "only to servers whose certificate has it, or is this very one. Issue it with that name.",
    )


def ensure_service(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the headless Service matches the spec."""
    own = owner(resource, settings.operator)
    return Step.do(Apply(SERVICE, service.service(resource, own, facts.observed.workload.kind)))


RESOURCES = Deferred(CONTAINER, "resources")


def ensure_network_policy(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the NetworkPolicy of the servers matches the spec, or is deleted."""
    access = network_policy.access(resource, owner(resource, settings.operator))
    return policies.keep_network_policy(access, settings.operator_peers, facts.observed.network_policy)


def ensure_servers(settings: Settings, resource: Memcached, facts: Assessment, now: datetime) -> Step:
    """Ensure that the Deployment or StatefulSet matches the spec.

    Every replaced server loses its items, so that an upgrade of the operator replaces none: pods keep the sidecar that
    they have, and what it does, until the template changes for another reason. A change of CPU and memory alone
    replaces none either, if the pods can be resized.
    """
    kind, current = facts.observed.workload.kind, facts.observed.workload.obj
    image = _sidecar_image(settings, resource, current)
    images = (Deferred(EXPORTER, "image"), Deferred(RELOADER, "image"))
    deferred = (*images, AFFINITY)
    from_spec = (
        *(images if resource.spec.metrics_image else ()),
        *((AFFINITY,) if resource.spec.affinity is not None else ()),
    )

    def made(sidecar: Sidecar, certificate: str) -> Obj:
        built = _workload(settings, resource, facts, sidecar, certificate, now)
        pods = facts.observed.workload.pod_objs
        resizes = can_resize(built, current, pods, CONTAINER, settings.operator, now)
        parts = (*deferred, RESOURCES) if resizes else deferred
        return keep_deferred(built, current, parts, settings.operator, from_spec=from_spec)

    original = server_secret(resource)
    copies = has_copy(resource) and settings.write_secrets
    newest = Sidecar(image, *((True, True, settings.write_secrets) if image else ()))
    if current is not None:
        template = current["spec"]["template"]  # as an earlier release made it
        mounts_copy = has_copy(resource) and mounted_certificate(template) == mounted_secret(resource)
        running = made(Sidecar.of(template, image), mounted_secret(resource) if mounts_copy else original)
        if not restarts_pods(running, current, settings.operator):
            return Step.do(Apply(kind, running, unchanged=True))
    # A stale plan could replace servers.
    return Step.do(
        Apply(kind, made(newest, mounted_secret(resource) if copies else original), unchanged=current is not None)
    )


def resize_servers(resource: Memcached, facts: Assessment, now: datetime) -> Step:
    """Set the CPU and memory of running servers, which keep their items."""
    workload = facts.observed.workload
    if not workload.rolled_out or workload.outdated > 0:
        return PASS
    return resize_pods(workload.pod_objs, resource.spec.container_resources(), CONTAINER, now)


def _sidecar_image(settings: Settings, resource: Memcached, current: Obj | None) -> str:
    """Return the image for new sidecars; without one in spec and options, the one that runs; empty if none does."""
    return resource.spec.metrics_image or settings.agent_image or (sidecar_image(current) if current else "")


def _workload(
    settings: Settings, resource: Memcached, facts: Assessment, sidecar: Sidecar, certificate: str, now: datetime
) -> Obj:
    """Return the Deployment or StatefulSet."""
    own, workload = owner(resource, settings.operator), facts.observed.workload
    image = resource.spec.image_reference(settings.image_repository)
    template = pod(resource, own, image, sidecar, _startup_digest(resource, facts, sidecar), certificate)
    build = stateful_set.stateful_set if workload.kind == STATEFUL_SET else deployment.deployment
    return build(resource, own, template, facts.pause(now).seconds)


def _startup_digest(resource: Memcached, facts: Assessment, sidecar: Sidecar) -> str:
    """Return the digest of what servers read only at startup."""
    return facts.observed.secrets.startup_digest(resource.uid, with_users=not sidecar.reloads)


def ensure_disruption_budget(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the PodDisruptionBudget matches the spec, or is deleted."""
    own = owner(resource, settings.operator)
    desired = disruption_budget.disruption_budget(resource, own)
    return provisioning.keep_disruption_budget(own, desired, facts.observed.disruption_budget)


def ensure_autoscaler(settings: Settings, resource: Memcached, facts: Assessment, _now: datetime) -> Step:
    """Ensure that the HorizontalPodAutoscaler matches the spec, or is deleted."""
    own = owner(resource, settings.operator)
    desired = autoscaler.autoscaler(resource, own)
    return provisioning.keep(own, AUTOSCALER, desired, facts.observed.autoscaler)
