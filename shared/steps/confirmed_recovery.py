"""Recovery from data loss, which a user confirms with a token. Pure.

1. The status reports what is lost, the possible recovery, and a token for exactly that recovery.
2. Setting spec.recovery.confirm to the token allows the recovery. A different loss has a different token.
3. The confirmed recovery is recorded in the status before its first step.

A consent is for one occurrence of a loss, and ends with it. So the token contains when the loss was found: if what was
lost comes back, and the same is lost again later, that is another loss with another token. Whether it was the same loss
all the time is known only while the operator observes it (`current`). The value that spec.recovery.confirm has when
a loss is found is of an earlier one, and consents to nothing: it may stay in the spec, for example in Git.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from shared.api.spec import CustomResource
from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.kubernetes.kubectl import patch_command
from shared.runtime.plan import Step
from shared.status.messages import MAX_CONDITION_CHARACTERS, shortened
from shared.status.reasons import TOKEN_REFUSED, Reason
from shared.status.verdict import Progress

TOKEN_LENGTH = 12

LONGEST_GAP = timedelta(hours=1)
"""Longest time without an observation of a loss after which it still counts as the same loss."""

RENEWAL = timedelta(minutes=10)
"""Age at which the recorded time of the last observation is renewed."""

UNKNOWN = "At present it is unknown whether this data is lost."
"""Message of a recovery that is offered no more, and whose token stays valid if the same loss is observed again."""

_SINCE = "%Y%m%dT%H%M%SZ"


def recovery_token(loss: str) -> str:
    """Return the token for a loss and its recovery."""
    return hashlib.sha256(loss.encode()).hexdigest()[:TOKEN_LENGTH]


def recorded(resource: CustomResource[Any]) -> Obj:
    """Return status.recovery; empty if it is not set."""
    return resource.reported.get("recovery") or {}


def awaits_confirmation(obj: Obj) -> bool:
    """Whether a resource reports a recovery that a user can confirm now, and has not confirmed."""
    record = accessors.status_of(obj).get("recovery") or {}
    given = ((obj.get("spec") or {}).get("recovery") or {}).get("confirm")
    is_confirmed = given == record.get("token") != record.get("priorConfirm")
    return bool(record) and not is_confirmed and record.get("message") != UNKNOWN


def confirms(resource: CustomResource[Any], token: str) -> bool:
    """Whether the user has confirmed exactly this recovery."""
    return _given(resource) == token


def _given(resource: CustomResource[Any]) -> str | None:
    """Return spec.recovery.confirm."""
    given: str | None = resource.spec.recovery.confirm if resource.spec.recovery is not None else None
    return given


def is_in_force(resource: CustomResource[Any], token: str) -> bool:
    """Whether the user has confirmed exactly this recovery, and the status records it."""
    record = recorded(resource)
    return confirms(resource, token) and record.get("token") == token != record.get("priorConfirm")


def occurrence(resource: CustomResource[Any], loss: str, now: datetime, *, continues: bool) -> Obj:
    """Return the fields of status.recovery that identify a loss which is observed now: `token`, `observed` and
    `priorConfirm`.

    Args:
        loss: the resource and all that is lost, by identities that are never reused.
        continues: whether the recorded loss covers this one, as after some steps of its recovery.
    """
    record = current(resource, now)
    if record and (continues or ("observed" not in record and _is_token_of(record["token"], loss))):
        fields: Obj = {name: record[name] for name in ("token", "observed", "priorConfirm") if name in record}
        observed = _observed(record)
        return fields if observed and now - observed < RENEWAL else fields | {"observed": rfc3339(now)}
    given = _given(resource)
    fields = {"token": _occurrence_token(loss, now), "observed": rfc3339(now)}
    return fields | ({"priorConfirm": given} if given is not None else {})


def current(resource: CustomResource[Any], now: datetime) -> Obj:
    """Return status.recovery if its loss was observed so recently that it did not end since; otherwise empty."""
    record = recorded(resource)
    observed = _observed(record)
    return record if observed is not None and abs(now - observed) <= LONGEST_GAP else {}


def _occurrence_token(loss: str, since: datetime) -> str:
    found = since.strftime(_SINCE)
    return f"{found}-{recovery_token(f'{loss} since {found}')}"


def _is_token_of(token: str, loss: str) -> bool:
    """Whether a token is for this loss. The CRD of an earlier version keeps no field that shows it otherwise."""
    since = _since(token)
    return since is not None and token == _occurrence_token(loss, since)


def _since(token: str) -> datetime | None:
    """Return when a loss was found, by its token; None for that of an earlier version of the operator."""
    try:
        return datetime.strptime(token.partition("-")[0], _SINCE).replace(tzinfo=UTC)
    except ValueError:
        return None


def _observed(record: Obj) -> datetime | None:
    """Return when a recorded loss was last observed; the CRD of an earlier version keeps only the token."""
    since = _since(str(record.get("token")))
    return datetime.fromisoformat(record["observed"]) if since and record.get("observed") else since


@dataclass(frozen=True, slots=True)
class Proposal:
    """A possible recovery from a loss.

    Attributes:
        reason: reason of the condition while the user has to decide.
        loss: description of the loss, as a sentence; empty if `consequences` contains it.
        consequences: description of the recovery and its consequences.
        caution: steps that the user must take before confirming.
        recording: message while the confirmation is being recorded in the status.
        token: token to confirm.
        prior: value that spec.recovery.confirm had when the loss was found, and that consents to nothing; None if there
            is none.
    """

    reason: Reason
    loss: str
    consequences: str
    caution: str
    recording: str
    token: str
    prior: str | None = None

    def decide(self, resource: CustomResource[Any], *, requeue: float) -> Step:
        """Request the confirmation, reject the token of another recovery, or record the confirmed one.

        Args:
            requeue: seconds until an unconfirmed loss is observed again.
        """
        step = self._decided(resource, requeue)
        if resource.invalid or step.progress is not Progress.BLOCKED:
            return step
        confirm = {"spec": {"recovery": {"confirm": self.token}}}
        target = f"{resource.obj.get('kind', '').lower()} {resource.name}"
        end = f" To confirm: {patch_command(target, resource.namespace, confirm)}"
        return replace(step, message=shortened(step.message, MAX_CONDITION_CHARACTERS - len(end)) + end)

    def _decided(self, resource: CustomResource[Any], requeue: float) -> Step:
        given, prefix = _given(resource), f"{self.loss} ".lstrip()
        if resource.invalid:  # it may have a confirmation, which counts only as a part of a valid spec
            message = f"{prefix}A recovery is possible once the spec is corrected: {resource.invalid}"
            return Step.blocked(self.reason, message, requeue=requeue)
        is_prior = given is not None and given == self.prior
        if given is not None and given != self.token and not is_prior:
            return Step.blocked(
                TOKEN_REFUSED,
                f"{prefix}spec.recovery.confirm is {given!r}, but the token of the current recovery is "
                f"{self.token}: {self.consequences} Nothing was changed. To proceed, set spec.recovery.confirm to it.",
            )
        if given is not None and not is_prior and recorded(resource).get("token") != self.token:
            return Step.wait(self.reason, f"{prefix}{self.recording}", requeue=0)
        former = " (its present value is of an earlier loss)" if is_prior else ""
        message = (
            f"{prefix}{self.consequences} To allow it, set spec.recovery.confirm to {self.token}{former}. "
            f"{self.caution} Nothing was changed."
        )
        return Step.blocked(self.reason, message, requeue=requeue)
