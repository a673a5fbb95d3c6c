"""Recovery from data loss, which a user confirms with a token. Pure.

1. The status reports what is lost, the possible recovery, and a token for exactly that recovery.
2. Setting spec.recovery.confirm to the token allows the recovery. A different loss has a different token.
3. The confirmed recovery is recorded in the status before its first step.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from shared.api.spec import CustomResource
from shared.kubernetes.kinds import Obj
from shared.runtime.plan import Step
from shared.status.reasons import TOKEN_REFUSED, Reason
from shared.status.verdict import Progress

TOKEN_LENGTH = 12


def recovery_token(loss: str) -> str:
    """Return the token for a loss and its recovery."""
    return hashlib.sha256(loss.encode()).hexdigest()[:TOKEN_LENGTH]


def recorded(resource: CustomResource[Any]) -> Obj:
    """Return status.recovery; empty if it is not set."""
    return resource.reported.get("recovery") or {}


def confirms(resource: CustomResource[Any], token: str) -> bool:
    """Whether the user has confirmed exactly this recovery."""
    return resource.spec.recovery is not None and resource.spec.recovery.confirm == token


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
    """

    reason: Reason
    loss: str
    consequences: str
    caution: str
    recording: str
    token: str

    def decide(self, resource: CustomResource[Any], *accepted: str, requeue: float) -> Step:
        """Request the confirmation, reject the token of another recovery, or record the confirmed one.

        Args:
            accepted: further tokens that are not rejected.
            requeue: seconds until an unconfirmed loss is observed again.
        """
        given, prefix = resource.spec.recovery, f"{self.loss} ".lstrip()
        if given is not None and given.confirm not in (self.token, *accepted):
            return Step.blocked(
                TOKEN_REFUSED,
                f"{prefix}spec.recovery.confirm is {given.confirm!r}, but the token of the current recovery is "
                f"{self.token}: {self.consequences} Nothing was changed. To proceed, set spec.recovery.confirm to it.",
            )
        if given is not None and recorded(resource).get("token") != self.token:
            return Step.wait(self.reason, f"{prefix}{self.recording}", requeue=0)
        message = (
            f"{prefix}{self.consequences} To allow it, set spec.recovery.confirm to {self.token}. {self.caution} "
            "Nothing was changed."
        )
        return Step((), Progress.BLOCKED, self.reason, message, warning=True, requeue=requeue)
