"""Authentication: enabled or disabled according to the spec, with the root password of the user's Secret. Pure.

The operator keeps root's valid password in a Secret of its own: written before it enables authentication, and with the
former password before it changes the password. So neither a removed spec.auth nor a deleted Secret locks it out.

The password in etcd may differ from the user's Secret: the Secret was changed, a user changed it in etcd, or the data
was restored. The operator then tries the other passwords that it knows (`other_credentials`). If etcd accepts one, the
operator sets the password of the user's Secret. If etcd accepts none, only a user can know the password: `Denied`.

Applications get the user `client`, which may only read and write keys, unless the spec requests root for them. The
password is generated and stored first, then set in etcd, and published once etcd has accepted it. As root, the operator
can set it again at any time. A user `client` that the operator did not create stays as it is.

Without spec.auth, the operator disables authentication that it had enabled. If a user enabled it in etcd, the operator
can no longer read the cluster, and reports that.
"""

from __future__ import annotations

import dataclasses

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.client.commands import ChangePassword, DisableAuth, EnableAuth, ReplaceUser
from operators.etcd.client.server import Access
from operators.etcd.facts.assessment import Assessment
from operators.etcd.objects import names
from operators.etcd.objects.names import COMPONENT
from operators.etcd.reasons import (
    CHANGING_PASSWORD,
    CHECKING_AUTH,
    CLIENT_USER_TAKEN,
    DENIED,
    DISABLING_AUTH,
    ENABLING_AUTH,
)
from operators.etcd.security.secrets import CLIENT, CLIENT_ROLE, USER, Secrets, root_secret
from shared.kubernetes import secret_provenance
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import SECRET
from shared.kubernetes.secrets import PASSWORD_KEY, PREVIOUS_PASSWORD_KEY, content_of, encoded
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.status.reasons import FOREIGN_OBJECT, GENERATING_PASSWORD
from shared.steps import connection
from shared.steps.passwords import ROTATE, GeneratedPassword

RETRY_SECONDS = 15.0
"""Time until members and the Secret are read again: no watch reports a change of either."""


def other_credentials(secrets: Secrets, refused: Access) -> tuple[Access, ...]:
    """Return further credentials that etcd may accept: previousPassword of the user's Secret, and stored passwords."""
    known = dict.fromkeys((secrets.previous_password, *secrets.stored))
    return tuple(
        dataclasses.replace(secrets.access, user=USER, password=password)
        for password in known
        if password and password != refused.password
    )


def require_access(seen: Assessment) -> Step:
    """Require that etcd accepts the operator's credentials: without them, the state of the members is unknown."""
    resource = seen.resource
    if not seen.denied:
        return PASS
    if seen.secrets.unproven:  # the password may be in these Secrets, which are not used
        return Step.blocked(FOREIGN_OBJECT, secret_provenance.refusal(resource.obj, seen.secrets.unproven))
    auth = resource.spec.auth
    if auth is None:
        fix = (
            "spec.auth is not set, but authentication is enabled in etcd. Set spec.auth.rootSecretName to a "
            "Secret with root's password (with enabled: false to disable authentication), or disable it "
            "yourself: `etcdctl auth disable`."
        )
    else:
        name = names.root_secret(resource)
        has_previous = bool(seen.secrets.previous_password)
        tried = "Neither password nor previousPassword" if has_previous else "The password"
        verb = "is" if has_previous else "is not"
        fix = (
            f"{tried} of Secret {name} {verb} root's password. Store root's current password in the key "
            f"previousPassword of Secret {name}, next to the desired one, or set it in etcd: `etcdctl user "
            "passwd root`."
        )
    message = f"etcd rejects the operator's credentials: {seen.denied} {fix} Members keep running unchanged."
    return Step.blocked(DENIED, message, requeue=RETRY_SECONDS)


def ensure_auth(seen: Assessment) -> Step:
    """Enable or disable authentication according to the spec, and set root's password to that of the user's Secret.

    While the spec cannot be applied, authentication is neither enabled nor disabled.
    """
    auth = seen.resource.spec.auth
    if seen.members is None or (auth is None and not seen.auth_enabled):
        return PASS
    password = _desired_password(seen)
    if seen.auth_enabled is None or (auth is not None and auth.enabled and not password):
        message = "Reading whether authentication is enabled in etcd, and root's password."
        return Step.progressing(CHECKING_AUTH, message, requeue=RETRY_SECONDS)
    if auth is None or not auth.enabled:
        return _disable(seen) if seen.auth_enabled and seen.spec_applies else PASS
    if not seen.auth_enabled:
        return _enable(seen, password) if seen.spec_applies else PASS
    if seen.former_password and seen.secrets.password_problem is None:
        return _change_password(seen, password)
    return PASS


def provide_password(seen: Assessment) -> Step:
    """Keep the Secret with the generated password of root, if spec.auth names none.

    The Secret lasts as long as the data: volumes that outlive the resource still require the password.
    """
    resource = seen.resource
    auth, name, stored = resource.spec.auth, names.root_secret(resource), seen.secrets.stored
    if auth is None or not auth.enabled or auth.root_secret_name:
        return PASS
    own = names.owner(resource, seen.settings.operator)
    user, published = connection.known_credentials(own, COMPONENT, seen.connection)
    known = (*stored, *([published] if user == USER else ()))
    generated = GeneratedPassword(
        own=dataclasses.replace(own, lasting=lasts(resource)),
        component=COMPONENT,
        at="spec.auth.rootSecretName",
        user=USER,
        found=seen.secrets.found.get(name),
        request=annotation(resource.obj, ROTATE),
        recovered=next(filter(None, known), ""),
        may_rotate=_desired_password(seen) in stored,
    )
    is_locked = bool(resource.recorded_cluster_id) and seen.auth_enabled is not False
    if is_locked and not generated.present and not generated.recovered:
        message = (
            f"Secret {name} does not exist, and etcd may require a password that the operator does not know. If etcd "
            "answers without a password, one is generated. Otherwise create a Secret with root's password in the key "
            "password, and name it in spec.auth.rootSecretName."
        )
        return Step.wait(GENERATING_PASSWORD, message, warning=True, requeue=RETRY_SECONDS)
    return generated.step(seen.now, is_permitted=seen.settings.write_secrets)


def user_for_clients(seen: Assessment) -> str:
    """Return the user that applications get: that of the spec, or the one that they have, or `client`.

    Earlier versions gave root without a record in the status. The proof that applications have it is that their Secret,
    which the operator wrote, has root's password.
    """
    published, secrets = seen.connection, seen.secrets
    has_root = (
        published is not None
        and published.is_proven
        and published.content.get(connection.USERNAME_KEY) == USER
        and published.content.get(PASSWORD_KEY) in {secrets.access.password, *secrets.stored}
    )
    return USER if seen.resource.connect_as == USER or (not seen.resource.connect_as and has_root) else CLIENT


def provide_client_password(seen: Assessment) -> Step:
    """Keep the Secret with the generated password of the user for applications, once etcd requires one."""
    resource = seen.resource
    name = names.client_password_secret(resource)
    is_needed = name and seen.settings.write_secrets and seen.auth_enabled and not seen.denied
    if not is_needed or user_for_clients(seen) != CLIENT:
        return PASS
    own = names.owner(resource, seen.settings.operator)
    user, published = connection.known_credentials(own, COMPONENT, seen.connection)
    generated = GeneratedPassword(
        own=own,
        component=COMPONENT,
        at="spec.auth.connectAs",
        user=CLIENT,
        found=seen.secrets.found.get(name),
        request=annotation(resource.obj, ROTATE),
        recovered=published if user == CLIENT else "",
        may_rotate=True,
        secret=name,
    )
    return generated.step(seen.now, is_permitted=True)


def ensure_client_user(seen: Assessment) -> Step:
    """Create the user for applications, or set the password of its Secret; only a user that the operator created."""
    user, name = seen.client, names.client_password_secret(seen.resource)
    if user is None or user.accepted or user_for_clients(seen) != CLIENT:
        return PASS
    if not user.is_own:
        return Step.note(
            CLIENT_USER_TAKEN,
            f"etcd has a user {CLIENT} that the operator did not create (it lacks the role {CLIENT_ROLE}), so its "
            f"password was not changed, and Secret {connection.secret_name(seen.resource.name)} gives no such user to "
            f"applications. Delete the user (etcdctl user delete {CLIENT}), or set spec.auth.connectAs to root.",
        )
    message = f"Setting user {CLIENT} in etcd, with the password of Secret {name}."
    password, access = seen.secrets.client_password, seen.secrets.access
    call = ReplaceUser(seen.endpoints, access, CLIENT, password, CLIENT_ROLE, user.roles)
    return Step.wait(CHANGING_PASSWORD, message, call)


def lasts(resource: EtcdCluster) -> bool:
    """Whether the generated password outlives the resource, as the data does that requires it."""
    return resource.spec.storage.retain and resource.spec.storage.medium == "Volume"


def lasting_secrets(seen: Assessment) -> frozenset[str]:
    """Return the Secrets that outlive the resource."""
    return frozenset({names.root_secret(seen.resource)} if lasts(seen.resource) else ())


def store_password(seen: Assessment) -> Step:
    """Keep the password that etcd has just accepted: the user's Secret or spec.auth may be deleted later."""
    auth, password = seen.resource.spec.auth, _desired_password(seen)
    is_proven = bool(seen.auth_enabled) and not seen.former_password and seen.members is not None
    if auth is None or not auth.enabled or not password or not is_proven:
        return PASS
    return Step.do(*_store(seen, password))


def _desired_password(seen: Assessment) -> str:
    return content_of(root_secret(seen.resource, seen.secrets.found)).get(PASSWORD_KEY, "")


def _enable(seen: Assessment, password: str) -> Step:
    message = f"Enabling authentication; the password of {USER} is in Secret {names.root_secret(seen.resource)}."
    writes = _store(seen, password)
    call = EnableAuth(seen.endpoints, seen.secrets.access, USER, password)
    return Step.wait(ENABLING_AUTH, message, *writes, *(() if writes else (call,)))


def _change_password(seen: Assessment, password: str) -> Step:
    message = (
        f"Changing the password of {USER} to that of Secret {names.root_secret(seen.resource)}; until then the "
        "former one is valid."
    )
    writes = _store(seen, password, seen.secrets.access.password)
    call = ChangePassword(seen.endpoints, seen.secrets.access, USER, password)
    return Step.wait(CHANGING_PASSWORD, message, *writes, *(() if writes else (call,)))


def _disable(seen: Assessment) -> Step:
    """Disable authentication, if a password is known; the user root and the stored password are kept."""
    if not seen.secrets.access.user:
        return PASS
    why = "spec.auth was removed" if seen.resource.spec.auth is None else "spec.auth.enabled is false"
    return Step.wait(
        DISABLING_AUTH, f"Disabling authentication: {why}.", DisableAuth(seen.endpoints, seen.secrets.access)
    )


def _store(seen: Assessment, *passwords: str) -> tuple[WriteSecret, ...]:
    """Return the write of the operator's own Secret; none if it has these passwords.

    Args:
        passwords: the password in the user's Secret, and while it is changed, the former one.
    """
    name, own = names.credentials_secret(seen.resource), names.owner(seen.resource, seen.settings.operator)
    content = dict(zip((PASSWORD_KEY, PREVIOUS_PASSWORD_KEY), (*passwords, ""), strict=False))
    found = seen.secrets.found.get(name)
    made = own.object(SECRET, name, component=COMPONENT, data=encoded(content)) | {"type": "Opaque"}
    return () if found is not None and seen.secrets.stored == passwords else (WriteSecret(made, found),)
