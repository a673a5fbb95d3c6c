"""How far a resource is from what its spec says, and why."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shared.status.reasons import READY


class Progress(enum.Enum):
    """How far a resource is from what its spec says."""

    DONE = "done"
    PROGRESSING = "progressing"  # on its way; the rest of the chain goes on
    WAITING = "waiting"  # the rest of the chain must not run before this is over
    BLOCKED = "blocked"  # only a change by a person mends it
    PAUSED = "paused"  # a person asked us to keep off


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the chain came to: the first thing that is not settled, if any.

    Attributes:
        ready: overrides what `progress` says of the Ready condition (a held resource may be as good as ever).
    """

    progress: Progress = Progress.DONE
    reason: str = READY
    message: str = ""
    warning: bool = False
    ready: bool | None = None

    @property
    def done(self) -> bool:
        return self.progress is Progress.DONE
