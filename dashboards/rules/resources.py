"""Rules about resources, from what their operator tells of them: they hold when no server is left to be scraped."""

from __future__ import annotations

from dashboards.rules.asking import ID, NAMED, told
from dashboards.rules.model import Alert, Group

WHO = "{{ $labels.kind }} {{ $labels.namespace }}/{{ $labels.name }}"
DAY = 86400


def group(operator: str, kind: str) -> Group:
    """The rules about one kind of servers.

    Args:
        operator: such as etcd.
        kind: such as EtcdCluster.
    """
    ready, desired = (told(f"platform_resource_{which}_replicas", kind) for which in ("ready", "desired"))
    paused = f"unless on ({ID}) ({told('platform_resource_paused', kind)} == 1)"
    rules = (
        Alert(
            name="PlatformResourceGone",
            severity="critical",
            expr=f"{ready} == 0 and {desired} > 0",
            wait="5m",
            summary=f"{WHO} has no server that works",
            description="None of its servers is ready, so nobody is served.",
            dashboard=f"platform-{operator}",
            of=NAMED,
        ),
        Alert(
            name="PlatformResourceDegraded",
            severity="warning",
            expr=f"({desired} - {ready}) > 0",
            wait="10m",
            summary=f"{WHO} lacks {{{{ $value }}}} of its servers",
            description="Fewer servers are ready than the spec asks for, for ten minutes.",
            dashboard=f"platform-{operator}",
            of=NAMED,
        ),
        Alert(
            name="PlatformResourceNotReady",
            severity="warning",
            expr=f"time() - {told('platform_resource_unready_since_timestamp_seconds', kind)} > ${{unreadySeconds}} "
            f"{paused}",
            wait="1m",
            summary=f"{WHO} is not Ready",
            description="Its spec has not been reality for {{ $value | humanizeDuration }}. "
            "Its condition Ready says what hinders it.",
            dashboard="platform-overview",
            of=NAMED,
        ),
        Alert(
            name="PlatformResourceStalled",
            severity="warning",
            expr=told("platform_resource_condition", kind, 'type="Stalled"', 'status="True"', by="reason") + " == 1",
            wait="5m",
            summary=f"{WHO} is stalled: {{{{ $labels.reason }}}}",
            description="Only a person can mend it; what ran before runs on. The condition's message says what to "
            "change.",
            dashboard="platform-overview",
            of=NAMED,
        ),
        Alert(
            name="PlatformResourceNotSeen",
            severity="warning",
            expr=f"{told('platform_resource_generation', kind)} > "
            f"{told('platform_resource_observed_generation', kind)}",
            wait="10m",
            summary=f"{WHO} was changed, and the operator has not taken it up",
            description="Its status tells of an earlier spec, for ten minutes.",
            dashboard="platform-operators",
        ),
        Alert(
            name="PlatformResourcePaused",
            severity="info",
            expr=f"{told('platform_resource_paused', kind)} == 1",
            wait="1d",
            summary=f"{WHO} has been paused for a day",
            description="While it is, nothing is healed, and no certificate is renewed.",
            dashboard="platform-overview",
            of=NAMED,
        ),
        Alert(
            name="PlatformResourceCertificateEnds",
            severity="critical",
            expr=f"{told('platform_resource_certificate_expiry_timestamp_seconds', kind)} - time() "
            "< ${certificateSeconds}",
            wait="5m",
            summary=f"A certificate of {WHO} ends soon",
            description="It is good for {{ $value | humanizeDuration }} more; then clients and servers refuse each "
            "other.",
            dashboard=f"platform-{operator}",
            of=NAMED,
        ),
    )
    return Group(f"platform-{operator}-resources", rules)
