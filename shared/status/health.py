"""Health of a resource: whether clients are served, with which redundancy, and whether the operator sees it. Pure.

Ready compares the observed state with the spec. Health is independent of the spec's progress, and has three conditions:

- Available: clients can read and write all their data. The data plane decides: what servers report and, for servers
  that the operator cannot reach, what the kubelet reports.
- Degraded: clients are served, but with less redundancy than the spec requests, or on too few hosts or zones.
- Observed: the operator reaches what it manages. Its own blindness is never reported as an outage.

Each operator computes a `Health` in its `report/health.py`; `shared.status.conditions` composes the conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.status.reasons import CERTIFICATE_EXPIRED, CREATING, NOT_ANSWERING, NOT_AVAILABLE, OBSERVED, Reason

MAX_LISTED_SERVERS = 5
"""Maximum number of servers that a message lists."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The value of a condition.

    Attributes:
        holds: whether the condition is true; None if that is unknown.
        reason: machine-readable reason in CamelCase.
        message: sentence for people. It contains no value that changes by itself, because each change is a write.
    """

    holds: bool | None
    reason: Reason
    message: str

    @property
    def status(self) -> str:
        """Status of the condition in the API: True, False or Unknown."""
        return "Unknown" if self.holds is None else str(self.holds)


@dataclass(frozen=True, slots=True)
class Health:
    """The three conditions of health. None: nothing new is known, and the last reported condition stays.

    Attributes:
        available: whether clients can read and write all their data.
        degraded: whether there is less redundancy than requested, or a bad placement.
        observed: whether the operator reaches what it manages.
    """

    available: Finding | None = None
    degraded: Finding | None = None
    observed: Finding | None = None


def not_created() -> Finding:
    """Return the condition Available of a resource that has never served."""
    return Finding(False, CREATING, "Being created: clients are not served yet.")


def certificate_ended(secret: str, ends: datetime | None, now: datetime) -> Finding | None:
    """Return the condition Available of servers whose certificate has ended; None if it has not.

    Args:
        secret: name of the Secret to renew.
        ends: end of the certificate and of its authority; None without TLS, or if it is unknown.
    """
    if ends is None or ends > now:
        return None
    return Finding(
        False,
        CERTIFICATE_EXPIRED,
        f"The certificate of the servers, or its authority, ended at {ends:%Y-%m-%d %H:%M UTC}: clients that verify it "
        f"cannot connect. Renew Secret {secret}.",
    )


def not_served() -> Finding:
    """Return the condition Degraded of a resource that does not serve."""
    return Finding(False, NOT_AVAILABLE, "Clients are not served; see the condition Available.")


def observed(unreachable: Mapping[str, str]) -> Finding:
    """Return the condition Observed.

    Args:
        unreachable: servers that the kubelet reports as ready and that do not answer the operator, by name: the error;
            empty if there is none.
    """
    if not unreachable:
        return Finding(True, OBSERVED, "Every server that the kubelet reports as ready answers the operator.")
    error = next(filter(None, unreachable.values()), "").rstrip(".")
    return Finding(
        False,
        NOT_ANSWERING,
        f"{listed(unreachable)}: ready according to the kubelet, but not answering the operator{error and ': '}"
        f"{error}. Check whether a NetworkPolicy blocks connections from the operator's pods.",
    )


def listed(names: Mapping[str, object] | tuple[str, ...]) -> str:
    """Return the first names, and the number of the others."""
    shown, more = list(names)[:MAX_LISTED_SERVERS], len(names) - MAX_LISTED_SERVERS
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
