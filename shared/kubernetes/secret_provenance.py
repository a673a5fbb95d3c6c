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

from shared.kubernetes import secrets
from shared.kubernetes.accessors import annotation, status_of
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Conflict
from shared.kubernetes.kinds import Obj
from shared.kubernetes.kubectl import command
from shared.kubernetes.ownership import ForeignObject
from shared.kubernetes.secrets import MAX_KEYS, MAX_MADE_CHARACTERS, REMOVED_DATA

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


async def find(
    kube: Kube, resource: Obj, provided: Mapping[str, Collection[str]], made: Collection[str]
) -> tuple[dict[str, Obj | None], tuple[Obj, ...]]:
    """Return the Secrets as `secrets.find`, and apart from them those `made` by others: their content may not be used.

    Raises:
        ForeignObject: others have added so much to those that the operator made that they are not read, or to one of
            unknown UID, which it may have made.
    """
    namespace = resource["metadata"]["namespace"]
    found = await secrets.find(kube, namespace, provided, made, lambda secret: _is_unproven(resource, secret))
    if large := sorted(name for name in made if secrets.excess(found[name], ())):
        raise ForeignObject(
            f"Secret {', '.join(large)}: the Secrets that the operator made have more than {MAX_KEYS:,} keys, or "
            f"{MAX_MADE_CHARACTERS // 1024} KiB together, and are not read. Remove the keys that the operator did not "
            f"write: {command('edit', f'secret {large[0]}', namespace)}"
        )
    unused = {name: secret for name in sorted(made) if (secret := found[name]) and secret.get("data") == REMOVED_DATA}
    return found | dict.fromkeys(unused), tuple(unused.values())


def _is_unproven(resource: Obj, secret: Obj) -> bool:
    if not secret["metadata"].get("uid"):  # unknown: the metadata are too large
        return secret["metadata"]["name"] not in recorded(resource)
    if is_blank(secret) and len(secret.get("data") or ()) <= MAX_KEYS:
        return False
    if (proven := is_proven(resource, secret)) and secret["data"] == REMOVED_DATA:
        raise Conflict("a Secret was adopted during the reconcile, which has not kept its content")
    return not proven


def record(
    resource: Obj, found: Iterable[Obj], written: Iterable[Obj] = (), *, without: Collection[str] = ()
) -> dict[str, str]:
    """Return the next record: the present one with the proven ones of these Secrets.

    Args:
        written: Secrets with exactly the content that the operator writes, which have no other content to trust.
        without: names of Secrets that are no longer used, and have no content.
    """
    proven = [secret for secret in found if is_proven(resource, secret)] + [*written]
    uids = {**recorded(resource), **{each["metadata"]["name"]: each["metadata"]["uid"] for each in proven}}
    return {name: uid for name, uid in uids.items() if name not in without}


def refusal(resource: Obj, unproven: Iterable[Obj]) -> str:
    """Return the sentence about Secrets whose content may not be used, and what to do."""
    found = [secret["metadata"] for secret in unproven]
    names, uids = ", ".join(each["name"] for each in found), ",".join(uid for each in found if (uid := each.get("uid")))
    metadata, kind = resource["metadata"], str(resource.get("kind", "")).lower()
    adopt = command("annotate", f"{kind} {metadata['name']}", metadata["namespace"], "--overwrite", f"{ADOPT}={uids}")
    advice = f", or adopt it if you know its origin: {adopt}" if uids else "."
    return f"Secret {names}: not made by the operator, so its content is not used. Delete it{advice}"
