"""Users and passwords: asked for or not, as the spec says, and root's password as its Secret says. Pure.

What stands in etcd may be another password than the Secret's: the Secret was changed, somebody changed it by hand, or
the data came with a restore. The operator then tries the Secret's previousPassword (`former`), and if that is taken, it
makes the password what the Secret says. If neither is taken, nobody can know the right one but a person: `Denied`.

Where spec.auth is not given, users are not the operator's business: it enables and disables nothing. If somebody asked
for users by hand all the same, it cannot look into the cluster any more, and says so.
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
"""Time until members and the Secret are read again: no watch reports either."""


def former(secrets: Secrets) -> Access | None:
    """What let the operator in before root's password was changed; None where no former one is given."""
    if not secrets.previous_password or secrets.previous_password == secrets.access.password:
        return None
    return dataclasses.replace(secrets.access, user=USER, password=secrets.previous_password)


def require_access(resource: EtcdCluster, seen: Observed, _now: datetime) -> Step:
    """The operator is let in: without that it knows nothing of the members, and nothing can be decided."""
    if not seen.denied:
        return PASS
    auth = resource.spec.auth
    if auth is None:
        fix = (
            "spec.auth is not given: somebody enabled authentication by hand. Give spec.auth.rootSecretName a Secret "
            "with root's password (and enabled: false, if nobody is to be asked), or disable it: etcdctl auth disable."
        )
    else:
        name = auth.root_secret_name
        tried = "Neither password nor previousPassword" if seen.secrets.previous_password else "Not the password"
        fix = (
            f"{tried} of Secret {name} is root's. Put root's present one into previousPassword of Secret {name}, "
            "beside the one that it is to have, or set it: etcdctl user passwd root."
        )
    message = f"etcd does not let the operator in: {seen.denied} {fix} Members run on as they are."
    return Step((), Progress.BLOCKED, DENIED, message, warning=True, requeue=RETRY_SECONDS)


def ensure_auth(resource: EtcdCluster, seen: Assessment, _now: datetime) -> Step:
    """Everybody, or nobody, is asked for a user, as the spec says, and root's password is the Secret's."""
    auth = resource.spec.auth
    if auth is None or seen.members is None:
        return PASS
    endpoints, access = seen.endpoints, seen.secrets.access
    password = content_of(seen.secrets.found.get(auth.root_secret_name)).get(PASSWORD_KEY, "")
    if seen.auth_enabled is None or (auth.enabled and not password):
        message = "Whether members ask for users could not be found out yet."
        return Step.progressing(CHECKING_AUTH, message, requeue=RETRY_SECONDS)
    if auth.enabled and not seen.auth_enabled:
        message = f"From now on everybody is asked for a user; {USER}'s password is in Secret {auth.root_secret_name}."
        return Step.wait(ENABLING_AUTH, message, EnableAuth(endpoints, access, USER, password))
    if not auth.enabled and seen.auth_enabled:
        message = "spec.auth.enabled is false: nobody is asked for a user any more."
        return Step.wait(DISABLING_AUTH, message, DisableAuth(endpoints, access))
    if auth.enabled and seen.former_password:
        message = f"{USER} gets the password of Secret {auth.root_secret_name}; up to now it has the former one."
        return Step.wait(CHANGING_PASSWORD, message, ChangePassword(endpoints, access, USER, password))
    return PASS
