"""Rules about resources, based on the states that operators export: they work even if no server can be scraped."""

from __future__ import annotations

from dashboards.rules.expressions import ID, NAMED, about_resources, state
from dashboards.rules.model import Group, Subject

RESOURCE = "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }}"


def group(operator: str, kind: str) -> Group:
    """Return the rules about one kind of resources.

    Args:
        operator: name of the operator, such as etcd.
        kind: kind of the resources, such as EtcdCluster.
    """
    ready, desired = (state(f"platform_resource_{which}_replicas", kind) for which in ("ready", "desired"))
    paused = f"unless on ({ID}) ({state('platform_resource_paused', kind)} == 1)"
    on_own_page, in_overview = about_resources(kind).alert, Subject("platform-overview", NAMED).alert
    rules = (
        on_own_page(
            "PlatformResourceGone",
            "critical",
            f"{ready} == 0 and {desired} > 0",
            "5m",
            f"{RESOURCE} has no ready server",
            "None of its servers is ready, so clients are not served. Check the resource's conditions, then its pods. "
            "Do not delete PersistentVolumeClaims.",
        ),
        on_own_page(
            "PlatformResourceDegraded",
            "warning",
            f"({desired} - {ready}) > 0",
            "10m",
            f"{RESOURCE} has {{{{ $value }}}} servers that are not ready",
            "Fewer servers than desired have been ready for 10 minutes. The message of the Ready condition names the "
            "pods and the cause.",
        ),
        in_overview(
            "PlatformResourceNotReady",
            "warning",
            f"time() - {state('platform_resource_unready_since_timestamp_seconds', kind)} > ${{unreadySeconds}} "
            f"{paused}",
            "1m",
            f"{RESOURCE} is not Ready",
            "The resource has not matched its spec for {{ $value | humanizeDuration }}. The reason and message of its "
            "Ready condition name the cause.",
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
            "While the resource is paused, the operator does not repair it and does not renew its certificates. "
            "Unpause the resource if the pause is no longer needed.",
        ),
        on_own_page(
            "PlatformResourceCertificateEnds",
            "critical",
            f"{state('platform_resource_certificate_expiry_timestamp_seconds', kind)} - time() "
            "< ${certificateSeconds}",
            "5m",
            f"A certificate of {RESOURCE} expires soon",
            "The certificate expires in {{ $value | humanizeDuration }}. After that TLS connections fail. If the "
            "operator issues it, check that the resource is not paused or stalled; else renew its Secret.",
        ),
    )
    return Group(f"platform-{operator}-resources", rules)
