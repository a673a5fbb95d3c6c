"""Steps that keep the objects that members depend on: Secrets and StatefulSet. Pure."""

from __future__ import annotations

from dataclasses import replace

from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names, pod, stateful_set
from operators.etcd.objects.bootstrap import successor
from operators.etcd.objects.command_line import QUOTA, number_given
from operators.etcd.objects.names import COMPONENT, CONTAINER, COPIED, SECRETS
from operators.etcd.security import certificates
from operators.etcd.state.observed import Observed
from operators.etcd.steps.quorum_recovery import replicas
from operators.etcd.steps.version_change import image, permitted
from shared.api.podspec import smaller
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import STATEFUL_SET
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS, content_of
from shared.runtime.plan import PASS, Apply, Step
from shared.status.observed_secrets import versions_of
from shared.status.reasons import ISSUING_CERTIFICATES, REPLACING_CERTIFICATES
from shared.status.verdict import Progress
from shared.steps import certificates as steps
from shared.steps import hibernation, provisioning
from shared.steps.certificates import Copying, Issuing, keep_certificates
from shared.steps.deferred import Deferred, keep_deferred
from shared.steps.resize import can_resize, resizable
from shared.steps.volumes import capacity, is_bound

RESOURCES = Deferred(CONTAINER, "resources")


def ensure_secrets(seen: Assessment) -> Step:
    """Issue certificates before members need them, renew them before they expire, and copy those of other issuers."""
    resource = seen.resource
    own, tls = names.owner(resource, seen.settings.operator), resource.spec.tls
    leaves, found, informed = certificates.leaves(resource), seen.secrets.found, _started_with(seen)
    issuing = Issuing(own, COMPONENT, leaves, found, informed, seen.now, seen.settings.rotation)
    issued = keep_certificates(issuing, tls.mode, tls.issuer)
    if not seen.secrets.copies:
        return issued
    copying = Copying(
        own=own,
        component=COMPONENT,
        copies=seen.secrets.copies,
        found=found,
        stamp=COPIED,
        informed=informed == seen.secrets.mounts.digest != "",
        now=seen.now,
        keeps_former=tls.mode == "certManager",  # of clients whose certificate is not renewed yet
    )
    copied = copying.step()
    return replace(copied, actions=(*issued.actions, *copied.actions))


def _started_with(seen: Observed) -> str:
    """Return the digest of Secrets that all pods and the template were created with; empty if they differ.

    Pods on volumes that a recovery kept are not rolled, and nothing depends on the authorities that they trust.
    """
    made = [each.pod_obj for each in seen.instances if each.pod_obj is not None and not each.kept_by]
    if seen.stateful_set is not None:
        made.append(seen.stateful_set["spec"]["template"])
    digests = {annotation(obj, SECRETS) for obj in made}
    return digests.pop() if len(digests) == 1 and seen.stateful_set is not None else ""


def require_secrets(seen: Assessment) -> Step:
    """Require the Secrets without which members cannot start; with copies, members continue with the last content."""
    secrets, is_created = seen.secrets, bool(seen.resource.recorded_cluster_id)
    if is_created and secrets.are_copied and secrets.problem and secrets.problem is secrets.certificate_problem:
        message = f"{secrets.problem.message} Members continue with the last valid content."
        return Step.progressing(secrets.problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
    if secrets.problem is not None:
        return provisioning.report_unusable_secret(secrets.problem)
    if missing := [each.name for each in secrets.copies if each.copy is None]:  # the template depends on them
        why = f"{', '.join(missing)} does not exist yet"
        message = f"Updating the certificates that servers mount: {why}."
        return Step.wait(REPLACING_CERTIFICATES, message, requeue=SECRETS_RETRY_SECONDS)
    if seen.resource.spec.tls.mode != "none" and not _is_mountable(seen):
        why = "some are missing"
        return Step.wait(ISSUING_CERTIFICATES, f"Issuing certificates: {why}.", requeue=SECRETS_RETRY_SECONDS)
    withheld = steps.report_withheld_certificates(secrets.copies, seen.now)
    if withheld.progress is not Progress.DONE:
        return withheld
    judge = steps.report_invalid_certificates if is_created else steps.require_valid_certificates
    return judge(secrets.validity, seen.now)


def provided_versions(seen: Assessment) -> dict[str, str | None]:
    """Return the resourceVersions of the Secrets that users or cert-manager provide, by name.

    Members load certificates from copies. Until every mounted file has the last change of a copy, the version that they
    use is unknown (None).
    """
    secrets, given = seen.secrets, names.root_secret(seen.resource)
    versions = versions_of({given: secrets.found.get(given)}) if given else {}
    for each in secrets.copies:
        settled = steps.settled_at(secrets.found.get(each.name), COPIED, seen.now)
        is_loaded = settled is not None and settled <= seen.now and versions.get(each.source, "") is not None
        source = secrets.found.get(each.source) if is_loaded else None
        versions |= versions_of({each.source: source})
    return versions


def _is_mountable(seen: Observed) -> bool:
    """Whether the Secrets that pods mount have the key that the template names for the newest authority.

    Otherwise a pod that is recreated before they do would not start.
    """
    mounts, found = seen.secrets.mounts, seen.secrets.found
    mounted = (mounts.peer, mounts.server)
    return bool(mounts.digest) and all(each.authority_key in content_of(found.get(each.secret)) for each in mounted)


def create_stateful_set(seen: Assessment) -> Step:
    """Create the StatefulSet if there is none; afterwards `ensure_stateful_set` keeps it."""
    known = seen.resource.recorded_cluster_id
    is_of_another = bool(known and seen.cluster_id) and seen.cluster_id not in (known, successor(seen.resource))
    return PASS if seen.stateful_set is not None or is_of_another else apply_stateful_set(seen)


def ensure_stateful_set(seen: Assessment) -> Step:
    """Keep a replica for each member, and the bootstrap flags for an empty volume, in the StatefulSet.

    While the spec cannot be applied, nothing else of it changes. While an upgrade is blocked, the template keeps the
    image of the members, so that repairs continue.
    """
    resource = seen.resource
    if seen.stateful_set is None:
        return PASS
    if seen.spec_applies:
        return apply_stateful_set(seen)
    present = managed_fields.applied(seen.stateful_set, seen.settings.operator)
    if present is None or hibernation.is_stopped(seen) or not (resource.recorded_cluster_id or seen.cluster_id):
        return PASS  # pods that hibernate return with the spec
    follows = seen.layout
    template = pod.with_permission(resource, present["spec"]["template"], follows.start, serves=follows.serves)
    present["spec"] |= {"replicas": _count(seen), "template": template}
    return Step.do(Apply(STATEFUL_SET, present, unchanged=True, seen=seen.stateful_set))


def apply_stateful_set(seen: Assessment) -> Step:
    """Apply the StatefulSet of the spec."""
    own = names.owner(seen.resource, seen.settings.operator)
    running, follows = permitted(seen), seen.layout
    runs = running.resource
    mounts, serves = seen.secrets.mounts, follows.serves
    template = pod.pod(runs, own, image(running), follows.start, mounts, quota(running), serves=serves)
    made = stateful_set.stateful_set(runs, own, template, _count(seen), seen.stateful_set)
    made["metadata"]["annotations"] |= hibernation.note(seen)
    # A change of a limit changes GOMAXPROCS or GOMEMLIMIT too, which etcd reads only when it starts.
    pods = resizable(seen.instances, seen.stateful_set, pod.TEMPLATE)
    resizes = can_resize(made, seen.stateful_set, pods, CONTAINER, seen.settings.operator, seen.now)
    parts = (*pod.DEFERRED, RESOURCES) if resizes else pod.DEFERRED
    given = pod.from_spec(runs)
    made = keep_deferred(made, seen.stateful_set, parts, seen.settings.operator, pod.DIGEST, from_spec=given)
    # A stale plan could delete members' pods, or let an empty volume bootstrap.
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True, seen=seen.stateful_set))


def _count(seen: Assessment) -> int:
    """Return the replicas: one for each member, unless a hibernation or a recovery determines them."""
    stopped = 0 if hibernation.stops(seen) else replicas(seen)
    if stopped is not None:
        return stopped
    returns = seen.hibernation and seen.members is None  # another client may have started fewer than a quorum
    return max(seen.layout.replicas, seen.resource.spec.size if returns else 0)


def quota(seen: Assessment) -> int:
    """Return the quota in bytes: not above the former one until every volume has the capacity for it.

    If a volume is full before the quota is used up, etcd exits, and no key can be deleted any more.
    """
    desired, storage, template = seen.resource.spec.quota, seen.resource.spec.storage, seen.stateful_set
    volumes = [instance.volume for instance in seen.instances if instance.volume and is_bound(instance.volume)]
    if template is None or not any(smaller(capacity(volume), storage.size) for volume in volumes):
        return desired
    return min(desired, number_given(template["spec"]["template"], QUOTA) or desired)
