"""Reasons of conditions and events: the catalogue that plans, docs and tests share.

A reason is the CamelCase word in `status.conditions[].reason` and in an event. Each reason is declared once: here if
several operators use it, otherwise in `reasons.py` of the operator. Steps take a `Reason` rather than a plain string,
so that mypy rejects an undeclared reason. A message is only in the step that reports it. docs/reference/reasons.md is
generated from the catalogues and from the messages in the code.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field


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
        reasons: reasons by name, in the order of declaration.
    """

    page: str
    reasons: dict[str, Reason] = field(default_factory=dict)

    def add(self, name: str, severity: Severity, meaning: str) -> Reason:
        """Declare a reason.

        Raises:
            ValueError: the name is already declared.
        """
        if name in self.reasons:
            raise ValueError(f"reason {name} is declared twice")
        reason = Reason(name)
        reason.severity, reason.meaning = severity, meaning
        reason.runbook = f"{self.page}#{name.lower()}"
        self.reasons[name] = reason
        return reason

    def named(self, name: str) -> Reason:
        """Return the reason with this name; a name that the catalogue lacks becomes an undeclared reason."""
        return self.reasons.get(name) or Reason(name)

    def __iter__(self) -> Iterator[Reason]:
        return iter(self.reasons.values())


NO_REASON = Reason()
"""Reason of a step that has nothing to report."""

COMMON = Catalogue("runbook/README.md")

ADOPTING = COMMON.add(
    "Adopting",
    Severity.NORMAL,
    "The volumes of a deleted resource of the same name are handed over to this one, as spec.adopt requests.",
)
ADOPTION_REFUSED = COMMON.add(
    "AdoptionRefused",
    Severity.ACTION,
    "The volumes that spec.adopt names cannot be adopted; nothing was started or changed.",
)
API_UNAVAILABLE = COMMON.add(
    "ApiUnavailable",
    Severity.WARNING,
    "The API server, or an admission webhook on it, does not answer; the operator retries with back-off.",
)
AUTHORITY_UNTRUSTED = COMMON.add(
    "AuthorityUntrusted",
    Severity.ACTION,
    "Servers do not trust the present certificate authority, because the one that they started with was deleted.",
)
CONFLICT = COMMON.add(
    "Conflict",
    Severity.WARNING,
    "Writes of the operator have failed for more than 30 seconds because objects change meanwhile; it keeps retrying.",
)
CERTIFICATES_NOT_ISSUED = COMMON.add(
    "CertificatesNotIssued",
    Severity.ACTION,
    "spec.tls.mode is self, and the operator may not write Secrets: its chart value rbac.writeSecrets is false.",
)
CONNECTION_SECRET_TAKEN = COMMON.add(
    "ConnectionSecretTaken",
    Severity.ACTION,
    "The resource is ready, but the Secret NAME-connection belongs to another owner, so that clients cannot use it.",
)
CREATE_TIMEOUT = COMMON.add(
    "CreateTimeout",
    Severity.WARNING,
    "The servers of a new resource did not become ready within --create-timeout; the operator keeps trying.",
)
CREATING = COMMON.add("Creating", Severity.WARNING, "The resource is being created, and not every server is ready yet.")
DEGRADED = COMMON.add(
    "Degraded",
    Severity.WARNING,
    "A server that was ready is missing or not ready; the operator waits for it or replaces it.",
)
FIELD_CONFLICT = COMMON.add(
    "FieldConflict",
    Severity.WARNING,
    "The resource is ready, but another client keeps changing fields that the operator applies, and it restores them.",
)
FORBIDDEN = COMMON.add(
    "Forbidden",
    Severity.ACTION,
    "The API server denies a request of the operator; its ClusterRole or RoleBinding lacks a permission.",
)
GENERATING_PASSWORD = COMMON.add(
    "GeneratingPassword",
    Severity.WARNING,
    "The operator creates, restores or renews the Secret with a generated password (spec.auth without a Secret).",
)
GROWING_VOLUMES = COMMON.add("GrowingVolumes", Severity.NORMAL, "Volumes are being expanded to the size in the spec.")
HIBERNATED = COMMON.add("Hibernated", Severity.NORMAL, "All pods are stopped, as spec.hibernate requests.")
HIBERNATING = COMMON.add("Hibernating", Severity.WARNING, "All pods are being stopped, as spec.hibernate requests.")
IMAGE_PULL_FAILED = COMMON.add(
    "ImagePullFailed",
    Severity.WARNING,
    "The image of a pod cannot be pulled; the kubelet keeps trying.",
)
INTERNAL_ERROR = COMMON.add(
    "InternalError",
    Severity.WARNING,
    "The operator fails with an error that only a bug explains; it changes nothing, and retries with back-off.",
)
INVALID_SPEC = COMMON.add(
    "InvalidSpec",
    Severity.ACTION,
    "The spec breaks a rule of the API; the operator applies nothing of it until it is corrected.",
)
ISSUING_CERTIFICATES = COMMON.add(
    "IssuingCertificates", Severity.NORMAL, "The operator is issuing or rotating certificates of the resource."
)
KNOWN_ADVISORY = COMMON.add(
    "KnownAdvisory",
    Severity.WARNING,
    "Published advisories apply to the version that runs, in this configuration (condition Vulnerable).",
)
LEADER_ELECTION = COMMON.add(
    "LeaderElection", Severity.WARNING, "A replica of the operator became the leader or lost the Lease."
)
NOT_FOUND = COMMON.add(
    "NotFound",
    Severity.WARNING,
    "An object or an API that the operator needs does not exist; the operator retries with back-off.",
)
NOT_ANSWERING = COMMON.add(
    "NotAnswering",
    Severity.WARNING,
    "The kubelet reports a server as ready, but it does not answer the operator; clients may be served.",
)
NOT_AVAILABLE = COMMON.add(
    "NotAvailable", Severity.WARNING, "Clients are not served, so that no redundancy is reported."
)
NOT_OBSERVED = COMMON.add(
    "NotObserved",
    Severity.WARNING,
    "The operator cannot observe the state that it needs to know; it changes nothing, and databases keep running.",
)
OBSERVED = COMMON.add(
    "Observed", Severity.NORMAL, "The operator reaches every server that the kubelet reports as ready."
)
FOREIGN_OBJECT = COMMON.add(
    "ForeignObject",
    Severity.ACTION,
    "An object with a name that the resource needs belongs to another owner; the operator does not change it.",
)
OPERATOR_NOT_ADMITTED = COMMON.add(
    "OperatorNotAdmitted",
    Severity.ACTION,
    "The resource is ready, but its NetworkPolicy does not restrict clients as the spec requests: it could cut off the "
    "operator, which does not know as which peers it connects.",
)
PASSWORD_NOT_GENERATED = COMMON.add(
    "PasswordNotGenerated",
    Severity.ACTION,
    "spec.auth names no Secret, and the operator may not create one: its chart value rbac.writeSecrets is false.",
)
PAUSED = COMMON.add(
    "Paused",
    Severity.NORMAL,
    "The resource is paused in its spec; the operator applies no changes. An EtcdCluster and a RedisCluster are still "
    "repaired, and the certificates of all kinds are renewed.",
)
POLICY_VIOLATED = COMMON.add(
    "PolicyViolated",
    Severity.ACTION,
    "The resource violates the policy of the platform's administrator; nothing is created or changed for it, and what "
    "runs is kept running.",
)
READY = COMMON.add("Ready", Severity.NORMAL, "Everything that the spec requires exists and is ready.")
RECONCILIATION_PAUSED = COMMON.add(
    "ReconciliationPaused",
    Severity.NORMAL,
    "An annotation takes the resource out of the operator's hands: it observes, writes the status, and nothing else.",
)
REDUNDANCY_REDUCED = COMMON.add(
    "RedundancyReduced",
    Severity.WARNING,
    "Clients are served with fewer servers, healthy members or replicas in sync than the spec requests.",
)
REDUNDANT = COMMON.add(
    "Redundant",
    Severity.NORMAL,
    "There are as many servers, healthy members or replicas in sync as the spec requests.",
)
REJECTED = COMMON.add(
    "Rejected", Severity.ACTION, "The API server or an admission webhook rejects an object that the operator applies."
)
REPLACING_CERTIFICATES = COMMON.add(
    "ReplacingCertificates",
    Severity.NORMAL,
    "The certificates that servers mount are being replaced, in stages during which every peer and client trusts them.",
)
RESTORED = COMMON.add(
    "Restored",
    Severity.NORMAL,
    "An object of the resource was changed or deleted by another client, and the operator restored it.",
)
RESIZING = COMMON.add("Resizing", Severity.NORMAL, "The CPU and memory of running pods change, without a restart.")
RESTORING = COMMON.add("Restoring", Severity.WARNING, "A new cluster is being restored from a snapshot.")
SCALING = COMMON.add("Scaling", Severity.WARNING, "Servers are being added or removed to match the size in the spec.")
SECRET_INVALID = COMMON.add(
    "SecretInvalid", Severity.ACTION, "A Secret that the spec references has content that cannot be used."
)
SECRET_MISSING = COMMON.add(
    "SecretMissing", Severity.ACTION, "A Secret that the spec references does not exist or lacks a key."
)
SERVED = COMMON.add("Served", Severity.NORMAL, "Clients can read and write all their data.")
SERVICE_UNKNOWN = COMMON.add(
    "ServiceUnknown",
    Severity.WARNING,
    "Neither the servers nor the kubelet show whether clients are served.",
)
TERMINATING = COMMON.add(
    "Terminating",
    Severity.ACTION,
    "An object that the resource needs has been terminating for more than 30 seconds, mostly because of a finalizer.",
)
TOKEN_REFUSED = COMMON.add(
    "TokenRefused", Severity.ACTION, "spec.recovery.confirm does not match the recovery that is currently possible."
)
UPDATING = COMMON.add(
    "Updating", Severity.WARNING, "A change of the spec is being rolled out to the pods, one at a time."
)
UPGRADE_TIMEOUT = COMMON.add(
    "UpgradeTimeout",
    Severity.WARNING,
    "A change was not rolled out to every server within --upgrade-timeout; the operator keeps trying.",
)
UPGRADING = COMMON.add(
    "Upgrading", Severity.NORMAL, "A change of the spec is being rolled out to the pods, one at a time."
)
WAKING_UP = COMMON.add("WakingUp", Severity.WARNING, "spec.hibernate is false again, and not all pods are back yet.")
MODIFYING_VOLUMES = COMMON.add(
    "ModifyingVolumes", Severity.NORMAL, "The volumes get the VolumeAttributesClass of the spec."
)
VOLUMES_TERMINATING = COMMON.add(
    "VolumesTerminating", Severity.ACTION, "Claims of running pods are being deleted: they end with the pods."
)
VOLUMES_NOT_MODIFIED = COMMON.add(
    "VolumesNotModified",
    Severity.ACTION,
    "The API server or the storage driver does not apply the VolumeAttributesClass of the spec to a volume.",
)
VOLUMES_CANNOT_GROW = COMMON.add(
    "VolumesCannotGrow",
    Severity.ACTION,
    "The API server rejects the expansion of a volume; the operator retries every hour.",
)
VOLUMES_CANNOT_SHRINK = COMMON.add(
    "VolumesCannotShrink", Severity.ACTION, "The spec requests a smaller size than volumes have grown to."
)
CERTIFICATE_EXPIRED = COMMON.add(
    "CertificateExpired",
    Severity.ACTION,
    "A certificate in a Secret of the resource, or the authority that signed it, has ended.",
)
CERTIFICATE_EXPIRING = COMMON.add(
    "CertificateExpiring",
    Severity.WARNING,
    "The resource is ready, but a certificate ends within seven days, or is in the last sixth of its life.",
)
CERTIFICATE_NOT_YET_VALID = COMMON.add(
    "CertificateNotYetValid",
    Severity.ACTION,
    "The validity of a certificate in a Secret of the resource, or of its authority, has not begun.",
)
CERTIFICATE_NOT_MADE = COMMON.add(
    "CertificateNotMade", Severity.WARNING, "The operator could not issue a certificate; it retries with back-off."
)
