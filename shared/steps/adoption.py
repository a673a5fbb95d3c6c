"""Adoption of the volumes that a deleted resource of the same name left. Pure.

A recreated resource has another UID, so its volumes count as those of another cluster, and are not touched. A user can
hand them over explicitly (spec.adopt.fromUID). The order makes each part repeatable:

1. The operator checks the claims, and that no resource with that UID exists. No pod runs yet.
2. It records the adoption in the status, together with what the database knows of the former cluster.
3. It changes the label of each claim to the UID of this resource. A claim that has it already is skipped.
4. Only then does the plan continue, so that no pod starts before all claims are adopted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shared.api.spec import CustomResource
from shared.kubernetes.accessors import label
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.runtime.plan import PASS, Patch, Step
from shared.status.health import listed
from shared.status.reasons import ADOPTING, ADOPTION_REFUSED

RETRY_SECONDS = 60.0
"""Time until a refused adoption is checked again: nothing reports that another resource was deleted."""


@dataclass(frozen=True, slots=True)
class Adoptable:
    """Facts about the volumes that spec.adopt names, read live while some are to be adopted; empty without the field.

    Attributes:
        claims: all volume claims of the name of the resource.
        former: NAMESPACE/NAME of a resource that still has the UID of the deleted one; empty if there is none.
        in_use: objects whose processes may use the volumes: pods of this name, and their StatefulSet.
    """

    claims: Sequence[Obj] = ()
    former: str = ""
    in_use: Sequence[Obj] = ()


@dataclass(frozen=True, slots=True)
class Adoption:
    """The volumes that a resource may adopt, as observed.

    Attributes:
        resource: the resource that adopts them.
        claims: all volume claims of its name.
        uid_label: label of claims: UID of the resource that owns the data.
        former: NAMESPACE/NAME of a resource that still has the UID of the deleted one; empty if there is none.
        in_use: objects whose processes may use the volumes: pods of this name, and their StatefulSet.
        problem: why the data on the volumes cannot be used, as a sentence; empty if it can.
    """

    resource: CustomResource[Any]
    claims: Sequence[Obj]
    uid_label: str
    former: str
    in_use: Sequence[Obj]
    problem: str

    @property
    def uid(self) -> str:
        """UID of the deleted resource."""
        return self.resource.adopts_from

    @property
    def foreign(self) -> list[Obj]:
        """Claims that do not belong to this resource."""
        return [claim for claim in self.claims if label(claim, self.uid_label) != self.resource.uid]

    @property
    def is_due(self) -> bool:
        """Whether claims of the deleted resource, and no others, are still to be adopted.

        Or to be recorded as adopted: the status was lost before anything was started with them.
        """
        if self.foreign:
            return bool(self.uid) and {label(claim, self.uid_label) for claim in self.foreign} == {self.uid}
        is_recorded = self.resource.adopted_from == self.uid
        return bool(self.uid and self.claims) and not is_recorded and not self.in_use

    @property
    def is_permitted(self) -> bool:
        """Whether the claims may be adopted now."""
        return self.is_due and not self.refusal

    @property
    def refusal(self) -> str:
        """Why the claims must not be adopted; empty if they may."""
        if self.former:
            return f"{self.former} still has that UID, and its pods may use the data. Delete it first."
        if self.in_use:
            found = ", ".join(f"{obj['kind']} {obj['metadata']['name']}" for obj in self.in_use)
            return f"{found} exists, and its processes may use the data. Wait until it is deleted, or delete it."
        return self.problem


def adopt(adoption: Adoption, *, is_recorded: bool, has_begun: bool) -> Step:
    """Hand the volume claims of the deleted resource over to this one, before anything else happens.

    Args:
        is_recorded: whether the status has everything that must be known before a claim changes hands.
        has_begun: whether this resource may already have data or pods.
    """
    uid, uid_label = adoption.uid, adoption.uid_label
    if not uid:
        return PASS
    if not adoption.claims and not has_begun and adoption.resource.adopted_from != uid:
        message = (
            f"spec.adopt: no volume claim of this name has the label {uid_label}={uid}. Nothing was started. Restore "
            "the claims, correct fromUID, or remove spec.adopt to create an empty cluster."
        )
        return Step.blocked(ADOPTION_REFUSED, message, requeue=RETRY_SECONDS)
    if not adoption.is_due:
        return PASS  # everything is adopted; or a claim has another owner, which the next step reports
    names = listed(tuple(sorted(claim["metadata"]["name"] for claim in adoption.foreign or adoption.claims)))
    if why := adoption.refusal:
        message = f"spec.adopt: {names} of uid {uid} cannot be adopted: {why} Nothing was changed."
        return Step.blocked(ADOPTION_REFUSED, message, requeue=RETRY_SECONDS)
    if not is_recorded:
        return Step.wait(ADOPTING, f"Adopting {names} of uid {uid}: recording that in status first.", requeue=0)
    patches = [_hand_over(adoption, claim) for claim in adoption.foreign]
    return Step.wait(ADOPTING, f"Adopting {names} of uid {uid}, with their data.", *patches, requeue=0)


def report(adoption: Adoption) -> Obj | None:
    """Return status.adoption: an adoption that may begin, else the recorded one; None without any."""
    uid = adoption.uid if adoption.is_permitted else adoption.resource.adopted_from
    return {"fromUID": uid} if uid else None


def _hand_over(adoption: Adoption, claim: Obj) -> Patch:
    """Return the change of one claim, which must still be as observed."""
    metadata = {
        "resourceVersion": claim["metadata"]["resourceVersion"],
        "labels": {adoption.uid_label: adoption.resource.uid},
    }
    return Patch(PERSISTENT_VOLUME_CLAIM, claim, {"metadata": metadata})
