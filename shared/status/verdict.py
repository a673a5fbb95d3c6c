"""Progress of a resource towards its spec, with the reason."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shared.status.reasons import READY


class Progress(enum.Enum):
    """Progress of a resource towards its spec."""

    DONE = "done"
    PROGRESSING = "progressing"  # not done yet; the following steps still run
    WAITING = "waiting"  # the following steps must not run until this is over
    BLOCKED = "blocked"  # nothing changes until a user changes something
    PAUSED = "paused"  # a user paused the operator for this resource


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the steps: the first one that is not done, if any.

    Attributes:
        ready: overrides the Ready condition that follows from `progress`: a blocked resource may still serve clients.
        announces: reason that the status must have before actions continue, also if `reason` is another; or empty.
    """

    progress: Progress = Progress.DONE
    reason: str = READY
    message: str = ""
    warning: bool = False
    ready: bool | None = None
    announces: str = ""

    @property
    def done(self) -> bool:
        return self.progress is Progress.DONE

    @property
    def stops(self) -> bool:
        """Whether the following steps must not run."""
        return self.progress not in (Progress.DONE, Progress.PROGRESSING)
