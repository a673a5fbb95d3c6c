"""Ownership of objects: a foreign object is never changed."""

import dataclasses

import pytest

from shared.kubernetes.kinds import POD, SERVICE, Key, Kind, Obj
from shared.kubernetes.ownership import ForeignObject, Owner, key_of, owned_by, require_owned, require_part
from tests.harness.messages import commands

CACHE = Kind("example.com", "v1", "Thing", "things")


def owner(uid: str = "u-1") -> Owner:
    return Owner(CACHE, namespace="ns", name="a", uid=uid, application="thing", operator="op")


def test_owned_object_maps_to_its_resource() -> None:
    made = owner().object(SERVICE, "a-0", component="server", spec={"clusterIP": "None"})
    assert made["spec"] == {"clusterIP": "None"}
    assert key_of(CACHE, "op", SERVICE, made) == Key("ns", "a")
    assert key_of(CACHE, "other", SERVICE, made) is None


def test_objects_of_two_kinds_with_the_same_name_are_distinguished() -> None:
    saved = Kind("example.com", "v1", "Saved", "saveds")
    copy = Owner(saved, namespace="ns", name="a", uid="u-2", application="thing-copy", operator="op")
    pods = {which: which.object(POD, which.application, component="server") for which in (owner(), copy)}
    found = {
        (kind.name, which.application): key_of(kind, "op", POD, pod, application=application)
        for kind, application in ((CACHE, "thing"), (saved, "thing-copy"))
        for which, pod in pods.items()
    }
    of_both = {names for names, key in found.items() if key}
    assert of_both == {("Thing", "thing"), ("Saved", "thing-copy")}
    assert set(found.values()) == {Key("ns", "a"), None}


def test_only_an_object_of_this_resource_that_is_not_deleting_may_be_deleted() -> None:
    own = owner().object(SERVICE, "a", component="server")
    leaving = {**own, "metadata": {**own["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    orphan = foreign_object(labels=own["metadata"]["labels"])
    assert owned_by("u-1", own) == own
    for uid, found in (("u-2", own), ("u-1", leaving), ("u-1", orphan), ("u-1", None)):
        assert owned_by(uid, found) is None


def resource(name: str = "a", uid: str = "u-9") -> Obj:
    return {"metadata": {"name": name, "uid": uid}}


def made_by(kind: str, name: str) -> Obj:
    """Return a pod with the labels of the resource that another object controls."""
    pod = dataclasses.replace(owner(), lasting=True).object(POD, "a-0", component="server")
    pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": "w-1", "controller": True}]
    return pod


def test_pod_of_a_statefulset_must_have_the_labels_of_the_resource() -> None:
    for pod in (
        made_by("StatefulSet", "a"),
        made_by("ReplicaSet", "a-7f5b"),
        owner("u-9").object(POD, "x", component=""),
    ):
        require_part(pod, "op", resource())
    own = made_by("StatefulSet", "a")
    own["metadata"]["labels"]["uid"] = "u-9"
    require_part(own, "other", resource())
    for operator, instance in (("other", "a"), ("op", "b")):
        with pytest.raises(ForeignObject, match=f"managed-by={operator}.*instance={instance}"):
            require_part(made_by("StatefulSet", instance), operator, resource(instance))
    with pytest.raises(ForeignObject):
        require_part(foreign_object(), "op", resource())


@pytest.mark.parametrize(("kind", "name"), [("StatefulSet", "a-b"), ("ReplicaSet", "a-b-7f5b"), ("Job", "a")])
def test_pod_of_another_controller_is_no_part_in_spite_of_its_labels(kind: str, name: str) -> None:
    with pytest.raises(ForeignObject, match=f"Pod a-0 belongs to {kind} {name}"):
        require_part(made_by(kind, name), "op", resource())


def test_selector_contains_the_instance() -> None:
    assert owner().selector("server")["app.kubernetes.io/instance"] == "a"


def foreign_object(**metadata: object) -> Obj:
    return {"kind": "Service", "metadata": {"name": "a", "namespace": "default", **metadata}}


def test_object_of_the_resource_is_accepted() -> None:
    desired = owner().object(SERVICE, "a", component="server")
    require_owned(desired, desired)
    orphan = foreign_object(labels=desired["metadata"]["labels"])
    require_owned(desired, orphan)


def test_advice_is_the_command_that_hands_the_object_over() -> None:
    desired = owner().object(SERVICE, "a", component="server")
    with pytest.raises(ForeignObject) as refusal:
        require_owned(desired, foreign_object())
    [command], expected = commands(str(refusal.value)), desired["metadata"]["labels"]
    assert command[:5] == ["kubectl", "label", "service/a", "-n", "default"]
    assert command[-1] == "--overwrite"
    labels = dict(each.split("=") for each in command[5:-1])
    assert labels.items() <= expected.items()
    require_owned(desired, foreign_object(labels=labels))


def test_pod_with_the_labels_and_without_a_controller_is_not_adopted() -> None:
    """The result of a restore, for example, would be taken for that of the pod that was to be created."""
    desired = owner().object(POD, "a", component="restore")
    require_owned(desired, desired)
    for references in ([], [{**desired["metadata"]["ownerReferences"][0], "controller": False}]):
        orphan = desired | {"metadata": desired["metadata"] | {"ownerReferences": references}}
        with pytest.raises(ForeignObject, match="Pod a has no controller"):
            require_owned(desired, orphan)


def test_lasting_object_has_no_owner_reference_and_is_accepted() -> None:
    before = owner().object(SERVICE, "a", component="server")
    desired = dataclasses.replace(owner(), lasting=True).object(SERVICE, "a", component="server")
    assert "ownerReferences" not in desired["metadata"]
    require_owned(desired, desired, "u-1")
    require_owned(desired, before, "u-1")
    require_owned(before, desired)
    with pytest.raises(ForeignObject, match="belongs to Thing a"):
        require_owned(desired, before, "u-2")


@pytest.mark.parametrize(
    ("observed", "because"),
    [
        (foreign_object(), "was not created by this operator"),
        (foreign_object(labels={"app.kubernetes.io/instance": "a"}), "was not created by this operator"),
        (owner("u-2").object(SERVICE, "a", component="server"), "belongs to Thing a (uid u-2)"),
        (
            foreign_object(ownerReferences=[{"kind": "Helm", "name": "x", "uid": "u-9", "controller": True}]),
            "belongs to Helm x",
        ),
    ],
)
def test_foreign_object_is_rejected_with_advice(observed: Obj, because: str) -> None:
    with pytest.raises(ForeignObject, match="not changed") as refusal:
        require_owned(owner().object(SERVICE, "a", component="server"), observed)
    assert because in str(refusal.value)
