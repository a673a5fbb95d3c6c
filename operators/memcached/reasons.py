"""Reasons of the conditions and events of Memcacheds."""

from __future__ import annotations

from shared.status.reasons import (
    CREATING,
    DEGRADED,
    IMAGE_PULL_FAILED,
    REDUNDANCY_REDUCED,
    REDUNDANT,
    SCALING,
    SECRET_INVALID,
    SECRET_MISSING,
    SERVED,
    UPDATING,
    Catalogue,
    Severity,
)

REASONS = Catalogue("runbook/memcached.md")

_WAITS = (
    "{ready} of {size} servers are ready. Waiting for the {workload} controller to observe the change.",
    "Removing surplus servers: {present} servers run, and the desired number is {size}.",
    "Rolling update: {updated} of {size} servers are updated, and {ready} are ready.",
    "Rolling update: {updated} of {size} servers are updated, and {ready} are ready. {waits_for}.",
)
"""Parts of an operation that are not complete yet; any operation may wait for one."""

CERTIFICATE_WITHOUT_NAME = REASONS.add(
    "CertificateWithoutName",
    Severity.WARNING,
    "The resource is ready, but the certificate of its servers lacks their DNS name, and spec.auth is set.",
    (
        "Secret {name}: tls.crt has no DNS name {host}, and with spec.auth, passwords are sent only to servers whose "
        "certificate has it, or is this very one. Issue it with that name."
    ),
)
NO_EXPORTER_IMAGE = REASONS.add(
    "NoExporterImage",
    Severity.ACTION,
    "The spec enables metrics, but the operator was started without an image for the metrics exporter.",
    (
        "spec.metrics: the operator has no image for the metrics exporter. Set spec.metrics.image, or start the "
        "operator with --agent-image, as its chart does. Nothing was changed."
    ),
)
PODS_REFUSED = REASONS.add(
    "PodsRefused",
    Severity.WARNING,
    "The API server rejects new pods, for example because of a quota or an admission policy.",
    "{summary}. Kubernetes rejects new pods: {replica_failure}",
    (
        "{summary}. Kubernetes has not created {missing} of the pods: kubectl describe statefulset {name} names the "
        "reason."
    ),
)
REFRESHING_CERTIFICATES = REASONS.add(
    "RefreshingCertificates",
    Severity.WARNING,
    "The certificate in the Secret, or its next authority, is new, and not all servers have loaded it yet.",
    "{progress}. {name} cannot be inspected: {error}.",
    "{progress}. The kubelet updates the files within two minutes; then the servers reload them.",
)
RELOADING_USERS = REASONS.add(
    "ReloadingUsers",
    Severity.WARNING,
    "The users file in the Secret has changed, and not all servers have loaded it yet.",
    "{progress}. {name} cannot be inspected: {error}.",
    "{progress}. The kubelet updates the files within two minutes; then the servers reload them.",
)
SERVER_FAILING = REASONS.add(
    "ServerFailing",
    Severity.WARNING,
    "A server cannot start or fails repeatedly.",
    "{summary}. {problems}",
)
SERVERS_NOT_READY = REASONS.add(
    "ServersNotReady",
    Severity.WARNING,
    "A server that clients use is not ready, so that its part of the keys cannot be read or written.",
    "No server is ready.",
    "{unready}: in the list of servers that clients use, but not ready.",
)
SWITCHING_WORKLOAD = REASONS.add(
    "SwitchingWorkload",
    Severity.NORMAL,
    "The servers move to another kind of workload, and the former workload serves clients until the new one is ready.",
    "Changing from a {kind} to a {kind}: {summary} in the {kind}. Clients use the {kind} until all are ready.",
    "Deleting the {kind}: {summary} in the {kind}.",
)

USERS_NOT_PROVEN = REASONS.add(
    "UsersNotProven",
    Severity.WARNING,
    "All servers accept the users in the Secret, but it is unknown whether they still accept removed ones.",
    (
        "{unproven} of {ready} servers accept the users in the Secret, and it is unknown whether they still accept "
        "removed ones, such as those of an ended overlap: they have no sidecar that attests it. {advice}"
    ),
)

REASONS.extend(
    CREATING,
    "Creating the servers: {ready} of {size} servers are ready.",
    *_WAITS,
)
REASONS.extend(
    DEGRADED,
    "{ready} of {size} servers are ready. Kubernetes restarts or replaces the others.",
    *_WAITS,
)
REASONS.extend(IMAGE_PULL_FAILED, "{summary}. {problems}")
REASONS.extend(REDUNDANCY_REDUCED, "{ready} of {size} servers are ready.")
REASONS.extend(REDUNDANT, "All {size} servers are ready.")
REASONS.extend(
    SCALING,
    "Scaling to {size} servers: {ready} of {size} servers are ready.",
    *_WAITS,
)
REASONS.extend(
    SECRET_INVALID,
    "spec.auth: Secret {secret_name}: {users_key}: {problem}",
    (
        "spec.tls: Secret {name}: {certificate_key} has no DNS name {missing_name}, and with spec.auth, passwords are "
        "sent only to servers whose certificate has it. Issue it with that name."
    ),
)
REASONS.extend(
    SECRET_MISSING,
    "{field}: Secret {secret} does not exist. Create it with {keys}, or name another Secret. {consequence}",
    "{field}: Secret {secret} has no {missing}. Add it. {consequence}",
)
REASONS.extend(SERVED, "Scaled to zero: no servers run.", "Every server in the list that clients use is ready.")
REASONS.extend(
    UPDATING,
    "Rolling update: {ready} of {size} servers are ready.",
    *_WAITS,
)
