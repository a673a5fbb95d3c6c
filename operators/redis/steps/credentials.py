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
from operators.redis.steps.rollout_markers import has_heard, heard_by_all, noted, running, told
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


def require_entry(resource: RedisCluster, seen: Observed, _now: datetime) -> Step:
    """The operator is let in; a node that knows none of its passwords was given another one by hand."""
    denied = [place for place in seen.places if place.denied]
    if not denied:
        return PASS
    auth = resource.spec.auth
    secret = f"previousPassword of Secret {auth.secret_name}" if auth else "a Secret, and name it in spec.auth"
    message = (
        f"{_names(denied)}: {denied[0].error} Somebody changed the password of the user default by hand. Put the one "
        f"that holds into {secret}; or restart the node: it starts with what it should have."
    )
    everyone = len(denied) == sum(1 for place in seen.places if place.pod is not None)
    progress = Progress.BLOCKED if everyone else Progress.PROGRESSING
    return Step((), progress, DENIED, message, warning=True, requeue=DENIED_SECONDS)


def keep_users(settings: Settings, resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """The password is what the user's Secret says; while it changes, the former one is good, too."""
    secrets = seen.secrets
    passwords, mark = secrets.passwords, secrets.users_mark
    if passwords is None:
        return PASS
    deaf = [place for place in running(seen) if not _keeps(place, passwords, mark)]
    if actions := [action for place in deaf if place.said for action in _tell_users(resource, seen, place, passwords)]:
        return Step.wait(ROTATING_PASSWORD, f"{_names(deaf)}: told which passwords are good.", *actions)
    reachable = not deaf and heard_by_all(seen, USERS_MARK, mark)
    why, wanted = _following(
        passwords, seen, now, reachable=reachable, overlap=timedelta(seconds=settings.password_overlap)
    )
    if wanted is not None:
        own = names.owner(resource, settings.operator)
        write = users_secret(resource, own, wanted, seen)
        try:
            if write.seen is not None:
                require_ours(write.obj, write.seen, resource.uid)
        except NotOurs as error:
            return Step.blocked(NOT_OURS, str(error))
        return Step.wait(ROTATING_PASSWORD, why, write)
    if passwords.next is not None:
        whom = _names(deaf) or "Pods to come"
        return Step.progressing(
            ROTATING_PASSWORD, f"{whom}: must know the new password before it is used.", requeue=MARKING_SECONDS
        )
    ends = min((each.until for each in passwords.former if each.password != secrets.named), default=None)
    return PASS if ends is None else Step(requeue=max((ends - now).total_seconds(), MARKING_SECONDS))


def _following(
    passwords: Passwords, seen: Observed, now: datetime, *, reachable: bool, overlap: timedelta
) -> tuple[str, Passwords | None]:
    """Why, and which passwords are to be good next; None if nothing is to change now."""
    wanted, named = seen.secrets.wanted, seen.secrets.named
    if named and named not in (*passwords.good, wanted):
        return "previousPassword of the Secret is good, too.", passwords.admit(named, now)
    if wanted is not None and passwords.next is not None and wanted == passwords.current:
        return "The new password was taken back.", passwords.withdraw(now + overlap)
    if wanted is not None and wanted not in (passwords.current, passwords.next):
        return "The Secret has another password: at first, both are good.", passwords.introduce(wanted, now + overlap)
    if passwords.next is not None and reachable:
        return "Every node takes the new password: it is used from now on.", passwords.promote(now + overlap)
    left = passwords.forget(now, named)
    if reachable and passwords.next is None and left != passwords:
        return "The former password is good no more.", left
    return "", None


def _keeps(place: Instance, passwords: Passwords, mark: str) -> bool:
    """Whether a node has reachable which passwords are good, and holds to it.

    It may have been told of others since: by hand, or by an operator whose last words came late.
    """
    said = place.said
    agrees = said is None or (said.gives, said.takes) == (digest(passwords.current), passwords.digests)
    return agrees and has_heard(place, USERS_MARK, mark)


def _tell_users(resource: RedisCluster, seen: Observed, place: Instance, passwords: Passwords) -> Iterable[Action]:
    at, access = endpoint(resource, place), seen.secrets.access
    yield SetPasswords(access, at, place.id, passwords.digests)
    yield Configure(access, at, place.id, {"masterauth": passwords.current})
    yield noted(place, USERS_MARK, told(place, seen.secrets.users_mark))


def renew_certificates(resource: RedisCluster, seen: Observed, now: datetime) -> Step:
    """Every node shows, and trusts, what was written for it; none restarts for that.

    First the kubelet is made to look, then the server.
    """
    mounted = seen.secrets.mounted
    if mounted is None:
        return PASS
    mark, actions = mounted.mark, list[Action]()
    deaf = [place for place in running(seen) if not has_heard(place, CERTIFICATE_MARK, mark)]
    for place in deaf:
        since = _brought_since(place, mark)
        if since is None:
            actions.append(noted(place, CERTIFICATE_MARK, f"{mark} at {now:%Y-%m-%dT%H:%M:%SZ}"))
        elif place.said and now - since >= MOUNTING:
            file = {"tls-ca-cert-file": f"{TLS}/{mounted.file}"}
            at = endpoint(resource, place)
            actions.append(Configure(seen.secrets.access, at, place.id, file))
            actions.append(noted(place, CERTIFICATE_MARK, told(place, mark)))
    if not deaf:
        return PASS
    message = f"{_names(deaf)}: takes up a new certificate without a restart."
    return Step(tuple(actions), Progress.PROGRESSING, RENEWING_CERTIFICATES, message, requeue=MARKING_SECONDS)


def _brought_since(place: Instance, mark: str) -> datetime | None:
    """When the kubelet was made to bring a certificate; None if it was not yet."""
    before, _, since = annotation(place.pod_obj, CERTIFICATE_MARK).partition(" at ")
    try:
        return datetime.fromisoformat(since) if before == mark else None
    except ValueError:
        return None


def _names(places: Iterable[Instance]) -> str:
    return ", ".join(place.name for place in places)
