"""The owner of a volume claim, and the report of a claim that has another one. Pure.

A StatefulSet mounts any claim that has the name of its template and an ordinal, regardless of its labels and of the
data on the volume. With the retention policy Delete it then makes itself the owner of that claim, which is deleted with
the database. So claims are read by name before a StatefulSet can use them, and one with another owner blocks the plan:
it is neither used, nor changed, nor deleted.

Any client that creates a claim chooses its name and most labels. The proof is the label with the UID of the resource:
the StatefulSet sets it from its template, or a user hands the claim over with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shared.kubernetes.accessors import is_terminating, label
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Obj
from shared.kubernetes.kubectl import command, patch_command
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY, NAME, Owner, of_another_controller, owner_of
from shared.runtime.plan import PASS, Patch, Step
from shared.status.health import listed

RETRY_SECONDS = 30.0
"""Time until claims of another owner are read again: no watch reports objects without the labels of the operator."""

MAX_HANDED_OVER = 3
"""Maximum number of objects of one owner that a message names, and that its command hands over."""

_FORMER = (
    "PersistentVolumeClaim {claims}: has the data of a former {kind} (uid {uid}). Nothing was changed. To continue "
    "with that data, set spec.adopt.fromUID to {uid}: {command}. To start empty, delete the claims with the label "
    "{label}={uid}, or rename this resource."
)
_OTHER = (
    "{objects} belongs to {owner}. Nothing was changed. Rename this resource, or delete the data if it is not needed. "
    "To use the data: {command}"
)


def is_foreign(obj: Obj, uid_label: str, *, name: str, uid: str) -> bool:
    """Return whether a claim or StatefulSet belongs to another owner than the resource with this name and UID.

    Args:
        uid_label: label of both: UID of the resource that owns the data; without it, another owner is assumed.
    """
    return _is_taken(obj, name) or label(obj, uid_label) != uid


def refusal(claims: Sequence[Obj], own: Owner, uid_label: str, *, may_adopt: bool) -> str:
    """Return why the claims of a database must not be used; empty if all of them belong to the resource.

    Args:
        claims: claims with the names of the database, regardless of their labels; also the StatefulSet, if it counts.
        own: the resource as an owner of objects.
        may_adopt: whether nothing runs yet, so that `spec.adopt` can name the owner of all claims.
    """
    foreign = [claim for claim in claims if is_foreign(claim, uid_label, name=own.name, uid=own.uid)]
    if not foreign:
        return ""
    former = {_former(claim, own, uid_label) for claim in foreign}
    if may_adopt and len(former) == 1 and (uid := former.pop()):
        names = listed(tuple(claim["metadata"]["name"] for claim in foreign))
        target, spec = f"{own.kind.name.lower()} {own.name}", {"adopt": {"fromUID": uid}}
        adopt = patch_command(target, own.namespace, {"spec": spec})
        return _FORMER.format(claims=names, kind=own.kind.name, uid=uid, label=uid_label, command=adopt)
    owner = _owner(foreign[0], own, uid_label)
    same = [obj for obj in foreign if label(obj, uid_label) and _owner(obj, own, uid_label) == owner]
    found = same[:MAX_HANDED_OVER] or foreign[:1]
    objects = ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in found)
    return _OTHER.format(objects=objects, owner=owner, command=_handover(found, own, uid_label))


def keep_labels(claims: Iterable[Obj], own: Owner, component: str, uid_label: str) -> Step:
    """Restore labels of the resource's claims: watches, and an adoption by a later resource, find claims by them.

    Args:
        claims: claims of the resource, of which the label with its UID is the proof; others are left as they are.
        component: component label of the claims.
    """
    labels, patches = own.labels(component), list[Patch]()
    for claim in claims:
        wrong = {key: value for key, value in labels.items() if label(claim, key) != value}
        is_own = not is_foreign(claim, uid_label, name=own.name, uid=own.uid)
        if wrong and is_own and not is_terminating(claim):
            patches.append(Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"labels": wrong}}))
    return Step.do(*patches) if patches else PASS


def _former(claim: Obj, own: Owner, uid_label: str) -> str:
    """Return the UID of the resource of the same kind and name that a claim belongs to; empty if it belongs to none."""
    same = label(claim, INSTANCE) == own.name and label(claim, NAME) == own.application
    return label(claim, uid_label) if same and not _is_taken(claim, own.name) else ""


def _is_taken(obj: Obj, name: str) -> bool:
    return obj["kind"] != STATEFUL_SET.name and of_another_controller(obj, STATEFUL_SET, name)


def _owner(claim: Obj, own: Owner, uid_label: str) -> str:
    """Return the owner of a claim for a message; a StatefulSet becomes the controller of any claim that it mounts."""
    if _is_taken(claim, own.name):
        return owner_of(claim)
    if uid := label(claim, uid_label):
        return f"another {own.kind.name} (uid {uid})"
    return owner_of({"metadata": {"labels": claim["metadata"].get("labels")}})


def _handover(objects: Sequence[Obj], own: Owner, uid_label: str) -> str:
    """Return the command that gives objects to the resource; first they must lose an owner that may delete them."""
    found = " ".join(f"{obj['kind'].lower()}/{obj['metadata']['name']}" for obj in objects)
    if _is_taken(objects[0], own.name):
        return patch_command(found, own.namespace, {"metadata": {"ownerReferences": None}})
    labels = {NAME: own.application, INSTANCE: own.name, MANAGED_BY: own.operator, uid_label: own.uid}
    missing = (f"{key}={value}" for key, value in labels.items() if any(label(obj, key) != value for obj in objects))
    return command("label", found, own.namespace, *missing, "--overwrite")
