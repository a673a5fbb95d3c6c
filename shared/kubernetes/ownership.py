"""Whose an object is: owner references, labels, selectors, and the refusal to take what belongs to another."""

from __future__ import annotations

from dataclasses import dataclass

from shared.kubernetes.kinds import Key, Kind, Obj

NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
MANAGED_BY = "app.kubernetes.io/managed-by"
PART_OF = "app.kubernetes.io/part-of"
COMPONENT = "app.kubernetes.io/component"


class NotOurs(Exception):
    """An object in our way belongs to somebody else; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A resource as the owner of the objects made for it.

    Attributes:
        kind: the resource's kind.
        namespace: where it and its objects live.
        name: its name.
        uid: its UID: a later resource of the same name is another owner.
        application: what runs, such as `memcached` (app.kubernetes.io/name).
        operator: who makes the objects (app.kubernetes.io/managed-by).
        lasting: whether its objects outlive it: they bear no owner reference then.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    application: str
    operator: str
    lasting: bool = False

    def labels(self, component: str) -> dict[str, str]:
        """Labels of an object of a component (such as `server`)."""
        return self.selector(component) | {MANAGED_BY: self.operator, PART_OF: "platform"}

    def selector(self, component: str) -> dict[str, str]:
        """Labels that select exactly this resource's pods of a component: the instance's name is always among them."""
        return {NAME: self.application, INSTANCE: self.name, COMPONENT: component}

    def reference(self) -> Obj:
        """The owner reference that makes deletion cascade and tells every controller whose the object is."""
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.name,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def object(self, kind: Kind, name: str, *, component: str, **body: Obj) -> Obj:
        """A new object of ours: identity, labels and owner reference around `body`."""
        metadata: Obj = {"name": name, "namespace": self.namespace, "labels": self.labels(component)}
        if not self.lasting:
            metadata["ownerReferences"] = [self.reference()]
        return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body}


def managed_selector(operator: str) -> str:
    """Label selector of everything an operator made: its watches ask for nothing else."""
    return f"{MANAGED_BY}={operator}"


def selector_text(labels: dict[str, str]) -> str:
    """Labels as a selector in the API's text form."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def key_of(primary: Kind, operator: str, kind: Kind, obj: Obj, *, application: str = "") -> Key | None:
    """The resource an object belongs to, by its labels; None if it is not one of the primary kind's.

    Args:
        primary: the resources' kind.
        operator: whose objects count.
        application: what runs in them; resources of two kinds of one operator may have the same name, and are told
            apart by it. Empty where the operator has one kind.
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
    """The owner reference of the controller an object belongs to, if any."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Obj = reference
            return found
    return None


def made_for(uid: str, obj: Obj | None) -> Obj | None:
    """The object, if it was made for this very resource and is to stay: only then may it be deleted.

    Args:
        uid: the resource's.
    """
    if obj is None or obj["metadata"].get("deletionTimestamp"):
        return None
    return obj if (controller_of(obj) or {}).get("uid") == uid else None


def require_ours(desired: Obj, observed: Obj, uid: str = "") -> None:
    """Make sure that we may write to an observed object.

    We may if its controller is our resource, by UID; or if it has no controller and bears the labels we give (an object
    of ours that was orphaned, restored from a backup without its owner, or made to outlive its resource).

    Args:
        uid: our resource's, for objects that name no owner (`Owner.lasting`).

    Raises:
        NotOurs: it belongs to another controller, to an earlier resource of the same name, or to a person.
    """
    theirs = controller_of(observed)
    ours = (controller_of(desired) or {"uid": uid})["uid"]
    what = f"{observed['kind']} {observed['metadata']['name']}"
    if theirs is not None:
        if theirs["uid"] == ours:
            return
        raise NotOurs(
            f"{what} belongs to {theirs['kind']} {theirs['name']} (uid {theirs['uid']}). It was left alone. "
            "Rename this resource, or delete that object."
        )
    labels, want = observed["metadata"].get("labels") or {}, desired["metadata"].get("labels") or {}
    if all(labels.get(key) == want.get(key) for key in (NAME, INSTANCE, MANAGED_BY)):
        return
    raise NotOurs(
        f"{what} exists and was not made by this operator. It was left alone. Rename this resource, delete that "
        f"object, or hand it over by labelling it {MANAGED_BY}={want.get(MANAGED_BY)}, {INSTANCE}={want.get(INSTANCE)} "
        f"and {NAME}={want.get(NAME)}."
    )


def require_labelled(observed: Obj, operator: str, instance: str) -> None:
    """Make sure that an object that another controller made, such as a StatefulSet's pod, was made for our resource.

    Args:
        instance: the resource's name.

    Raises:
        NotOurs: it does not bear our labels.
    """
    labels = observed["metadata"].get("labels") or {}
    if (labels.get(MANAGED_BY), labels.get(INSTANCE)) != (operator, instance):
        raise NotOurs(
            f"{observed['kind']} {observed['metadata']['name']} does not bear the labels {MANAGED_BY}={operator} and "
            f"{INSTANCE}={instance}. It was left alone. Rename this resource, or delete that object."
        )
