"""The result of planning a reconcile, as data, and the chains of steps that compute it.

A plan is computed by small pure steps, in order. Each step returns `PASS` (nothing to do), actions, or a reason why the
resource is not ready, and whether the following steps of its chain must wait. The reason and its message become the
condition, the event, the log line and the span, so that a user reads the same sentence everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypedDict, TypeVar, Unpack

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import Kind, Obj
from shared.pki.rotation import CertificateOrder
from shared.runtime.errors import DatabaseError
from shared.status.conditions import READY
from shared.status.health import Health
from shared.status.messages import MAX_COLUMN_CHARACTERS, shortened
from shared.status.reasons import NO_REASON, Reason
from shared.status.reasons import READY as READY_REASON
from shared.status.verdict import Progress, Verdict

View = TypeVar("View")


@dataclass(frozen=True, slots=True)
class Apply:
    """Make an owned object match `obj` (server-side apply); skipped if it would change nothing.

    Attributes:
        unchanged: whether object and resource must still be as observed, because an outdated state would do harm.
        dry_run: whether the API server only judges the write to an existing object: a refusal ends the chain.
        seen: object that `obj` keeps parts of; if it no longer exists, none is created from them.
    """

    kind: Kind
    obj: Obj
    unchanged: bool = False
    dry_run: bool = False
    seen: Obj | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly the observed object, by UID.

    Attributes:
        unchanged: whether the object must still be as observed, because its content is the reason for the deletion.
        orphan: whether dependents stay without an owner, to be adopted by a recreated object.
        grace_seconds: see `Kube.delete`.
    """

    kind: Kind
    obj: Obj
    unchanged: bool = False
    orphan: bool = False
    grace_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict exactly the observed pod, by UID: delete it within its disruption budget.

    For planned work on a pod that serves. A deletion ignores the budget, so that a drain of a node at the same time
    could stop another pod of the same database. If the budget does not allow the eviction now, the chain ends, and the
    plan is made again soon.
    """

    obj: Obj


@dataclass(frozen=True, slots=True)
class Patch:
    """Change a few fields of exactly the observed object, by UID; skipped if it would change nothing.

    For objects that Kubernetes' controllers create, such as the pods and claims of a StatefulSet. An `Apply` is not
    possible, because they belong to their controller, and it would own its fields permanently. The object must have the
    labels of the operator.

    Attributes:
        obj: the object as observed.
        change: a JSON merge patch (RFC 7386).
        noted: annotation that records a rejection of the change by the API server, and the prefix of its value: the
            plan then continues and can read it. None: a rejection is an error.
        subresource: subresource that is changed, such as `resize`; empty for the object itself. A server without the
            subresource rejects the change.
    """

    kind: Kind
    obj: Obj
    change: Obj
    noted: tuple[str, str] | None = None
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class WriteSecret:
    """Create a Secret of the resource, or replace exactly the observed one.

    Keys and passwords are generated at the time of the write, so that no plan contains one that is not stored. Of two
    concurrent writers the second is rejected (Conflict), because clients may already trust the key of the first.

    Attributes:
        obj: the Secret without the generated content; keys of the old Secret that are not in `data` are removed.
        seen: the Secret as observed; None if there was none.
        order: a certificate or an authority to issue for the Secret; None for neither.
        under: keys in `data` for the issued certificate and its key.
        token: key in `data` for a random password; empty for none.
        around: text before and after the password.
        is_copy: whether everything in the Secret is known from elsewhere, so that any content may be replaced. Another
            Secret is written only once its UID is recorded (`secret_provenance`).
    """

    obj: Obj = field(repr=False)
    seen: Obj | None = field(repr=False)
    order: CertificateOrder | None = None
    under: tuple[str, str] = ("tls.crt", "tls.key")
    token: str = ""
    around: tuple[str, str] = field(default=("", ""), repr=False)
    is_copy: bool = False


Record = Callable[[Obj], Awaitable[None]]
"""Writes fields of the status of the resource, by their names; raises KubeError.

A call that must not be forgotten if the operator ends records what it is about to do.
"""


async def unrecorded(_: Obj) -> None:
    """Write nothing: for calls outside an operator."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call on the running database; operators derive their own and describe them in `str`.

    Attributes:
        lasting: whether the effect comes some time after the response: the state is then observed again after the
            `requeue` of the step rather than at once, which would repeat the call.
    """

    lasting: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that the database may refuse: the refusal is recorded in an annotation, and the plan continues.

    Attributes:
        call: the call.
        refusal: error that is recorded; other errors end the reconcile.
        kind, obj: object with the annotation, as observed. It must have the labels of the operator.
        noted: name of the annotation, and the prefix of its value. It is removed when the call succeeds.
    """

    call: Call
    refusal: type[DatabaseError]
    kind: Kind
    obj: Obj
    noted: tuple[str, str]

    def __str__(self) -> str:
        return str(self.call)


Action = Apply | Patch | WriteSecret | Delete | Evict | Call | Attempt


class Further(TypedDict, total=False):
    """Attributes of a `Step` that most steps do not set."""

    warning: bool
    requeue: float | None
    poll: float | None


@dataclass(frozen=True, slots=True)
class Step:
    """The result of a step.

    Attributes:
        actions: actions to execute now, in order.
        progress: progress of the step; anything but DONE and PROGRESSING ends the chain.
        reason: machine-readable reason in CamelCase. With DONE, a note (`note`).
        message: sentence for people, with the relevant values.
        warning: whether the user should investigate.
        requeue: seconds after which to reconcile again without a change: something is due then. After a reconcile that
            changed something the next one follows at once, unless the change was a `Call` that is `lasting`.
        poll: seconds after which to observe again what the step waits for: pods that become ready, of which most
            changes are reported by a watch. It may be later while many resources wait (`shared.runtime.pacing`).
        announces: the reason for which the actions wait until the status has it (`announced`); empty if they do not.
    """

    actions: tuple[Action, ...] = ()
    progress: Progress = Progress.DONE
    reason: Reason = NO_REASON
    message: str = ""
    warning: bool = False
    requeue: float | None = None
    poll: float | None = None
    announces: str = ""

    @classmethod
    def do(cls, *actions: Action) -> Step:
        """Return a step with actions that does not stop the chain."""
        return cls(actions)

    @classmethod
    def note(cls, reason: Reason, message: str) -> Step:
        """Return a step that is done, with a warning that is reported if nothing else is."""
        return cls((), Progress.DONE, reason, message, warning=True)

    @classmethod
    def progressing(cls, reason: Reason, message: str, *actions: Action, **further: Unpack[Further]) -> Step:
        """Return a step that is not done and does not stop the chain."""
        return cls(actions, Progress.PROGRESSING, reason, message, **further)

    @classmethod
    def wait(cls, reason: Reason, message: str, *actions: Action, **further: Unpack[Further]) -> Step:
        """Return a step that must be over before the following steps may run."""
        return cls(actions, Progress.WAITING, reason, message, **further)

    @classmethod
    def blocked(cls, reason: Reason, message: str, *, requeue: float | None = None) -> Step:
        """Return a step that stops the chain until a user changes something."""
        return cls((), Progress.BLOCKED, reason, message, warning=True, requeue=requeue)

    @classmethod
    def paused(cls, reason: Reason, message: str) -> Step:
        """Return a step that stops the chain because the user paused the operator."""
        return cls((), Progress.PAUSED, reason, message)


PASS = Step()

StepOf = Callable[[View], Step]
"""A step: a pure function of what a reconcile knows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions to execute now, and the status to report when there are none left.

    Attributes:
        chains: actions of each chain of steps, in order; writes that change nothing are skipped. An action that fails
            ends its own chain only.
        verdict: progress of the resource, with the reason.
        status: whole status of the resource, without conditions (`shared.status.conditions` adds them).
        requeue: seconds after which to reconcile again, because something is due.
        poll: seconds after which to observe again; it may be later while many resources wait (`shared.runtime.pacing`).
        heals_after: seconds after which to reconcile again even if an action fails, because the running database needs
            repairs; None if it needs none.
        repairs: number of the first chains, which repair the running database.
        health: whether clients are served; None for a kind that serves no clients, such as a backup.
        is_final: whether the resource has ended, as a backup does, so that a pause keeps its verdict.
    """

    chains: tuple[tuple[Action, ...], ...]
    verdict: Verdict
    status: Obj
    requeue: float | None = None
    heals_after: float | None = None
    repairs: int = 0
    poll: float | None = None
    health: Health | None = None
    is_final: bool = False

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions of all chains, in order."""
        return tuple(action for chain in self.chains for action in chain)


class Outcome(NamedTuple):
    """The result of one chain of steps.

    Attributes:
        actions: all actions of the steps, in order.
        verdict: verdict of the step that stops the chain, else of the first one that is not done.
        requeue: shortest time that a step requests, in seconds; None if none does.
        poll: the same for a poll.
    """

    actions: tuple[Action, ...] = ()
    verdict: Verdict = Verdict()
    requeue: float | None = None
    poll: float | None = None

    @property
    def soonest(self) -> float | None:
        """The shorter of the two times."""
        return shortest(self.requeue, self.poll)


def shortest(*seconds: float | None) -> float | None:
    """Return the shortest of the times that are not None; None if all are."""
    return min((each for each in seconds if each is not None), default=None)


def follow(steps: Iterable[StepOf[View]], seen: View) -> Outcome:
    """Run the steps in order until one stops the chain."""
    actions: list[Action] = []
    verdict = Verdict()
    requeue: float | None = None
    poll: float | None = None
    for step in steps:
        answer = step(seen)
        if answer is PASS:
            continue
        actions += answer.actions
        requeue, poll = shortest(requeue, answer.requeue), shortest(poll, answer.poll)
        reached = Verdict(answer.progress, answer.reason, answer.message, answer.warning, announces=answer.announces)
        is_noted = bool(answer.reason) and reached.done
        if reached.stops or (verdict.done and not reached.done) or (is_noted and verdict == Verdict()):
            verdict = reached  # a step that stops the chain is more relevant than one in progress, and that than a note
        elif is_noted and verdict.done:
            verdict = dataclasses.replace(verdict, message=f"{verdict.message} {reached.message}")
        if reached.stops:
            break
    return Outcome(tuple(actions), verdict, requeue, poll)


def combine(healing: Sequence[Verdict], provided: Verdict, changed: Verdict) -> Verdict:
    """Return the verdict of all chains.

    Repairs that are not complete come first, and of these one whose actions wait for the report. What is wrong with the
    desired state is then appended to their message.

    Args:
        healing: verdicts of the chains that keep the running database alive.
        provided: verdict of the chain that checks the desired state and makes its objects.
        changed: verdict of the chain that changes the database; done if it did not run.
    """
    announced_first = sorted(healing, key=lambda verdict: not verdict.announces)
    repair = next((verdict for verdict in announced_first if verdict.stops), None)
    if repair is not None:
        is_wrong = provided.warning or provided.progress is Progress.PAUSED
        wrong = provided.message if is_wrong and provided.message != repair.message else ""
        return dataclasses.replace(repair, message=f"{repair.message} {wrong}".strip())
    ordered = (provided, *healing, changed)
    unfinished = [verdict for verdict in ordered if verdict.stops] or [each for each in ordered if not each.done]
    noted = (each for each in ordered if each.reason != READY_REASON)
    return unfinished[0] if unfinished else next(noted, Verdict())


def announced(resource: Obj, step: Step) -> Step:
    """Return a step without its actions until its reason is in the status.

    Use it for actions that users should learn about even if the operator stops right afterwards: the status and the
    event are otherwise written only when there is nothing left to do.
    """
    ready = condition(resource, READY)
    text = shortened(step.message, MAX_COLUMN_CHARACTERS)
    is_reported = ready.get("reason") == step.reason or str(ready.get("message", "")).startswith(text)
    return step if is_reported else dataclasses.replace(step, actions=(), requeue=0, announces=step.reason)
