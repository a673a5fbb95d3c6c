"""Steps that keep the objects that members depend on: Services, budget, Secrets, StatefulSet, volume sizes. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.facts.assessment import Assessment
from operators.etcd.membership.layout import layout
from operators.etcd.objects import disruption_budget, names, network_policy, pod, services, stateful_set
from operators.etcd.objects.bootstrap import successor
from operators.etcd.objects.command_line import QUOTA
from operators.etcd.objects.names import COMPONENT, CONTAINER, COPIED, SECRETS
from operators.etcd.security import certificates
from operators.etcd.state.observed import Observed
from operators.etcd.steps.quorum_recovery import replicas
from operators.etcd.steps.version_change import image, permitted
from shared.api.podspec import smaller
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS, content_of
from shared.pki.rotation import DATABASES
from shared.runtime.plan import PASS, Apply, Step
from shared.runtime.settings import Settings
from shared.status.observed_secrets import versions_of
from shared.status.reasons import ISSUING_CERTIFICATES, REPLACING_CERTIFICATES
from shared.status.verdict import Progress
from shared.steps import certificates as steps
from shared.steps import network_policy as policies
from shared.steps import provisioning
from shared.steps.certificates import Copying, Issuing, keep_certificates
from shared.steps.deferred import AFFINITY, Deferred, keep_deferred, restarts_pods
from shared.steps.resize import can_resize, resizable, resize_pods
from shared.steps.volumes import capacity, is_bound

RESOURCES = Deferred(CONTAINER, "resources")

REFUSAL = "etcd.ydzs.io/growth-refused"
"""Annotation of volume claims: the size, time and message of the API server's last refusal to expand the volume."""

MODIFICATION = "etcd.ydzs.io/modification-tried"
"""Annotation of volume claims: the last attempt to set a VolumeAttributesClass, its time, and the refusal if any."""


def ensure_services(settings: Settings, resource: EtcdCluster, _seen: Observed, _now: datetime) -> Step:
    """Apply the headless Service, by which members find each other, and the Service for clients."""
    own = names.owner(resource, settings.operator)
    return Step.do(
        Apply(SERVICE, services.headless_service(resource, own)),
        Apply(SERVICE, services.client_service(resource, own)),
    )


def ensure_disruption_budget(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Apply the PodDisruptionBudget that the spec or the quorum requires, or delete it."""
    own = names.owner(resource, settings.operator)
    desired = disruption_budget.disruption_budget(resource, own)
    return provisioning.keep_disruption_budget(own, desired, seen.disruption_budget)


def ensure_network_policy(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Apply the NetworkPolicy of the members, or delete it if the spec disables it."""
    access = network_policy.access(resource, names.owner(resource, settings.operator))
    return policies.keep_network_policy(access, settings.operator_peers, seen.network_policy)


def admit_operator(settings: Settings, resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Admit the operator to running members although the spec cannot be applied: it could not repair them otherwise."""
    access = network_policy.access(resource, names.owner(resource, settings.operator))
    return policies.admit_operator(access, settings.operator_peers, seen.network_policy)


def create_secrets(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Issue the certificates of a new cluster, before its first pod; afterwards `renew_secrets` keeps them."""
    return PASS if resource.recorded_cluster_id else ensure_secrets(settings, resource, seen, now)


def renew_secrets(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Keep the certificates of a created cluster: they expire although its spec cannot be applied."""
    return ensure_secrets(settings, resource, seen, now) if resource.recorded_cluster_id else PASS


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
    secrets, is_created = seen.secrets, bool(resource.recorded_cluster_id)
    if is_created and secrets.are_copied and secrets.problem and secrets.problem is secrets.certificate_problem:
        message = f"{secrets.problem.message} Members continue with the last valid content."
        return Step.progressing(secrets.problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    if secrets.problem is not None:
        return provisioning.report_unusable_secret(secrets.problem)
    if missing := [each.name for each in secrets.copies if each.copy is None]:  # the template depends on them
        why = f"{', '.join(missing)} does not exist yet"
        message = f"Updating the certificates that servers mount: {why}."
        return Step.wait(REPLACING_CERTIFICATES, message, requeue=SECRETS_RETRY_SECONDS)
    if resource.spec.tls.mode != "none" and not _is_mountable(seen):
        why = "some are missing"
        return Step.wait(ISSUING_CERTIFICATES, f"Issuing certificates: {why}.", requeue=SECRETS_RETRY_SECONDS)
    withheld = steps.report_withheld_certificates(secrets.copies, now)
    if withheld.progress is not Progress.DONE:
        return withheld
    judge = steps.report_invalid_certificates if is_created else steps.require_valid_certificates
    return judge(secrets.validity, now)


def provided_versions(resource: EtcdCluster, seen: Observed, now: datetime) -> dict[str, str | None]:
    """Return the resourceVersions of the Secrets that users or cert-manager provide, by name.

    Members load certificates from copies. Until every mounted file has the last change of a copy, the version that they
    use is unknown (None).
    """
    secrets, given = seen.secrets, names.root_secret(resource)
    versions = versions_of({given: secrets.found.get(given)}) if given else {}
    for each in secrets.copies:
        settled = steps.settled_at(secrets.found.get(each.name), COPIED)
        is_loaded = settled is not None and settled <= now and versions.get(each.source, "") is not None
        source = secrets.found.get(each.source) if is_loaded else None
        versions |= versions_of({each.source: source})
    return versions


def require_valid_certificates(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Change nothing while a certificate is outside its validity."""
    return steps.require_valid_certificates(seen.secrets.validity, now)


def report_ending_certificates(_resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Report certificates that end soon."""
    return steps.report_ending_certificates(seen.secrets.validity, now)


def _is_mountable(seen: Observed) -> bool:
    """Whether the Secrets that pods mount have the key that the template names for the newest authority.

    Otherwise a pod that is recreated before they do would not start.
    """
    mounts, found = seen.secrets.mounts, seen.secrets.found
    mounted = (mounts.peer, mounts.server)
    return bool(mounts.digest) and all(each.authority_key in content_of(found.get(each.secret)) for each in mounted)


def refuse_smaller_volumes(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Apply nothing of a spec whose volumes are smaller than the present ones: the default of the quota follows it."""
    if resource.spec.storage.medium != "Volume":
        return PASS
    found = [instance.volume for instance in seen.instances if instance.volume]
    return provisioning.refuse_smaller_volumes(found, seen.stateful_set, resource.spec.storage.size)


def expand_volumes(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Expand volumes before anything waits for space: a full member does not run, and a recovery needs a copy."""
    if resource.spec.storage.medium != "Volume":
        return PASS
    found = [instance.volume for instance in seen.instances if instance.volume]
    return provisioning.resize_claims(found, resource.spec.storage.size, now, refusal=REFUSAL)


def modify_volumes(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Set the VolumeAttributesClass of the volumes, without a restart."""
    if resource.spec.storage.medium != "Volume":
        return PASS
    found = [instance.volume for instance in seen.instances if instance.volume]
    requested = resource.spec.storage.volume_attributes_class_name
    return provisioning.modify_volumes(found, requested, now, attempts=MODIFICATION)


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
        attributes_class=resource.spec.storage.volume_attributes_class_name,
    )


def create_stateful_set(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Create the StatefulSet if there is none; afterwards `ensure_stateful_set` keeps it."""
    known = resource.recorded_cluster_id
    is_of_another = bool(known and seen.cluster_id) and seen.cluster_id not in (known, successor(resource))
    return (
        PASS if seen.stateful_set is not None or is_of_another else _apply_stateful_set(settings, resource, seen, now)
    )


def ensure_stateful_set(settings: Settings, resource: EtcdCluster, facts: Assessment, now: datetime) -> Step:
    """Keep a replica for each member, and the bootstrap flags for an empty volume, in the StatefulSet.

    While the spec cannot be applied, nothing else of it changes. While an upgrade is blocked, the template keeps the
    image of the members, so that repairs continue.
    """
    if facts.stateful_set is None:
        return PASS
    if facts.spec_applies:
        return _apply_stateful_set(settings, resource, facts, now)
    present = managed_fields.applied(facts.stateful_set, settings.operator)
    if present is None or not (resource.recorded_cluster_id or facts.cluster_id):
        return PASS
    follows = layout(resource, facts)
    template = pod.with_permission(resource, present["spec"]["template"], follows.start, serves=follows.serves)
    present["spec"] |= {"replicas": _count(resource, facts, now), "template": template}
    return Step.do(Apply(STATEFUL_SET, present, unchanged=True))


def _apply_stateful_set(settings: Settings, resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    made = _stateful_set(settings, resource, seen, seen.secrets.mounts, now)
    if seen.secrets.copies and seen.stateful_set is not None:  # an upgrade of the operator alone restarts no member
        former = _stateful_set(settings, resource, seen, seen.secrets.originals, now)
        made = made if restarts_pods(former, seen.stateful_set, settings.operator, pod.DIGEST) else former
    # A stale plan could delete members' pods, or let an empty volume bootstrap.
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True))


def _stateful_set(
    settings: Settings, resource: EtcdCluster, seen: Observed, mounts: pod.MountedSecrets, now: datetime
) -> Obj:
    own = names.owner(resource, settings.operator)
    runs, follows = permitted(resource, seen), layout(resource, seen)
    template = pod.pod(
        runs, own, image(settings, runs, seen), follows.start, mounts, quota(runs, seen), serves=follows.serves
    )
    made = stateful_set.stateful_set(runs, own, template, _count(resource, seen, now), seen.stateful_set)
    given = (AFFINITY,) if runs.spec.affinity is not None else ()
    # A change of a limit changes GOMAXPROCS or GOMEMLIMIT too, which etcd reads only when it starts.
    pods = resizable(seen.instances, seen.stateful_set, pod.TEMPLATE)
    resizes = can_resize(made, seen.stateful_set, pods, CONTAINER, settings.operator, now)
    parts = (*pod.DEFERRED, RESOURCES) if resizes else pod.DEFERRED
    return keep_deferred(made, seen.stateful_set, parts, settings.operator, pod.DIGEST, from_spec=given)


def resize_members(resource: EtcdCluster, seen: Observed, now: datetime) -> Step:
    """Set the CPU and memory of running members."""
    pods = resizable(seen.instances, seen.stateful_set, pod.TEMPLATE)
    return resize_pods(pods, resource.spec.container_resources(), CONTAINER, now)


def _count(resource: EtcdCluster, seen: Observed, now: datetime) -> int:
    """Return the replicas: one for each member, unless a recovery determines them."""
    stopped = replicas(resource, seen, now)
    return layout(resource, seen).replicas if stopped is None else stopped


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
