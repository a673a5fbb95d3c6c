"""Provenance of Secrets: whether the operator may use the content of a Secret with the name of one of its own.

Labels, owner references and field managers are chosen by the client that creates an object, so they prove nothing. The
proof is the UID, which the API server assigns: the status of the resource records it *before* the operator writes
content to the Secret, which it creates empty. Only the operator writes the status. If it stops in between, it finds an
empty Secret, which anyone may have created: it has no content to trust, so the operator records and fills it.

A Secret that was restored from a backup has another UID. The author of the resource consents to its use by an
annotation with its UID, which is valid for that one object.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from shared.kubernetes.accessors import annotation, status_of
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secrets import MAX_KEYS, MAX_MADE_CHARACTERS, OVERSIZED_DATA

RECORD = "secrets"
"""Field of the status with the UID of each Secret that the operator made or adopted, by name."""

ADOPT = "platform.ydzs.io/adopt-secrets"
"""Annotation of a resource: UIDs of Secrets that the operator did not make and may use, separated by commas."""


def recorded(resource: Obj) -> Mapping[str, str]:
    """Return the recorded UIDs by name of the Secret."""
    found: Mapping[str, str] = status_of(resource).get(RECORD) or {}
    return found


def is_blank(secret: Obj) -> bool:
    """Whether a Secret has no content, so that there is nothing to trust."""
    return not any((secret.get("data") or {}).values())


def is_proven(resource: Obj, secret: Obj) -> bool:
    """Whether the operator made a Secret for this resource, or a user consented to its use."""
    uid = secret["metadata"].get("uid")
    consented = {each.strip() for each in annotation(resource, ADOPT).split(",")} - {""}
    return recorded(resource).get(secret["metadata"]["name"]) == uid or uid in consented


def with_record(resource: Obj, status: Obj) -> Obj:
    """Return a status to report with the present record, unless it has another one."""
    return {RECORD: dict(recorded(resource))} | status


def usable(resource: Obj, names: Collection[str], found: Mapping[str, Obj | None]) -> dict[str, Obj | None]:
    """Return the Secrets as observed, without those of the operator's names whose content may not be used.

    Args:
        names: names of the Secrets that the operator makes.

    Raises:
        ForeignObject: others have added so much to those that the operator made that they are not read, or to one of
            unknown UID, which it may have made.
    """
    usable = {
        name: None if secret is None or (name in names and _is_unproven(resource, secret)) else secret
        for name, secret in found.items()
    }
    large = [name for name, secret in usable.items() if secret is not None and secret.get("data") == OVERSIZED_DATA]
    if large:
        raise ForeignObject(
            f"Secret {', '.join(large)}: the Secrets that the operator made have more than {MAX_KEYS:,} keys, or "
            f"{MAX_MADE_CHARACTERS // 1024} KiB together, and are not read. Remove the keys that the operator did not "
            "write: kubectl edit secret"
        )
    return usable


def unproven(resource: Obj, names: Collection[str], found: Mapping[str, Obj | None]) -> tuple[Obj, ...]:
    """Return the Secrets of the operator's names whose content may not be used, and remove that from memory."""
    secrets = (found.get(name) for name in sorted(names))
    unused = tuple(secret for secret in secrets if secret is not None and _is_unproven(resource, secret))
    for secret in unused:
        secret["data"] = {**_REMOVED}
    return unused


_REMOVED = {"": "removed"}
"""Data of a Secret whose content was removed from memory; no Secret has this key."""


def _is_unproven(resource: Obj, secret: Obj) -> bool:
    if is_blank(secret) or not secret["metadata"].get("uid"):  # unknown
        return False
    if (proven := is_proven(resource, secret)) and secret["data"] == _REMOVED:
        raise Conflict("a Secret was adopted during the reconcile, which has not kept its content")
    return not proven


def record(
    resource: Obj, secrets: Iterable[Obj], written: Iterable[Obj] = (), *, without: Collection[str] = ()
) -> dict[str, str]:
    """Return the next record: the present one with the proven ones of these Secrets.

    Args:
        written: Secrets with exactly the content that the operator writes, which have no other content to trust.
        without: names of Secrets that are no longer used, and have no content.
    """
    proven = [secret for secret in secrets if is_proven(resource, secret)] + [*written]
    uids = {**recorded(resource), **{each["metadata"]["name"]: each["metadata"]["uid"] for each in proven}}
    return {name: uid for name, uid in uids.items() if name not in without}


def refusal(resource: Obj, secrets: Iterable[Obj]) -> str:
    """Return the sentence about Secrets whose content may not be used, and what to do."""
    found = [secret["metadata"] for secret in secrets]
    names, uids = ", ".join(each["name"] for each in found), ",".join(each["uid"] for each in found)
    target = f"{str(resource.get('kind', '')).lower()} {resource['metadata']['name']}"
    return (
        f"Secret {names}: not made by the operator, so its content is not used. Delete it, or adopt it if you know its "
        f"origin: kubectl annotate {target} --overwrite {ADOPT}={uids}"
    )
