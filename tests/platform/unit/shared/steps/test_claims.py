"""Owner of volume claims and of the StatefulSet that mounts them: by the label with the UID of the resource."""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import Obj
from shared.steps.claims import is_foreign

LABEL, OWN = "example.com/cluster-uid", "u-1"
SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "demo", "uid": "s-1", "controller": True}
RESOURCE = {"apiVersion": "example.com/v1", "kind": "Thing", "name": "demo", "uid": OWN, "controller": True}


@pytest.mark.parametrize(
    ("kind", "uid", "controller", "foreign"),
    [
        ("PersistentVolumeClaim", OWN, None, False),
        ("PersistentVolumeClaim", OWN, SET, False),
        ("PersistentVolumeClaim", OWN, SET | {"name": "other"}, True),
        ("PersistentVolumeClaim", "u-2", SET, True),
        ("PersistentVolumeClaim", None, None, True),
        ("StatefulSet", OWN, None, False),
        ("StatefulSet", OWN, RESOURCE, False),
        ("StatefulSet", "u-2", RESOURCE, True),
        ("StatefulSet", None, RESOURCE, True),
    ],
)
def test_owner_is_the_resource_with_the_uid_in_the_label(
    kind: str, uid: str | None, controller: Obj | None, foreign: bool
) -> None:
    """A claim also needs no controller but the StatefulSet; that of the StatefulSet is the resource."""
    metadata: Obj = {"name": "demo", "labels": {LABEL: uid} if uid else {}}
    metadata |= {"ownerReferences": [controller]} if controller else {}
    assert is_foreign({"kind": kind, "metadata": metadata}, LABEL, name="demo", uid=OWN) is foreign
