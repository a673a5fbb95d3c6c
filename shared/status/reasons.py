"""Reasons of conditions and events: the catalogue that plans, docs and tests share.

A reason is the CamelCase word in `status.conditions[].reason` and in an event. Each reason is declared once, in
`reasons.toml`: next to this module if several operators use it, otherwise next to `reasons.py` of the operator. Steps
take a `Reason` rather than a plain string, so that mypy rejects an undeclared reason. An error of a database has the
reason of its name (`shared.runtime.errors`). A message is only in the step that reports it. docs/reference/reasons.md
is generated from the catalogues and from the messages in the code.
"""

from __future__ import annotations

import enum
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


class Severity(enum.Enum):
    """Urgency of a reason in its worst case."""

    NORMAL = "normal"  # expected: the operator works or waits, and continues without user action
    WARNING = "warning"  # the operator keeps retrying; investigate if it lasts
    ACTION = "action"  # nothing changes until a user changes something


class Reason(str):
    """A reason of a condition or an event: the name as a string, together with its entry in the catalogue.

    Attributes:
        severity: urgency in the worst case.
        meaning: one sentence for the reference page.
        runbook: page and anchor of the runbook entry, relative to docs/.
    """

    severity: Severity = Severity.NORMAL
    meaning: str = ""
    runbook: str = ""


@dataclass(frozen=True)
class Catalogue:
    """The reasons of one operator, or the reasons that several operators share.

    Attributes:
        page: runbook page with a heading for each reason, relative to docs/.
        reasons: reasons by name, in the order of the file.
    """

    page: str
    reasons: dict[str, Reason] = field(default_factory=dict)

    @classmethod
    def read(cls, page: str, file: Path) -> Catalogue:
        """Return the catalogue in a TOML file: of each severity, the meanings of reasons by their names.

        Raises:
            ValueError: a name is declared twice.
        """
        reasons: dict[str, Reason] = {}
        for severity, meanings in tomllib.loads(file.read_text("utf-8")).items():
            for name, meaning in meanings.items():
                if name in reasons:
                    raise ValueError(f"reason {name} is declared twice")
                reasons[name] = Reason(name)
                reasons[name].severity, reasons[name].meaning = Severity(severity), meaning
                reasons[name].runbook = f"{page}#{name.lower()}"
        return cls(page, reasons)

    def __getitem__(self, name: str) -> Reason:
        """Return the declared reason with this name."""
        return self.reasons[name]

    def named(self, name: str) -> Reason:
        """Return the reason with this name; a name that the catalogue lacks becomes an undeclared reason."""
        return self.reasons.get(name) or Reason(name)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.reasons.values())


NO_REASON = Reason()
"""Reason of a step that has nothing to report."""

COMMON = Catalogue.read("runbook/README.md", Path(__file__).with_suffix(".toml"))

ADOPTING = COMMON["Adopting"]
ADOPTION_REFUSED = COMMON["AdoptionRefused"]
API_UNAVAILABLE = COMMON["ApiUnavailable"]
AUTHORITY_UNTRUSTED = COMMON["AuthorityUntrusted"]
AWAITING_APPROVAL = COMMON["AwaitingApproval"]
CERTIFICATE_EXPIRED = COMMON["CertificateExpired"]
CERTIFICATE_EXPIRING = COMMON["CertificateExpiring"]
CERTIFICATE_NOT_MADE = COMMON["CertificateNotMade"]
CERTIFICATE_NOT_YET_VALID = COMMON["CertificateNotYetValid"]
CERTIFICATES_NOT_ISSUED = COMMON["CertificatesNotIssued"]
CONFLICT = COMMON["Conflict"]
CONNECTION_SECRET_TAKEN = COMMON["ConnectionSecretTaken"]
CREATE_TIMEOUT = COMMON["CreateTimeout"]
CREATING = COMMON["Creating"]
DEGRADED = COMMON["Degraded"]
FIELD_CONFLICT = COMMON["FieldConflict"]
FORBIDDEN = COMMON["Forbidden"]
FOREIGN_OBJECT = COMMON["ForeignObject"]
GENERATING_PASSWORD = COMMON["GeneratingPassword"]
GROWING_VOLUMES = COMMON["GrowingVolumes"]
HIBERNATED = COMMON["Hibernated"]
HIBERNATING = COMMON["Hibernating"]
IMAGE_PULL_FAILED = COMMON["ImagePullFailed"]
INTERNAL_ERROR = COMMON["InternalError"]
INVALID_SPEC = COMMON["InvalidSpec"]
ISSUING_CERTIFICATES = COMMON["IssuingCertificates"]
KNOWN_ADVISORY = COMMON["KnownAdvisory"]
LEADER_ELECTION = COMMON["LeaderElection"]
MODIFYING_VOLUMES = COMMON["ModifyingVolumes"]
NOT_ANSWERING = COMMON["NotAnswering"]
NOT_AVAILABLE = COMMON["NotAvailable"]
NOT_FOUND = COMMON["NotFound"]
NOT_OBSERVED = COMMON["NotObserved"]
OBSERVED = COMMON["Observed"]
OPERATOR_NOT_ADMITTED = COMMON["OperatorNotAdmitted"]
PASSWORD_NOT_GENERATED = COMMON["PasswordNotGenerated"]
PAUSED = COMMON["Paused"]
POLICY_VIOLATED = COMMON["PolicyViolated"]
READY = COMMON["Ready"]
RECONCILE_TIMEOUT = COMMON["ReconcileTimeout"]
RECONCILIATION_PAUSED = COMMON["ReconciliationPaused"]
REDUNDANCY_REDUCED = COMMON["RedundancyReduced"]
REDUNDANT = COMMON["Redundant"]
REJECTED = COMMON["Rejected"]
REPLACING_CERTIFICATES = COMMON["ReplacingCertificates"]
RESIZING = COMMON["Resizing"]
RESTORED = COMMON["Restored"]
RESTORING = COMMON["Restoring"]
SCALING = COMMON["Scaling"]
SECRET_INVALID = COMMON["SecretInvalid"]
SECRET_MISSING = COMMON["SecretMissing"]
SERVED = COMMON["Served"]
SERVICE_UNKNOWN = COMMON["ServiceUnknown"]
TERMINATING = COMMON["Terminating"]
TOKEN_REFUSED = COMMON["TokenRefused"]
TOO_LARGE = COMMON["TooLarge"]
UPDATING = COMMON["Updating"]
UPGRADE_TIMEOUT = COMMON["UpgradeTimeout"]
UPGRADING = COMMON["Upgrading"]
VOLUMES_CANNOT_GROW = COMMON["VolumesCannotGrow"]
VOLUMES_CANNOT_SHRINK = COMMON["VolumesCannotShrink"]
VOLUMES_NOT_MODIFIED = COMMON["VolumesNotModified"]
VOLUMES_TERMINATING = COMMON["VolumesTerminating"]
WAKING_UP = COMMON["WakingUp"]
