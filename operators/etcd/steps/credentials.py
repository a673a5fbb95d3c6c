"""Authentication: enabled or disabled according to the spec, with the root password of the Secret. Pure.

The password in etcd may differ from the Secret: the Secret was changed, a user changed it in etcd, or the data was
restored. The operator then tries previousPassword of the Secret (`former`). If etcd accepts it, the operator sets the
password of the Secret. If etcd accepts neither, only a user can know the password: `Denied`.

Without spec.auth, the operator neither enables nor disables authentication. If a user enabled it in etcd, the operator
can no longer read the cluster, and reports that.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.assessment import Assessment
from operators.etcd.client.commands import ChangePassword, DisableAuth, EnableAuth
from operators.etcd.client.server import Access
from operators.etcd.observe import Observed
from operators.etcd.reasons import CHANGING_PASSWORD, CHECKING_AUTH, DENIED, DISABLING_AUTH, ENABLING_AUTH
from operators.etcd.security.secrets import USER, Secrets
from shared.kubernetes.secrets import PASSWORD_KEY, content_of
from shared.runtime.plan import PASS, Step
from shared.status.verdict import Progress

RETRY_SECONDS = 15.0
"""Time until members and the Secret are read again: no watch reports a change of either."""


def former(secrets: Secrets) -> Access | None:
    """Return the credentials before root's password was changed; None if the Secret has no previousPassword."""
    if not secrets.previous_password or secrets.previous_password == secrets.access.password:
        return None
    return dataclasses.replace(secrets.access, user=USER, password=secrets.previous_password)


def require_access(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """Require that etcd accepts the operator's credentials: without them, the state of the members is unknown."""
    if not seen.denied:
        return PASS
    auth = resource.spec.auth
    if auth is None:
        fix = (
            "spec.auth is not set, but authentication is enabled in etcd. Set spec.auth.rootSecretName to a "
            "Secret with root's password (with enabled: false to disable authentication), or disable it "
            "yourself: etcdctl auth disable."
        )
    else:
        name = auth.root_secret_name
        has_previous = bool(seen.secrets.previous_password)
        tried = "Neither password nor previousPassword" if has_previous else "The password"
        verb = "is" if has_previous else "is not"
        fix = (
            f"{tried} of Secret {name} {verb} root's password. Store root's current password in the key "
            f"previousPassword of Secret {name}, next to the desired one, or set it in etcd: etcdctl user passwd "
            "root."
        )
    message = f"etcd rejects the operator's credentials: {seen.denied} {fix} Members keep running unchanged."
    return Step((), Progress.BLOCKED, DENIED, message, warning=True, requeue=RETRY_SECONDS)


def ensure_auth(resource: EtcdCluster, seen: Assessment, _now: datetime) -> Step:
    """Enable or disable authentication according to the spec, and set root's password to that of the Secret."""
    auth = resource.spec.auth
    if auth is None or seen.members is None:
        return PASS
    endpoints, access = seen.endpoints, seen.secrets.access
    password = content_of(seen.secrets.found.get(auth.root_secret_name)).get(PASSWORD_KEY, "")
    if seen.auth_enabled is None or (auth.enabled and not password):
        message = "Reading whether authentication is enabled in etcd, and root's password."
        return Step.progressing(CHECKING_AUTH, message, requeue=RETRY_SECONDS)
    if auth.enabled and not seen.auth_enabled:
        message = f"Enabling authentication; the password of {USER} is in Secret {auth.root_secret_name}."
        return Step.wait(ENABLING_AUTH, message, EnableAuth(endpoints, access, USER, password))
    if not auth.enabled and seen.auth_enabled:
        message = "Disabling authentication: spec.auth.enabled is false."
        return Step.wait(DISABLING_AUTH, message, DisableAuth(endpoints, access))
    if auth.enabled and seen.former_password:
        message = (
            f"Changing the password of {USER} to that of Secret {auth.root_secret_name}; until then the former "
            "one is valid."
        )
        return Step.wait(CHANGING_PASSWORD, message, ChangePassword(endpoints, access, USER, password))
    return PASS
