"""The users of the spec: which definition nodes get next, which rules a server refuses, and status.users. Pure.

`credentials.rotate_password` applies them. Rules enter the Secret once every reachable server has a revision with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

from operators.redis.api.acl_user import User
from operators.redis.client.commands import ChangeUser
from operators.redis.client.errors import ConfigRefused
from operators.redis.client.responses import NodeReport, digest
from operators.redis.facts.assessment import Assessment
from operators.redis.reasons import USER_NOT_APPLIED
from operators.redis.security.users import Passwords, Rotation, SpecUser, revision, revision_of
from operators.redis.state.instance import Instance, endpoint
from operators.redis.steps.rollout_markers import running
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Action, Attempt, Step

NOTE = "redis.middleware.hc.cn/refused-user."
"""Prefix of the annotations of pods that record users whose rules the server refused."""

MAX_LISTED_USERS = 2
"""Maximum number of users in the message of the resource; status.users has all."""

R = TypeVar("R", bound=Rotation)


def rotated(seen: Assessment, present: R, desired: str | None, named: str, *, reachable: bool) -> tuple[str, R | None]:
    """Return why the passwords of a user change, and the next ones; None if nothing changes now.

    Args:
        desired, named: see `Secrets`.
        reachable: whether every node has applied the present ones.
    """
    until = seen.now + timedelta(seconds=seen.settings.password_overlap)
    if named and named not in (*present.good, desired):
        return "Accepting previousPassword of the Secret in addition.", present.admit(named, seen.now)
    if desired is not None and present.next is not None and desired == present.current:
        return "The password change was reverted in the Secret.", present.withdraw(until)
    if desired is not None and desired not in (present.current, present.next):
        why = "The password in the Secret changed: both passwords are valid during the rotation."
        return why, present.introduce(desired, until)
    if present.next is not None and reachable:
        return "Every node accepts the new password: switching to it.", present.promote(until)
    left = present.expire(seen.now, named)
    if reachable and present.next is None and left != present:
        return "Removing the former password.", left
    return "", None


def _spec(seen: Assessment) -> dict[str, User] | None:
    """Return the users of the spec by name; None while nodes keep the present ones."""
    spec = seen.resource.spec
    return None if spec.pause or spec.violations else {user.name: user for user in spec.users}


def followed(seen: Assessment, passwords: Passwords, *, reachable: bool) -> Passwords:
    """Return the passwords with the next definition of each user."""
    desired, present = _spec(seen), seen.secrets.applied_users
    if desired is None:
        return passwords
    found = (_followed(seen, desired.get(name), present.get(name), reachable) for name in sorted({*desired, *present}))
    generated = {key: text for key, text in passwords.generated.items() if key.partition(".")[2] in desired}
    return replace(passwords, users=tuple(filter(None, found)), generated=generated)


def _followed(seen: Assessment, desired: User | None, present: SpecUser | None, reachable: bool) -> SpecUser | None:
    if desired is None:
        return None if present is None or (present.removed and reachable) else replace(present, removed=True)
    given, may_use = seen.secrets.of_users.get(desired.name), _accepted(seen, desired)
    password = given if isinstance(given, str) and given else None
    if present is None or present.removed:
        is_known = may_use and password is not None
        new = SpecUser(password or "", name=desired.name, rules=desired.words, enabled=desired.is_enabled)
        return new if is_known else None if reachable else present
    changed = replace(present, enabled=desired.is_enabled, rules=desired.words if may_use else present.rules)
    return rotated(seen, changed, password, "", reachable=reachable)[1] or changed


def _accepted(seen: Assessment, user: User) -> bool:
    """Return whether every reachable server accepts the rules; one of them at least."""
    reports = [instance.report for instance in running(seen) if instance.report]
    return bool(reports) and all(_has_tried(report, user) for report in reports)


def _has_tried(report: NodeReport, user: User) -> bool:
    found = report.users.get(revision_of(user.name))
    return found is not None and found.passwords == (digest(user.words),)


def tries(seen: Assessment) -> Iterator[Action]:
    """Yield the attempts to set new rules at each reachable server, as those of a disabled user."""
    present = {user.name: user.rules for user in seen.secrets.applied_users.values() if not user.removed}
    for user in (_spec(seen) or {}).values():
        for each in running(seen) if present.get(user.name) != user.words else ():
            if each.report is None or each.pod_obj is None or _has_tried(each.report, user):
                continue
            by = f"{_noted(user)} {each.report.engine} {each.report.version} at {seen.now:%Y-%m-%dT%HZ}"
            if not annotation(each.pod_obj, f"{NOTE}{user.name}").startswith(by):
                commands = (("ACL", "SETUSER", *revision(user.name, user.words)),)
                call = ChangeUser(seen.secrets.access, endpoint(seen.resource, each), each.id, user.name, commands)
                yield Attempt(call, ConfigRefused, POD, each.pod_obj, (f"{NOTE}{user.name}", by))


def _noted(user: User) -> str:
    return digest(user.words)[:16]


def changes(seen: Assessment, passwords: Passwords, instance: Instance, report: NodeReport) -> Iterator[Action]:
    """Yield the calls that give a server exactly the users of the Secret."""
    at, desired = endpoint(seen.resource, instance), _spec(seen) or {}
    for user in passwords.users:
        tried = desired[user.name].words if user.name in desired else user.rules
        if not user.is_applied(report.users, tried):
            yield ChangeUser(seen.secrets.access, at, instance.id, user.name, user.commands)


def _refusal(seen: Assessment, user: User) -> str:
    """Return why a user cannot be applied as the spec has it, as a sentence; empty if it can, as far as is known."""
    desired = seen.secrets.of_users.get(user.name)
    if isinstance(desired, SecretProblem):
        return desired.message
    if not desired and not seen.settings.write_secrets:
        return "The operator may not write its Secret: the chart value rbac.writeSecrets is false. Set passwordSecret."
    notes = (annotation(instance.pod_obj, f"{NOTE}{user.name}") for instance in running(seen))
    refused = (note.partition(": ")[2] for note in notes if note.startswith(_noted(user)))
    return next(refused, "")


def report(seen: Assessment) -> list[Obj] | None:
    """Return status.users: a user is ready if every running server reports exactly the user of the spec."""
    found = [(user.name, _refusal(seen, user) or _awaited(seen, user)) for user in seen.resource.spec.users]
    return [{"name": name, "ready": not why} | ({"message": why} if why else {}) for name, why in found] or None


def _awaited(seen: Assessment, user: User) -> str:
    """Return what is missing until a user is applied, as a sentence."""
    found, servers = seen.secrets.applied_users.get(user.name), running(seen)
    expected = (user.words, user.is_enabled, seen.secrets.of_users.get(user.name), None, False)
    if found is None or (found.rules, found.enabled, found.current, found.next, found.removed) != expected:
        return "The user is being changed on all nodes."
    confirm = {each.name for each in servers if each.report and found.is_applied(each.report.users, found.rules)}
    missing = [each.name for each in servers if each.name not in confirm] or ([] if servers else ["any node"])
    return f"Not confirmed by {', '.join(missing[:3])}{', …' if missing[3:] else ''}." if missing else ""


def report_refused_users(seen: Assessment) -> Step:
    """Report users that cannot be applied as the spec has them; this stops nothing."""
    found = [(user.name, _refusal(seen, user)) for user in seen.resource.spec.users]
    refused = [f"{name}: {why}" for name, why in found if why]
    if not refused:
        return PASS
    more = f" And {len(refused) - MAX_LISTED_USERS} more, in status.users." if refused[MAX_LISTED_USERS:] else ""
    message = f"Users keep their former definition, if any: {' '.join(refused[:MAX_LISTED_USERS])}{more}"
    return Step.progressing(USER_NOT_APPLIED, message, warning=True, requeue=SECRETS_RETRY_SECONDS)
