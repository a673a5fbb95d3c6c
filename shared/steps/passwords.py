"""Passwords that the operator generates for spec.auth without a Secret. Pure.

The Secret is the source of the password, as one that a user provides: it exists before any server learns of it, and the
same steps apply a change of it. While it exists, its password changes only on request: the annotation
`platform.ydzs.io/rotate-password` of the resource has a value for which the Secret was not generated yet. A Secret that
was deleted is restored with the password that servers have, as far as the operator knows it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from shared.kubernetes.accessors import annotation, time_in
from shared.kubernetes.kinds import SECRET, Obj
from shared.kubernetes.ownership import INSTANCE, NAME, ForeignObject, FormerObject, Owner, belongs_to, require_owned
from shared.kubernetes.secrets import PASSWORD_KEY, SECRETS_RETRY_SECONDS, content_of, encoded
from shared.runtime.plan import PASS, Step, WriteSecret
from shared.status.reasons import FOREIGN_OBJECT, GENERATING_PASSWORD, PASSWORD_NOT_GENERATED

ROTATE = "platform.ydzs.io/rotate-password"
"""Annotation of a resource: a new value requests a new password. Annotation of a Secret: the value it was made for."""

ROTATED_AT = "platform.ydzs.io/rotated-at"
"""Annotation of a Secret: time at which the password was generated."""


def secret_name(resource: str) -> str:
    """Return the name of the Secret of a resource."""
    return f"{resource}-auth"


def own_secret(uid: str, resource: str, application: str, found: Obj | None) -> Obj | None:
    """Return a generated Secret; None if there is none, or if it belongs to another owner.

    Args:
        uid: UID of the resource.
        resource: name of the resource. A Secret without an owner reference outlives it, and has its labels.
        application: name of the application, such as etcd.
    """
    return found if belongs_to(found, uid, {INSTANCE: resource, NAME: application}) else None


@dataclass(frozen=True, slots=True)
class GeneratedPassword:
    """The Secret with a generated password.

    Attributes:
        own: owner of the Secret.
        component: component label of the Secret.
        at: field of the spec that names a Secret of the user instead.
        user: name of the user, for messages.
        found: the Secret as observed, also of another owner; None if it does not exist.
        request: value of the annotation of the resource that requests a new password; empty if there is none.
        recovered: text to restore; empty if no password is known.
        may_rotate: whether the present password is stored elsewhere until servers have the new one.
        key: key of the text.
        around: text before and after the password.
        secret: name of the Secret; empty for that of the resource (`secret_name`).
    """

    own: Owner
    component: str
    at: str
    user: str
    found: Obj | None = field(repr=False)
    request: str
    recovered: str = field(repr=False)
    may_rotate: bool
    key: str = PASSWORD_KEY
    around: tuple[str, str] = field(default=("", ""), repr=False)
    secret: str = ""

    @property
    def name(self) -> str:
        return self.secret or secret_name(self.own.name)

    @property
    def present(self) -> str:
        """Text in the Secret; empty without one."""
        return content_of(self.found).get(self.key, "")

    @property
    def generated_at(self) -> datetime | None:
        """Time at which the password was generated; None if it is unknown."""
        return time_in(annotation(self.found, ROTATED_AT))

    def step(self, now: datetime, *, is_permitted: bool) -> Step:
        """Create, restore or renew the Secret if necessary.

        Args:
            is_permitted: whether the operator may write Secrets.
        """
        try:
            if self.found is not None:
                require_owned(self._secret("", now), self.found, self.own.uid)
        except FormerObject:
            message = f"Secret {self.name} belongs to a deleted resource of this name, until Kubernetes deletes it."
            return Step.wait(GENERATING_PASSWORD, message, requeue=SECRETS_RETRY_SECONDS)
        except ForeignObject as error:
            return Step.blocked(FOREIGN_OBJECT, str(error))
        if not is_permitted:
            return PASS if self.present else self._refuse()
        if not self.present:
            return self._create(now)
        if self.may_rotate and self.request not in ("", annotation(self.found, ROTATE)):
            message = f"Generating another password of {self.user} in Secret {self.name}, as the annotation requests."
            return Step.wait(GENERATING_PASSWORD, message, self._generate(now))
        return PASS

    def rewritten(self, text: str) -> WriteSecret:
        """Return the write of another text, of the same request."""
        return WriteSecret(self._secret(text, None), self.found)

    def _create(self, now: datetime) -> Step:
        if self.recovered:
            message = f"Restoring the password of {self.user} in Secret {self.name}."
            return Step.wait(GENERATING_PASSWORD, message, WriteSecret(self._secret(self.recovered, now), self.found))
        message = f"Generating the password of {self.user} in Secret {self.name}."
        return Step.wait(GENERATING_PASSWORD, message, self._generate(now))

    def _generate(self, now: datetime) -> WriteSecret:
        return WriteSecret(self._secret("", now), self.found, token=self.key, around=self.around)

    def _secret(self, text: str, now: datetime | None) -> Obj:
        """Return the Secret.

        Args:
            now: time of its generation; None for that of the present one.
        """
        data = encoded({self.key: text}) if text else {}
        made = self.own.object(SECRET, self.name, component=self.component, data=data) | {"type": "Opaque"}
        given = self.request if now is not None else annotation(self.found, ROTATE)
        made_at = now.isoformat(timespec="seconds") if now is not None else annotation(self.found, ROTATED_AT)
        made["metadata"]["annotations"] = {ROTATED_AT: made_at} | ({ROTATE: given} if given else {})
        return made

    def _refuse(self) -> Step:
        return Step.blocked(
            PASSWORD_NOT_GENERATED,
            f"{self.at}: names no Secret, and the operator may not generate a password: its chart value "
            "rbac.writeSecrets is false. Create a Secret and name it there, or set that value to true. Nothing was "
            "changed.",
        )
