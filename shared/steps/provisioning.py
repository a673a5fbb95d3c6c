"""Steps around the pods of several databases: disruption budget, Secrets, volume expansion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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


def grow_volumes(
    volumes: Sequence[Obj],
    stateful_set: Obj,
    size: int | str,
    now: datetime,
    *,
    refusal: str,
    may_recreate: bool,
    attributes_class: str | None = None,
) -> Step:
    """Grow volumes to the size in the spec; volumes never shrink.

    First each claim is resized. Then the StatefulSet, whose volumeClaimTemplates are immutable, is deleted and
    recreated; its pods keep running.

    Args:
        volumes: claims of the StatefulSet.
        refusal: annotation of claims that records the size, the time and the reason of the last rejected resize.
        may_recreate: whether the StatefulSet may be missing for a moment.
        attributes_class: VolumeAttributesClass of new volumes; None to leave that of the StatefulSet.
    """
    resized = resize_claims(volumes, size, now, refusal=refusal)
    if resized is not PASS:
        return resized
    return (
        _recreate_stateful_set(stateful_set, size, may_recreate=may_recreate)
        or _renew_template(volumes, stateful_set, attributes_class, may_recreate=may_recreate)
        or _await_storage(_growable(volumes), size)
        or PASS
    )


def refuse_smaller_volumes(volumes: Sequence[Obj], stateful_set: Obj | None, size: int | str) -> Step:
    """Block while the spec requests a smaller size than volumes have grown to.

    The StatefulSet has the size of the last expansion that every volume accepted. A spec that returns to that size, or
    volumes that a user has expanded further, are no conflict.

    Args:
        volumes: claims of the StatefulSet.
    """
    template = template_size(stateful_set) if stateful_set is not None else None
    if template is None or not smaller(size, template):
        return PASS
    larger = [claim for claim in volumes if smaller(size, claim["spec"]["resources"]["requests"]["storage"])]
    if not larger:
        return PASS
    claim = max(larger, key=lambda each: parse_quantity(each["spec"]["resources"]["requests"]["storage"]))
    present = claim["spec"]["resources"]["requests"]["storage"]
    return Step.blocked(
        VOLUMES_CANNOT_SHRINK,
        f"spec.storage.size: {size} is below the {present} of PersistentVolumeClaim {claim['metadata']['name']}, and "
        f"volumes cannot shrink. Nothing was changed. Set at least {present}, or copy the data to another resource.",
    )


def resize_claims(volumes: Sequence[Obj], size: int | str, now: datetime, *, refusal: str) -> Step:
    """Request the size in the spec for existing volumes; this changes nothing else, and does not stop a plan.

    Args:
        volumes: claims of the StatefulSet.
        refusal: annotation of claims, see `grow_volumes`.
    """
    attempt = f"{size} at {now:%Y-%m-%dT%HZ}"  # a rejection counts for one hour: a quota may have caused it
    small = [claim for claim in _growable(volumes) if smaller(claim["spec"]["resources"]["requests"]["storage"], size)]
    refused = [claim for claim in small if annotation(claim, refusal).startswith(attempt)]
    due = [claim for claim in small if claim not in refused]
    return _resize(due, size, attempt, refusal) or _report_refusal(refused, size, attempt, refusal) or PASS


def _growable(volumes: Sequence[Obj]) -> list[Obj]:
    bound = [claim for claim in volumes if is_bound(claim)]
    return [claim for claim in bound if VOLUME.allows(state_of(claim, in_use=True), VolumeEvent.GROW)]


def _resize(due: Sequence[Obj], size: int | str, attempt: str, refusal: str) -> Step | None:
    """Resize claims that were not tried within the hour."""
    if not due:
        return None
    requests = {"resources": {"requests": {"storage": size}}}
    change = {"metadata": {"annotations": {refusal: None}}, "spec": requests}
    patches = (Patch(PERSISTENT_VOLUME_CLAIM, claim, change, noted=(refusal, attempt)) for claim in due)
    return Step(tuple(patches), Progress.PROGRESSING, GROWING_VOLUMES, f"Expanding volumes to {size}.")


def _report_refusal(refused: Sequence[Obj], size: int | str, attempt: str, refusal: str) -> Step | None:
    """Report why the API server rejects the resize of a claim."""
    if not refused:
        return None
    why = annotation(refused[0], refusal).removeprefix(attempt).lstrip(": ").rstrip(".")
    return Step.progressing(
        VOLUMES_CANNOT_GROW,
        f"PersistentVolumeClaim {refused[0]['metadata']['name']} cannot grow to {size}: {why}. Set "
        "allowVolumeExpansion: true in its storage class, or raise the quota. The operator retries every hour.",
        warning=True,
    )


def _recreate_stateful_set(stateful_set: Obj, size: int | str, *, may_recreate: bool) -> Step | None:
    """Recreate the StatefulSet around its running pods, so that new volumes get the new size."""
    template = template_size(stateful_set)
    if template is None or not smaller(template, size) or not may_recreate:
        return None
    message = f"Recreating the StatefulSet so that new volumes get {size}; its pods keep running."
    return Step.wait(GROWING_VOLUMES, message, Delete(STATEFUL_SET, stateful_set, orphan=True))


def _renew_template(
    volumes: Sequence[Obj], stateful_set: Obj, requested: str | None, *, may_recreate: bool
) -> Step | None:
    """Recreate the StatefulSet around its running pods, so that new volumes get the new VolumeAttributesClass.

    Only if every volume has the class already. With a class that does not exist, or that the driver refuses, a lost
    member or node would get no new volume. An API server without this feature drops the field without an error, and the
    StatefulSet would be recreated again and again.
    """
    if requested is None or not may_recreate or template_attributes_class(stateful_set) == requested:
        return None
    if not volumes or any(_applied_class(claim) != requested for claim in volumes):
        return None
    message = (
        f"Recreating the StatefulSet so that new volumes get VolumeAttributesClass {requested}; its pods keep running."
    )
    return Step.wait(MODIFYING_VOLUMES, message, Delete(STATEFUL_SET, stateful_set, orphan=True))


def modify_volumes(volumes: Sequence[Obj], requested: str | None, now: datetime, *, attempts: str) -> Step:
    """Request the VolumeAttributesClass in the spec for existing volumes; this changes nothing else, and stops nothing.

    The write of a class records the attempt in the same request. So a claim without the class, but with the record,
    shows that the API server dropped the field, because such classes are unknown to that version.

    Args:
        volumes: claims of the StatefulSet.
        requested: class of the spec; None to leave the claims as they are.
        attempts: annotation of claims with the class, the time and the refusal of the last attempt.
    """
    if requested is None:
        return PASS
    attempt = f"{requested} at {now:%Y-%m-%dT%HZ}"  # an attempt counts for one hour
    bound = _growable(volumes)
    others = [claim for claim in bound if _attributes_class(claim) != requested]
    tried = [claim for claim in others if annotation(claim, attempts).startswith(attempt)]
    due = [claim for claim in others if claim not in tried]
    return (
        _request_class(due, requested, attempt, attempts)
        or _report_class_refusal(tried, requested, attempt, attempts)
        or _await_driver(bound, requested)
        or PASS
    )


def _attributes_class(claim: Obj) -> str:
    return str(claim["spec"].get("volumeAttributesClassName") or "")


def _applied_class(claim: Obj) -> str:
    return str((claim.get("status") or {}).get("currentVolumeAttributesClassName") or "")


def _request_class(due: Sequence[Obj], requested: str, attempt: str, attempts: str) -> Step | None:
    """Set the class of claims for which that was not tried within the hour."""
    if not due:
        return None
    change = {"metadata": {"annotations": {attempts: attempt}}, "spec": {"volumeAttributesClassName": requested}}
    patches = (Patch(PERSISTENT_VOLUME_CLAIM, claim, change, noted=(attempts, attempt)) for claim in due)
    return Step(tuple(patches), Progress.PROGRESSING, MODIFYING_VOLUMES, f"Setting VolumeAttributesClass {requested}.")


def _report_class_refusal(tried: Sequence[Obj], requested: str, attempt: str, attempts: str) -> Step | None:
    """Report why the API server does not set the class of a claim."""
    if not tried:
        return None
    name = tried[0]["metadata"]["name"]
    why = annotation(tried[0], attempts).removeprefix(attempt).lstrip(": ").rstrip(".")
    why = why or "the API server dropped the field, which Kubernetes 1.34 and later have"
    return Step.progressing(
        VOLUMES_NOT_MODIFIED,
        f"PersistentVolumeClaim {name} does not get VolumeAttributesClass {requested}: {why}. Remove "
        "storage.volumeAttributesClassName, or make the class available. The operator retries every hour.",
        warning=True,
    )


def _await_driver(bound: Sequence[Obj], requested: str) -> Step | None:
    """Report claims whose volume does not have the attributes of the class yet."""
    waiting = [claim for claim in bound if _applied_class(claim) != requested]
    if not waiting:
        return None
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


def _await_storage(growable: Sequence[Obj], size: int | str) -> Step | None:
    """Report claims whose storage has not grown yet."""
    growing = [claim["metadata"]["name"] for claim in growable if smaller(capacity(claim), size)]
    if not growing:
        return None
    return Step.progressing(GROWING_VOLUMES, f"Waiting for the storage to expand {', '.join(growing)} to {size}.")


def template_attributes_class(stateful_set: Obj) -> str | None:
    """Return the VolumeAttributesClass that a StatefulSet requests for new volumes; None if there is none."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        return _attributes_class(claim) or None
    return None


def template_size(stateful_set: Obj) -> int | str | None:
    """Return the size that a StatefulSet requests for new volumes; None if it has no volumeClaimTemplates."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size
    return None
