"""The lifecycle of a database's volume, and the writes that follow from it. Pure.

A volume holds data that nothing else may have. So a claim is deleted only with evidence that nothing on it counts: no
member of etcd or owner of slots lives there. A volume that another cluster of the same name left behind never comes
here: the plan is blocked before (`refuse_foreign_*`).
"""

from __future__ import annotations

import enum

from shared.api.podspec import smaller
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.runtime.plan import Delete
from shared.status.lifecycle import Lifecycle
from shared.steps.instance import Instance


class VolumeState(enum.Enum):
    """How far a claim is, and whether what is on its volume counts."""

    CLAIMED = "claim without a volume"
    IN_USE = "holds data that counts"
    GROWING = "holds data that counts, and is to grow"
    RELEASED = "holds nothing that counts"
    DELETING = "deletion requested"
    DELETED = "no claim"


class VolumeEvent(enum.Enum):
    """What happens to a claim."""

    BIND = "the storage provides the volume"
    GROW = "the spec asks for more"
    PROVIDE = "the storage gives what was asked"
    RELEASE = "no member or node has data on it"
    REUSE = "its place is asked for again"
    DELETE = "the operator deletes the claim"
    VANISH = "its pod has ended"


VOLUME = Lifecycle(
    "volume",
    VolumeState.CLAIMED,
    {
        VolumeState.CLAIMED: {VolumeEvent.BIND: VolumeState.IN_USE, VolumeEvent.DELETE: VolumeState.DELETING},
        VolumeState.IN_USE: {VolumeEvent.GROW: VolumeState.GROWING, VolumeEvent.RELEASE: VolumeState.RELEASED},
        VolumeState.GROWING: {
            VolumeEvent.GROW: VolumeState.GROWING,
            VolumeEvent.PROVIDE: VolumeState.IN_USE,
            VolumeEvent.RELEASE: VolumeState.RELEASED,
        },
        VolumeState.RELEASED: {
            VolumeEvent.GROW: VolumeState.RELEASED,
            VolumeEvent.REUSE: VolumeState.IN_USE,
            VolumeEvent.DELETE: VolumeState.DELETING,
        },
        VolumeState.DELETING: {VolumeEvent.GROW: VolumeState.DELETING, VolumeEvent.VANISH: VolumeState.DELETED},
        VolumeState.DELETED: {},
    },
)

LIFECYCLES = (VOLUME,)


def state_of(claim: Obj, *, in_use: bool) -> VolumeState:
    """The state of a claim.

    Args:
        in_use: whether a member or node that counts may have data on it.
    """
    if claim["metadata"].get("deletionTimestamp"):
        return VolumeState.DELETING
    if not is_bound(claim):
        return VolumeState.CLAIMED
    if not in_use:
        return VolumeState.RELEASED
    requested = claim["spec"]["resources"]["requests"]["storage"]
    return VolumeState.GROWING if smaller(capacity(claim), requested) else VolumeState.IN_USE


def delete(claim: Obj, *, in_use: bool) -> Delete:
    """Delete a claim.

    Args:
        in_use: as `state_of` has it.

    Raises:
        IllegalTransition: what is on it may count, or it is being deleted already.
    """
    VOLUME.after(state_of(claim, in_use=in_use), VolumeEvent.DELETE)
    return Delete(PERSISTENT_VOLUME_CLAIM, claim)


def replace_disk(place: Instance, *, in_use: bool) -> tuple[Delete, ...]:
    """Delete the volume and the pod of a place that stays, so that its next pod begins with an empty disk.

    First the volume, which then waits for the pod: the next pod cannot have it. What is being deleted already is left.

    Args:
        in_use: as `state_of` has it.

    Raises:
        IllegalTransition: what is on the volume may count.
    """
    claim, pod = place.volume, place.pod_obj
    deletions: list[Delete] = []
    if claim and not claim["metadata"].get("deletionTimestamp"):
        deletions.append(delete(claim, in_use=in_use))
    if pod and not pod["metadata"].get("deletionTimestamp"):
        deletions.append(Delete(POD, pod))
    return tuple(deletions)


def is_bound(claim: Obj) -> bool:
    """Whether there is a volume for a claim."""
    return str((claim.get("status") or {}).get("phase", "")) == "Bound"


def capacity(claim: Obj) -> str:
    """The capacity that a claim has; 0 before it has any."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))
