"""The lifecycle of a database's volume, and the writes that follow from it. Pure.

A volume may hold the only copy of data. A claim is therefore deleted only if there is evidence that its data is not
needed: no member of etcd and no owner of slots uses it. A volume left behind by another cluster of the same name never
gets here: an earlier step (`refuse_foreign_*`) blocks the plan.
"""

from __future__ import annotations

import enum

from shared.api.podspec import smaller
from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.runtime.plan import Delete, Evict
from shared.status.lifecycle import Lifecycle
from shared.steps.instance import Instance


class VolumeState(enum.Enum):
    """State of a claim, including whether the data on its volume is needed."""

    CLAIMED = "claim without a volume"
    IN_USE = "holds data in use"
    GROWING = "holds data in use, expansion requested"
    RELEASED = "holds no data in use"
    DELETING = "deletion requested"
    DELETED = "no claim"


class VolumeEvent(enum.Enum):
    """An event in the life of a claim."""

    BIND = "the storage provides the volume"
    GROW = "the spec requests a larger size"
    PROVIDE = "the storage has expanded the volume"
    RELEASE = "no member or node has data on it"
    REUSE = "a new member or node uses it"
    DELETE = "the operator deletes the claim"
    VANISH = "the pod that used it has ended"


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
    """Return the state of a claim.

    Args:
        in_use: whether a member or node may have data on the volume that is needed.
    """
    if is_terminating(claim):
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
        in_use: see `state_of`.

    Raises:
        IllegalTransition: the data on it may be needed, or the claim is already being deleted.
    """
    VOLUME.after(state_of(claim, in_use=in_use), VolumeEvent.DELETE)
    return Delete(PERSISTENT_VOLUME_CLAIM, claim)


def replace_disk(instance: Instance, *, in_use: bool, evicts: bool = False) -> tuple[Delete | Evict, ...]:
    """Delete the volume and the pod of an instance that stays, so that its next pod starts with an empty volume.

    The claim is deleted first and then waits for the pod to end, so the next pod cannot use it. Objects that are
    already being deleted are skipped.

    Args:
        in_use: see `state_of`.
        evicts: whether the pod serves and is evicted, before anything is deleted: a refusal changes nothing.

    Raises:
        IllegalTransition: the data on the volume may be needed.
    """
    claim, pod = instance.volume, instance.pod_obj
    claims = () if claim is None or is_terminating(claim) else (delete(claim, in_use=in_use),)
    pods = () if pod is None or is_terminating(pod) else (Evict(pod) if evicts else Delete(POD, pod),)
    return (*pods, *claims) if evicts else (*claims, *pods)


def is_bound(claim: Obj) -> bool:
    """Whether a claim is bound to a volume."""
    return str((claim.get("status") or {}).get("phase", "")) == "Bound"


def capacity(claim: Obj) -> str:
    """Return the capacity of a claim; 0 before it has any."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))
