"""The dashboard of the operators themselves: whether they keep what they promise."""

from __future__ import annotations

from dashboards.model import Dashboard, Graph, Mark, Query, Row, Stat, Timeline, bad_from, good_from
from dashboards.promql import OPERATOR, TOLD, beside, quantile, quiet, rate, select, total, variables
from dashboards.resources import EXPIRY, UNREADY_FOR

OBJECTIVE = 0.99
"""Reconciles that shall not fail; a wait that is planned (requeue_after) is no failure."""

BUDGET = f"{1 - OBJECTIVE:g}"
WINDOWS = ("5m", "30m", "1h", "6h")


def _failed_share(window: str, by: str = "") -> str:
    """Reconciles that failed, of all; nothing where there were none."""
    group = f" by ({by})" if by else ""
    failed, every = (
        f"sum{group} (rate({select('controller_runtime_reconcile_total', OPERATOR, result)}[{window}]))"
        for result in ('result="error"', 'result=~".+"')
    )
    return f"{failed} / ({every} > 0)"


def _rate(metric: str, *more: str, by: str = "controller") -> str:
    return rate(metric, OPERATOR, *more, by=by)


def _quantile(share: float, metric: str, by: str = "controller") -> str:
    return quantile(share, metric, OPERATOR, by=by)


LEADERS = f"max by (cluster, name) ({select('leader_election_master_status', OPERATOR)})"
UNREADY = select("platform_resource_unready_since_timestamp_seconds", TOLD)
ENDS = select("platform_certificate_expiry_timestamp_seconds", OPERATOR)
API = "rest_client_requests_total"
UNANSWERED = 'code=~"429|5.."'

NOW = Row(
    "Now",
    (
        Stat(
            title="Success",
            description="Reconciles that succeed, of all within the last hour. A planned wait is a success; what only "
            f"a person can mend is counted below. The objective is {OBJECTIVE:.0%}.",
            unit="percentunit",
            queries=(quiet(f"1 - ({_failed_share('1h')})"),),
            none="no reconciles",
            thresholds=good_from(0.9, OBJECTIVE),
            decimals=2,
            filled=True,
            width=3,
        ),
        Stat(
            title="Burn rate",
            description="How fast the error budget is spent: at 1 it lasts just as long as it should; at 14.4 a "
            "month's budget is gone within two days.",
            unit="short",
            queries=(quiet(f"({_failed_share('1h')}) / {BUDGET}"),),
            none="no reconciles",
            thresholds=bad_from(1, 14.4),
            decimals=1,
            width=3,
        ),
        Stat(
            title="Without a leader",
            description="Operators of which no replica leads: nothing is reconciled. Another takes over within 15 s.",
            unit="short",
            queries=(Query(f"count({LEADERS}) - {total(f'{LEADERS} == 1')}"),),
            thresholds=bad_from(None, 1),
            none="no operators",
            filled=True,
            width=3,
        ),
        Stat(
            title="Longest not ready",
            description="How long the resource that is not Ready for longest has been so.",
            unit="s",
            queries=(quiet(f"max(time() - {UNREADY})"),),
            thresholds=UNREADY_FOR,
            none="all ready",
            trend=False,
            width=3,
        ),
        Stat(
            title="Waiting",
            description="Resources that wait for a worker now.",
            unit="short",
            queries=(Query(f"sum({select('workqueue_depth', OPERATOR)})"),),
            thresholds=bad_from(10, 100),
            width=3,
        ),
        Stat(
            title="Workers busy",
            description="Of all there are, in the operator with most at work.",
            unit="percentunit",
            queries=(
                Query(
                    f"max(sum by (controller) ({select('controller_runtime_active_workers', OPERATOR)}) / "
                    f"(sum by (controller) ({select('controller_runtime_max_concurrent_reconciles', OPERATOR)}) > 0))"
                ),
            ),
            thresholds=bad_from(0.8, 0.95),
            width=3,
        ),
        Stat(
            title="API errors",
            description="Requests to the API server in a second that it could not answer now: 429 and 5xx.",
            unit="reqps",
            queries=(quiet(f"sum({_rate(API, UNANSWERED, by='code')})"),),
            thresholds=bad_from(0.1, 1),
            none="none",
            width=3,
        ),
        Stat(
            title="Certificate ends in",
            description="Of what operators serve webhooks and metrics with. Renewed by itself when a third is left.",
            unit="s",
            queries=(Query(f"min({ENDS}) - time()"),),
            thresholds=EXPIRY,
            trend=False,
            width=3,
        ),
    ),
)

OBJECTIVES = Row(
    "Objectives",
    (
        Graph(
            title="Burn rate of the error budget",
            description="Failed reconciles over windows, of the budget. Alerts need a long and a short window above a "
            "line, so that they come soon and go soon.",
            unit="short",
            queries=tuple(quiet(f"({_failed_share(window)}) / {BUDGET}", window) for window in WINDOWS),
            none="no reconciles",
            thresholds=bad_from(1, 14.4),
        ),
        Graph(
            title="Reconciles that succeed",
            description="Share within the last five minutes, by kind.",
            unit="percentunit",
            queries=(quiet(f"1 - ({_failed_share('5m', 'controller')})", "{{controller}}"),),
            none="no reconciles",
            most=1,
        ),
        Graph(
            title="From a change to Ready",
            none="no changes",
            description="Time from a change of a spec until the resource is as it says: half and 95 of 100 changes "
            "within the last hour.",
            unit="s",
            queries=tuple(
                quiet(
                    f"histogram_quantile({share}, sum by (controller, le) "
                    f"(rate({select('platform_time_to_ready_seconds_bucket', OPERATOR)}[1h])))",
                    f"{{{{controller}}}} {name}",
                )
                for share, name in ((0.5, "half"), (0.95, "p95"))
            ),
        ),
    ),
)

RECONCILES = Row(
    "Reconciles",
    (
        Graph(
            title="Reconciles",
            description="By what came of them, in a second: success; requeue_after waits as planned; error is tried "
            "again; terminal_error waits for a person.",
            unit="ops",
            queries=(Query(_rate("controller_runtime_reconcile_total", by="result"), "{{result}}"),),
            stacked=True,
        ),
        Graph(
            title="Time of a reconcile",
            description="Half and 99 of 100 take no longer.",
            unit="s",
            queries=tuple(
                Query(_quantile(share, "controller_runtime_reconcile_time_seconds"), f"{{{{controller}}}} {name}")
                for share, name in ((0.5, "half"), (0.99, "p99"))
            ),
        ),
        Graph(
            title="Failures",
            description="In a second: errors that are tried again, those that only a person mends, and defects of the "
            "operator itself.",
            unit="ops",
            queries=(
                Query(_rate("controller_runtime_reconcile_errors_total"), "{{controller}} error"),
                Query(_rate("controller_runtime_terminal_reconcile_errors_total"), "{{controller}} terminal"),
                Query(_rate("controller_runtime_reconcile_panics_total"), "{{controller}} defect"),
            ),
        ),
        Graph(
            title="Since the last success",
            description="Time since a reconcile of each kind last succeeded. It grows where a kind has no resource.",
            unit="s",
            queries=(
                Query(
                    "time() - max by (controller) "
                    f"({select('platform_last_reconcile_success_timestamp_seconds', OPERATOR)})",
                    "{{controller}}",
                ),
            ),
        ),
        Graph(
            title="Events written",
            description="Kubernetes events in a second, by type.",
            unit="ops",
            queries=(Query(_rate("platform_events_total", by="controller, type"), "{{controller}} {{type}}"),),
        ),
        Graph(
            title="Events dropped",
            description="Events that were not written: too many at once, or refused.",
            unit="ops",
            queries=(Query(_rate("platform_events_dropped_total", by="pod"), "{{pod}}"),),
        ),
    ),
)

QUEUE = Row(
    "Queue",
    (
        Graph(
            title="Wait for a worker p99",
            description="Time a resource waits, 99 of 100 times. Seconds here are seconds until a failure is seen.",
            unit="s",
            queries=(Query(_quantile(0.99, "workqueue_queue_duration_seconds"), "{{controller}}"),),
            thresholds=bad_from(1, 10),
        ),
        Graph(
            title="Work p99",
            description="Time that a worker takes for a resource, 99 of 100 times.",
            unit="s",
            queries=(Query(_quantile(0.99, "workqueue_work_duration_seconds"), "{{controller}}"),),
        ),
        Graph(
            title="Oldest work under way",
            description="Age of the work that is under way for longest. A line that only rises is a worker that hangs.",
            unit="s",
            queries=(
                Query(
                    f"max by (controller) ({select('workqueue_longest_running_processor_seconds', OPERATOR)})",
                    "{{controller}}",
                ),
            ),
        ),
        Graph(
            title="Waiting and at work",
            description="Resources that wait for a worker, and workers that are busy.",
            unit="short",
            queries=(
                Query(f"sum by (controller) ({select('workqueue_depth', OPERATOR)})", "{{controller}} waiting"),
                Query(
                    f"sum by (controller) ({select('controller_runtime_active_workers', OPERATOR)})",
                    "{{controller}} at work",
                ),
            ),
        ),
        Graph(
            title="Put into the queue",
            description="In a second, for changes seen and waits that ended, and those tried again after failures.",
            unit="ops",
            queries=(
                Query(_rate("workqueue_adds_total"), "{{controller}}"),
                Query(_rate("workqueue_retries_total"), "{{controller}} tried again"),
            ),
        ),
        Graph(
            title="Objects in the cache",
            description="Objects held, by kind: what memory is for.",
            unit="short",
            queries=(Query(f"max by (kind) ({select('platform_cached_objects', OPERATOR)})", "{{kind}}"),),
        ),
    ),
)

SERVING = Row(
    "Leaders, API server, webhooks",
    (
        Timeline(
            title="Who leads",
            description="The replica of each operator that leads; the others answer webhooks and stand by.",
            unit="short",
            queries=(
                Query(f"max by (name, pod) ({select('leader_election_master_status', OPERATOR)})", "{{name}} {{pod}}"),
            ),
            mappings=(("1", "leads", "green"), ("0", "stands by", "blue")),
            width=24,
        ),
        Graph(
            title="Requests to the API server",
            description="In a second, by status code. A healthy operator without changes sends next to none.",
            unit="reqps",
            queries=(Query(_rate(API, by="code"), "{{code}}"),),
            stacked=True,
        ),
        Graph(
            title="Webhook p99",
            none="no requests",
            description="Time that admission takes, 99 of 100 times; `kubectl apply` waits for it.",
            unit="s",
            queries=(quiet(_quantile(0.99, "controller_runtime_webhook_latency_seconds", "webhook"), "{{webhook}}"),),
            thresholds=bad_from(0.5, 2.5),
        ),
        Graph(
            title="Admission",
            none="no requests",
            description="Answers in a second, by HTTP status, and resources that were refused as wrong.",
            unit="reqps",
            queries=(
                quiet(_rate("controller_runtime_webhook_requests_total", by="webhook, code"), "{{webhook}} {{code}}"),
                quiet(_rate("platform_webhook_refusals_total", by="kind"), "{{kind}} refused"),
            ),
        ),
        Graph(
            title="Certificates end in",
            description="What operators serve with, and the authority that signed it.",
            unit="s",
            queries=(Query(f"min by (name, pod) ({ENDS}) - time()", "{{pod}} {{name}}"),),
        ),
        Graph(
            title="Memory",
            description="Memory that each replica takes (resident); its limit is in the chart's values.",
            unit="bytes",
            queries=(
                Query(
                    beside(select("process_resident_memory_bytes", OPERATOR), "leader_election_master_status"),
                    "{{pod}}",
                ),
            ),
        ),
        Graph(
            title="CPU",
            description="Cores that each replica uses.",
            unit="short",
            queries=(
                Query(
                    beside(
                        _rate("process_cpu_seconds_total", by="cluster, job, instance, pod"),
                        "leader_election_master_status",
                    ),
                    "{{pod}}",
                ),
            ),
        ),
    ),
)

OPERATORS = Dashboard(
    uid="platform-operators",
    title="Platform / Operators",
    description="Whether the operators keep their objectives, and what they are busy with.",
    variables=variables("leader_election_master_status"),
    marks=(
        Mark(
            "Leader changes",
            f"max by (name, pod) (changes({select('leader_election_master_status', OPERATOR)}[$__rate_interval])) > 0",
            "{{name}}: leadership of {{pod}} changed",
            "orange",
        ),
        Mark(
            "Restarts",
            f"max by (pod) (changes({select('process_start_time_seconds', OPERATOR)}[$__rate_interval]) "
            "and on (cluster, job, instance) leader_election_master_status) > 0",
            "{{pod}} was restarted",
            "red",
        ),
    ),
    rows=(NOW, OBJECTIVES, RECONCILES, QUEUE, SERVING),
)
