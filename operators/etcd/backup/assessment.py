"""Facts that several steps need of an EtcdBackup, computed once a round. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from operators.etcd.api.backup import EtcdBackup
from operators.etcd.backup.observe import Observed
from operators.etcd.backup.outcome import Outcome, time
from operators.etcd.reasons import POD_GONE, POD_NOT_STARTING
from shared.kubernetes.pods import Pod

START_TIMEOUT_SECONDS = 600.0
"""Time beyond its deadline after which a pod that has not even started counts as failed."""


@dataclass(frozen=True)
class Assessment:
    """What follows from an EtcdBackup and what was observed of it."""

    backup: EtcdBackup
    observed: Observed
    now: datetime

    @cached_property
    def attempts(self) -> int:
        """How many attempts were started."""
        return max(self.observed.attempt, int(self.backup.reported.get("attempts") or 0))

    @cached_property
    def outcome(self) -> Outcome | None:
        """How the present attempt ended; a pod that is missing, or does not start for long, is one that failed."""
        pod = self.observed.pod
        if pod is None:
            return Outcome(False, POD_GONE, "Its pod is gone.") if self.attempts else None
        if self.observed.outcome is not None:
            return self.observed.outcome
        created = time(pod["metadata"].get("creationTimestamp"))
        deadline = int(pod["spec"].get("activeDeadlineSeconds") or 0) + START_TIMEOUT_SECONDS
        if created is None or (self.now - created).total_seconds() < deadline:
            return None
        trouble = Pod.of(pod).trouble or "nothing was heard of it"
        return Outcome(False, POD_NOT_STARTING, f"Its pod was not done within {deadline / 60:.0f} minutes: {trouble}.")
