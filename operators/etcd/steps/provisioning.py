"""Steps that keep the objects that members depend on: Services, budget, Secrets, StatefulSet, volume sizes. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.membership.layout import layout
from operators.etcd.objects import disruption_budget, names, pod, services, stateful_set
from operators.etcd.objects.command_line import QUOTA
from operators.etcd.objects.names import COMPONENT, SECRETS
from operators.etcd.observe import Observed
from operators.etcd.security import certificates
from operators.etcd.steps.quorum_recovery import replicas
from operators.etcd.steps.rolling_update import permitted
from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET
from shared.pki.rotation import DATABASES
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.steps import provisioning
from shared.steps.certificates import Issuing, keep_certificates
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
    """Issue certificates before members need them, and renew them before they expire."""
    issuing = Issuing(
        own=names.owner(resource, settings.operator),
        component=COMPONENT,
        authority=names.authority_secret(resource),
        leaves=certificates.leaves(resource),
        found=seen.secrets.found,
        informed=_started_with(seen),
        now=now,
        policy=replace(DATABASES, life=timedelta(seconds=settings.certificate_lifetime)),
    )
    return keep_certificates(issuing, resource.spec.tls.mode, resource.spec.tls.issuer)


def _started_with(seen: Observed) -> str:
    """Return the digest of Secrets that all pods and the template were created with; empty if they differ."""
    made = [instance.pod_obj for instance in seen.instances if instance.pod_obj is not None]
    if seen.stateful_set is not None:
        made.append(seen.stateful_set["spec"]["template"])
    digests = {annotation(obj, SECRETS) for obj in made}
    return digests.pop() if len(digests) == 1 and seen.stateful_set is not None else ""


def require_secrets(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Require the Secrets without which members cannot start; running members are not changed."""
    return provisioning.require_secrets(seen.secrets.problem, seen.secrets.expires, now)


def expand_volumes(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Expand volumes before anything waits for space: a full member does not run, and a recovery needs a copy."""
    if resource.spec.storage.medium != "Volume":
        return PASS
    found = [instance.volume for instance in seen.instances if instance.volume]
    return provisioning.resize_claims(found, resource.spec.storage.size, now, refusal=REFUSAL)


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
    own = names.owner(resource, settings.operator)
    runs, follows = permitted(resource, seen), layout(resource, seen)
    image = runs.image_reference(settings.image_repository)
    template = pod.pod(runs, own, image, follows.start, seen.secrets, quota(runs, seen))
    stopped = replicas(resource, seen)
    count = follows.replicas if stopped is None else stopped
    made = stateful_set.stateful_set(runs, own, template, count, seen.stateful_set)
    # A stale plan could delete members' pods, or let an empty volume bootstrap.
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True))


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
