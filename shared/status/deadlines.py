"""What takes too long is told, once: a resource that is under way for longer than its operator allows. Pure.

Since when it is under way, its own Reconciling condition says, so that a restart forgets nothing.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """How long something may take.

    Attributes:
        reason: what is said once it took longer, such as CreateTimeout.
        seconds: from the time since which the resource is under way.
        flag: the operator's flag that sets it, for the message.
    """

    reason: Reason
    seconds: float
    flag: str

    def judge(self, resource: Obj, verdict: Verdict, now: datetime) -> tuple[Verdict, float | None]:
        """A verdict, or what must be said instead of it now; and the seconds until that might change."""
        if verdict.progress not in (Progress.PROGRESSING, Progress.WAITING):
            return verdict, None
        condition = accessors.condition(resource, conditions.RECONCILING)
        if condition.get("status") != "True":
            return verdict, self.seconds
        since = condition["lastTransitionTime"]
        left = datetime.fromisoformat(since) + timedelta(seconds=self.seconds) - now
        if left > timedelta():
            return verdict, left.total_seconds()
        message = f"{verdict.message} It is under way since {since}, longer than {self.seconds:g} s ({self.flag})."
        return dataclasses.replace(verdict, reason=self.reason, message=message, warning=True), None
