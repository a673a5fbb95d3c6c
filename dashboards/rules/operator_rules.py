"""Rules about an operator itself.

Databases are served without the operator, so these rules warn. Two page: two leaders, and none at all, because then no
rule about resources can fire.
"""

from __future__ import annotations

from dashboards.rules.expressions import ID, condition, ending, leaders, of_operator, state
from dashboards.rules.model import Alert, Group, Recording, Subject

DASHBOARD = "platform-operators"

BURNS: tuple[tuple[float, str, str, str], ...] = (
    (14.4, "1h", "5m", "2m"),
    (6, "6h", "30m", "15m"),
    (3, "1d", "2h", "1h"),
    (1, "3d", "6h", "3h"),
)
"""Burn rate, long window, short window and `for` of each burn rate alert.

The values follow the Site Reliability Workbook, chapter 5. The short window resolves an alert soon after the failures
end.
"""

FAILURES = "ApiUnavailable|Forbidden|InternalError|NotFound|NotObserved"
"""Reasons of Ready that report a failed reconcile. Conflict is not one: another client changes the same objects."""

FAILING = "kind:resources_failing:ratio"
"""Recorded share of the resources of a kind whose reconciles fail; each counts once, however often it is retried."""


EXPECTED = "operator:expected:info"
"""Recorded 1 for each operator whose rules are installed, so that a dashboard shows an operator without metrics."""


def failing(kinds: str) -> str:
    """Return 1 for each resource whose reconciles fail, or that the operator cannot observe."""
    reported = condition(kinds, "Ready", "False", f'reason=~"{FAILURES}"')
    unknown = condition(kinds, "Ready", "Unknown", f'reason=~"{FAILURES}"')
    return f"({reported} or {unknown} or {condition(kinds, 'Observed', 'False')})"


def group(operator: str, kinds: str) -> Group:
    """Return the rules about one operator.

    Args:
        operator: name of the operator, such as etcd.
        kinds: kinds that the operator reconciles, separated by |.
    """
    rules: tuple[Alert | Recording, ...] = (
        *_recordings(operator, kinds),
        *_leadership(operator),
        *_reconciliation(operator, kinds),
        *_api_requests(operator),
        *_watching(operator),
        *_webhooks(operator),
        *_certificates(operator),
    )
    return Group(f"platform-{operator}-operator", rules)


def _recordings(operator: str, kinds: str) -> tuple[Recording, ...]:
    """Return the recording rules, which the alerts and the dashboards use."""
    every, count = state("platform_resource_info", kinds), "count by (cluster, kind)"
    return (
        Recording(name=EXPECTED, expr=f'label_replace(vector(1), "operator", "{operator}", "", "")'),
        Recording(
            name=FAILING,
            expr=f"{count} ({every} and on ({ID}) {failing(kinds)}) / {count} ({every}) or {count} ({every}) * 0",
        ),
    )


def _leadership(operator: str) -> tuple[Alert, ...]:
    """Return the rules about replicas: whether one leads, and whether each is scraped."""
    alert, subject = _about(operator).alert, _subject(operator)
    leads = leaders(operator)
    scraped_before = f"last_over_time({leads}[1d])"
    return (
        alert(
            "PlatformOperatorNoLeader",
            "critical",
            f"count(max by (cluster, namespace, name) ({leads}) == 0) or absent({leads})",
            "15m",
            f"The {operator} operator, or one of its shards, has no leader",
            "No scraped replica holds the Lease of the operator, or of one of its shards. Databases continue to run, "
            "but nothing is repaired, scaled or updated, and no alert about its resources can fire. Check that the "
            "operator's pods run and that Prometheus scrapes them.",
        ),
        alert(
            "PlatformOperatorTargetDown",
            "warning",
            f"max by (cluster, namespace, pod) (up == 0 and on (cluster, job, instance) {scraped_before})",
            "10m",
            f"Prometheus cannot scrape replica {{{{ $labels.pod }}}} of {subject}",
            "No metrics of this replica have arrived for 10 minutes. If it leads, alerts about its resources cannot "
            "fire. Check its pod, and the permission of Prometheus to get /metrics.",
        ),
        alert(
            "PlatformOperatorManyLeaders",
            "critical",
            f"count by (cluster, namespace, name) ({leads} == 1) > 1",
            "2m",
            f"{{{{ $value }}}} replicas of {subject} lead at the same time",
            "More than one replica has reported itself as the leader for two minutes, so changes may conflict. Check "
            "for a second release of the operator, or for a node whose clock is wrong.",
        ),
    )


def _reconciliation(operator: str, kinds: str) -> tuple[Alert, ...]:
    """Return the rules about reconciles: whether they succeed, end, and start in time."""
    alert = _about(operator).alert
    labels = f'controller=~"{kinds.lower()}"'
    reconciled = (
        f'sum by (cluster, controller) (increase(controller_runtime_reconcile_total{{{labels},result!="error"}}'
    )
    waits = f"sum by (cluster, controller, le) (rate(workqueue_queue_duration_seconds_bucket{{{labels}}}[10m]))"
    return (
        *(
            alert(
                "PlatformOperatorErrorBudgetBurn",
                "warning",
                f'avg_over_time({FAILING}{{kind=~"{kinds}"}}[{long}]) > {factor:g} * ${{errorBudget}} and '
                f'avg_over_time({FAILING}{{kind=~"{kinds}"}}[{short}]) > {factor:g} * ${{errorBudget}}',
                wait,
                "Reconciles of {{ $labels.kind }} resources fail",
                f"{{{{ $value | humanizePercentage }}}} of the resources failed on average in the last {long}, which "
                f"consumes the error budget at least {factor:g} times too fast. Their conditions have the reason, and "
                "the operator's log has each failure.",
                window=long,
            )
            for factor, long, short, wait in BURNS
        ),
        alert(
            "PlatformOperatorNotReconciling",
            "warning",
            f"{reconciled}[30m])) == 0 and on (cluster, controller) "
            f'max by (cluster, controller) (platform_cached_objects{{{labels},kind=~"{kinds}"}}) > 0',
            "5m",
            "No reconcile of {{ $labels.controller }} has completed for 30 minutes",
            "Resources exist, and each of them is due at the interval in the chart value resync. Check the "
            "operator's log for errors; if there are none, the leader hangs: save its log and delete its pod.",
        ),
        alert(
            "PlatformOperatorPanics",
            "warning",
            f"sum by (cluster, controller) (increase(controller_runtime_reconcile_panics_total{{{labels}}}[10m])) > 0",
            "0s",
            "A reconcile of {{ $labels.controller }} panicked",
            "The operator has a bug. It retries the resource; other resources are not affected. Report the traceback "
            "from the operator's log.",
        ),
        alert(
            "PlatformOperatorWorkStuck",
            "warning",
            f"max by (cluster, controller) (workqueue_longest_running_processor_seconds{{{labels}}}) > 600",
            "5m",
            "A reconcile of {{ $labels.controller }} is stuck",
            "The oldest reconcile has run for {{ $value | humanizeDuration }}; normally it takes seconds. The resource "
            "is not repaired or updated until it ends. Take a profile and delete the leader's pod.",
        ),
        alert(
            "PlatformOperatorQueueSlow",
            "warning",
            f"histogram_quantile(0.99, {waits}) > ${{queueSeconds}}",
            "15m",
            "The work queue of {{ $labels.controller }} is slow",
            "1 % of resources wait {{ $value | humanizeDuration }} or longer for a worker, so failures are repaired "
            "later. Increase the chart value workers, or find out why reconciles are slow.",
        ),
    )


def _api_requests(operator: str) -> tuple[Alert, ...]:
    """Return the rule about the operator's requests to the API server."""
    alert, subject = _about(operator).alert, _subject(operator)
    requests = f"sum by (cluster, namespace) ({of_operator('rate(rest_client_requests_total[10m])', operator)})"
    refused = of_operator('rate(rest_client_requests_total{code=~"429|5.."}[10m])', operator)
    return (
        alert(
            "PlatformOperatorApiErrors",
            "warning",
            f"sum by (cluster, namespace) ({refused}) / {requests} > ${{apiErrorRatio}}",
            "15m",
            f"The API server rejects requests of {subject}",
            "{{ $value | humanizePercentage }} of requests returned 429 or 5xx in the last 10 minutes. The operator "
            "retries them. Check the health of the API server and its priority and fairness settings.",
        ),
    )


def _watching(operator: str) -> tuple[Alert, ...]:
    """Return the rules about watches: whether they are established, and whether they deliver."""
    alert, subject = _about(operator).alert, _subject(operator)
    unseen = of_operator("platform_watch_synced", operator)
    last_event = of_operator("platform_watch_last_event_timestamp_seconds", operator)
    where = '{{ $labels.kind }} in {{ or $labels.watched_namespace "all namespaces" }}'
    return (
        alert(
            "PlatformOperatorNotWatching",
            "warning",
            f"max by (cluster, namespace, kind, watched_namespace) ({unseen}) == 0",
            "5m",
            f"{subject[0].upper()}{subject[1:]} does not observe {where}",
            "No replica can list and watch these objects, so resources that need them are not repaired, scaled or "
            "updated; their status reports NotObserved. Others are served. The operator's log has the error, most "
            "often a missing permission or CRD.",
        ),
        alert(
            "PlatformOperatorWatchStalled",
            "warning",
            f"time() - max by (cluster, namespace, kind, watched_namespace) ({last_event}) > ${{watchStalledSeconds}}",
            "5m",
            f"The watch of {where} by {subject} delivers nothing",
            "The last event or bookmark arrived {{ $value | humanizeDuration }} ago; API servers send a bookmark about "
            "every minute. Changes may go unnoticed until the next resync. Check the API server and proxies before it.",
        ),
    )


def _webhooks(operator: str) -> tuple[Alert, ...]:
    """Return the rule about the admission webhook."""
    alert, subject = _about(operator).alert, _subject(operator)
    webhooks = of_operator('increase(controller_runtime_webhook_requests_total{code=~"5.."}[10m])', operator)
    panics = of_operator("increase(controller_runtime_webhook_panics_total[10m])", operator)
    return (
        alert(
            "PlatformOperatorWebhookFails",
            "warning",
            f"sum by (cluster, namespace) ({webhooks}) > 0 or sum by (cluster, namespace) ({panics}) > 0",
            "5m",
            f"The admission webhook of {subject} fails",
            "The webhook returned 5xx or panicked, so the API server rejects changes of its resources. The operator's "
            "log has the traceback. To admit changes until this is fixed, set webhook.failurePolicy=Ignore.",
        ),
    )


def _certificates(operator: str) -> tuple[Alert, ...]:
    """Return the rules about the operator's serving certificate."""
    alert, subject = _about(operator).alert, _subject(operator)
    renewals = of_operator("increase(platform_certificate_renewal_errors_total[1h])", operator)
    begins, ends = (f"platform_certificate_{which}_timestamp_seconds" for which in ("not_before", "expiry"))
    late = of_operator(ending(begins, ends, "${certificateShare}"), operator)
    return (
        alert(
            "PlatformOperatorCertificateEnds",
            "warning",
            f"min by (cluster, namespace, name) ({late}) < ${{certificateSeconds}}",
            "5m",
            f"A certificate of {subject} was not renewed",
            "The certificate {{ $labels.name }} expires in {{ $value | humanizeDuration }}; operators and cert-manager "
            "renew earlier. After that the API server rejects changes of its resources, and Prometheus cannot scrape "
            "the operator. If the operator issues it, its log names the reason; else renew the Secret.",
        ),
        alert(
            "PlatformOperatorCertificateNotRenewed",
            "warning",
            f"sum by (cluster, namespace) ({renewals}) > 0",
            "15m",
            f"The certificate of {subject} cannot be renewed",
            "The certificate is due for renewal, and issuing or storing it fails. The operator retries. Its log names "
            "the cause, most often a missing permission for the Secret.",
        ),
    )


def _about(operator: str) -> Subject:
    """Subject of all alerts on an operator."""
    return Subject(DASHBOARD, labels={"operator": operator})


def _subject(operator: str) -> str:
    return f"the {operator} operator"
