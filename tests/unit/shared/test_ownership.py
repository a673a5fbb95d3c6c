"""Whose an object is, and that nothing of another's is ever taken."""

import pytest

from shared.kube import SERVICE, Kind, Obj
from shared.ownership import NotOurs, Owner, key_of, require_ours
from shared.queue import Key

CACHE = Kind("example.com", "v1", "Thing", "things")


def owner(uid: str = "u-1") -> Owner:
    return Owner(CACHE, namespace="ns", name="a", uid=uid, application="thing", operator="op")


def test_an_object_of_ours_leads_back_to_its_resource() -> None:
    made = owner().object(SERVICE, "a-0", component="server", spec={"clusterIP": "None"})
    assert made["spec"] == {"clusterIP": "None"}
    assert key_of(CACHE, "op", SERVICE, made) == Key("ns", "a")
    assert key_of(CACHE, "other", SERVICE, made) is None


def test_the_selector_names_the_instance() -> None:
    assert owner().selector("server")["app.kubernetes.io/instance"] == "a"


def stranger(**metadata: object) -> Obj:
    return {"kind": "Service", "metadata": {"name": "a", **metadata}}


def test_only_our_own_is_ours() -> None:
    desired = owner().object(SERVICE, "a", component="server")
    require_ours(desired, desired)
    orphan = stranger(labels=desired["metadata"]["labels"])
    require_ours(desired, orphan)


@pytest.mark.parametrize(
    ("observed", "because"),
    [
        (stranger(), "was not made by this operator"),
        (stranger(labels={"app.kubernetes.io/instance": "a"}), "was not made by this operator"),
        (owner("u-2").object(SERVICE, "a", component="server"), "belongs to Thing a (uid u-2)"),
        (
            stranger(ownerReferences=[{"kind": "Helm", "name": "x", "uid": "u-9", "controller": True}]),
            "belongs to Helm x",
        ),
    ],
)
def test_what_is_anothers_is_refused_with_a_way_out(observed: Obj, because: str) -> None:
    with pytest.raises(NotOurs, match="left alone") as refusal:
        require_ours(owner().object(SERVICE, "a", component="server"), observed)
    assert because in str(refusal.value)
