"""Facts about an EtcdBackup that several steps need, computed once per reconcile. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from operators.etcd.api.backup import EtcdBackup
from operators.etcd.backup.observe import Observed
from operators.etcd.backup.outcome import Outcome, created
from operators.etcd.reasons import POD_DELETED, POD_NOT_STARTING
from shared.kubernetes.accessors import time_in
from shared.kubernetes.pods import Pod
from shared.runtime.settings import Settings
from shared.steps.view import View

START_TIMEOUT_SECONDS = 600.0
"""Time beyond the deadline of a pod after which the pod counts as failed if it has not even started."""

MAX_ATTEMPTS = 3
"""Attempts of an EtcdBackup; a scheduled one is attempted any number of times, until the next one is due."""

BACKOFF_SECONDS = (15.0, 60.0, 300.0, 900.0, 1800.0)
"""Time between the end of an attempt and the next one, by the number of failed attempts; the last value repeats."""


@dataclass(frozen=True, kw_only=True)
class Assessment(View[EtcdBackup, Settings]):
    """Facts derived from an EtcdBackup and its observed state."""

    observed: Observed

    @cached_property
    def attempts(self) -> int:
        """Number of attempts that were started."""
        return max(self.observed.attempt, int(self.resource.reported.get("attempts") or 0))

    @cached_property
    def outcome(self) -> Outcome | None:
        """Outcome of the current attempt; a pod that is missing, or does not start in time, has failed."""
        pod = self.observed.pod
        if pod is None:
            return Outcome(False, POD_DELETED, "The pod of the attempt was deleted.") if self.attempts else None
        if self.observed.outcome is not None:
            return self.observed.outcome
        deadline = int(pod["spec"].get("activeDeadlineSeconds") or 0) + START_TIMEOUT_SECONDS
        if self.started is None or (self.now - self.started).total_seconds() < deadline:
            return None
        problem = Pod.of(pod).problem or "it reported nothing"
        return Outcome(
            False, POD_NOT_STARTING, f"The pod did not finish within {deadline / 60:.0f} minutes: {problem}."
        )

    @property
    def started(self) -> datetime | None:
        """Time at which the operator created the pod of the current attempt; None if there was none."""
        recorded = time_in(str(self.resource.reported.get("startedAt")))
        known = (created(self.observed.pod or {"metadata": {}}, self.now), recorded)
        return next((time for time in known if time and time <= self.now), self.now if self.attempts else None)

    @property
    def ended(self) -> datetime:
        """Time at which the current attempt ended: the clock of its node is only used to measure how long it ran."""
        seconds = self.outcome.seconds if self.outcome else None
        return min(self.now, (self.started or self.now) + timedelta(seconds=max(0.0, seconds or 0.0)))

    @property
    def next_attempt(self) -> datetime:
        """Time of the next attempt after a failed one."""
        return self.ended + timedelta(seconds=BACKOFF_SECONDS[min(self.attempts, len(BACKOFF_SECONDS)) - 1])

    @property
    def gives_up(self) -> bool:
        """Whether no further attempt follows a failed one."""
        until = self.resource.retry_until
        return self.attempts >= MAX_ATTEMPTS if until is None else self.next_attempt >= until
