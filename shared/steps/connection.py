"""The Secret with what a client needs to connect to a database, as the Service Binding specification defines it.

Applications mount one Secret, NAME-connection, instead of being configured with addresses, users and certificates. It
is a copy: no server reads it, so that a wrong or missing one stops no database. It has what the servers accept now:
while that is unknown, the present content stays.

Source: https://servicebinding.io/spec/core/1.1.0/ (Provisioned Service, Well-known Secret Entries)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import SECRET, SERVICE, Obj
from shared.kubernetes.managed_fields import shared_keys
from shared.kubernetes.ownership import ForeignObject, FormerObject, Owner, owner_of, require_owned
from shared.kubernetes.secret_provenance import is_proven
from shared.kubernetes.secrets import (
    AUTHORITY_KEY,
    CERTIFICATE_KEY,
    PASSWORD_KEY,
    PRIVATE_KEY,
    content_of,
    encoded,
    excess,
    shorten,
)
from shared.runtime.cache import Cache
from shared.runtime.plan import PASS, Apply, Patch, Step, WriteSecret
from shared.status.reasons import CONNECTION_SECRET_TAKEN, SECRET_INVALID
from shared.status.verdict import Progress

PROVIDER = "platform.ydzs.io"
"""Value of the key provider: these operators."""

USERNAME_KEY = "username"

RETRY_SECONDS = 60.0
"""Seconds until a Secret of another owner is read again: it may have been deleted or renamed."""

COLLECTION_SECONDS = 5.0
"""Seconds until the Secret of a deleted resource of the same name is read again: the garbage collector deletes it."""


@dataclass(frozen=True, slots=True)
class ConnectionSecret:
    """The Secret of that name, also if another owner has it.

    Attributes:
        found: the Secret; None if it does not exist.
        service: the Service with the name of the resource, which every kind has: another resource of that name cannot
            have it too. None if this operator has none.
        is_proven: whether the operator itself wrote its content (`secret_provenance`).
    """

    found: Obj | None = field(default=None, repr=False)
    service: Obj | None = field(default=None, repr=False)
    is_proven: bool = False

    @property
    def content(self) -> Mapping[str, str]:
        """Content by key; that of a Secret of another owner too, so check that first (`is_owned`)."""
        return content_of(self.found)

    @property
    def is_unread(self) -> bool:
        """Whether the content, and the owner, are unknown: it has too many keys, or is too large."""
        return bool(excess(self.found, ()))


@dataclass(frozen=True, slots=True)
class Connection:
    """Address and credentials of a database, for its clients.

    Attributes:
        type: kind of the database in lower case, such as redis; part of the type of the Secret.
        uri: address as a URI; None if a part of it is unknown.
        values: further keys. Empty: the key does not apply, and is removed. None: unknown, so the present value stays.
        user: user of the Secret; empty for the Secret of the resource.
    """

    type: str
    host: str
    port: int
    uri: str | None = field(repr=False)
    values: Mapping[str, str | None] = field(repr=False)
    user: str = ""

    @property
    def content(self) -> dict[str, str | None]:
        """Content of the Secret, by key."""
        address = {"type": self.type, "provider": PROVIDER, "host": self.host, "port": str(self.port), "uri": self.uri}
        return address | dict(self.values)


def credentials(user: str | None, password: str | None) -> dict[str, str | None]:
    """Return the keys of user and password; None for unknown ones, empty without authentication."""
    return {USERNAME_KEY: user, PASSWORD_KEY: password}


def certificates(authority: str | None, certificate: str | None = "", key: str | None = "") -> dict[str, str | None]:
    """Return the keys of the authorities to trust, and of the certificate that a client presents."""
    return {AUTHORITY_KEY: authority, CERTIFICATE_KEY: certificate, PRIVATE_KEY: key}


def secret_name(resource: str, user: str = "") -> str:
    """Return the name of the Secret of a resource, or of one of its users."""
    return f"{resource}-user-{user}" if user else f"{resource}-connection"


async def read(kube: Kube, cache: Cache, resource: Obj, *, is_new: bool = False, name: str = "") -> ConnectionSecret:
    """Read the Secret of a resource, or the one of this name.

    Args:
        is_new: whether the Secret is expected to be missing, because the resource is new (`Kube.find_own`).
    """
    namespace, service = resource["metadata"]["namespace"], resource["metadata"]["name"]
    found = await kube.find_own(SECRET, namespace, name or secret_name(service), is_new=is_new)
    if found is not None:
        shorten(found)
    proven = found is not None and is_proven(resource, found)
    return ConnectionSecret(found, cache.get(SERVICE, namespace, service), proven)


def is_owned(own: Owner, component: str, seen: ConnectionSecret | None) -> bool:
    """Whether the Secret exists and belongs to this resource."""
    return seen is not None and _belongs_to(own.object(SECRET, "", component=component), seen.found, own)


def _belongs_to(made: Obj, found: Obj | None, own: Owner) -> bool:
    if found is None:
        return False
    try:
        require_owned(made, found, own.uid)
    except ForeignObject:
        return False
    return True


def claim_name(own: Owner, service: Obj, seen: ConnectionSecret | None) -> Step:
    """Create the Service with the name of the resource before any Secret.

    Of two resources of one name only one can have it, without another request. The plan of the other one stops here.

    Args:
        service: the Service, which a later step keeps as the spec requests.
    """
    is_claimed = seen is None or _belongs_to(service, seen.service, own)
    return PASS if is_claimed else Step.do(Apply(SERVICE, service))


def known_credentials(own: Owner, component: str, seen: ConnectionSecret | None) -> tuple[str, str]:
    """Return user and password in the Secret of this resource, to restore a lost one; empty if there are none."""
    content = seen.content if seen is not None and seen.is_proven and is_owned(own, component, seen) else {}
    return content.get(USERNAME_KEY, ""), content.get(PASSWORD_KEY, "")


def keep_connection(
    own: Owner, component: str, connection: Connection, seen: ConnectionSecret | None, *, is_requested: bool
) -> Step:
    """Write the Secret if it differs from the connection, or remove the connection if the spec does not request it.

    The operator has no right to delete Secrets; an empty one is deleted with its resource, or by a user.
    Keys that a user added stay, except in a Secret of unknown origin, which counts without further keys (`written`).

    Args:
        own: owner of the Secret.
        component: component label of the Secret.
        seen: the Secret as observed; None if it is unknown, and nothing is written.
        is_requested: whether the spec requests the Secret.
    """
    if seen is None:
        return PASS
    if is_requested and (why := excess(seen.found, (key for key, text in connection.content.items() if text))):
        return Step.note(SECRET_INVALID, f"Secret {secret_name(own.name, connection.user)} is not changed: {why}")
    if not is_requested:
        keys = sorted(seen.content.keys() & connection.content.keys())
        return Step.do(removal(seen.found, keys)) if keys and own.may_delete(seen.found) else PASS
    is_proven = seen.found is not None and seen.is_proven
    is_unknown = not is_proven and None in connection.content.values()
    if seen.found is None and is_unknown:
        return PASS  # clients would find a connection without a password, for example
    if seen.found is None and not _belongs_to(own.object(SERVICE, own.name, component=component), seen.service, own):
        return PASS  # clients of another resource of this name would find a database that does not exist
    present = seen.content if is_owned(own, component, seen) else {}
    content = {key: present.get(key, "") if text is None else text for key, text in connection.content.items()}
    made = _secret(own, component, connection, {key: text for key, text in content.items() if text})
    unused = [key for key in seen.content if key not in made["data"] and (key in content or not is_proven)]
    unknown_keys = tuple(shared_keys(seen.found, unused, own=own.operator) if is_proven else unused)
    if seen.found is not None:
        try:
            require_owned(made, seen.found, own.uid)
            _require_type(made, seen.found)
        except FormerObject:
            return Step(requeue=COLLECTION_SECONDS)
        except ForeignObject:
            instead = "rename that user in spec.users" if connection.user else "set spec.connectionSecret to false"
            return Step(
                (),
                Progress.DONE,
                CONNECTION_SECRET_TAKEN,
                f"Secret {made['metadata']['name']} belongs to {owner_of(seen.found)}, and was not changed: clients "
                f"find no connection Secret of this resource. Delete or rename that Secret, or {instead}.",
                warning=True,
                requeue=RETRY_SECONDS,
            )
        if is_unknown or (all(present.get(key, "") == text for key, text in content.items()) and not unknown_keys):
            return PASS
    write = WriteSecret(made, seen.found, is_copy=True)
    return Step.do(write) if seen.found is None or not unknown_keys else Step.do(removal(seen.found, unknown_keys))


def written(own: Owner, component: str, connection: Connection, seen: ConnectionSecret | None) -> Obj | None:
    """Return the Secret if it has exactly the content of the connection, so that its other origin would not matter."""
    if seen is None or seen.found is None or not is_owned(own, component, seen):
        return None
    content = {key: text for key, text in seen.content.items() if text}
    return seen.found if content == {key: text for key, text in connection.content.items() if text != ""} else None


def status(own: Owner, component: str, connection: Connection, seen: ConnectionSecret | None, reported: Obj) -> Obj:
    """Return the field of the status that names the Secret; the reported one while the Secret is unknown."""
    if seen is None or seen.is_unread:
        return {"binding": reported["binding"]} if "binding" in reported else {}
    is_usable = bool(seen.content) and is_owned(own, component, seen)
    is_usable &= seen.is_proven or written(own, component, connection, seen) is not None
    return {"binding": {"name": secret_name(own.name)}} if is_usable else {}


def removal(found: Obj, keys: Iterable[str]) -> Patch:
    """Return the removal of keys of any field manager: an apply removes only those of the operator."""
    return Patch(SECRET, found, {"data": dict.fromkeys(keys)})


def _require_type(made: Obj, found: Obj) -> None:
    """Raise ForeignObject if the Secret has another type, which cannot be changed."""
    if found.get("type", made["type"]) != made["type"]:
        raise ForeignObject(f"Secret {made['metadata']['name']} has type {found['type']}")


def _secret(own: Owner, component: str, connection: Connection, content: Mapping[str, str]) -> Obj:
    name = secret_name(own.name, connection.user)
    made = own.object(SECRET, name, component=component, data=encoded(content))
    return made | {"type": f"servicebinding.io/{connection.type}"}
