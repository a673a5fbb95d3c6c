"""Steps that keep the objects that members depend on: Services, budget, Secrets, StatefulSet, volume sizes. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.layout import layout
from operators.etcd.objects import disruption_budget, names, pod, services, stateful_set
from operators.etcd.objects.command_line import QUOTA
from operators.etcd.objects.names import COMPONENT, COPIED, SECRETS
from operators.etcd.observe import Observed
from operators.etcd.security import certificates
from operators.etcd.steps.quorum_recovery import replicas
from operators.etcd.steps.rolling_update import permitted
from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.rotation import DATABASES
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.status.reasons import REPLACING_CERTIFICATES
from shared.steps import certificates as steps
from shared.steps import provisioning
from shared.steps.certificates import Copying, Issuing, keep_certificates
from shared.steps.volumes import capacity, is_bound

REFUSAL = "etcd.ydzs.io/growth-refused"
"""Annotation of volume claims: the size, time and message of the API server's last refusal to expand the volume."""


def ensure_services(settings: Settings, resource: EtcdCluster, _seen: Observed, _now: datetime) -> Step:
    """Apply the headless Service, by which members find each other, and the Service for clients."""
    own = names.owner(resource, settings.operator)
    return Step.do(
        Apply(SERVICE, services.headless_service(resource, own)),
        Apply(SERVICE, services.client_service(resource, own)),
    )


def ensure_disruption_budget(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Apply the PodDisruptionBudget that the spec or the quorum requires, or delete it."""
    desired = disruption_budget.disruption_budget(resource, names.owner(resource, settings.operator))
    return provisioning.keep_disruption_budget(desired, seen.disruption_budget)


def ensure_secrets(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Issue certificates before members need them, renew them before they expire, and copy those of other issuers."""
    own, tls = names.owner(resource, settings.operator), resource.spec.tls
    issuing = Issuing(
        own=own,
        component=COMPONENT,
        authority=names.authority_secret(resource),
        leaves=certificates.leaves(resource),
        found=seen.secrets.found,
        informed=_started_with(seen),
        now=now,
        policy=replace(DATABASES, life=timedelta(seconds=settings.certificate_lifetime)),
    )
    issued = keep_certificates(issuing, tls.mode, tls.issuer)
    if not seen.secrets.copies:
        return issued
    copying = Copying(
        own=own,
        component=COMPONENT,
        copies=seen.secrets.copies,
        found=seen.secrets.found,
        stamp=COPIED,
        informed=_started_with(seen) == seen.secrets.mounts.digest != "",
        now=now,
        keeps_former=tls.mode == "certManager",  # of clients whose certificate is not renewed yet
    )
    copied = copying.step()
    return replace(copied, actions=(*issued.actions, *copied.actions))


def _started_with(seen: Observed) -> str:
    """Return the digest of Secrets that all pods and the template were created with; empty if they differ."""
    made = [instance.pod_obj for instance in seen.instances if instance.pod_obj is not None]
    if seen.stateful_set is not None:
        made.append(seen.stateful_set["spec"]["template"])
    digests = {annotation(obj, SECRETS) for obj in made}
    return digests.pop() if len(digests) == 1 and seen.stateful_set is not None else ""


def require_secrets(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Require the Secrets without which members cannot start; with copies, members continue with the last content."""
    problem, copies = seen.secrets.problem, seen.secrets.copies
    if problem is not None and resource.recorded_cluster_id and copies and all(each.copy for each in copies):
        message = f"{problem.message} Members continue with the last valid content."
        return Step.progressing(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    if problem is not None:
        return provisioning.report_unusable_secret(problem)
    if missing := [each.name for each in copies if each.copy is None]:  # the template depends on them
        why = f"{', '.join(missing)} does not exist yet"
        message = f"Updating the certificates that servers mount: {why}."
        return Step.wait(REPLACING_CERTIFICATES, message, requeue=SECRETS_RETRY_SECONDS)
    is_created = bool(resource.recorded_cluster_id)
    judge = steps.report_invalid_certificates if is_created else steps.require_valid_certificates
    return judge(seen.secrets.validity, now)


def require_valid_certificates(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Change nothing while a certificate is outside its validity."""
    return steps.require_valid_certificates(seen.secrets.validity, now)


def report_ending_certificates(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Report certificates that end soon."""
    return steps.report_ending_certificates(seen.secrets.validity, now)


def grow_volumes(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Expand volumes to the size of the spec; they never shrink."""
    if resource.spec.storage.medium != "Volume" or seen.stateful_set is None:
        return PASS
    return provisioning.grow_volumes(
        [instance.volume for instance in seen.instances if instance.volume],
        seen.stateful_set,
        resource.spec.storage.size,
        now,
        refusal=REFUSAL,
        may_recreate=seen.members is not None and bool(resource.recorded_cluster_id),
    )


def ensure_stateful_set(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Apply a StatefulSet with a replica for each member, and with the bootstrap flags for an empty volume.

    While an upgrade is refused, the template keeps the image of the members, so that repairs continue.
    """
    made = _stateful_set(settings, resource, seen, seen.secrets.mounts)
    if seen.secrets.copies:  # an upgrade of the operator alone restarts no member
        former = _stateful_set(settings, resource, seen, seen.secrets.originals)
        made = former if _has_template_of(former, seen.stateful_set) else made
    # A stale plan could delete members' pods, or let an empty volume bootstrap.
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True))


def _stateful_set(settings: Settings, resource: EtcdCluster, seen: Observed, mounts: pod.MountedSecrets) -> Obj:
    own = names.owner(resource, settings.operator)
    runs, follows = permitted(resource, seen), layout(resource, seen)
    image = runs.image_reference(settings.image_repository)
    template = pod.pod(runs, own, image, follows.start, mounts, quota(runs, seen))
    stopped = replicas(resource, seen)
    count = follows.replicas if stopped is None else stopped
    return stateful_set.stateful_set(runs, own, template, count, seen.stateful_set)


def _has_template_of(desired: Obj, stateful_set: Obj | None) -> bool:
    """Whether a StatefulSet has the template of the desired one, apart from what a running member ignores."""
    if stateful_set is None:
        return False
    one, other = (each["spec"]["template"] for each in (desired, stateful_set))
    return annotation(one, pod.TEMPLATE) == annotation(other, pod.TEMPLATE)


def quota(resource: EtcdCluster, seen: Observed) -> int:
    """Return the quota in bytes: not above the former one until every volume has the capacity for it.

    If a volume is full before the quota is used up, etcd exits, and no key can be deleted any more.
    """
    desired, storage, template = resource.spec.quota, resource.spec.storage, seen.stateful_set
    volumes = [instance.volume for instance in seen.instances if instance.volume and is_bound(instance.volume)]
    if template is None or not any(smaller(capacity(volume), storage.size) for volume in volumes):
        return desired
    (container,) = template["spec"]["template"]["spec"]["containers"]
    before = [argument for argument in container["args"] if argument.startswith(QUOTA)]
    return min([desired, *(int(argument.removeprefix(QUOTA)) for argument in before)])
