"""Rules about an operator itself. A reconcile that waits as planned (requeue_after) is a good one."""

from __future__ import annotations

from dashboards.rules.asking import of_operator
from dashboards.rules.model import Alert, Group, Recording, Severity, Subject

DASHBOARD = "platform-operators"
MIN_RECONCILES = 10
"""Failures within the longer window of which nobody hears: of a handful of reconciles, one that is retried is a lot."""

WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")

BURNS: tuple[tuple[Severity, float, str, str, str], ...] = (
    ("critical", 14.4, "1h", "5m", "2m"),
    ("critical", 6, "6h", "30m", "15m"),
    ("warning", 3, "1d", "2h", "1h"),
    ("warning", 1, "3d", "6h", "3h"),
)
"""Severity, how many times too fast the budget is used up, over which window and which shorter one, and for how long.

As in the Site Reliability Workbook, chapter 5. The short window lets an alert end soon after the failures do.
"""


def group(operator: str, kinds: str) -> Group:
    """The rules about one operator.

    Args:
        operator: such as etcd.
        kinds: the kinds that it serves, with | between.
    """
    ours = f'controller=~"{kinds.lower()}"'
    leads = f'leader_election_master_status{{name="{operator}-operator"}}'
    who = f"the {operator} operator"
    alert = Subject(DASHBOARD, labels={"operator": operator}).alert
    requests = f"sum by (cluster, namespace) ({of_operator('rate(rest_client_requests_total[10m])', operator)})"
    refused = of_operator('rate(rest_client_requests_total{code=~"429|5.."}[10m])', operator)
    webhooks = of_operator('increase(controller_runtime_webhook_requests_total{code=~"5.."}[10m])', operator)
    panics = of_operator("increase(controller_runtime_webhook_panics_total[10m])", operator)
    renewals = of_operator("increase(platform_certificate_renewal_errors_total[1h])", operator)
    expiry = of_operator("platform_certificate_expiry_timestamp_seconds", operator)
    reconciled = f'sum by (cluster, controller) (increase(controller_runtime_reconcile_total{{{ours},result!="error"}}'
    failures = f'sum by (cluster, controller) (increase(controller_runtime_reconcile_total{{{ours},result="error"}}'
    waits = f"sum by (cluster, controller, le) (rate(workqueue_queue_duration_seconds_bucket{{{ours}}}[10m]))"
    rules: tuple[Alert | Recording, ...] = (
        *(
            Recording(
                name=f"controller:reconcile_errors:ratio_rate{window}",
                expr=f"sum by (cluster, controller) (rate(controller_runtime_reconcile_total"
                f'{{{ours},result="error"}}[{window}])) / '
                f"sum by (cluster, controller) (rate(controller_runtime_reconcile_total{{{ours}}}[{window}]))",
            )
            for window in WINDOWS
        ),
        alert(
            "PlatformOperatorNoLeader",
            "critical",
            f"absent({leads} == 1)",
            "5m",
            f"The {operator} operator has no leader",
            "No replica that is scraped leads. Servers go on; nothing is healed, scaled or changed.",
        ),
        alert(
            "PlatformOperatorManyLeaders",
            "critical",
            f"count by (cluster, namespace, name) ({leads} == 1) > 1",
            "2m",
            f"{{{{ $value }}}} replicas of {who} lead at once",
            "Each takes itself for the leader, for two minutes.",
        ),
        *(
            alert(
                "PlatformOperatorErrorBudgetBurn",
                severity,
                f"controller:reconcile_errors:ratio_rate{long}{{{ours}}} > {factor:g} * ${{errorBudget}} and "
                f"controller:reconcile_errors:ratio_rate{short}{{{ours}}} > {factor:g} * ${{errorBudget}} and "
                f"{failures}[{long}])) > {MIN_RECONCILES}",
                wait,
                "Reconciles of {{ $labels.controller }} fail",
                f"{{{{ $value | humanizePercentage }}}} of them within {long}, at least {factor:g} times what may.",
                window=long,
            )
            for severity, factor, long, short, wait in BURNS
        ),
        alert(
            "PlatformOperatorNotReconciling",
            "critical",
            f"{reconciled}[30m])) == 0 and on (cluster, controller) "
            f'max by (cluster, controller) (platform_cached_objects{{{ours},kind=~"{kinds}"}}) > 0',
            "5m",
            "No reconcile of {{ $labels.controller }} came to an end for half an hour",
            "There are resources, and each is looked at every ten minutes at least.",
        ),
        alert(
            "PlatformOperatorPanics",
            "warning",
            f"sum by (cluster, controller) (increase(controller_runtime_reconcile_panics_total{{{ours}}}[10m])) > 0",
            "0s",
            "A reconcile of {{ $labels.controller }} met a defect of the operator",
            "The log has its traceback. The resource is tried again; others are not concerned.",
        ),
        alert(
            "PlatformOperatorWorkStuck",
            "warning",
            f"max by (cluster, controller) (workqueue_longest_running_processor_seconds{{{ours}}}) > 600",
            "5m",
            "A reconcile of {{ $labels.controller }} does not end",
            "The oldest has run for {{ $value | humanizeDuration }}; they take seconds.",
        ),
        alert(
            "PlatformOperatorQueueSlow",
            "warning",
            f"histogram_quantile(0.99, {waits}) > ${{queueSeconds}}",
            "15m",
            "Resources wait for workers of {{ $labels.controller }}",
            "One in a hundred waits for {{ $value | humanizeDuration }} or more.",
        ),
        alert(
            "PlatformOperatorApiErrors",
            "warning",
            f"sum by (cluster, namespace) ({refused}) / {requests} > ${{apiErrorRatio}}",
            "15m",
            f"The API server fails requests of {who}",
            "{{ $value | humanizePercentage }} of them got 429 or 5xx.",
        ),
        alert(
            "PlatformOperatorWebhookFails",
            "critical",
            f"sum by (cluster, namespace) ({webhooks}) > 0 or sum by (cluster, namespace) ({panics}) > 0",
            "5m",
            f"The webhook of {who} fails",
            "It answered 5xx or met a defect, so `kubectl apply` of its resources is refused.",
        ),
        alert(
            "PlatformOperatorCertificateEnds",
            "critical",
            f"min by (cluster, namespace, name) ({expiry}) - time() < ${{certificateSeconds}}",
            "5m",
            f"The certificate of {who} ends soon",
            "{{ $labels.name }} is good for {{ $value | humanizeDuration }} more; then no resource can be applied, and "
            "nothing is scraped.",
        ),
        alert(
            "PlatformOperatorCertificateNotRenewed",
            "warning",
            f"sum by (cluster, namespace) ({renewals}) > 0",
            "15m",
            f"The certificate of {who} is due, and cannot be made or kept",
            "It is tried again and again; the log says what hinders it.",
        ),
    )
    return Group(f"platform-{operator}-operator", rules)
