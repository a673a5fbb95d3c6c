"""Rules about resources, from what their operator tells of them: they hold when no server is left to be scraped."""

from __future__ import annotations

from dashboards.rules.asking import ID, NAMED, about_resources, told
from dashboards.rules.model import Group, Subject

WHO = "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }}"


def group(operator: str, kind: str) -> Group:
    """The rules about one kind of servers.

    Args:
        operator: such as etcd.
        kind: such as EtcdCluster.
    """
    ready, desired = (told(f"platform_resource_{which}_replicas", kind) for which in ("ready", "desired"))
    paused = f"unless on ({ID}) ({told('platform_resource_paused', kind)} == 1)"
    on_its_own, in_overview = about_resources(kind).alert, Subject("platform-overview", NAMED).alert
    rules = (
        on_its_own(
            "PlatformResourceGone",
            "critical",
            f"{ready} == 0 and {desired} > 0",
            "5m",
            f"{WHO} has no server that works",
            "None of its servers is ready, so nobody is served.",
        ),
        on_its_own(
            "PlatformResourceDegraded",
            "warning",
            f"({desired} - {ready}) > 0",
            "10m",
            f"{WHO} lacks {{{{ $value }}}} of its servers",
            "Fewer servers are ready than the spec asks for, for ten minutes.",
        ),
        in_overview(
            "PlatformResourceNotReady",
            "warning",
            f"time() - {told('platform_resource_unready_since_timestamp_seconds', kind)} > ${{unreadySeconds}} "
            f"{paused}",
            "1m",
            f"{WHO} is not Ready",
            "Its spec has not been reality for {{ $value | humanizeDuration }}. "
            "Its condition Ready says what hinders it.",
        ),
        in_overview(
            "PlatformResourceStalled",
            "warning",
            told("platform_resource_condition", kind, 'type="Stalled"', 'status="True"', by="reason") + " == 1",
            "5m",
            f"{WHO} is stalled: {{{{ $labels.reason }}}}",
            "Only a person can mend it; what ran before runs on. The condition's message says what to change.",
        ),
        Subject("platform-operators").alert(
            "PlatformResourceNotSeen",
            "warning",
            f"{told('platform_resource_generation', kind)} > {told('platform_resource_observed_generation', kind)}",
            "10m",
            f"{WHO} was changed, and the operator has not taken it up",
            "Its status tells of an earlier spec, for ten minutes.",
        ),
        in_overview(
            "PlatformResourcePaused",
            "info",
            f"{told('platform_resource_paused', kind)} == 1",
            "1d",
            f"{WHO} has been paused for a day",
            "While it is, nothing is healed, and no certificate is renewed.",
        ),
        on_its_own(
            "PlatformResourceCertificateEnds",
            "critical",
            f"{told('platform_resource_certificate_expiry_timestamp_seconds', kind)} - time() "
            "< ${certificateSeconds}",
            "5m",
            f"A certificate of {WHO} ends soon",
            "It is good for {{ $value | humanizeDuration }} more; then clients and servers refuse each other.",
        ),
    )
    return Group(f"platform-{operator}-resources", rules)
