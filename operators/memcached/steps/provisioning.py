"""Steps that create and update the owned objects of a Memcached. Pure."""

from __future__ import annotations

from operators.memcached.facts.assessment import Assessment
from operators.memcached.objects import autoscaler, deployment, stateful_set
from operators.memcached.objects.names import Mounts, copies, originals, owner, server_secret
from operators.memcached.objects.pod import CONTAINER, EXPORTER, RELOADER, Sidecar, mounts_of, pod, sidecar_image
from operators.memcached.reasons import CERTIFICATE_WITHOUT_NAME, NO_EXPORTER_IMAGE
from operators.memcached.steps.mounted_copies import next_mounts, outdated_copies
from shared.kubernetes.kinds import AUTOSCALER, STATEFUL_SET, Obj
from shared.runtime.plan import PASS, Apply, Step
from shared.steps import certificates, provisioning
from shared.steps.deferred import AFFINITY, Deferred, keep_deferred, restarts_pods
from shared.steps.resize import can_resize, resize_pods


def require_exporter_image(seen: Assessment) -> Step:
    """Require an image for the metrics sidecar, if metrics are enabled."""
    if seen.resource.spec.metrics_port is None or seen.resource.spec.metrics_image or seen.settings.agent_image:
        return PASS
    return Step.blocked(
        NO_EXPORTER_IMAGE,
        "spec.metrics: the operator has no image for the metrics exporter. Set spec.metrics.image, or start the "
        "operator with --agent-image, as its chart does. Nothing was changed.",
    )


def require_secrets(seen: Assessment) -> Step:
    """Require valid Secrets for the servers; running servers are not changed until then."""
    problem = seen.secrets.problem
    return provisioning.report_unusable_secret(problem) if problem is not None else PASS


def require_valid_certificates(seen: Assessment) -> Step:
    """Change no servers while their next certificate is outside its validity; a deleted workload is recreated."""
    if seen.workload.obj is None:
        return PASS
    validity, copied = seen.secrets.validity, seen.secrets.copied
    if copied is not None and copied.original is not None and next_mounts(seen).certificate == copied.source:
        validity = {**validity, copied.source: copied.original.validity}  # servers may still mount the copy
    return certificates.require_valid_certificates(validity, seen.now)


def report_certificate_without_name(seen: Assessment) -> Step:
    """Report a certificate of running servers without their DNS name: only by this very one are they recognized."""
    host = seen.secrets.missing_name
    if not host:
        return PASS
    return Step.note(
        CERTIFICATE_WITHOUT_NAME,
        f"Secret {server_secret(seen.resource)}: tls.crt has no DNS name {host}, and with spec.auth, passwords are "
        "sent only to servers whose certificate has it, or is this very one. Issue it with that name.",
    )


RESOURCES = Deferred(CONTAINER, "resources")


def ensure_servers(seen: Assessment) -> Step:
    """Ensure that the Deployment or StatefulSet matches the spec.

    Every replaced server loses its items, so that an upgrade of the operator replaces none: pods keep the sidecar that
    they have, and what it does, until the template changes for another reason. A change of CPU and memory alone
    replaces none either, if the pods can be resized.
    """
    resource = seen.resource
    kind, current = seen.workload.kind, seen.workload.obj
    image = resource.spec.metrics_image or seen.settings.agent_image or (sidecar_image(current) if current else "")
    images = (Deferred(EXPORTER, "image"), Deferred(RELOADER, "image"))
    deferred = (*images, AFFINITY)
    from_spec = (
        *(images if resource.spec.metrics_image else ()),
        *((AFFINITY,) if resource.spec.affinity is not None else ()),
    )

    def made(sidecar: Sidecar, mounts: Mounts) -> Obj:
        built = _workload(seen, sidecar, mounts)
        pods = seen.workload.pod_objs
        resizes = can_resize(built, current, pods, CONTAINER, seen.settings.operator, seen.now)
        parts = (*deferred, RESOURCES) if resizes else deferred
        return keep_deferred(built, current, parts, seen.settings.operator, from_spec=from_spec)

    target = next_mounts(seen)
    newest = Sidecar(image, *((True, True, seen.settings.write_secrets) if image else ()))
    if current is not None:
        template = current["spec"]["template"]  # as an earlier release made it
        pairs = zip(originals(resource), copies(resource), mounts_of(template), strict=True)
        # A copy that the operator may no longer write would keep from servers what users change.
        is_lost = not seen.settings.write_secrets and outdated_copies(seen)
        kept = target if is_lost else Mounts(*(copy if copy == now else original for original, copy, now in pairs))
        running = made(Sidecar.of(template, image), kept)
        if not restarts_pods(running, current, seen.settings.operator):
            return Step.do(Apply(kind, running, unchanged=True))
    # A stale plan could replace servers.
    return Step.do(Apply(kind, made(newest, target), unchanged=current is not None))


def resize_servers(seen: Assessment) -> Step:
    """Set the CPU and memory of running servers, which keep their items."""
    workload = seen.workload
    if not workload.rolled_out or workload.outdated > 0:
        return PASS
    return resize_pods(workload.pod_objs, seen.resource.spec.container_resources(), CONTAINER, seen.now)


def _workload(seen: Assessment, sidecar: Sidecar, mounts: Mounts) -> Obj:
    """Return the Deployment or StatefulSet."""
    resource = seen.resource
    own, workload = owner(resource, seen.settings.operator), seen.workload
    image = resource.spec.image_reference(seen.settings.image_repository)
    digest = seen.secrets.startup_digest(resource.uid, with_users=not sidecar.reloads)  # what is read only at startup
    template = pod(resource, own, image, sidecar, digest, mounts)
    build = stateful_set.stateful_set if workload.kind == STATEFUL_SET else deployment.deployment
    return build(resource, own, template, seen.pause.seconds)


def ensure_autoscaler(seen: Assessment) -> Step:
    """Ensure that the HorizontalPodAutoscaler matches the spec, or is deleted."""
    own = owner(seen.resource, seen.settings.operator)
    desired = autoscaler.autoscaler(seen.resource, own)
    return provisioning.keep(own, AUTOSCALER, desired, seen.autoscaler)
