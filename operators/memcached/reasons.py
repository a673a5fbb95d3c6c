"""Reasons of the conditions and events of Memcacheds."""

from __future__ import annotations

from pathlib import Path

from shared.status.reasons import Catalogue

REASONS = Catalogue.read("runbook/memcached.md", Path(__file__).with_suffix(".toml"))

CERTIFICATE_WITHOUT_NAME = REASONS["CertificateWithoutName"]
NO_EXPORTER_IMAGE = REASONS["NoExporterImage"]
PODS_REFUSED = REASONS["PodsRefused"]
REFRESHING_CERTIFICATES = REASONS["RefreshingCertificates"]
RELOADING_USERS = REASONS["ReloadingUsers"]
SECRET_COPY_OUTDATED = REASONS["SecretCopyOutdated"]
SECRETS_NOT_COPIED = REASONS["SecretsNotCopied"]
SERVER_FAILING = REASONS["ServerFailing"]
SERVER_NOT_RESPONDING = REASONS["ServerNotResponding"]
SERVERS_NOT_READY = REASONS["ServersNotReady"]
SWITCHING_WORKLOAD = REASONS["SwitchingWorkload"]
USERS_NOT_PROVEN = REASONS["UsersNotProven"]
