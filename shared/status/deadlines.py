"""Deadlines: report a resource that has been reconciling for longer than its operator allows. Pure.

The start time is the last transition of the Reconciling condition, so a restart of the operator does not reset it.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import Obj
from shared.status import conditions
from shared.status.reasons import Reason
from shared.status.verdict import Progress, Verdict


@dataclasses.dataclass(frozen=True, slots=True)
class Deadline:
    """A limit on how long a resource may be reconciling.

    Attributes:
        reason: reason to report after the limit, such as CreateTimeout.
        seconds: limit, counted from the transition of Reconciling to True.
        flag: flag of the operator that sets the limit, for the message.
    """

    reason: Reason
    seconds: float
    flag: str

    def judge(self, resource: Obj, verdict: Verdict, now: datetime) -> tuple[Verdict, float | None]:
        """Return the verdict, replaced if the deadline has passed, and the seconds until the deadline."""
        if verdict.progress not in (Progress.PROGRESSING, Progress.WAITING) or verdict.announces:
            return verdict, None
        condition = accessors.condition(resource, conditions.RECONCILING)
        if condition.get("status") != "True":
            return verdict, self.seconds
        since = str(condition.get("lastTransitionTime") or rfc3339(now))
        left = datetime.fromisoformat(since) + timedelta(seconds=self.seconds) - now
        if left > timedelta():
            return verdict, left.total_seconds()
        message = f"{verdict.message} In progress since {since}, longer than {self.seconds:g} s ({self.flag})."
        return dataclasses.replace(verdict, reason=self.reason, message=message, warning=True), None
