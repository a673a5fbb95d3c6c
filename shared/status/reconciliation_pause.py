"""The pause of the reconciliation: an annotation with which a user takes a resource out of the operator's hands. Pure.

While it is set, the operator observes the resource and writes its status, and nothing else: no object, no database, no
certificate. It is an annotation, so that it works for every kind, with a spec that is invalid or owned by Git.
`spec.paused` is weaker: repairs and renewals continue.
"""

from __future__ import annotations

from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj
from shared.status.reasons import RECONCILIATION_PAUSED
from shared.status.verdict import Progress, Verdict

PAUSE = "platform.ydzs.io/pause-reconciliation"
"""Annotation of a resource: any value but `false` pauses its reconciliation."""

NOTICE = (
    f"The annotation {PAUSE} is set: nothing is created, changed, repaired, renewed or deleted until it is removed."
)


def is_paused(resource: Obj) -> bool:
    """Whether a user paused the reconciliation; a value that is not understood, or is empty, pauses too."""
    return annotation(resource, PAUSE, "false").strip().lower() != "false"


def judged(resource: Obj, verdict: Verdict, pending: str = "") -> Verdict:
    """Return the verdict to report: that of a paused resource names the pause, and the operator's next actions.

    Args:
        verdict: the verdict of the plan, or of a problem.
        pending: actions that the operator does not carry out; empty if there are none.
    """
    if not is_paused(resource):
        return verdict
    would = f"The operator would now: {pending}." if pending else ""
    is_ready = (verdict.done if verdict.ready is None else verdict.ready) and not pending
    message = f"{NOTICE} {would or verdict.message}".strip()
    return Verdict(Progress.PAUSED, RECONCILIATION_PAUSED, message, ready=is_ready)
