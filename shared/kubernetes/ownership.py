"""Ownership of objects: owner references, labels, selectors, and checks against changing foreign objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.kinds import POD, Key, Kind, Obj
from shared.kubernetes.kubectl import command

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"

MAX_OWNED_BYTES = 18 * 1024 * 1024
"""Maximum memory of the objects of a resource, in addition to that of the servers that its spec requests."""


class ForeignObject(Exception):
    """An object with the desired name belongs to another owner; nothing was changed."""


class FormerObject(ForeignObject):
    """An object belongs to a deleted resource of the same name; the garbage collector is about to delete it."""


def require_small(size: int, advice: str, limit: int = MAX_OWNED_BYTES) -> None:
    """Raise ForeignObject if the objects that have the names or labels of a resource take too much memory to be read.

    Args:
        size: bytes of memory that they take together.
        advice: sentences with the name of one, and the command that helps.
        limit: maximum, in bytes.
    """
    if size > limit:
        raise ForeignObject(
            f"The objects with the names or labels of this resource take {size / 2**20:.0f} MiB of memory, more than "
            f"{limit / 2**20:.0f} MiB, and are not read. {advice}"
        )


@dataclass(frozen=True, slots=True)
class Owner:
    """A resource as the owner of the objects created for it.

    Attributes:
        kind: kind of the resource.
        namespace: namespace of the resource and its objects.
        name: name of the resource.
        uid: UID of the resource: a later resource of the same name is another owner.
        application: name of the application, such as `memcached` (app.kubernetes.io/name).
        operator: name of the operator (app.kubernetes.io/managed-by).
        lasting: whether the objects outlive the resource: they then have no owner reference.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    application: str
    operator: str
    lasting: bool = False

    def labels(self, component: str) -> dict[str, str]:
        """Return the labels of an object of a component (such as `server`)."""
        return self.selector(component) | {MANAGED_BY: self.operator, PART_OF: "platform"}

    def selector(self, component: str) -> dict[str, str]:
        """Return labels that select exactly this resource's pods of a component."""
        return {NAME: self.application, INSTANCE: self.name, COMPONENT: component}

    def reference(self) -> Obj:
        """Return the controller reference, which cascades deletion and names the owner."""
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def owns(self, found: Obj | None) -> TypeGuard[Obj]:
        """Whether an object exists and belongs to this resource (`belongs_to`)."""
        return belongs_to(found, self.uid, {NAME: self.application, INSTANCE: self.name, MANAGED_BY: self.operator})

    def may_delete(self, found: Obj | None) -> TypeGuard[Obj]:
        """Whether an object may be deleted because the spec no longer requires it.

        Labels are no proof: a copied manifest has them. Only objects of a resource that they outlive have nothing else.
        """
        if not self.owns(found) or is_terminating(found):
            return False
        return self.lasting or controller_of(found) is not None

    def was(self, reference: Obj) -> bool:
        """Whether an owner reference is to this resource, or to a former one of its name, which cannot exist now."""
        if reference["uid"] == self.uid:
            return True
        group = reference["apiVersion"].rpartition("/")[0]
        return (group, reference["kind"], reference["name"]) == (self.kind.group, self.kind.name, self.name)

    def object(self, kind: Kind, name: str, *, component: str, **body: Obj) -> Obj:
        """Return a new object with identity, labels and owner reference around `body`."""
        metadata: Obj = {"name": name, "namespace": self.namespace, "labels": self.labels(component)}
        if not self.lasting:
            metadata["ownerReferences"] = [self.reference()]
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body}


def managed_selector(operator: str) -> str:
    """Return the label selector of all objects of an operator; its watches are limited to them."""
    return f"{MANAGED_BY}={operator}"


def selector_text(labels: dict[str, str]) -> str:
    """Return labels as the text of a selector."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def key_of(primary: Kind, operator: str, kind: Kind, obj: Obj, *, application: str = "") -> Key | None:
    """Return the key of the resource to which an object belongs, from its labels; None if it belongs to none.

    Args:
        primary: kind of the resources.
        operator: name of the operator.
        application: value of app.kubernetes.io/name, which distinguishes the objects of an operator's kinds: resources
            of two kinds may have the same name. Empty if the operator has one kind.
    """
    metadata = obj["metadata"]
    namespace = metadata.get("namespace") or ""
    if kind == primary:
        return Key(namespace, metadata["name"])
    labels = metadata.get("labels") or {}
    if labels.get(MANAGED_BY) != operator or INSTANCE not in labels:
        return None
    if application and labels.get(NAME) != application:
        return None
    return Key(namespace, labels[INSTANCE])


def controller_of(obj: Obj) -> Obj | None:
    """Return the owner reference of an object's controller, if any."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def owner_of(obj: Obj) -> str:
    """Return the owner of an object for a message: its controller, otherwise the resource that its labels name."""
    controller, labels = controller_of(obj), obj["metadata"].get("labels") or {}
    if controller is not None:
        return f"{controller['kind']} {controller['name']} (uid {controller['uid']})"
    if INSTANCE in labels:
        return f"{labels.get(NAME, 'a resource')} {labels[INSTANCE]}, by its labels"
    return "a user: it has no owner"


def of_another_controller(obj: Obj, kind: Kind, name: str) -> bool:
    """Return whether an object has a controller, and it is not the named one; without a controller it may be adopted.

    Args:
        kind: kind of the expected controller.
        name: name of the expected controller.
    """
    controller = controller_of(obj)
    expected = (kind.api_version, kind.name, name)
    return controller is not None and tuple(controller.get(key) for key in ("apiVersion", "kind", "name")) != expected


def belongs_to(found: Obj | None, uid: str, labels: Mapping[str, str]) -> TypeGuard[Obj]:
    """Whether an object belongs to a resource: by the UID of its controller; without a controller, by its labels.

    An object has no controller if it was orphaned, restored from a backup without its owner, or created to outlive its
    resource. Whether an object may be used, changed or deleted is decided here, except where a controller proves less
    than is at stake: claims and workloads with data, by the UID of the resource in a label (`shared.steps.claims`);
    Secrets that the operator makes, by their UIDs in the status (`secret_provenance`). Pods of a workload have its
    name, not the UID of the resource (`is_replica`).

    Args:
        uid: UID of the resource.
        labels: labels that an object without a controller must have; empty: it belongs to nothing.
    """
    if found is None:
        return False
    if (controller := controller_of(found)) is not None:
        return bool(controller.get("uid") == uid)
    return bool(labels) and labels.items() <= (found["metadata"].get("labels") or {}).items()


def owned_by(uid: str, obj: Obj | None) -> Obj | None:
    """Return the object if this resource is its controller, and it is not being deleted.

    Args:
        uid: UID of the resource.
    """
    return obj if obj and belongs_to(obj, uid, {}) and not is_terminating(obj) else None


def is_replica(pod: Obj, kind: Kind, name: str, selector: Mapping[str, str]) -> bool:
    """Whether a pod has the labels of a workload's selector, and no controller but this workload.

    Without a label of the selector, the workload's controller removes its owner reference from the pod.

    Args:
        kind: kind of the workload.
        name: name of the workload.
        selector: labels that its selector requires.
    """
    labels = pod["metadata"].get("labels") or {}
    return selector.items() <= labels.items() and not of_another_controller(pod, kind, name)


def require_owned(desired: Obj, observed: Obj, uid: str = "") -> None:
    """Raise an error unless this resource may write to an observed object.

    It may if the controller of the object is this resource, by UID; or if the object has no controller and has the
    desired labels (it was orphaned, restored from a backup without its owner, or created to outlive its resource). A
    pod needs the controller: the result of another one would be taken for that of the pod that was to be created.

    Args:
        uid: UID of the resource, for objects without owner reference (`Owner.lasting`).

    Raises:
        ForeignObject: the object belongs to another controller, to an earlier resource of the same name, or to a user.
    """
    want, controller = desired["metadata"].get("labels") or {}, controller_of(observed)
    own_uid = (controller_of(desired) or {"uid": uid})["uid"]
    is_pod = observed["kind"] == POD.name
    labels = {} if is_pod else {key: want.get(key, "") for key in (NAME, INSTANCE, MANAGED_BY)}
    if belongs_to(observed, own_uid, labels):
        return
    what = f"{observed['kind']} {observed['metadata']['name']}"
    if controller is not None:
        own = controller_of(desired) or {}
        is_former = all(controller.get(key) == own.get(key) for key in ("apiVersion", "kind", "name"))
        raise (FormerObject if is_former else ForeignObject)(
            f"{what} belongs to {owner_of(observed)}. It was not changed. Rename this resource, or delete that object."
        )
    if is_pod:
        raise ForeignObject(f"{what} has no controller. It was not changed. Rename this resource, or delete that pod.")
    at, given = observed["metadata"].get("namespace", ""), (f"{key}={text}" for key, text in labels.items())
    raise ForeignObject(
        f"{what} exists and was not created by this operator. It was not changed. Rename this resource, delete that "
        f"object, or hand it over: {command('label', what.replace(' ', '/').lower(), at, *given, '--overwrite')}"
    )


def is_adoption(desired: Obj, observed: Obj) -> bool:
    """Whether a write gives an object without a controller the desired one.

    If that one was deleted in the meantime, the garbage collector would delete the object.
    """
    return controller_of(observed) is None and controller_of(desired) is not None


def require_part(observed: Obj, operator: str, resource: Obj) -> None:
    """Raise an error unless an object is a part of a resource: an owned object, or what a workload of it made.

    Kubernetes' controllers make pods and claims, and are then their controllers. Such an object has the labels of the
    resource, or the UID of the resource in a label, and no controller but a workload of the name of the resource.

    Args:
        operator: name of the operator.

    Raises:
        ForeignObject: the object belongs to another owner.
    """
    instance, uid = resource["metadata"]["name"], resource["metadata"]["uid"]
    labels, controller = observed["metadata"].get("labels") or {}, controller_of(observed)
    if belongs_to(observed, uid, {}):
        return
    what = f"{observed['kind']} {observed['metadata']['name']}"
    if controller is not None and not _is_workload(controller, instance):
        raise ForeignObject(f"{what} belongs to {owner_of(observed)}. It was not changed.")
    if uid not in labels.values() and (labels.get(MANAGED_BY), labels.get(INSTANCE)) != (operator, instance):
        raise ForeignObject(
            f"{what} does not have the labels {MANAGED_BY}={operator} and {INSTANCE}={instance}. It was not changed. "
            "Rename this resource, or delete that object."
        )


def _is_workload(controller: Obj, instance: str) -> bool:
    """Whether a controller is the StatefulSet or Deployment of a resource, or a ReplicaSet of its Deployment."""
    kind, name = controller["kind"], controller["name"]
    is_replica_set = kind == "ReplicaSet" and name.rpartition("-")[0] == instance
    return is_replica_set or (kind in ("StatefulSet", "Deployment") and name == instance)
