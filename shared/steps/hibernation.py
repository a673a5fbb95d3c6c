"""Hibernation: all pods of a database stop; its volumes, Services, Secrets and budget stay. Pure.

The StatefulSet records it in the write that changes its replicas, with the size at which the pods stop. So neither a
crash nor a lost status makes it look like an outage, and no absent instance like one that a scale-down removed.
The record counts only if `managedFields` shows that the operator wrote it. A person, or a tool that restores a former
StatefulSet, would otherwise stop or scale a healthy database.

1. Nothing else is in progress. `Hibernating` is reported.
2. Pods that could take over from others stop. Then all stop, in the write of the record, and nothing is repaired.
3. spec.hibernate is false: the pods return, at that size, and are repaired. Once all serve, the record is removed.
   If another client starts pods, they return as well, and then stop again.
4. If pods cannot return, the others may stop again, or stay with a smaller size without these: if they have all data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic

from shared.api.spec import SpecModel
from shared.kubernetes import managed_fields
from shared.kubernetes.accessors import annotation
from shared.kubernetes.encoding import canonical, decode
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import PASS, Action, Apply, Outcome, Step, StepOf, announced
from shared.status.health import Finding, Health
from shared.status.messages import MAX_COLUMN_CHARACTERS
from shared.status.reasons import HIBERNATED, HIBERNATING, WAKING_UP
from shared.status.verdict import Progress, Verdict
from shared.steps.database import HIBERNATION, SeenStored, Stored

WAKES = "wakes"  # field of a record: 1 once the pods return, else 0; the others are fields of the spec
PHASES = frozenset({HIBERNATED, HIBERNATING, WAKING_UP})
_KEPT = "volumes, Services, Secrets and the disruption budget stay"


def record(stateful_set: Obj | None) -> dict[str, int]:
    """Return the record of a StatefulSet; empty without one, or if it was edited by hand and cannot be read."""
    try:
        return {name: int(value) for name, value in decode(annotation(stateful_set, HIBERNATION) or "{}").items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def hold(seen: Any) -> Any:
    """Return the view with the record, and with the size at which the pods stopped, until all servers are back."""
    made = seen.stateful_set
    found = record(made) if made and managed_fields.is_applied(made, "metadata", "annotations", HIBERNATION) else {}
    if found and made["spec"]["replicas"]:
        found[WAKES] = 1
    size = {name: value for name, value in found.items() if name != WAKES}
    if not size or not all(_permits(seen.resource.spec, name, value) for name, value in size.items()):
        return seen
    return replace(seen, hibernation=found, resource=seen.resource.changed_to(size))


def _permits(spec: SpecModel, name: str, value: int) -> bool:
    """Return whether a field may have this value: a client that uses the name of the operator may record any."""
    bounds = getattr(type(spec).model_fields.get(name), "metadata", ())
    return bool(bounds) and all(getattr(each, "ge", value) <= value <= getattr(each, "le", value) for each in bounds)


def is_stopped(seen: Stored) -> bool:
    """Return whether the pods are stopped, or being stopped, on purpose."""
    return seen.hibernation.get(WAKES) == 0


def stops(seen: Stored) -> bool:
    """Return whether the StatefulSet that is applied now is to have no pods."""
    return is_stopped(seen) and bool(seen.resource.spec.hibernate)


def note(seen: Stored) -> dict[str, str]:
    """Return the annotation of the StatefulSet that is applied now."""
    found = {**seen.hibernation, WAKES: int(not stops(seen))}
    return {HIBERNATION: canonical(found).decode()} if seen.hibernation else {}


def keep_stopped(seen: Stored) -> Step:
    """Repair and change nothing while the pods are stopped on purpose."""
    if not is_stopped(seen):
        return PASS
    if any(each.pod_obj is not None for each in seen.instances):
        return Step.wait(HIBERNATING, f"Waiting until all pods have stopped; {_KEPT}.")
    return Step.paused(HIBERNATED, f"All pods are stopped; {_KEPT}. A changed size applies after the wake-up.")


@dataclass(frozen=True, slots=True)
class Hibernation(Generic[SeenStored]):
    """A table of the differences between databases that hibernate.

    Attributes:
        size: names of the fields of the spec with its size: first the number of pods.
        why_running: returns why pods must not stop although everything matches the spec; empty if they may.
        apply: keeps the StatefulSet, with `note`, and while it `stops`, without pods.
        stop_first: returns the actions that precede the stop of all pods.
        may_stop: returns whether the servers that are back have all data, and nothing is in progress.
    """

    size: tuple[str, ...]
    why_running: Callable[[SeenStored], str]
    apply: StepOf[SeenStored]
    stop_first: Callable[[SeenStored], tuple[Action, ...]] = lambda _: ()
    may_stop: Callable[[SeenStored], bool] = lambda _: False

    def turn(
        self, seen: Any, verdict: Verdict, provided: Verdict, is_back: Any, requested: Any
    ) -> tuple[Outcome, Verdict]:
        """Return what begins or ends a hibernation, and the verdict to report instead of that of all chains.

        Args:
            requested: the spec, whose size applies after the wake-up.
        """
        if is_stopped(seen):
            return Outcome(), provided if provided.stops else verdict
        if not seen.hibernation:
            return self._begin(seen, verdict) if seen.resource.spec.hibernate else (Outcome(), verdict)
        may_stop = not provided.stops and self.may_stop(seen)
        if may_stop and seen.resource.spec.hibernate:
            return self._begin(seen, Verdict())
        size, former = (getattr(spec, self.size[0]) for spec in (requested, seen.resource.spec))
        missing = [each for each in seen.instances[:former] if not (each.pod and each.pod.ready)]
        leave = may_stop and all(each.number >= size and each.pod and each.pod.is_failing(seen.now) for each in missing)
        is_over = leave or (is_back(seen) and not provided.stops)
        ends = self.apply(replace(seen, hibernation={})) if is_over else PASS
        if verdict.progress in (Progress.PROGRESSING, Progress.WAITING, Progress.DONE):
            message = f"{verdict.message} The pods return from hibernation.".strip()
            is_cut = len(message) > MAX_COLUMN_CHARACTERS  # otherwise `announced` recognizes its beginning
            reason = (is_cut and verdict.announces) or WAKING_UP
            verdict = Verdict(Progress.PROGRESSING, reason, message, verdict.warning, announces=verdict.announces)
        return Outcome(ends.actions), verdict

    def _begin(self, seen: Any, verdict: Verdict) -> tuple[Outcome, Verdict]:
        """Stop the pods, once nothing else is in progress and the status has reported it."""
        if not verdict.done:
            return Outcome(), replace(verdict, message=f"{verdict.message} spec.hibernate waits until this is over.")
        if why := self.why_running(seen):
            return Outcome(), Verdict(Progress.PROGRESSING, HIBERNATING, f"spec.hibernate waits: {why}", warning=True)
        size = {name: getattr(seen.resource.spec, name) for name in self.size}
        noted = self.apply(replace(seen, hibernation=size | {WAKES: 0}))
        judged = (replace(each, dry_run=True) for each in noted.actions if isinstance(each, Apply))
        message = f"Nothing else is in progress: stopping all pods; {_KEPT}."
        step = announced(seen.resource.obj, Step.wait(HIBERNATING, message, *self.stop_first(seen), *noted.actions))
        verdict = Verdict(step.progress, step.reason, step.message)
        return Outcome((*judged, *step.actions), requeue=step.requeue), verdict  # a policy may refuse: no pod stops

    @staticmethod
    def judged(seen: Any, health: Health | None) -> Health | None:
        """Return the health to report: clients of stopped pods are not served, on purpose."""
        if health is None or not is_stopped(seen):
            return health
        finding = Finding(False, keep_stopped(seen).reason, "All pods are stopped on purpose.")
        return replace(health, available=finding, degraded=finding)
