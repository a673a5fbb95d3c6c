"""What several databases need around their pods, as steps' answers: budget, Secrets, room. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Kind, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, Step
from shared.status.reasons import GROWING_VOLUMES, SECRET_INVALID, VOLUMES_CANNOT_GROW
from shared.status.verdict import Progress
from shared.steps.volumes import VOLUME, VolumeEvent, capacity, is_bound, state_of

_EXCLUSIVE = {"minAvailable", "maxUnavailable"}


def keep_disruption_budget(wanted: Obj | None, budget: Obj | None) -> Step:
    """The PodDisruptionBudget is as wanted, or is gone.

    Args:
        budget: as it is; None where there is none of ours.
    """
    if wanted and budget and (wanted["spec"].keys() ^ budget["spec"].keys()) & _EXCLUSIVE:
        wanted = None  # made anew: Kubernetes refuses both, and somebody else's of them would stay through an apply
    return keep(DISRUPTION_BUDGET, wanted, budget)


def keep(kind: Kind, wanted: Obj | None, found: Obj | None) -> Step:
    """An object is as wanted, or is gone.

    Args:
        found: as it is; None where there is none of ours.
    """
    if wanted is not None:
        return Step.do(Apply(kind, wanted))
    return Step.do(Delete(kind, found)) if found is not None else PASS


def require_secrets(problem: SecretProblem | None, expires: Mapping[str, datetime], now: datetime) -> Step:
    """What servers cannot start without is there; servers that run are left as they are.

    Args:
        expires: when the certificates end, by their Secrets' names.
    """
    if problem is not None:
        return lacking(problem)
    for name, ends in sorted(expires.items()):
        if ends <= now:
            said = (
                f"spec.tls: Secret {name}: its certificate ended on {ends:%Y-%m-%d at %H:%M UTC}, and nobody takes it "
                "any more. Put a new one there."
            )
            return lacking(SecretProblem(SECRET_INVALID, said))
    return PASS


def lacking(problem: SecretProblem) -> Step:
    """What servers cannot start without is not there, or does not serve: nothing is made until it is."""
    message = f"{problem.message} Nothing was changed."
    return Step.wait(problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def grow_volumes(
    volumes: Sequence[Obj], stateful_set: Obj, size: int | str, now: datetime, *, refusal: str, remake: bool
) -> Step:
    """Grow volumes to the size that the spec asks for; they never shrink.

    First each claim is asked to grow. Then the StatefulSet, whose template for volumes cannot be changed, is deleted
    and recreated; its pods stay.

    Args:
        volumes: the claims of the StatefulSet.
        refusal: annotation of claims that records to what size, when and why the API server last refused.
        remake: whether the StatefulSet may be deleted for a moment.
    """
    bound = [claim for claim in volumes if is_bound(claim)]
    growable = [claim for claim in bound if VOLUME.allows(state_of(claim, in_use=True), VolumeEvent.GROW)]
    attempt = f"{size} at {now:%Y-%m-%dT%HZ}"  # so that a refusal counts for an hour: it may have been a quota's
    small = [claim for claim in growable if smaller(claim["spec"]["resources"]["requests"]["storage"], size)]
    refused = [claim for claim in small if annotation(claim, refusal).startswith(attempt)]
    due = [claim for claim in small if claim not in refused]
    return (
        _resize(due, size, attempt, refusal)
        or _report_refusal(refused, size, attempt, refusal)
        or _recreate_stateful_set(stateful_set, size, remake=remake)
        or _await_storage(growable, size)
        or PASS
    )


def _resize(due: Sequence[Obj], size: int | str, attempt: str, refusal: str) -> Step | None:
    """Ask claims to grow that have not been asked within the hour."""
    if not due:
        return None
    requests = {"resources": {"requests": {"storage": size}}}
    change = {"metadata": {"annotations": {refusal: None}}, "spec": requests}
    patches = (Patch(PERSISTENT_VOLUME_CLAIM, claim, change, noted=(refusal, attempt)) for claim in due)
    return Step(tuple(patches), Progress.PROGRESSING, GROWING_VOLUMES, f"Volumes are asked to grow to {size}.")


def _report_refusal(refused: Sequence[Obj], size: int | str, attempt: str, refusal: str) -> Step | None:
    """Report why the API server refuses that a claim grows."""
    if not refused:
        return None
    why = annotation(refused[0], refusal).removeprefix(attempt).lstrip(": ").rstrip(".")
    return Step.progressing(
        VOLUMES_CANNOT_GROW,
        f"PersistentVolumeClaim {refused[0]['metadata']['name']} cannot grow to {size}: {why}. Give its storage class "
        "allowVolumeExpansion: true, or raise the quota; it is tried again each hour.",
        warning=True,
    )


def _recreate_stateful_set(stateful_set: Obj, size: int | str, *, remake: bool) -> Step | None:
    """Recreate the StatefulSet around its pods, so that new volumes get the size, too."""
    template = template_size(stateful_set)
    if template is None or not smaller(template, size) or not remake:
        return None
    message = f"Volumes to come get {size}: the StatefulSet is made anew for it, around the pods that run."
    return Step.wait(GROWING_VOLUMES, message, Delete(STATEFUL_SET, stateful_set, orphan=True))


def _await_storage(growable: Sequence[Obj], size: int | str) -> Step | None:
    """Report claims whose storage has yet to grow."""
    growing = [claim["metadata"]["name"] for claim in growable if smaller(capacity(claim), size)]
    if not growing:
        return None
    return Step.progressing(GROWING_VOLUMES, f"{', '.join(growing)} of {size}: the storage has yet to give it.")


def template_size(stateful_set: Obj) -> int | str | None:
    """What new volumes of a StatefulSet ask for; None where it makes none."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size
    return None
