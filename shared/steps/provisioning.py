"""Steps around the pods of several databases: disruption budget, Secrets, volume expansion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Kind, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, Step
from shared.status.reasons import GROWING_VOLUMES, VOLUMES_CANNOT_GROW
from shared.status.verdict import Progress
from shared.steps.volumes import VOLUME, VolumeEvent, capacity, is_bound, state_of

_EXCLUSIVE = {"minAvailable", "maxUnavailable"}


def keep_disruption_budget(desired: Obj | None, budget: Obj | None) -> Step:
    """Apply the desired PodDisruptionBudget, or delete an existing one that is not desired.

    Args:
        budget: the existing budget; None if this resource owns none.
    """
    if desired and budget and (desired["spec"].keys() ^ budget["spec"].keys()) & _EXCLUSIVE:
        desired = None  # recreated: both fields are invalid, and apply keeps one that another manager set
    return keep(DISRUPTION_BUDGET, desired, budget)


def keep(kind: Kind, desired: Obj | None, found: Obj | None) -> Step:
    """Apply the desired object, or delete an existing one that is not desired.

    Args:
        found: the existing object; None if this resource owns none.
    """
    if desired is not None:
        return Step.do(Apply(kind, desired))
    return Step.do(Delete(kind, found)) if found is not None else PASS


def report_unusable_secret(problem: SecretProblem) -> Step:
    """Report a missing or invalid Secret that servers need to start; nothing is created until it is valid."""
    message = f"{problem.message} Nothing was changed."
    return Step.wait(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def grow_volumes(
    volumes: Sequence[Obj], stateful_set: Obj, size: int | str, now: datetime, *, refusal: str, may_recreate: bool
) -> Step:
    """Grow volumes to the size in the spec; volumes never shrink.

    First each claim is resized. Then the StatefulSet, whose volumeClaimTemplates are immutable, is deleted and
    recreated; its pods keep running.

    Args:
        volumes: claims of the StatefulSet.
        refusal: annotation of claims that records the size, the time and the reason of the last rejected resize.
        may_recreate: whether the StatefulSet may be missing for a moment.
    """
    resized = resize_claims(volumes, size, now, refusal=refusal)
    if resized is not PASS:
        return resized
    return (
        _recreate_stateful_set(stateful_set, size, may_recreate=may_recreate)
        or _await_storage(_growable(volumes), size)
        or PASS
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


def _await_storage(growable: Sequence[Obj], size: int | str) -> Step | None:
    """Report claims whose storage has not grown yet."""
    growing = [claim["metadata"]["name"] for claim in growable if smaller(capacity(claim), size)]
    if not growing:
        return None
    return Step.progressing(GROWING_VOLUMES, f"Waiting for the storage to expand {', '.join(growing)} to {size}.")


def template_size(stateful_set: Obj) -> int | str | None:
    """Return the size that a StatefulSet requests for new volumes; None if it has no volumeClaimTemplates."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size
    return None
