"""Base of the plans of all databases: chains of steps, the first steps, deadlines, the report of a verdict. Pure.

A plan has up to three parts. The first makes the objects that the spec defines; anything wrong with the spec stops it.
The second keeps the running database alive, regardless of the first one. The third changes the database; it runs only
while nothing stops the other two.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Generic, TypeVar

from shared.api.applied_spec import how_to_approve
from shared.api.spec import CustomResource, Exposure
from shared.kubernetes.kinds import Obj
from shared.kubernetes.secret_provenance import RECORD
from shared.runtime import settings
from shared.runtime.plan import PASS, Outcome, Plan, Step, StepOf, combine, follow, shortest
from shared.status import observed_secrets, progress
from shared.status.deadlines import Deadline
from shared.status.health import Health
from shared.status.phases import CREATING, PAUSED, UPDATING
from shared.status.progress import Work
from shared.status.reasons import (
    AWAITING_APPROVAL,
    CREATE_TIMEOUT,
    HIBERNATED,
    INVALID_SPEC,
    POLICY_VIOLATED,
    UPGRADE_TIMEOUT,
)
from shared.status.verdict import Progress, Verdict
from shared.steps import hibernation
from shared.steps.hibernation import Hibernation
from shared.steps.own_secrets import OwnSecrets
from shared.steps.view import View

Resource = TypeVar("Resource", bound=CustomResource[Any])
Observed = TypeVar("Observed")
Seen = TypeVar("Seen", bound=View[Any, Any])
Settings = TypeVar("Settings", bound=settings.Settings)


@dataclasses.dataclass(frozen=True, slots=True)
class Planner(abc.ABC, Generic[Resource, Observed, Seen, Settings]):
    """Makes the plan of a resource from its steps.

    Attributes:
        settings: options of the operator.
        update_phase: phase during a rolling update.
        serving_reasons: reasons of unfinished work for which, as for a pause, Ready follows `_serves_all`.
        poll_seconds: maximum time between observations of a resource; None if watches report every change.
        busy_seconds: the same while the resource does not match its spec and no step sets a time.
        hibernation: how all pods stop and return (`spec.hibernate`); None for a kind without volumes.
    """

    settings: Settings

    update_phase: ClassVar[str] = UPDATING
    serving_reasons: ClassVar[frozenset[str]] = frozenset()
    poll_seconds: ClassVar[float | None] = None
    busy_seconds: ClassVar[float | None] = None
    hibernation: ClassVar[Hibernation[Any] | None] = None

    @staticmethod
    @abc.abstractmethod
    def _view(resource: Resource, observed: Observed, settings: Settings, now: datetime, /) -> Seen:
        """Return what all steps of this reconcile read; facts are computed once."""

    @abc.abstractmethod
    def _steps(self) -> tuple[StepOf[Seen], ...]:
        """Return the steps that check the desired state and make its objects, in order.

        Without `_change`, they change the database too.
        """

    def _heal(self) -> tuple[tuple[StepOf[Seen], ...], ...]:
        """Return chains of steps that keep the running database alive; no chain stops another one."""
        return ()

    def _change(self) -> tuple[StepOf[Seen], ...]:
        """Return the steps that change the database, in order; they run only while no other chain stops."""
        return ()

    @staticmethod
    def _as_it_runs(seen: Seen, /) -> Seen:
        """Return the view that `_heal` works on while `_steps` cannot apply the spec.

        Args:
            seen: the view for the spec.
        """
        return seen

    @staticmethod
    @abc.abstractmethod
    def _phase(seen: Seen, verdict: Verdict, /) -> str:
        """Return the phase of the resource, in one word."""

    @staticmethod
    @abc.abstractmethod
    def _summary(seen: Seen, /) -> str:
        """Return the message for a resource that matches its spec."""

    @staticmethod
    @abc.abstractmethod
    def _serves_all(seen: Seen, /) -> bool:
        """Whether everything that the spec requires exists and is ready."""

    @staticmethod
    @abc.abstractmethod
    def _status(seen: Seen, phase: str, verdict: Verdict, /) -> Obj:
        """Return the whole status except the conditions."""

    @staticmethod
    def _health(_seen: Seen, /) -> Health | None:
        """Return whether clients are served, and how safely; None for a kind without servers."""
        return None

    @staticmethod
    def _work(_seen: Seen, /) -> Iterable[Work]:
        """Return the work that is left until the resource matches its spec, in numbers."""
        return ()

    @staticmethod
    def _secret_versions(_seen: Seen, /) -> Mapping[str, str | None]:
        """Return the Secrets of the spec with the versions in effect if the spec is met (`observed_secrets.report`)."""
        return {}

    @staticmethod
    def _own_secrets(_seen: Seen, /) -> OwnSecrets | None:
        """Return the Secrets that the operator makes; None for a kind without any."""
        return None

    def plan(self, resource: Resource, observed: Observed, now: datetime) -> Plan:
        """Return the actions of the steps, and the status that reports them."""
        seen = self._view(resource, observed, self.settings, now)
        provided = follow(self._steps(), seen)
        running = self._as_it_runs(seen) if provided.verdict.stops else seen
        is_unknown = resource.invalid and resource.awaits_approval  # which spec was approved
        healing = [] if is_unknown else [follow(chain, running) for chain in self._heal()]
        changed = Outcome()
        if not any(outcome.verdict.stops for outcome in (provided, *healing)):
            changed = follow(self._change(), seen)
        outcomes = (*healing, provided, changed)  # repairs first: a write for a new spec may be slow
        verdict = combine([outcome.verdict for outcome in healing], provided.verdict, changed.verdict)
        health = self._health(running)
        if self.hibernation is not None:
            turn, verdict = self.hibernation.turn(seen, verdict, provided.verdict, self._serves_all, resource.spec)
            outcomes, health = (*outcomes, turn), self.hibernation.judged(seen, health)
        reasons = (health.available.reason if health and health.available else "", verdict.reason)
        asleep = next((str(reason) for reason in reasons if reason in hibernation.PHASES), "")
        phase = asleep or str(self._phase(running, verdict))
        if verdict.done:
            summary = self._summary(seen)
            verdict = dataclasses.replace(verdict, message=f"{summary} {verdict.message}".strip())
        elif verdict.progress is Progress.PAUSED or verdict.reason in self.serving_reasons:
            verdict = dataclasses.replace(verdict, ready=self._serves_all(seen))
        remaining = None
        if not resource.awaits_approval and (deadline := self._deadline(seen, phase)):
            verdict, remaining = deadline.judge(resource.obj, verdict, now)
        secrets = observed_secrets.report(resource.reported, self._secret_versions(seen), spec_is_met=verdict.done)
        if (made := self._own_secrets(seen)) is not None:
            secrets = {**secrets, RECORD: made.record}
        work = () if verdict.done or asleep == HIBERNATED else self._work(running)
        unfinished = progress.report(resource.reported, work, now)
        return Plan(
            tuple(outcome.actions for outcome in outcomes if outcome.actions),
            verdict,
            self._status(running, phase, verdict) | secrets | unfinished,
            shortest(remaining, *(outcome.requeue for outcome in outcomes)),
            self._heals_after(healing),
            repairs=sum(bool(outcome.actions) for outcome in healing),
            poll=shortest(self.poll_seconds, self._poll(outcomes, verdict)),
            health=health,
        )

    def _poll(self, outcomes: Sequence[Outcome], verdict: Verdict) -> float | None:
        """Return the shortest time of a poll that a step requests; without any request, the default of the verdict."""
        if any(outcome.soonest is not None for outcome in outcomes):
            return shortest(*(outcome.poll for outcome in outcomes))
        at_rest = verdict.progress in (Progress.DONE, Progress.PAUSED, Progress.BLOCKED)
        return self.poll_seconds if at_rest else self.busy_seconds

    def _heals_after(self, healing: Sequence[Outcome]) -> float | None:
        """Return the seconds until repairs continue; None if nothing needs a repair."""
        unfinished = [outcome for outcome in healing if outcome.verdict.stops]
        return shortest(*(self.busy_seconds if each.soonest is None else each.soonest for each in unfinished))

    @staticmethod
    def _pauses(_seen: Seen, /) -> float:
        """Return the seconds that a rolling update pauses because the spec requests it."""
        return 0.0

    def _deadline(self, seen: Seen, phase: str) -> Deadline | None:
        if phase == CREATING:
            return Deadline(CREATE_TIMEOUT, self.settings.create_timeout, "--create-timeout")
        if phase == self.update_phase:
            seconds = self.settings.upgrade_timeout + self._pauses(seen)
            return Deadline(UPGRADE_TIMEOUT, seconds, "--upgrade-timeout")
        return None


def enforce_policy(exposure: Callable[[Resource], Exposure]) -> StepOf[View[Resource, Any]]:
    """Return a step: create and change nothing while the platform policy is violated; what runs is still repaired.

    Args:
        exposure: returns how far the resource is open.
    """

    def enforce(seen: View[Resource, Any]) -> Step:
        wrong = seen.settings.policy.violations(exposure(seen.resource))
        if not wrong:
            return PASS
        return Step.blocked(
            POLICY_VIOLATED, f"{' '.join(wrong)} Nothing was created or changed; what runs is kept running."
        )

    return enforce


def pause(field: str, *, repairs: bool = False) -> StepOf[View[Any, Any]]:
    """Return a step: apply no change while `field` of the spec is true; the status is still reported.

    Args:
        repairs: whether the plan has steps that repair meanwhile.
    """
    others = " until it is false. Repairs of the running cluster continue."
    text = others if repairs else ", and no server repaired, until it is false."
    paused = Step.paused(PAUSED, f"spec.{field} is true: no change is applied{text}")
    return lambda seen: paused if getattr(seen.resource.spec, field) else PASS


def reject_invalid_spec(validate: Callable[[Resource], list[str]]) -> StepOf[View[Resource, Any]]:
    """Return a step: do not apply a spec that violates a rule of admission, which it may have bypassed."""

    def reject(seen: View[Resource, Any]) -> Step:
        resource = seen.resource
        if resource.invalid and resource.awaits_approval:
            return Step.paused(AWAITING_APPROVAL, resource.invalid)
        if resource.invalid:
            message = f"{resource.invalid} The spec was not applied. What runs is kept running as last applied."
            return Step.blocked(INVALID_SPEC, message)
        errors = validate(resource)
        if errors:
            return Step.blocked(INVALID_SPEC, " ".join(errors) + " The spec was not applied.")
        if resource.awaits_approval:  # the last applied spec, which was approved, is followed
            return Step.progressing(AWAITING_APPROVAL, how_to_approve(resource), poll=3600.0)
        return PASS

    return reject
