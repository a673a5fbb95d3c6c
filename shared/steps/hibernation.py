"""Hibernation: all pods of a database stop; its volumes, Services, Secrets and budget stay. Pure.

The StatefulSet records it in the write that changes its replicas, with the size at which the pods stop. So neither a
crash nor a lost status makes it look like an outage, and no absent instance like one that a scale-down removed.

1. Nothing else is in progress. `Hibernating` is reported, and then the record is written.
2. All pods stop, those that could take over from others first. Nothing is repaired.
3. spec.hibernate is false: the pods return, at that size, and are repaired. Once all serve, the record is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from shared.api.spec import SpecModel
from shared.kubernetes.accessors import annotation
from shared.kubernetes.encoding import canonical, decode
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Outcome, Step, StepOf, announced
from shared.status.health import Finding, Health
from shared.status.reasons import HIBERNATED, HIBERNATING, WAKING_UP
from shared.status.verdict import Progress, Verdict
from shared.steps.database import HIBERNATION, SeenStored, Stored

WAKES = "wakes"  # field of a record: 1 once the pods return, else 0; the others are fields of the spec
PHASES = frozenset({HIBERNATED, HIBERNATING, WAKING_UP})
STAGE_SECONDS = 2.0  # until stopping pods are observed again: before the first one has ended
_KEPT = "volumes, Services, Secrets and the disruption budget stay"


def record(stateful_set: Obj | None) -> dict[str, int]:
    """Return the record of a StatefulSet; empty without one, or if it was edited by hand and cannot be read."""
    try:
        return {name: int(value) for name, value in decode(annotation(stateful_set, HIBERNATION) or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def hold(seen: Any) -> Any:
    """Return the view with the size at which the pods stopped, until all servers are back."""
    size = {name: value for name, value in record(seen.stateful_set).items() if name != WAKES}
    is_permitted = all(_permits(seen.resource.spec, name, value) for name, value in size.items())
    return replace(seen, resource=seen.resource.changed_to(size)) if size and is_permitted else seen


def _permits(spec: SpecModel, name: str, value: int) -> bool:
    """Return whether a field may have this value: a record that was edited by hand may have any."""
    field = type(spec).model_fields.get(name)
    bounds = field.metadata if field is not None else ()
    return bool(bounds) and all(getattr(each, "ge", value) <= value <= getattr(each, "le", value) for each in bounds)


def is_stopped(seen: Stored) -> bool:
    """Return whether the pods are stopped, or being stopped, on purpose."""
    return record(seen.stateful_set).get(WAKES) == 0


def stops(seen: Stored) -> bool:
    """Return whether the StatefulSet that is applied now is to have no pods."""
    return is_stopped(seen) and bool(seen.resource.spec.hibernate)


def note(seen: Stored) -> dict[str, str]:
    """Return the annotation of the StatefulSet that is applied now."""
    found = record(seen.stateful_set)
    return {HIBERNATION: canonical(found | {WAKES: int(not stops(seen))}).decode()} if found else {}


def keep_stopped(seen: Stored) -> Step:
    """Repair and change nothing while the pods are stopped on purpose."""
    if not is_stopped(seen):
        return PASS
    if any(each.pod_obj is not None for each in seen.instances):
        return Step.wait(HIBERNATING, f"Waiting until all pods have stopped; {_KEPT}.", requeue=STAGE_SECONDS)
    return Step.paused(HIBERNATED, f"All pods are stopped; {_KEPT}. A changed size applies after the wake-up.")


@dataclass(frozen=True, slots=True)
class Hibernation(Generic[SeenStored]):
    """A table of the differences between databases that hibernate.

    Attributes:
        size: names of the fields of the spec with its size.
        why_running: returns why pods must not stop although everything matches the spec; empty if they may.
        apply: keeps the StatefulSet, with `note`, and while it `stops`, without pods.
    """

    size: tuple[str, ...]
    why_running: Callable[[SeenStored], str]
    apply: StepOf[SeenStored]

    def turn(self, seen: Any, verdict: Verdict, provided: Verdict, is_back: Any) -> tuple[Outcome, Verdict]:
        """Return what begins or ends a hibernation, and the verdict to report instead of that of all chains."""
        if is_stopped(seen):
            return Outcome(), provided if provided.stops else verdict
        if not record(seen.stateful_set):
            return self._begin(seen, verdict) if seen.resource.spec.hibernate else (Outcome(), verdict)
        ends = self._noted(seen, "") if is_back(seen) and not provided.stops else PASS
        if verdict.progress in (Progress.PROGRESSING, Progress.WAITING, Progress.DONE):
            message = f"The pods return from hibernation. {verdict.message}".strip()
            verdict = Verdict(Progress.PROGRESSING, WAKING_UP, message, verdict.warning)
        return Outcome(ends.actions), verdict

    def _begin(self, seen: Any, verdict: Verdict) -> tuple[Outcome, Verdict]:
        """Stop the pods, once nothing else is in progress and the status has reported it."""
        if not verdict.done:
            return Outcome(), replace(verdict, message=f"{verdict.message} spec.hibernate waits until this is over.")
        if why := self.why_running(seen):
            return Outcome(), Verdict(Progress.PROGRESSING, HIBERNATING, f"spec.hibernate waits: {why}", warning=True)
        size = {name: getattr(seen.resource.spec, name) for name in self.size}
        noted = self._noted(seen, canonical(size | {WAKES: 0}).decode())
        message = f"Nothing else is in progress: stopping all pods; {_KEPT}."
        step = announced(seen.resource.obj, Step.wait(HIBERNATING, message, *noted.actions))
        return Outcome(step.actions, requeue=step.requeue), Verdict(step.progress, step.reason, step.message)

    def _noted(self, seen: Any, text: str) -> Step:
        """Return the write of the StatefulSet with another record."""
        metadata = seen.stateful_set["metadata"]
        metadata = metadata | {"annotations": {**(metadata.get("annotations") or {}), HIBERNATION: text}}
        return self.apply(replace(seen, stateful_set=seen.stateful_set | {"metadata": metadata}))

    @staticmethod
    def judged(seen: Any, health: Health | None) -> Health | None:
        """Return the health to report: clients of stopped pods are not served, on purpose."""
        if health is None or not is_stopped(seen):
            return health
        finding = Finding(False, keep_stopped(seen).reason, "All pods are stopped on purpose.")
        return replace(health, available=finding, degraded=finding)
