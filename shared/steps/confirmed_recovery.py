"""Recovery from a loss of data, which a person confirms by a token. Pure.

1. The status reports what is lost, what can be done, and a token that stands for exactly that.
2. spec.recovery.confirm = the token allows it. A different loss has a different token.
3. What was confirmed is recorded in the status before the first step of it.
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
    """The token that stands for a loss, and for what can be done about it."""
    return hashlib.sha256(loss.encode()).hexdigest()[:TOKEN_LENGTH]


def recorded(resource: CustomResource[Any]) -> Obj:
    """status.recovery; empty if it is not set."""
    return resource.reported.get("recovery") or {}


def confirms(resource: CustomResource[Any], token: str) -> bool:
    """Whether a person has confirmed this very recovery."""
    return resource.spec.recovery is not None and resource.spec.recovery.confirm == token


@dataclass(frozen=True, slots=True)
class Proposal:
    """What can be done about a loss.

    Attributes:
        reason: of the condition, while a person must decide.
        loss: what is lost, in a sentence; empty where `consequences` says so.
        consequences: what can be done, and what that costs.
        caution: what a person must do before confirming it.
        recording: said when it is confirmed, and has yet to be recorded in the status.
        token: what a person confirms.
    """

    reason: Reason
    loss: str
    consequences: str
    caution: str
    recording: str
    token: str

    def decide(self, resource: CustomResource[Any], *accepted: str, requeue: float) -> Step:
        """Ask for the confirmation, refuse another token's, or record what is confirmed.

        Args:
            accepted: further tokens that are not refused.
            requeue: seconds after which an unconfirmed loss is looked at again.
        """
        given, prefix = resource.spec.recovery, f"{self.loss} ".lstrip()
        if given is not None and given.confirm not in (self.token, *accepted):
            return Step.blocked(
                TOKEN_REFUSED,
                f"{prefix}spec.recovery.confirm is {given.confirm!r}, and what can be done now has the token "
                f"{self.token}: {self.consequences} Nothing was changed. If that is what you want, confirm that token.",
            )
        if given is not None and recorded(resource).get("token") != self.token:
            return Step.wait(self.reason, f"{prefix}{self.recording}", requeue=0)
        message = (
            f"{prefix}{self.consequences} To allow it, set spec.recovery.confirm to {self.token}. {self.caution} "
            "Nothing was changed."
        )
        return Step((), Progress.BLOCKED, self.reason, message, warning=True, requeue=requeue)
