"""Ownership of objects: owner references, labels, selectors, and checks against changing foreign objects."""

from __future__ import annotations

from dataclasses import dataclass

from shared.kubernetes.kinds import Key, Kind, Obj

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"


class ForeignObject(Exception):
    """An object with the desired name belongs to another owner; nothing was changed."""


class FormerObject(ForeignObject):
    """An object belongs to a deleted resource of the same name; the garbage collector is about to delete it."""


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


def owned_by(uid: str, obj: Obj | None) -> Obj | None:
    """Return the object if it was created for this resource and is not being deleted: only then may it be deleted.

    Args:
        uid: UID of the resource.
    """
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return None
    return obj if (controller_of(obj) or {}).get("uid") == uid else None


def require_owned(desired: Obj, observed: Obj, uid: str = "") -> None:
    """Raise an error unless this resource may write to an observed object.

    It may if the controller of the object is this resource, by UID; or if the object has no controller and has the
    desired labels (it was orphaned, restored from a backup without its owner, or created to outlive its resource).

    Args:
        uid: UID of the resource, for objects without owner reference (`Owner.lasting`).

    Raises:
        NotOurs: the object belongs to another controller, to an earlier resource of the same name, or to a user.
    """
    controller = controller_of(observed)
    own_uid = (controller_of(desired) or {"uid": uid})["uid"]
    what = f"{observed['kind']} {observed['metadata']['name']}"
    if controller is not None:
        if controller["uid"] == own_uid:
            return
        own = controller_of(desired) or {}
        is_former = all(controller.get(key) == own.get(key) for key in ("apiVersion", "kind", "name"))
        raise (FormerObject if is_former else ForeignObject)(
            f"{what} belongs to {owner_of(observed)}. It was not changed. Rename this resource, or delete that object."
        )
    labels, want = observed["metadata"].get("labels") or {}, desired["metadata"].get("labels") or {}
    if all(labels.get(key) == want.get(key) for key in (NAME, INSTANCE, MANAGED_BY)):
        return
    raise ForeignObject(
        f"{what} exists and was not created by this operator. It was not changed. Rename this resource, delete that "
        f"object, or hand it over by labelling it {MANAGED_BY}={want.get(MANAGED_BY)}, {INSTANCE}={want.get(INSTANCE)} "
        f"and {NAME}={want.get(NAME)}."
    )


def is_adoption(desired: Obj, observed: Obj) -> bool:
    """Whether a write gives an object without a controller the desired one.

    If that one was deleted in the meantime, the garbage collector would delete the object.
    """
    return controller_of(observed) is None and controller_of(desired) is not None


def require_labelled(observed: Obj, operator: str, instance: str) -> None:
    """Raise an error unless an object that another controller created, such as a pod, belongs to this resource.

    Args:
        instance: name of the resource.

    Raises:
        NotOurs: the object does not have the labels of this resource.
    """
    labels = observed["metadata"].get("labels") or {}
    if (labels.get(MANAGED_BY), labels.get(INSTANCE)) != (operator, instance):
        raise ForeignObject(
            f"{observed['kind']} {observed['metadata']['name']} does not have the labels {MANAGED_BY}={operator} and "
            f"{INSTANCE}={instance}. It was not changed. Rename this resource, or delete that object."
        )
