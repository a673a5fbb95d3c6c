"""Steps that change passwords and certificates without a restart. Pure.

users.py and certificates.py decide what is written next. The steps here apply it to every node, and write the next
state only when all nodes have applied the current one. A node that starts in between reads it from its files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from operators.redis.client.commands import Configure, SetPasswords
from operators.redis.client.responses import NodeReport, digest
from operators.redis.client.server import REPLICATION_USER
from operators.redis.facts.assessment import Assessment
from operators.redis.objects import names
from operators.redis.objects.names import CERTIFICATE_MARK, USERS_MARK
from operators.redis.objects.redis_conf import TLS
from operators.redis.reasons import DENIED, RENEWING_CERTIFICATES, ROTATING_PASSWORD
from operators.redis.security.users import Passwords
from operators.redis.state.instance import Instance, endpoint
from operators.redis.state.observed import Observed
from operators.redis.steps import spec_users
from operators.redis.steps.provisioning import users_secret
from operators.redis.steps.rollout_markers import applied_everywhere, is_applied, mark_pod, marker, running
from shared.kubernetes import secret_provenance
from shared.kubernetes.accessors import annotation, rfc3339, time_in
from shared.kubernetes.ownership import ForeignObject, require_owned
from shared.runtime.plan import PASS, Action, Step
from shared.status.reasons import FOREIGN_OBJECT
from shared.status.verdict import Progress

MARKING_SECONDS = 2.0
"""Time until nodes that have not applied a change are observed again."""

DENIED_SECONDS = 15.0
"""Time until nodes that reject the operator's passwords are observed again."""

MOUNTING = timedelta(seconds=5)
"""Time allowed for the kubelet to update a mounted Secret once it noticed a change of the pod."""


def require_authentication(seen: Assessment) -> Step:
    """Require that nodes accept a password of the operator; a node that accepts none was changed manually."""
    denied = [instance for instance in seen.instances if instance.denied]
    if not denied:
        return PASS
    if seen.secrets.unproven:  # the password may be in these Secrets, which are not used
        return Step.blocked(FOREIGN_OBJECT, secret_provenance.refusal(seen.resource.obj, seen.secrets.unproven))
    given = names.password_secret(seen.resource)
    secret = f"the key previousPassword of Secret {given}" if given else "a Secret and reference it in spec.auth"
    message = (
        f"{_names(denied)}: {denied[0].error} The password of user default was changed outside the operator. Add the "
        f"current password to {secret}; or restart the node: it starts with the configured password."
    )
    all_denied = len(denied) == sum(1 for instance in seen.instances if instance.pod is not None)
    progress = Progress.BLOCKED if all_denied else Progress.PROGRESSING
    return Step((), progress, DENIED, message, warning=True, requeue=DENIED_SECONDS)


def rotate_password(seen: Assessment) -> Step:
    """Change the password to the one in the user's Secret; the former password stays valid during the change."""
    secrets = seen.secrets
    passwords, mark = secrets.passwords, secrets.users_mark
    if passwords is None:
        return PASS
    users = _Users.of(passwords, seen)
    pending = [instance for instance in running(seen) if not _keeps(seen, instance, users)]
    reports = [(each, each.report) for each in pending if each.report]
    if actions := [action for each, report in reports for action in _set_users(seen, each, report, users)]:
        return Step.wait(ROTATING_PASSWORD, f"{_names(pending)}: updating the valid passwords.", *actions)
    if actions := [*spec_users.tries(seen)]:
        return Step.wait(ROTATING_PASSWORD, "Servers check the rules of users before they get them.", *actions)
    reachable = not pending and applied_everywhere(seen, USERS_MARK, mark)
    why, desired = _following(seen, passwords, reachable=reachable)
    if desired is not None:
        own = names.owner(seen.resource, seen.settings.operator)
        write = users_secret(seen, own, desired)
        try:
            if write.seen is not None:
                require_owned(write.obj, write.seen, seen.resource.uid)
        except ForeignObject as error:
            return Step.blocked(FOREIGN_OBJECT, str(error))
        return Step.wait(ROTATING_PASSWORD, why, write)
    if passwords.is_changing:
        message = f"{_names(pending) or 'New pods'}: must accept the new password before it is used."
        return Step.progressing(ROTATING_PASSWORD, message, requeue=MARKING_SECONDS)
    former = [each for each in passwords.former if each.password != secrets.named]
    former += [each for user in passwords.users for each in user.former]
    ends = min((each.until for each in former), default=None)
    return PASS if ends is None else Step(requeue=max((ends - seen.now).total_seconds(), MARKING_SECONDS))


def _following(seen: Assessment, passwords: Passwords, *, reachable: bool) -> tuple[str, Passwords | None]:
    """Return why the passwords change, and the next passwords; None if nothing changes now."""
    if passwords.admits_replication and reachable:
        return "Every node has the user of replicas: they authenticate as this user.", passwords.use_replication()
    desired, named = seen.secrets.desired, seen.secrets.named
    why, following = spec_users.rotated(seen, passwords, desired, named, reachable=reachable)
    if following is None and (users := spec_users.followed(seen, passwords, reachable=reachable)) != passwords:
        return "The users of the spec, or their passwords, change.", users
    return why, following


@dataclass(frozen=True, slots=True)
class _Users:
    """Passwords that each node should accept, and the user as which it should authenticate at its primary.

    A replica may use a password of the replicas' user that the Secret no longer has: it was deleted, or an operator of
    an earlier version wrote it. Until the replica uses the present one, that password stays valid where it is.

    Attributes:
        used: SHA-256 of the passwords that replicas use as the replicas' user.
        common: SHA-256 of the passwords of this user that all reachable nodes accept now.
    """

    passwords: Passwords
    used: frozenset[str]
    common: frozenset[str]

    @classmethod
    def of(cls, passwords: Passwords, seen: Observed) -> _Users:
        reports = [instance.report for instance in running(seen) if instance.report is not None]
        used = frozenset(report.gives for report in reports if report.gives_as == REPLICATION_USER)
        accepted = [frozenset(report.admits) for report in reports] or [frozenset()]
        return cls(passwords, used, frozenset.intersection(*accepted))

    def admitted(self, report: NodeReport) -> tuple[str, ...]:
        """Return the SHA-256 of each password of the replicas' user that a node should accept."""
        if not self.passwords.replication:
            return report.admits
        return tuple(sorted({*self.passwords.admitted, *(self.used & {*report.admits})}))

    def links_well(self, report: NodeReport) -> bool:
        """Return whether a node authenticates as it should at its primary.

        Before replicas use their user, one that uses it already keeps doing so, if all nodes accept it.
        """
        if not self.passwords.uses_replication and report.gives_as == REPLICATION_USER:
            return report.gives in self.common
        user, password = self.passwords.link
        return (report.gives_as, report.gives) == (user, digest(password))

    @property
    def may_link(self) -> bool:
        """Whether no reachable node refuses a replica that authenticates as it should."""
        return not self.passwords.uses_replication or digest(self.passwords.replication) in self.common


def _keeps(seen: Assessment, instance: Instance, users: _Users) -> bool:
    """Return whether a node applied the valid users and passwords, and still has them.

    They may have been changed since: manually, or by a late command of another operator process.
    """
    report = instance.report
    agrees = report is None or (
        (report.takes, report.admits) == (users.passwords.digests, users.admitted(report))
        and users.links_well(report)
        and not any(spec_users.changes(seen, users.passwords, instance, report))
    )
    return agrees and is_applied(instance, USERS_MARK, seen.secrets.users_mark)


def _set_users(seen: Assessment, instance: Instance, report: NodeReport, users: _Users) -> Iterable[Action]:
    at, access = endpoint(seen.resource, instance), seen.secrets.access
    yield SetPasswords(access, at, instance.id, users.passwords.digests, users.admitted(report))
    yield from spec_users.changes(seen, users.passwords, instance, report)
    if not users.links_well(report):
        if not users.may_link:  # another node, which gets the user now
            return
        user, password = users.passwords.link
        yield Configure(access, at, instance.id, {"masteruser": user, "masterauth": password})
    yield mark_pod(instance, USERS_MARK, marker(instance, seen.secrets.users_mark))


def renew_certificates(seen: Assessment) -> Step:
    """Let every node load its new certificate and trusted authorities without a restart.

    The pod is annotated first, so that the kubelet updates the mounted files; then the server reloads them.
    """
    mounted = seen.secrets.mounted
    if mounted is None:
        return PASS
    mark, actions = mounted.mark, list[Action]()
    pending = [instance for instance in running(seen) if not is_applied(instance, CERTIFICATE_MARK, mark)]
    for instance in pending:
        before, _, brought = annotation(instance.pod_obj, CERTIFICATE_MARK).partition(" at ")
        since = time_in(brought, seen.now) if before == mark else None
        if since is None:
            actions.append(mark_pod(instance, CERTIFICATE_MARK, f"{mark} at {rfc3339(seen.now)}"))
        elif instance.report and seen.now - since >= MOUNTING:
            file = {"tls-ca-cert-file": f"{TLS}/{mounted.file}"}
            at = endpoint(seen.resource, instance)
            actions.append(Configure(seen.secrets.access, at, instance.id, file))
            actions.append(mark_pod(instance, CERTIFICATE_MARK, marker(instance, mark)))
    if not pending:
        return PASS
    message = f"{_names(pending)}: loading the new certificate without a restart."
    return Step(tuple(actions), Progress.PROGRESSING, RENEWING_CERTIFICATES, message, requeue=MARKING_SECONDS)


def _names(instances: Iterable[Instance]) -> str:
    return ", ".join(instance.name for instance in instances)
