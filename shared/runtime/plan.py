"""What a reconcile wants done, as data, and the chain of steps that decides it.

A plan is made by small pure steps in order. Each answers one question: with `PASS` (nothing to say), with actions,
or with a reason why the resource is not there yet; and it says whether the rest must wait for it. The reason becomes
the condition, the event, the log line and the span, so that a person reads the same sentence everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, TypeVar

from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import Kind, Obj
from shared.pki.rotation import CertificateOrder
from shared.status.conditions import READY
from shared.status.reasons import NO_REASON, Reason
from shared.status.verdict import Progress, Verdict

Resource = TypeVar("Resource")
Observed = TypeVar("Observed")


@dataclass(frozen=True, slots=True)
class Apply:
    """Make an owned object exist as given (server-side apply); skipped if it would change nothing.

    Attributes:
        unchanged: whether object and resource must still be as they were seen: where an old wish would do harm.
    """

    kind: Kind
    obj: Obj
    unchanged: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete exactly the object that was seen, by UID; and by resourceVersion where its content was the reason.

    Attributes:
        unchanged: whether the object must still be as it was seen.
        orphan: whether what it owns stays, without an owner, to be taken up again by an object that is made anew.
    """

    kind: Kind
    obj: Obj
    unchanged: bool = False
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """Change a few fields of exactly the object that was seen, by UID, though it was not made by us; skipped if it
    would change nothing.

    For what Kubernetes' controllers make for us: a StatefulSet's pods and claims. An `Apply` would be refused, for they
    are their maker's; and it would own its fields for ever. Our labels must be on the object.

    Attributes:
        obj: the object as it was seen.
        change: a JSON merge patch (RFC 7386).
        noted: an annotation that is to say so if the API server refuses the change, and what it begins with: then the
            rest goes on, and the plan that reads it can tell. None: a refusal is a failure.
    """

    kind: Kind
    obj: Obj
    change: Obj
    noted: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class WriteSecret:
    """Make a Secret of ours where there is none, or replace exactly the one that was seen.

    For keys: they are made as they are written, so that no plan holds one that nobody has; and of two writers who would
    each make one, the second is refused (Conflict), for whoever trusts the first would be lost.

    Attributes:
        obj: the Secret, without what is made for it; what is not in its `data` is taken away.
        seen: the Secret as it was; None where there was none.
        order: a certificate to be made for it, or an authority; None for neither.
        under: names in `data` of what is made: the certificate and its key.
        token: name in `data` of a password to be made for it, at random; empty for none.
    """

    obj: Obj = field(repr=False)
    seen: Obj | None = field(repr=False)
    order: CertificateOrder | None = None
    under: tuple[str, str] = ("tls.crt", "tls.key")
    token: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One step on the running database; operators derive theirs and say what each does in `str`.

    Attributes:
        lasting: whether it comes about some time after it was answered: then the world is looked at again when the step
            says (`requeue`) rather than at once, when it would be asked for once more.
    """

    lasting: ClassVar[bool] = False


Action = Apply | Patch | WriteSecret | Delete | Call


@dataclass(frozen=True, slots=True)
class Step:
    """A step's answer.

    Attributes:
        actions: what it wants done now, in order.
        progress: whether this step's question is settled; anything but DONE and PROGRESSING ends the chain.
        reason: CamelCase, for machines.
        message: a sentence for people, with the values.
        warning: whether a person should worry.
        requeue: seconds after which to look again though nothing changed (an external wait). After a round that changed
            something the next one follows at once, unless the change was a `Call` that is `lasting`.
    """

    actions: tuple[Action, ...] = ()
    progress: Progress = Progress.DONE
    reason: Reason = NO_REASON
    message: str = ""
    warning: bool = False
    requeue: float | None = None

    @classmethod
    def do(cls, *actions: Action) -> Step:
        """These must hold, and the chain goes on."""
        return cls(actions)

    @classmethod
    def progressing(cls, reason: Reason, message: str, *, warning: bool = False, requeue: float | None = None) -> Step:
        """Not there yet; the rest of the chain goes on."""
        return cls((), Progress.PROGRESSING, reason, message, warning, requeue)

    @classmethod
    def wait(
        cls, reason: Reason, message: str, *actions: Action, warning: bool = False, requeue: float | None = None
    ) -> Step:
        """The rest of the chain must not run before this is over."""
        return cls(actions, Progress.WAITING, reason, message, warning, requeue)

    @classmethod
    def blocked(cls, reason: Reason, message: str) -> Step:
        """Nothing goes on until a person changes something."""
        return cls((), Progress.BLOCKED, reason, message, warning=True)

    @classmethod
    def paused(cls, reason: Reason, message: str) -> Step:
        """A person asked us to keep off."""
        return cls((), Progress.PAUSED, reason, message)


PASS = Step()

StepOf = Callable[[Resource, Observed, datetime], Step]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and what to report if nothing is left to do.

    Attributes:
        actions: in order; writes that change nothing are skipped.
        verdict: how far the resource is, and why.
        status: the resource's whole status, without conditions (`shared.status.conditions` adds them).
        requeue: seconds after which to look again.
    """

    actions: tuple[Action, ...]
    verdict: Verdict
    status: Obj
    requeue: float | None = None


def follow(
    steps: Iterable[StepOf[Resource, Observed]], resource: Resource, seen: Observed, now: datetime
) -> tuple[tuple[Action, ...], Verdict, float | None]:
    """Ask the steps in order until one must be waited for.

    Returns:
        All actions wanted, the first unsettled answer (or that all is done), and the shortest requeue wished for.
    """
    actions: list[Action] = []
    verdict = Verdict()
    requeues: list[float] = []
    for step in steps:
        answer = step(resource, seen, now)
        actions += answer.actions
        if answer.requeue is not None:
            requeues.append(answer.requeue)
        settled = answer.progress is Progress.DONE
        blocks = not settled and answer.progress is not Progress.PROGRESSING
        if blocks or (verdict.done and not settled):  # what blocks the rest tells more than what is merely under way
            verdict = Verdict(answer.progress, answer.reason, answer.message, answer.warning)
        if blocks:
            break
    return tuple(actions), verdict, min(requeues, default=None)


def announced(resource: Obj, step: Step) -> Step:
    """A step that is said before it is done: without its actions until its reason stands in the status.

    For what people would want to know of even if the operator stopped right after it: the status, and the event that
    goes with it, are written only when nothing is left to do for the moment.
    """
    said = condition(resource, READY)
    told = said.get("reason") == step.reason or str(said.get("message", "")).startswith(step.message)
    return step if told else dataclasses.replace(step, actions=(), requeue=0)
