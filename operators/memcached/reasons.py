"""Reasons of the conditions and events of Memcacheds."""

from __future__ import annotations

from shared.status.reasons import (
    Catalogue,
    Severity,
)

REASONS = Catalogue("runbook/memcached.md")

CERTIFICATE_WITHOUT_NAME = REASONS.add(
    "CertificateWithoutName",
    Severity.WARNING,
    "The resource is ready, but the certificate of its servers lacks their DNS name, and spec.auth is set.",
)
NO_EXPORTER_IMAGE = REASONS.add(
    "NoExporterImage",
    Severity.ACTION,
    "The spec enables metrics, but the operator was started without an image for the metrics exporter.",
)
PODS_REFUSED = REASONS.add(
    "PodsRefused",
    Severity.WARNING,
    "The API server rejects new pods, for example because of a quota or an admission policy.",
)
REFRESHING_CERTIFICATES = REASONS.add(
    "RefreshingCertificates",
    Severity.WARNING,
    "The certificate in the Secret, or its next authority, is new, and not all servers have loaded it yet.",
)
RELOADING_USERS = REASONS.add(
    "ReloadingUsers",
    Severity.WARNING,
    "The users file in the Secret has changed, and not all servers have loaded it yet.",
)
SERVER_FAILING = REASONS.add("ServerFailing", Severity.WARNING, "A server cannot start or fails repeatedly.")
SERVERS_NOT_READY = REASONS.add(
    "ServersNotReady",
    Severity.WARNING,
    "A server that clients use is not ready, so that its part of the keys cannot be read or written.",
)
SWITCHING_WORKLOAD = REASONS.add(
    "SwitchingWorkload",
    Severity.NORMAL,
    "The servers move to another kind of workload, and the former workload serves clients until the new one is ready.",
)

USERS_NOT_PROVEN = REASONS.add(
    "UsersNotProven",
    Severity.WARNING,
    "All servers accept the users in the Secret, but it is unknown whether they still accept removed ones.",
)
