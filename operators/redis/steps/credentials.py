"""Steps that change who may enter, and what certificates nodes show, while everybody goes on. Pure.

What is written, and when, users.py and certificates.py say. Here every node is told of what was written, and only when
all have reachable is the next thing written. A node that starts meanwhile reads it by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from operators.redis.api.resource import RedisCluster
from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.client.responses import digest
from operators.redis.instance import Instance, endpoint
from operators.redis.objects import names
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.objects.redis_conf import TLS
from operators.redis.observe import Observed
from operators.redis.reasons import DENIED, RENEWING_CERTIFICATES, ROTATING_PASSWORD
from operators.redis.security.users import Passwords
from operators.redis.settings import Settings
from operators.redis.steps.provisioning import users_secret
from operators.redis.steps.rollout_markers import applied_everywhere, is_applied, mark_pod, marker, running
from shared.kubernetes.accessors import annotation
from shared.kubernetes.ownership import NotOurs, require_ours
from shared.runtime.plan import PASS, Action, Step
from shared.status.reasons import NOT_OURS
from shared.status.verdict import Progress

MARKING_SECONDS = 2.0
"""Seconds until nodes are looked at again that have yet to hear of something."""

DENIED_SECONDS = 15.0
"""Seconds until nodes that do not let the operator in are asked again."""

MOUNTING = timedelta(seconds=5)
"""What the kubelet gets to bring a Secret that has changed, once it has noticed that the pod has."""


def require_authentication(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The operator is let in; a node that knows none of its passwords was given another one by hand."""
    denied = [instance for instance in seen.instances if instance.denied]
    if not denied:
        return PASS
    auth = resource.spec.auth
    secret = f"previousPassword of Secret {auth.secret_name}" if auth else "a Secret, and name it in spec.auth"
    message = (
        f"{_names(denied)}: {denied[0].error} Somebody changed the password of the user default by hand. Put the one "
        f"that holds into {secret}; or restart the node: it starts with what it should have."
    )
    all_denied = len(denied) == sum(1 for instance in seen.instances if instance.pod is not None)
    progress = Progress.BLOCKED if all_denied else Progress.PROGRESSING
    return Step((), progress, DENIED, message, warning=True, requeue=DENIED_SECONDS)


def rotate_password(settings: Settings, resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """The password is what the user's Secret says; while it changes, the former one is good, too."""
    secrets = seen.secrets
    passwords, mark = secrets.passwords, secrets.users_mark
    if passwords is None:
        return PASS
    pending = [instance for instance in running(seen) if not _keeps(instance, passwords, mark)]
    if actions := [
        action
        for instance in pending
        if instance.report
        for action in _set_passwords(resource, seen, instance, passwords)
    ]:
        return Step.wait(ROTATING_PASSWORD, f"{_names(pending)}: told which passwords are good.", *actions)
    reachable = not pending and applied_everywhere(seen, USERS_MARK, mark)
    why, desired = _following(
        passwords, seen, now, reachable=reachable, overlap=timedelta(seconds=settings.password_overlap)
    )
    if desired is not None:
        own = names.owner(resource, settings.operator)
        write = users_secret(resource, own, desired, seen)
        try:
            if write.seen is not None:
                require_ours(write.obj, write.seen, resource.uid)
        except NotOurs as error:
            return Step.blocked(NOT_OURS, str(error))
        return Step.wait(ROTATING_PASSWORD, why, write)
    if passwords.next is not None:
        whom = _names(pending) or "Pods to come"
        return Step.progressing(
            ROTATING_PASSWORD, f"{whom}: must know the new password before it is used.", requeue=MARKING_SECONDS
        )
    ends = min((each.until for each in passwords.former if each.password != secrets.named), default=None)
    return PASS if ends is None else Step(requeue=max((ends - now).total_seconds(), MARKING_SECONDS))


def _following(
    passwords: Passwords, seen: Observed, now: datetime, *, reachable: bool, overlap: timedelta
) -> tuple[str, Passwords | None]:
    """Why, and which passwords are to be good next; None if nothing is to change now."""
    desired, named = seen.secrets.desired, seen.secrets.named
    if named and named not in (*passwords.good, desired):
        return "previousPassword of the Secret is good, too.", passwords.admit(named, now)
    if desired is not None and passwords.next is not None and desired == passwords.current:
        return "The new password was taken back.", passwords.withdraw(now + overlap)
    if desired is not None and desired not in (passwords.current, passwords.next):
        return "The Secret has another password: at first, both are good.", passwords.introduce(desired, now + overlap)
    if passwords.next is not None and reachable:
        return "Every node takes the new password: it is used from now on.", passwords.promote(now + overlap)
    left = passwords.forget(now, named)
    if reachable and passwords.next is None and left != passwords:
        return "The former password is good no more.", left
    return "", None


def _keeps(instance: Instance, passwords: Passwords, mark: str) -> bool:
    """Whether a node has reachable which passwords are good, and holds to it.

    It may have been told of others since: by hand, or by an operator whose last words came late.
    """
    report = instance.report
    agrees = report is None or (report.gives, report.takes) == (digest(passwords.current), passwords.digests)
    return agrees and is_applied(instance, USERS_MARK, mark)


def _set_passwords(
    resource: RedisCluster, seen: Observed, instance: Instance, passwords: Passwords
) -> Iterable[Action]:
    at, access = endpoint(resource, instance), seen.secrets.access
    yield SetPasswords(access, at, instance.id, passwords.digests)
    yield Configure(access, at, instance.id, {"masterauth": passwords.current})
    yield mark_pod(instance, USERS_MARK, marker(instance, seen.secrets.users_mark))


def renew_certificates(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Every node shows, and trusts, what was written for it; none restarts for that.

    First the kubelet is made to look, then the server.
    """
    mounted = seen.secrets.mounted
    if mounted is None:
        return PASS
    mark, actions = mounted.mark, list[Action]()
    pending = [instance for instance in running(seen) if not is_applied(instance, CERTIFICATE_MARK, mark)]
    for instance in pending:
        since = _brought_since(instance, mark)
        if since is None:
            actions.append(mark_pod(instance, CERTIFICATE_MARK, f"{mark} at {now:%Y-%m-%dT%H:%M:%SZ}"))
        elif instance.report and now - since >= MOUNTING:
            file = {"tls-ca-cert-file": f"{TLS}/{mounted.file}"}
            at = endpoint(resource, instance)
            actions.append(Configure(seen.secrets.access, at, instance.id, file))
            actions.append(mark_pod(instance, CERTIFICATE_MARK, marker(instance, mark)))
    if not pending:
        return PASS
    message = f"{_names(pending)}: takes up a new certificate without a restart."
    return Step(tuple(actions), Progress.PROGRESSING, RENEWING_CERTIFICATES, message, requeue=MARKING_SECONDS)


def _brought_since(instance: Instance, mark: str) -> datetime | None:
    """When the kubelet was made to bring a certificate; None if it was not yet."""
    before, _, since = annotation(instance.pod_obj, CERTIFICATE_MARK).partition(" at ")
    try:
        return datetime.fromisoformat(since) if before == mark else None
    except ValueError:
        return None


def _names(instances: Iterable[Instance]) -> str:
    return ", ".join(instance.name for instance in instances)
