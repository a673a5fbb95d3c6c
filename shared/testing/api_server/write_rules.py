"""The parts of an object that a write may change; the server sets, keeps or rejects the rest."""

from __future__ import annotations

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.kubernetes.quantity import parse_quantity
from shared.testing.api_server.kinds import STORAGE_CLASS
from shared.testing.api_server.requests import Aimed, Failure, value_at
from shared.testing.api_server.store import Store

OPTIMISTIC_LOCK = "the object has been modified; please apply your changes to the latest version and try again"
_SERVERS = ("name", "namespace", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_SET = frozenset({"resourceVersion", "managedFields", *_SERVERS}) - {"name", "namespace"}


def require_match(asked: Aimed, obj: Obj) -> None:
    """Require that the kind, name and namespace of an object, where given, match those of the request.

    Raises:
        Failure: 400, the object does not match.
    """
    metadata = obj.setdefault("metadata", {})
    says = (obj.get("apiVersion") or asked.kind.api_version, obj.get("kind") or asked.kind.name)
    if says != (asked.kind.api_version, asked.kind.name):
        raise Failure(400, "BadRequest", f"{' '.join(says)} in the data does not match the URL {asked.request.path}")
    for name, want in (("name", asked.name), ("namespace", asked.namespace)):
        if want and metadata.setdefault(name, want) != want:
            message = f"the {name} of the object ({metadata[name]}) does not match the {name} on the URL ({want})"
            raise Failure(400, "BadRequest", message)


def fresh(asked: Aimed, obj: Obj, store: Store) -> Obj:
    """Return a new object with server-set metadata, and without status if that is a subresource."""
    new: Obj = {"apiVersion": asked.kind.api_version, "kind": asked.kind.name} | obj
    if asked.served.status:
        new.pop("status", None)
    given: Obj = {"uid": store.unique(), "creationTimestamp": store.now()}
    if asked.served.generation:
        given["generation"] = 1
    new["metadata"] = {key: part for key, part in obj["metadata"].items() if key not in _SET} | given
    return new


def bounded(asked: Aimed, live: Obj, edited: Obj) -> Obj:
    """Return the live object with the permitted changes: status only through its subresource, server metadata never.

    Raises:
        Failure: 409 if the resourceVersion differs, 422 if the UID differs.
    """
    version, uid = edited["metadata"].get("resourceVersion"), edited["metadata"].get("uid")
    if version and version != live["metadata"]["resourceVersion"]:
        raise asked.conflict(OPTIMISTIC_LOCK)
    # The status subresource of a custom resource restores metadata before validation, so a wrong UID is not rejected.
    if uid and uid != live["metadata"]["uid"] and (asked.served.built_in or asked.subresource != "status"):
        raise asked.invalid(f'metadata.uid: Invalid value: "{uid}": field is immutable')
    if asked.subresource == "status":
        rest = {key: part for key, part in live.items() if key != "status"}
        return rest | ({"status": edited["status"]} if "status" in edited else {})
    new: Obj = {"apiVersion": asked.kind.api_version, "kind": asked.kind.name} | edited
    if asked.served.status:
        new = {key: part for key, part in new.items() if key != "status"}
        new |= {"status": live["status"]} if "status" in live else {}
    kept = {key: live["metadata"][key] for key in (*_SERVERS, "uid", "resourceVersion") if key in live["metadata"]}
    new["metadata"] = {key: part for key, part in edited["metadata"].items() if key not in _SERVERS} | kept
    return new


def require_fixed(asked: Aimed, live: Obj, new: Obj) -> None:
    """Require that no immutable field changes.

    Raises:
        Failure: 422, an immutable field changes.
    """
    for path in asked.served.fixed:
        was, want = value_at(live, path), value_at(new, path)
        if was is not None and was != want:
            raise asked.invalid(f"{path}: Invalid value: {want}: field is immutable")


def require_growth(asked: Aimed, live: Obj, new: Obj, store: Store) -> None:
    """Require that the size of a claim stays, or grows if its storage class allows expansion.

    Raises:
        Failure: 422, the size shrinks; 403, the storage class does not allow expansion.
    """
    path = "spec.resources.requests.storage"
    was, want = value_at(live, path), value_at(new, path)
    if was == want or asked.kind != PERSISTENT_VOLUME_CLAIM:
        return
    if parse_quantity(want) < parse_quantity(was):
        raise asked.invalid("spec.resources.requests.storage: Forbidden: field can not be less than status.capacity")
    of = store.get(STORAGE_CLASS, "", value_at(new, "spec.storageClassName") or "")
    if not (of or {}).get("allowVolumeExpansion"):
        why = "only dynamically provisioned pvc can be resized and the storageclass must support resize"
        raise Failure(403, "Forbidden", f"{asked.what} is forbidden: {why}")


def require_home(asked: Aimed, home: Obj | None) -> None:
    """Require that the namespace of a new object is not being deleted.

    Raises:
        Failure: 403, the namespace is being deleted.
    """
    if home is not None and home["metadata"].get("deletionTimestamp"):
        message = f"unable to create new content in namespace {asked.namespace} because it is being terminated"
        raise Failure(403, "Forbidden", message, [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}])
