"""The parts of an object that a write may change; the server sets, keeps or rejects the rest."""

from __future__ import annotations

from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.kubernetes.quantity import parse_quantity
from simulator.api_server.kinds import STORAGE_CLASS
from simulator.api_server.requests import Failure, TargetedRequest, value_at
from simulator.api_server.store import Store

OPTIMISTIC_LOCK = "the object has been modified; please apply your changes to the latest version and try again"
_SERVER_SET = (
    "name",
    "namespace",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_NOT_SETTABLE = frozenset({"resourceVersion", "managedFields", *_SERVER_SET}) - {"name", "namespace"}


def require_match(target: TargetedRequest, obj: Obj) -> None:
    """Require that the kind, name and namespace of an object, where given, match those of the request.

    Raises:
        Failure: 400, the object does not match.
    """
    metadata = obj.setdefault("metadata", {})
    stated = (obj.get("apiVersion") or target.kind.api_version, obj.get("kind") or target.kind.name)
    if stated != (target.kind.api_version, target.kind.name):
        raise Failure(400, "BadRequest", f"{' '.join(stated)} in the data does not match the URL {target.request.path}")
    for name, expected in (("name", target.name), ("namespace", target.namespace)):
        if expected and metadata.setdefault(name, expected) != expected:
            message = f"the {name} of the object ({metadata[name]}) does not match the {name} on the URL ({expected})"
            raise Failure(400, "BadRequest", message)


def new_object(target: TargetedRequest, obj: Obj, store: Store) -> Obj:
    """Return a new object with server-set metadata, and without status if that is a subresource."""
    new: Obj = {"apiVersion": target.kind.api_version, "kind": target.kind.name} | obj
    if target.served.status:
        new.pop("status", None)
    assigned: Obj = {"uid": store.unique(), "creationTimestamp": store.now()}
    if target.served.generation:
        assigned["generation"] = 1
    new["metadata"] = {key: part for key, part in obj["metadata"].items() if key not in _NOT_SETTABLE} | assigned
    return new


def permitted_changes(target: TargetedRequest, live: Obj, edited: Obj) -> Obj:
    """Return the live object with the permitted changes: status only through its subresource, server metadata never.

    Raises:
        Failure: 409 if the resourceVersion differs, 422 if the UID differs.
    """
    version, uid = edited["metadata"].get("resourceVersion"), edited["metadata"].get("uid")
    if version and version != live["metadata"]["resourceVersion"]:
        raise target.conflict(OPTIMISTIC_LOCK)
    # The status subresource of a custom resource restores metadata before validation, so a wrong UID is not rejected.
    if uid and uid != live["metadata"]["uid"] and (target.served.built_in or target.subresource != "status"):
        raise target.invalid(f'metadata.uid: Invalid value: "{uid}": field is immutable')
    if target.subresource == "status":
        rest = {key: part for key, part in live.items() if key != "status"}
        return rest | ({"status": edited["status"]} if "status" in edited else {})
    new: Obj = {"apiVersion": target.kind.api_version, "kind": target.kind.name} | edited
    if target.served.status:
        new = {key: part for key, part in new.items() if key != "status"}
        new |= {"status": live["status"]} if "status" in live else {}
    kept = {key: live["metadata"][key] for key in (*_SERVER_SET, "uid", "resourceVersion") if key in live["metadata"]}
    new["metadata"] = {key: part for key, part in edited["metadata"].items() if key not in _SERVER_SET} | kept
    return new


def require_fixed(target: TargetedRequest, live: Obj, new: Obj) -> None:
    """Require that no immutable field changes.

    Raises:
        Failure: 422, an immutable field changes.
    """
    for path in () if target.subresource == "resize" else target.served.fixed:
        was, expected = value_at(live, path), value_at(new, path)
        if was is not None and was != expected:
            raise target.invalid(f"{path}: Invalid value: {expected}: field is immutable")


def require_one_controller(target: TargetedRequest, new: Obj) -> None:
    """Require that at most one owner reference of an object is that of a controller.

    Raises:
        Failure: 422, there are two.
    """
    controllers = [each for each in new["metadata"].get("ownerReferences") or () if each.get("controller")]
    if len(controllers) > 1:
        first, second, *_ = (f"{each['kind']}/{each['name']}" for each in controllers)
        raise target.invalid(
            "metadata.ownerReferences: Invalid value: Only one reference can have Controller set to true. Found "
            f'"true" in references for {first} and {second}'
        )


def require_growth(target: TargetedRequest, live: Obj, new: Obj, store: Store) -> None:
    """Require that the size of a claim stays, or grows if its storage class allows expansion.

    Raises:
        Failure: 422, the size shrinks; 403, the storage class does not allow expansion.
    """
    path = "spec.resources.requests.storage"
    was, expected = value_at(live, path), value_at(new, path)
    if was == expected or target.kind != PERSISTENT_VOLUME_CLAIM:
        return
    if parse_quantity(expected) < parse_quantity(was):
        raise target.invalid("spec.resources.requests.storage: Forbidden: field can not be less than status.capacity")
    of = store.get(STORAGE_CLASS, "", value_at(new, "spec.storageClassName") or "")
    if not (of or {}).get("allowVolumeExpansion"):
        why = "only dynamically provisioned pvc can be resized and the storageclass must support resize"
        raise Failure(403, "Forbidden", f"{target.what} is forbidden: {why}")


def require_modifiable(target: TargetedRequest, live: Obj, new: Obj) -> None:
    """Require that the VolumeAttributesClass of a claim changes only while it is bound, and stays set once applied.

    Raises:
        Failure: 422, the claim is not bound, or its class is removed.
    """
    path = "spec.volumeAttributesClassName"
    expected = value_at(new, path)
    if target.kind != PERSISTENT_VOLUME_CLAIM or expected == value_at(live, path):
        return
    if value_at(live, "status.phase") != "Bound":
        raise target.invalid(
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName "
            "for bound claims"
        )
    if not expected and value_at(live, "status.currentVolumeAttributesClassName"):
        raise target.invalid(
            f"{path}: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"
        )


def require_living_namespace(target: TargetedRequest, parent: Obj | None) -> None:
    """Require that the namespace of a new object is not being deleted.

    Raises:
        Failure: 403, the namespace is being deleted.
    """
    if parent is not None and parent["metadata"].get("deletionTimestamp"):
        message = f"unable to create new content in namespace {target.namespace} because it is being terminated"
        raise Failure(403, "Forbidden", message, [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}])
