"""Reasons of the conditions and events of Memcacheds."""

from __future__ import annotations

from shared.status.reasons import Catalogue, Severity

REASONS = Catalogue("runbook/memcached.md")

NO_EXPORTER_IMAGE = REASONS.add("NoExporterImage", Severity.NORMAL, "")
PODS_REFUSED = REASONS.add("PodsRefused", Severity.NORMAL, "")
REFRESHING_CERTIFICATES = REASONS.add("RefreshingCertificates", Severity.NORMAL, "")
SERVER_FAILING = REASONS.add("ServerFailing", Severity.NORMAL, "")
SWITCHING_WORKLOAD = REASONS.add("SwitchingWorkload", Severity.NORMAL, "")
