"""Rules about resources, based on the states that operators export: they work even if no server can be scraped.

Only the condition Available pages: it goes by the evidence of the data plane. What the operator alone does not know, it
reports as Observed=False, which is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.promql import STOPPED
from dashboards.rules.expressions import ID, NAMED, about_resources, condition, ending, state
from dashboards.rules.model import Alert, Group, Subject

RESOURCE = "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }}"

PLANNED = (
    "Scaling|Updating|Upgrading|Downgrading|SwitchingWorkload|Resizing|GrowingVolumes|ReplacingCertificates|"
    "Joining|Promoting|Removing|Pairing|Forgetting|Hibernating|WakingUp|AwaitingApproval"
)
"""Reasons of Ready during a change that a user requested, as a regular expression."""

NEW = "Creating|CreateTimeout"
"""Reasons of Ready of a resource that has not been ready yet, as a regular expression."""

PLACEMENT = ".+Together"
"""Reasons of Degraded that report servers on the same host or in the same zone, as a regular expression."""

RENEWING = "IssuingCertificates|ReplacingCertificates|RenewingCertificates|RefreshingCertificates"
"""Reasons of Ready while certificates are renewed, or servers load them, as a regular expression."""

CRITICAL_SHARES = ("${certificateCriticalShare}", "${certificateCriticalShare} / 2")
"""Shares of the validity below which a certificate pages if nothing renews it, and although something does.

A renewal may hang: then the second share is the last chance.
"""

PROGRESS = ("platform_resource_ready_replicas",)
"""Metrics of every kind that change while a planned change makes progress."""


def group(operator: str, kind: str, *progress: str, parts: str = "") -> Group:
    """Return the rules about one kind of resources.

    Args:
        operator: name of the operator, such as etcd.
        kind: kind of the resources, such as EtcdCluster.
        progress: metrics of this kind that change while a planned change makes progress.
        parts: another kind of the operator, whose resources a user can also pause.
    """
    rules = (
        *_service(kind),
        *_redundancy(kind),
        *_observation(kind),
        *_progress(kind, (*PROGRESS, *progress)),
        _paused_by_hand(f"{kind}|{parts}" if parts else kind),
        *_versions(kind),
        *_certificates(kind),
    )
    return Group(f"platform-{operator}-resources", rules)


def _service(kind: str) -> tuple[Alert, ...]:
    """Return the rule about the condition Available, which pages."""
    on_own_page = about_resources(kind).alert
    new, unserved = condition_of_ready(kind, NEW), condition(kind, "Available", "False", f'reason!~"{STOPPED}"')
    return (
        on_own_page(
            "PlatformResourceUnavailable",
            "critical",
            f"{unserved} unless on ({ID}) {new}",
            "5m",
            f"{RESOURCE} does not serve its clients",
            "Its servers, or the kubelet, report that clients cannot read and write all of their data. The message of "
            "the condition Available names what is missing. Do not delete PersistentVolumeClaims.",
        ),
    )


def _redundancy(kind: str) -> tuple[Alert, ...]:
    """Return the rules about the condition Degraded."""
    on_own_page = about_resources(kind).alert
    return (
        on_own_page(
            "PlatformResourceDegraded",
            "warning",
            condition(kind, "Degraded", "True", f'reason!~"{PLACEMENT}"'),
            "15m",
            f"{RESOURCE} has less redundancy than requested",
            "Clients are served. The message of the condition Degraded names the servers that are missing, and the "
            "remedy.",
        ),
        on_own_page(
            "PlatformResourceBadlyPlaced",
            "warning",
            condition(kind, "Degraded", "True", f'reason=~"{PLACEMENT}"', by="reason"),
            "30m",
            f"Servers of {RESOURCE} share a host or a zone",
            "Clients are served, but the loss of that host or zone would stop the resource or take all copies of some "
            "data. The message of the condition Degraded names the servers and the remedy.",
        ),
    )


def _observation(kind: str) -> tuple[Alert, ...]:
    """Return the rule about the condition Observed."""
    on_own_page = about_resources(kind).alert
    return (
        on_own_page(
            "PlatformResourceNotObserved",
            "warning",
            condition(kind, "Observed", "False"),
            "10m",
            f"The operator cannot reach {RESOURCE}",
            "Nothing is repaired, scaled or changed until the operator reaches its servers and objects again. Clients "
            "may be served. The message of the condition Observed names what it cannot reach.",
        ),
    )


def _progress(kind: str, progress: Sequence[str]) -> tuple[Alert, ...]:
    """Return the rules about resources that do not match their spec.

    Args:
        progress: metrics that change while a planned change makes progress.
    """
    in_overview = Subject("platform-overview", NAMED).alert
    paused = f"unless on ({ID}) ({state('platform_resource_paused', kind)} == 1) {unless_hibernated(kind)}"
    unready = f"time() - {state('platform_resource_unready_since_timestamp_seconds', kind)}"
    planned = condition_of_ready(kind, PLANNED)
    moving = " or ".join(f'(max by ({ID}) (changes({metric}{{kind="{kind}"}}[30m])) > 0)' for metric in progress)
    return (
        in_overview(
            "PlatformResourceNotReady",
            "warning",
            f"(({unready} > ${{unreadySeconds}} unless on ({ID}) {planned}) or "
            f"({unready} > ${{changeSeconds}} unless on ({ID}) ({moving}))) {paused}",
            "1m",
            f"{RESOURCE} is not Ready",
            "The resource has not matched its spec for {{ $value | humanizeDuration }}, and no planned change makes "
            "progress. The reason and message of its Ready condition name the cause.",
        ),
        in_overview(
            "PlatformResourceStalled",
            "warning",
            state("platform_resource_condition", kind, 'type="Stalled"', 'status="True"', by="reason") + " == 1",
            "5m",
            f"{RESOURCE} is stalled: {{{{ $labels.reason }}}}",
            "The operator cannot continue without a user action. Running servers are not changed. The message of the "
            "Stalled condition names the required change.",
        ),
        Subject("platform-operators").alert(
            "PlatformResourceNotSeen",
            "warning",
            f"{state('platform_resource_generation', kind)} > {state('platform_resource_observed_generation', kind)}",
            "10m",
            f"{RESOURCE} has a spec change that the operator has not processed",
            "status.observedGeneration has been behind metadata.generation for 10 minutes. Check that the operator "
            "runs, has a leader and watches this namespace.",
        ),
        in_overview(
            "PlatformResourcePaused",
            "info",
            f"{state('platform_resource_paused', kind)} == 1",
            "1d",
            f"{RESOURCE} has been paused for a day",
            "While the resource is paused, changes of its spec are not applied, and a Memcached is not repaired. "
            "Unpause the resource if the pause is no longer needed.",
        ),
    )


def _paused_by_hand(kinds: str) -> Alert:
    """Return the rule about an annotation that pauses the reconciliation of a resource of one of these kinds."""
    return Subject("platform-overview", NAMED).alert(
        "PlatformReconciliationPaused",
        "warning",
        condition(kinds, "ReconciliationPaused", "True"),
        "4h",
        f"The reconciliation of {RESOURCE} has been paused for four hours",
        "While an annotation of the resource pauses its reconciliation, nothing is repaired, no certificate is "
        "renewed, and no snapshot is taken. Remove the annotation platform.ydzs.io/pause-reconciliation when the work "
        "by hand is done.",
    )


def _versions(kind: str) -> tuple[Alert, ...]:
    """Return the rule about versions with known weaknesses."""
    on_own_page = about_resources(kind).alert
    return (
        on_own_page(
            "PlatformResourceVulnerable",
            "warning",
            f"count by ({ID}) ({state('platform_resource_advisory', kind, by='advisory')})",
            "1h",
            f"{{{{ $value }}}} published advisories apply to {RESOURCE}",
            "The version that runs has known weaknesses in this configuration. The message of the condition Vulnerable "
            "names them and the version to set in spec.version.",
        ),
    )


def _certificates(kind: str) -> tuple[Alert, ...]:
    """Return the rules about the certificates of resources."""
    on_own_page = about_resources(kind).alert
    begins, ends = (
        state(f"platform_resource_certificate_{which}_timestamp_seconds", kind, by="secret")
        for which in ("not_before", "not_after")
    )
    renewed = state("platform_resource_condition", kind, 'type="Ready"', f'reason=~"{RENEWING}"') + " == 1"
    late, last = (ending(begins, ends, share) for share in CRITICAL_SHARES)
    return (
        on_own_page(
            "PlatformResourceCertificateEnds",
            "warning",
            f"{ending(begins, ends, '${certificateShare}')} < ${{certificateSeconds}}",
            "5m",
            f"A certificate of {RESOURCE} was not renewed",
            "The certificate of Secret {{ $labels.secret }} expires in {{ $value | humanizeDuration }}; operators and "
            "cert-manager renew earlier. After that TLS connections fail. If the operator issues it, its log and "
            "the Ready condition name the cause; else renew the Secret.",
        ),
        on_own_page(
            "PlatformResourceCertificateExpires",
            "critical",
            f"(({late} unless on ({ID}) ({renewed})) or {last}) < ${{certificateCriticalSeconds}}",
            "5m",
            f"A certificate of {RESOURCE} expires soon",
            "The certificate of Secret {{ $labels.secret }} expires in {{ $value | humanizeDuration }}. After that "
            "clients and servers reject each other. Renew it now at its source: the operator, cert-manager, or the "
            "Secret that spec.tls names.",
        ),
    )


def unless_hibernated(kind: str) -> str:
    """Return the end of an expression that excludes resources whose pods are all stopped on purpose."""
    hibernated = condition(kind, "Available", "False", 'reason="Hibernated"')
    return f"unless on ({ID}) ({hibernated})"


def condition_of_ready(kind: str, reasons: str) -> str:
    """Return 1 for each resource that is not Ready for one of these reasons."""
    matchers = ('type="Ready"', 'status!="True"', f'reason=~"{reasons}"')
    return f"({state('platform_resource_condition', kind, *matchers)} == 1)"
