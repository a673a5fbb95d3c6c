"""Reasons of conditions and events: the catalogue that plans, docs and tests share.

A reason is the CamelCase word in `status.conditions[].reason` and in an event. Every reason is declared once, in
`shared.status.reasons` if several operators use it, or else in the operator's `reasons.py`. Steps take a `Reason`,
not a plain string, so that mypy rejects a reason that is not declared. docs/reference/reasons.md is generated from the
catalogues, and tests compare them with the plans and with the runbook.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass, field


class Severity(enum.Enum):
    """How urgent the worst case of a reason is."""

    NORMAL = "normal"  # expected: the operator works or waits, and continues without help
    WARNING = "warning"  # the operator keeps retrying; look into it if it lasts
    ACTION = "action"  # nothing changes until a user changes something


class Reason(str):
    """A reason of a condition or an event: its name as a string, with what the catalogue knows about it.

    Attributes:
        severity: how urgent its worst case is.
        meaning: one sentence for the reference page.
        messages: templates of its messages; `{name}` stands for a value.
        runbook: page and anchor of its runbook entry, relative to docs/.
    """

    severity: Severity = Severity.NORMAL
    meaning: str = ""
    messages: tuple[str, ...] = ()
    runbook: str = ""

    def describes(self, message: str) -> bool:
        """Whether `message` has the form of one of the templates; true for a reason that declares none."""
        return not self.messages or any(pattern(template).fullmatch(message) for template in self.messages)


def pattern(template: str) -> re.Pattern[str]:
    """Return the expression that matches every message made from `template`: each `{name}` takes any text."""
    return re.compile(".*".join(re.escape(part) for part in re.split(r"\{\w+\}", template)), re.DOTALL)


@dataclass(frozen=True)
class Catalogue:
    """The reasons of one operator, or those that all operators share.

    Attributes:
        page: runbook page with a heading for each reason, relative to docs/.
        reasons: by name, in the order of declaration.
    """

    page: str
    reasons: dict[str, Reason] = field(default_factory=dict)

    def add(self, name: str, severity: Severity, meaning: str, *messages: str) -> Reason:
        """Declare a reason.

        Raises:
            ValueError: the name is declared already.
        """
        if name in self.reasons:
            raise ValueError(f"reason {name} is declared twice")
        reason = Reason(name)
        reason.severity, reason.meaning, reason.messages = severity, meaning, messages
        reason.runbook = f"{self.page}#{name.lower()}"
        self.reasons[name] = reason
        return reason

    def named(self, name: str) -> Reason:
        """Return the declared reason of that name, or an undeclared one: Kubernetes' own, or another version's."""
        return self.reasons.get(name) or Reason(name)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.reasons.values())


NO_REASON = Reason()
"""The reason of a step that has nothing to report."""

COMMON = Catalogue("runbook/README.md")

API_UNAVAILABLE = COMMON.add("ApiUnavailable", Severity.NORMAL, "")
CREATE_TIMEOUT = COMMON.add("CreateTimeout", Severity.NORMAL, "")
CREATING = COMMON.add("Creating", Severity.NORMAL, "")
DEGRADED = COMMON.add("Degraded", Severity.NORMAL, "")
FORBIDDEN = COMMON.add("Forbidden", Severity.NORMAL, "")
GROWING_VOLUMES = COMMON.add("GrowingVolumes", Severity.NORMAL, "")
INVALID_SPEC = COMMON.add("InvalidSpec", Severity.NORMAL, "")
ISSUING_CERTIFICATES = COMMON.add("IssuingCertificates", Severity.NORMAL, "")
LEADER_ELECTION = COMMON.add("LeaderElection", Severity.NORMAL, "")
NOT_FOUND = COMMON.add("NotFound", Severity.NORMAL, "")
NOT_OURS = COMMON.add("NotOurs", Severity.NORMAL, "")
PAUSED = COMMON.add("Paused", Severity.NORMAL, "")
READY = COMMON.add("Ready", Severity.NORMAL, "")
REJECTED = COMMON.add("Rejected", Severity.NORMAL, "")
RESTORED = COMMON.add("Restored", Severity.NORMAL, "")
RESTORING = COMMON.add("Restoring", Severity.NORMAL, "")
SCALING = COMMON.add("Scaling", Severity.NORMAL, "")
SECRET_INVALID = COMMON.add("SecretInvalid", Severity.NORMAL, "")
SECRET_MISSING = COMMON.add("SecretMissing", Severity.NORMAL, "")
TOKEN_REFUSED = COMMON.add("TokenRefused", Severity.NORMAL, "")
UPDATING = COMMON.add("Updating", Severity.NORMAL, "")
UPGRADE_TIMEOUT = COMMON.add("UpgradeTimeout", Severity.NORMAL, "")
UPGRADING = COMMON.add("Upgrading", Severity.NORMAL, "")
VOLUMES_CANNOT_GROW = COMMON.add("VolumesCannotGrow", Severity.NORMAL, "")
CERTIFICATE_NOT_MADE = COMMON.add("CertificateNotMade", Severity.NORMAL, "")
