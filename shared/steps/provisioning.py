"""What several databases need around their pods, as steps' answers: budget, Secrets, room. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from shared.api.podspec import smaller
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import DISRUPTION_BUDGET, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET, Kind, Obj
from shared.kubernetes.secrets import SECRETS_RETRY_SECONDS
from shared.pki.secret_checks import INVALID, SecretProblem
from shared.runtime.plan import PASS, Apply, Delete, Patch, Step
from shared.status.verdict import Progress

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
            return lacking(SecretProblem(INVALID, said))
    return PASS


def lacking(problem: SecretProblem) -> Step:
    """What servers cannot start without is not there, or does not serve: nothing is made until it is."""
    message = f"{problem.message} Nothing was changed."
    return Step((), Progress.WAITING, problem.reason, message, warning=True, requeue=SECRETS_RETRY_SECONDS)


def grow_volumes(
    volumes: Sequence[Obj], stateful_set: Obj, size: int | str, now: datetime, *, refusal: str, remake: bool
) -> Step:
    """Volumes are as large as the spec asks; they never get smaller.

    First each claim is asked to grow. Then the StatefulSet goes, whose template for volumes cannot be changed, and is
    made anew; its pods stay, and notice nothing.

    Args:
        volumes: the claims of the StatefulSet.
        refusal: annotation of claims that tells to what size, when, and in what words the API server last refused.
        remake: whether the StatefulSet may go for a moment.
    """
    bound = [volume for volume in volumes if is_bound(volume)]
    small = [volume for volume in bound if smaller(volume["spec"]["resources"]["requests"]["storage"], size)]
    tried = f"{size} at {now:%Y-%m-%dT%HZ}"  # so that a refusal counts for an hour: it may have been a quota's
    notes = {volume["metadata"]["name"]: annotation(volume, refusal) for volume in small}
    refused = {name: note for name, note in notes.items() if note.startswith(tried)}
    change = {
        "metadata": {"annotations": {refusal: None}},
        "spec": {"resources": {"requests": {"storage": size}}},
    }
    asked = [
        Patch(PERSISTENT_VOLUME_CLAIM, volume, change, noted=(refusal, tried))
        for volume in small
        if volume["metadata"]["name"] not in refused
    ]
    if asked:
        return Step(tuple(asked), Progress.PROGRESSING, "GrowingVolumes", f"Volumes are asked to grow to {size}.")
    if refused:
        name, note = next(iter(refused.items()))
        why = note.removeprefix(tried).lstrip(": ").rstrip(".")
        return Step.progressing(
            "VolumesCannotGrow",
            f"PersistentVolumeClaim {name} cannot grow to {size}: {why}. Give its storage class allowVolumeExpansion: "
            "true, or raise the quota; it is tried again each hour.",
            warning=True,
        )
    made = template_size(stateful_set)
    if made is not None and smaller(made, size) and remake:
        message = f"Volumes to come get {size}: the StatefulSet is made anew for it, around the pods that run."
        return Step.wait("GrowingVolumes", message, Delete(STATEFUL_SET, stateful_set, orphan=True))
    growing = [volume["metadata"]["name"] for volume in bound if smaller(capacity(volume), size)]
    if growing:
        return Step.progressing("GrowingVolumes", f"{', '.join(growing)} of {size}: the storage has yet to give it.")
    return PASS


def template_size(stateful_set: Obj) -> int | str | None:
    """What new volumes of a StatefulSet ask for; None where it makes none."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size
    return None


def is_bound(claim: Obj) -> bool:
    """Whether there is a volume for a claim."""
    return str((claim.get("status") or {}).get("phase", "")) == "Bound"


def capacity(claim: Obj) -> str:
    """The room that a claim has got; 0 before it has any."""
    return str(((claim.get("status") or {}).get("capacity") or {}).get("storage", "0"))
