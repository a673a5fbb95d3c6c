"""Steps that keep what nodes need around them: names, configuration, budget, Secrets, room on their volumes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from operators.redis.api.resource import RedisCluster
from operators.redis.assessment import Assessment
from operators.redis.objects import disruption_budget, names, pod, services, stateful_set
from operators.redis.objects.names import (
    CERTIFICATE_MARK,
    CLUSTER_UID,
    COMPONENT,
    CONFIG_MARK,
    EXPORTER_PASSWORD_KEY,
)
from operators.redis.observe import Observed
from operators.redis.reasons import FOREIGN_DATA, PREPARING_USERS, REPLACING_CERTIFICATES
from operators.redis.security import certificates
from operators.redis.security.certificates import MountedCertificates, following
from operators.redis.security.users import Passwords
from operators.redis.settings import Settings
from operators.redis.steps.configuration import config_digest, config_mark
from operators.redis.steps.rolling_update import permitted
from operators.redis.steps.rollout_markers import applied_everywhere, made_with
from operators.redis.steps.scale_down import replicas
from shared.kubernetes import ownership
from shared.kubernetes.kinds import SECRET, SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.ownership import NotOurs, Owner, require_ours
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS, content_of, encoded
from shared.pki.rotation import DATABASES
from shared.pki.stores import fingerprint
from shared.runtime.plan import PASS, Apply, Step, WriteSecret
from shared.status.reasons import NOT_OURS
from shared.status.verdict import Progress
from shared.steps import provisioning
from shared.steps.certificates import Issuing, keep_certificates

REFUSAL = "redis.middleware.hc.cn/growth-refused"
"""Annotation of volume claims: to what size, when, and in what words the API server last refused that they grow."""


def refuse_foreign_data(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """What a RedisCluster of this name left behind is neither taken nor deleted, unless a person hands it over."""
    found = [seen.stateful_set, *(instance.volume for instance in seen.instances)]
    theirs = [obj for obj in found if obj is not None and _uid(obj) != resource.uid]
    if not theirs:
        return PASS
    what = ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in theirs)
    labels = f"{ownership.INSTANCE}={resource.name},{ownership.NAME}=redis"
    whose = f"of another RedisCluster of this name (uid {uid})" if (uid := _uid(theirs[0])) else "of nobody knows whom"
    return Step.blocked(
        FOREIGN_DATA,
        f"{what}: {whose}, and what is in there is not this one's. To go on with it, hand it over: kubectl label "
        f"statefulset,pvc -l {labels} {CLUSTER_UID}={resource.uid} --overwrite. To begin anew, delete it, and with it "
        "the data; or rename this resource. Nothing was changed.",
    )


def _uid(obj: Obj) -> str:
    return str((obj["metadata"].get("labels") or {}).get(CLUSTER_UID, ""))


def ensure_services(settings: Settings, resource: RedisCluster, _seen: Observed, _now: datetime) -> Step:
    """Each node has a name from its first second, and clients one address for those that take them."""
    own = names.owner(resource, settings.operator)
    return Step.do(
        Apply(SERVICE, services.headless_service(resource, own)),
        Apply(SERVICE, services.client_service(resource, own)),
    )


def ensure_disruption_budget(settings: Settings, resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The PodDisruptionBudget is as the spec, or care for the data, asks."""
    desired, found = disruption_budget.disruption_budget(resource, names.owner(resource, settings.operator)), None
    if seen.disruption_budget is not None:
        try:
            require_ours(desired, seen.disruption_budget, resource.uid)
        except NotOurs as error:
            return Step.blocked(NOT_OURS, str(error))
        found = seen.disruption_budget
    return provisioning.keep_disruption_budget(desired, found)


def ensure_stateful_set(settings: Settings, resource: RedisCluster, seen: Assessment, now: datetime) -> Step:
    """Keep a replica for each node that the spec asks for, and for each that must not be removed yet.

    While a version is refused the template keeps the image that nodes have, so that repairs go on.
    """
    own, runs = names.owner(resource, settings.operator), permitted(resource, seen)
    image = runs.image_reference(settings.image_repository)
    marks = made_with(seen.secrets) | {CONFIG_MARK: config_mark(runs, seen)}
    template = pod.pod(runs, own, image, marks, config_digest(runs, seen))
    made = stateful_set.stateful_set(runs, own, template, replicas(resource, seen, now), seen.stateful_set)
    # A stale plan could delete nodes' pods.
    return Step.do(Apply(STATEFUL_SET, made, unchanged=True))


# Secrets.


def ensure_secrets(settings: Settings, resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """What nodes mount is there before they are; certificates are new before the old ones end."""
    own = names.owner(resource, settings.operator)
    try:
        if write := _first_users(resource, own, seen):
            return Step.wait(PREPARING_USERS, "The users that nodes start with are made.", write)
        issued = _issue(settings, resource, own, seen, now)
        if issued.progress is not Progress.DONE:
            return issued
        why, write = _mount(resource, own, seen, now)
    except NotOurs as error:
        return Step.blocked(NOT_OURS, str(error))
    if write is not None:
        return Step.wait(REPLACING_CERTIFICATES, f"What nodes mount is written: {why}.", *issued.actions, write)
    return issued


def users_secret(resource: RedisCluster, own: Owner, passwords: Passwords, seen: Observed) -> WriteSecret:
    """Our Secret with the users, to be written."""
    name = names.users_secret(resource)
    return _write(own, name, seen, passwords.content())


def _first_users(resource: RedisCluster, own: Owner, seen: Observed) -> WriteSecret | None:
    """What the users' Secret lacks to be one; of a password that changes `access.keep_users` takes care."""
    secrets, name = seen.secrets, names.users_secret(resource)
    held = content_of(secrets.found.get(name))
    if not held.get(EXPORTER_PASSWORD_KEY):
        return _write(own, name, seen, held, token=EXPORTER_PASSWORD_KEY)
    if secrets.passwords is not None or secrets.desired is None:
        return None
    return users_secret(resource, own, Passwords(secrets.desired, exporter=held[EXPORTER_PASSWORD_KEY]), seen)


def _issue(settings: Settings, resource: RedisCluster, own: Owner, seen: Observed, now: datetime) -> Step:
    issuing = Issuing(
        own=own,
        component=COMPONENT,
        authority=names.authority_secret(resource),
        leaves=certificates.leaves(resource),
        found=seen.secrets.found,
        informed=_informed(seen),
        now=now,
        policy=replace(DATABASES, life=timedelta(seconds=settings.certificate_lifetime)),
    )
    return keep_certificates(issuing, resource.spec.tls.mode, resource.spec.tls.issuer)


def _informed(seen: Observed) -> str:
    """The newest authority that every node trusts; empty if they differ."""
    mounted = seen.secrets.mounted
    return fingerprint(mounted.trusted[0]) if mounted and _heard(mounted, seen) else ""


def _mount(resource: RedisCluster, own: Owner, seen: Observed, now: datetime) -> tuple[str, WriteSecret | None]:
    """What nodes are to mount, a step nearer to what they are to come to."""
    held, original = seen.secrets.mounted, seen.secrets.original
    heard = held is not None and _heard(held, seen)
    why, desired = following(held, original, reachable=heard, now=now)
    if desired is None:
        return "", None
    return why, _write(own, names.tls_secret(resource), seen, desired.content(), kind="kubernetes.io/tls")


def _heard(mounted: MountedCertificates, seen: Observed) -> bool:
    return applied_everywhere(seen, CERTIFICATE_MARK, mounted.mark)


def _write(
    own: Owner, name: str, seen: Observed, content: Mapping[str, str], *, token: str = "", kind: str = "Opaque"
) -> WriteSecret:
    found = seen.secrets.found.get(name)
    made = own.object(SECRET, name, component=COMPONENT, data=encoded(content)) | {"type": kind}
    if found is not None:
        require_ours(made, found, own.uid)
    return WriteSecret(made, found, token=token)


def require_secrets(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """What nodes cannot start without is there; once it was, the cluster goes on with that."""
    secrets = seen.secrets
    step = provisioning.require_secrets(secrets.problem, secrets.expires, now)
    if step.progress is Progress.DONE:
        return step
    if secrets.passwords is None or (resource.spec.tls.mode != "none" and secrets.mounted is None):
        return step
    message = step.message.removesuffix("Nothing was changed.") + "Nodes go on with what they have."
    return Step.progressing(step.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


# Room.


def grow_volumes(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Volumes are as large as the spec asks; they never get smaller."""
    if resource.spec.storage is None or seen.stateful_set is None:
        return PASS
    return provisioning.grow_volumes(
        [instance.volume for instance in seen.instances if instance.volume],
        seen.stateful_set,
        resource.spec.storage.size,
        now,
        refusal=REFUSAL,
        remake=resource.formed,
    )
