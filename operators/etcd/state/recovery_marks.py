"""Marks of recoveries on volume claims: data that a recovery did not use, and that a user may release. Pure.

`KEPT` is on the claim of a former member; `SET_ASIDE` is on that of the survivor, next to whose data the former data
directory is. Each recovery adds its mark to those of earlier ones, whose data may not be released yet.

Claims are marked before the recovery creates the new cluster, and it may be withdrawn in between. So each mark names
the cluster that the data is of. While that is the recorded cluster, the recovery was not carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from operators.etcd.objects.names import KEPT, SET_ASIDE
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.runtime.plan import Patch


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark of a recovery.

    Attributes:
        token: token of the recovery.
        cluster: id of the cluster that the data is of, in 16 hexadecimal digits; empty if it was not recorded.
    """

    token: str
    cluster: str = ""

    def __str__(self) -> str:
        return f"{self.token}@{self.cluster}" if self.cluster else self.token


def marks(claim: Obj | None, key: str) -> tuple[Mark, ...]:
    """Return the marks on a claim, the oldest first.

    Args:
        key: `KEPT` or `SET_ASIDE`.
    """
    entries = (entry.partition("@") for entry in annotation(claim, key).split(",") if entry)
    return tuple(Mark(token, cluster) for token, _, cluster in entries)


def tokens(claim: Obj | None, key: str) -> tuple[str, ...]:
    """Return the tokens of the recoveries that marked a claim."""
    return tuple(mark.token for mark in marks(claim, key))


def change(claim: Obj, cluster_id: int, *, key: str = "", token: str = "") -> Patch | None:
    """Return the change that leaves the marks of recoveries that were carried out, and adds one; None if there is none.

    Args:
        cluster_id: id of the present cluster: a mark for its data is of a recovery that was not carried out.
        key: mark to add; empty for none.
        token: token of the recovery that adds it.
    """
    cluster = f"{cluster_id:016x}"
    annotations: dict[str, str | None] = {}
    for each in (KEPT, SET_ASIDE):
        left = [mark for mark in marks(claim, each) if mark.cluster != cluster]
        left += [Mark(token, cluster)] if each == key else []
        text = ",".join(map(str, left))
        if text != annotation(claim, each):
            annotations[each] = text or None
    return _patch(claim, annotations)


def without(claim: Obj, key: str, token: str) -> Patch | None:
    """Return the change that removes the mark of a recovery; None if there is none."""
    left = ",".join(str(mark) for mark in marks(claim, key) if mark.token != token)
    return _patch(claim, {key: left or None} if left != annotation(claim, key) else {})


def _patch(claim: Obj, annotations: dict[str, str | None]) -> Patch | None:
    return Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": {"annotations": annotations}}) if annotations else None
