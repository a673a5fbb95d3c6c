"""Steps around the pods of several databases: disruption budget, Secrets, volume expansion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.quantity import parse_quantity
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, Step
from shared.status.reasons import (
    GROWING_VOLUMES,
    MODIFYING_VOLUMES,
    VOLUMES_CANNOT_GROW,
    VOLUMES_CANNOT_SHRINK,
    VOLUMES_NOT_MODIFIED,
)
from shared.status.verdict import Progress
from shared.steps.volumes import VOLUME, VolumeEvent, capacity, is_bound, state_of

_EXCLUSIVE = {"minAvailable", "maxUnavailable"}


def keep_disruption_budget(own: Owner, desired: Obj | None, budget: Obj | None) -> Step:
    """Apply the desired PodDisruptionBudget, or delete one of this resource that is not desired.

    Args:
        budget: the budget with that name, of any owner.
    """
    if desired and own.may_delete(budget) and (desired["spec"].keys() ^ budget["spec"].keys()) & _EXCLUSIVE:
        desired = None  # recreated: both fields are invalid, and apply keeps one that another manager set
    return keep(own, DISRUPTION_BUDGET, desired, budget)


def keep(own: Owner, kind: Kind, desired: Obj | None, found: Obj | None) -> Step:
    """Apply the desired object, or delete one of this resource that is not desired.

    Args:
        found: the object with that name, of any owner: another owner's is neither changed (`require_owned`)
            nor deleted.
    """
    if desired is not None:
        return Step.do(Apply(kind, desired))
    return Step.do(Delete(kind, found)) if own.may_delete(found) else PASS


def report_unusable_secret(problem: SecretProblem) -> Step:
    """Report a missing or invalid Secret that servers need to start; nothing is created until it is valid."""
    message = f"{problem.message} Nothing was changed."
    return Step.wait(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes of a StatefulSet, and what the spec requests of each; volumes never shrink.

    Attributes:
        claims: claims of the StatefulSet.
        stateful_set: the StatefulSet; None if there is none.
        size: requested size.
        attributes_class: requested VolumeAttributesClass; None to leave the present one.
        now: time of the reconcile. A refusal of the API server counts for one hour: a quota may have caused it.
        refusal: annotation of claims with the size, the time and the reason of the last rejected resize.
        attempts: annotation of claims with the class, the time and the refusal of the last attempt to set it.
    """

    claims: Sequence[Obj]
    stateful_set: Obj | None
    size: int | str
    attributes_class: str | None
    now: datetime
    refusal: str
    attempts: str

    def grow(self, *, may_recreate: bool) -> Step:
        """Grow volumes to the requested size, and let new volumes have the requested size and class.

        First each claim is resized. Then the StatefulSet, whose volumeClaimTemplates are immutable, is deleted and
        recreated; its pods keep running.

        Args:
            may_recreate: whether the StatefulSet may be missing for a moment.
        """
        expanded, stateful_set = self.expand(), self.stateful_set
        if expanded is not PASS or stateful_set is None:
            return expanded
        renewed = (self._renew_size(stateful_set) or self._renew_class(stateful_set)) if may_recreate else None
        return renewed or self._await_storage() or PASS

    def refuse_smaller(self) -> Step:
        """Block while the spec requests a smaller size than volumes have grown to.

        The StatefulSet has the size of the last expansion that every volume accepted. A spec that returns to that size,
        or volumes that a user has expanded further, are no conflict.
        """
        template = template_size(self.stateful_set)
        if template is None or not smaller(self.size, template):
            return PASS
        larger = [claim for claim in self.claims if smaller(self.size, _size(claim))]
        if not larger:
            return PASS
        claim = max(larger, key=lambda each: parse_quantity(_size(each)))
        present = _size(claim)
        return Step.blocked(
            VOLUMES_CANNOT_SHRINK,
            f"spec.storage.size: {self.size} is below the {present} of PersistentVolumeClaim "
            f"{claim['metadata']['name']}, and volumes cannot shrink. Nothing was changed. Set at least {present}, or "
            "copy the data to another resource.",
        )

    def expand(self) -> Step:
        """Request the size for existing volumes; this changes nothing else, and does not stop a plan."""
        attempt = f"{self.size} at {self.now:%Y-%m-%dT%HZ}"
        small = [claim for claim in self._growable if smaller(_size(claim), self.size)]
        refused = [claim for claim in small if annotation(claim, self.refusal).startswith(attempt)]
        if due := [claim for claim in small if claim not in refused]:
            requests = {"resources": {"requests": {"storage": self.size}}}
            change = {"metadata": {"annotations": {self.refusal: None}}, "spec": requests}
            patches = (Patch(PERSISTENT_VOLUME_CLAIM, each, change, noted=(self.refusal, attempt)) for each in due)
            return Step(tuple(patches), Progress.PROGRESSING, GROWING_VOLUMES, f"Expanding volumes to {self.size}.")
        if not refused:
            return PASS
        return Step.progressing(
            VOLUMES_CANNOT_GROW,
            f"PersistentVolumeClaim {refused[0]['metadata']['name']} cannot grow to {self.size}: "
            f"{_why(refused[0], self.refusal, attempt)}. Set allowVolumeExpansion: true in its storage class, or raise "
            "the quota. The operator retries every hour.",
            warning=True,
        )

    def modify(self) -> Step:
        """Request the VolumeAttributesClass for existing volumes; this changes nothing else, and stops nothing.

        The write of a class records the attempt in the same request. So a claim without the class, but with the record,
        shows that the API server dropped the field, because such classes are unknown to that version.
        """
        requested = self.attributes_class
        if requested is None:
            return PASS
        attempt = f"{requested} at {self.now:%Y-%m-%dT%HZ}"
        others = [claim for claim in self._growable if _attributes_class(claim) != requested]
        tried = [claim for claim in others if annotation(claim, self.attempts).startswith(attempt)]
        if due := [claim for claim in others if claim not in tried]:
            spec = {"volumeAttributesClassName": requested}
            change = {"metadata": {"annotations": {self.attempts: attempt}}, "spec": spec}
            patches = (Patch(PERSISTENT_VOLUME_CLAIM, each, change, noted=(self.attempts, attempt)) for each in due)
            message = f"Setting VolumeAttributesClass {requested}."
            return Step(tuple(patches), Progress.PROGRESSING, MODIFYING_VOLUMES, message)
        if not tried:
            return self._await_driver(requested)
        name, why = tried[0]["metadata"]["name"], _why(tried[0], self.attempts, attempt)
        why = why or "the API server dropped the field, which Kubernetes 1.34 and later have"
        return Step.progressing(
            VOLUMES_NOT_MODIFIED,
            f"PersistentVolumeClaim {name} does not get VolumeAttributesClass {requested}: {why}. Remove "
            "storage.volumeAttributesClassName, or make the class available. The operator retries every hour.",
            warning=True,
        )

    @property
    def _growable(self) -> list[Obj]:
        bound = [claim for claim in self.claims if is_bound(claim)]
        return [claim for claim in bound if VOLUME.allows(state_of(claim, in_use=True), VolumeEvent.GROW)]

    def _renew_size(self, stateful_set: Obj) -> Step | None:
        """Recreate the StatefulSet around its running pods, so that new volumes get the new size."""
        template = template_size(stateful_set)
        if template is None or not smaller(template, self.size):
            return None
        message = f"Recreating the StatefulSet so that new volumes get {self.size}; its pods keep running."
        return Step.wait(GROWING_VOLUMES, message, Delete(STATEFUL_SET, stateful_set, orphan=True))

    def _renew_class(self, stateful_set: Obj) -> Step | None:
        """Recreate the StatefulSet around its running pods, so that new volumes get the new VolumeAttributesClass.

        Only if every volume has the class already. With a class that does not exist, or that the driver refuses, a lost
        member or node would get no new volume. An API server without this feature drops the field without an error, and
        the StatefulSet would be recreated again and again.
        """
        requested = self.attributes_class
        if requested is None or template_attributes_class(stateful_set) == requested:
            return None
        if not self.claims or any(_applied_class(claim) != requested for claim in self.claims):
            return None
        message = (
            f"Recreating the StatefulSet so that new volumes get VolumeAttributesClass {requested}; its pods keep "
            "running."
        )
        return Step.wait(MODIFYING_VOLUMES, message, Delete(STATEFUL_SET, stateful_set, orphan=True))

    def _await_driver(self, requested: str) -> Step:
        """Report claims whose volume does not have the attributes of the class yet."""
        waiting = [claim for claim in self._growable if _applied_class(claim) != requested]
        if not waiting:
            return PASS
        name = waiting[0]["metadata"]["name"]
        state = ((waiting[0].get("status") or {}).get("modifyVolumeStatus") or {}).get("status", "")
        if state == "Infeasible":
            return Step.progressing(
                VOLUMES_NOT_MODIFIED,
                f"The storage driver cannot apply VolumeAttributesClass {requested} to PersistentVolumeClaim {name} "
                f"(kubectl describe pvc {name}). Name another class in storage.volumeAttributesClassName.",
                warning=True,
            )
        names = ", ".join(claim["metadata"]["name"] for claim in waiting)
        hint = " Does the class exist?" if state == "Pending" else ""
        message = f"Waiting for the storage driver to apply VolumeAttributesClass {requested} to {names}.{hint}"
        return Step.progressing(MODIFYING_VOLUMES, message)

    def _await_storage(self) -> Step | None:
        """Report claims whose storage has not grown yet."""
        growing = [claim["metadata"]["name"] for claim in self._growable if smaller(capacity(claim), self.size)]
        if not growing:
            return None
        message = f"Waiting for the storage to expand {', '.join(growing)} to {self.size}."
        return Step.progressing(GROWING_VOLUMES, message)


def _size(claim: Obj) -> int | str:
    size: int | str = claim["spec"]["resources"]["requests"]["storage"]
    return size


def _attributes_class(claim: Obj) -> str:
    return str(claim["spec"].get("volumeAttributesClassName") or "")


def _applied_class(claim: Obj) -> str:
    return str((claim.get("status") or {}).get("currentVolumeAttributesClassName") or "")


def _why(claim: Obj, name: str, attempt: str) -> str:
    """Return why the API server rejected an attempt, from the annotation of that name."""
    return annotation(claim, name).removeprefix(attempt).lstrip(": ").rstrip(".")


def template_attributes_class(stateful_set: Obj | None) -> str | None:
    """Return the VolumeAttributesClass that a StatefulSet requests for new volumes; None if there is none."""
    return next((_attributes_class(claim) or None for claim in _templates(stateful_set)), None)


def template_size(stateful_set: Obj | None) -> int | str | None:
    """Return the size that a StatefulSet requests for new volumes; None if it has no volumeClaimTemplates."""
    return next(map(_size, _templates(stateful_set)), None)


def _templates(stateful_set: Obj | None) -> Sequence[Obj]:
    return () if stateful_set is None else stateful_set["spec"].get("volumeClaimTemplates") or ()
