"""The dashboard of the operators: service level objectives, reconciles, queues, webhooks."""

from __future__ import annotations

from dashboards.model import Dashboard, Graph, Mark, Query, Row, Stat, Timeline, bad_from, good_from, warns_from
from dashboards.promql import (
    OPERATOR,
    OPERATOR_TARGET,
    leading,
    of_targets_with,
    or_none,
    quantile,
    quiet,
    rate,
    select,
    to_renew,
    variables,
)
from dashboards.resources import TO_RENEW, UNREADY_FOR

OBJECTIVE = 0.99
"""Target share of resources whose reconciles do not fail; see dashboards/rules/operator_rules.py."""

BUDGET = f"{1 - OBJECTIVE:g}"
WINDOWS = ("5m", "30m", "1h", "6h")


def _failed_share(window: str, by: str = "") -> str:
    """Return the share of reconciles that failed; no series if there were no reconciles."""
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


FAILING = 'kind:resources_failing:ratio{cluster=~"$cluster"}'
RESOURCES = f"max by (kind, namespace, name) ({select('platform_resource_info', OPERATOR_TARGET)})"
LEADER = select("leader_election_master_status", OPERATOR)
UNREADY = select("platform_resource_unready_since_timestamp_seconds", OPERATOR_TARGET)
BEGINS = select("platform_certificate_not_before_timestamp_seconds", OPERATOR)
ENDS = select("platform_certificate_expiry_timestamp_seconds", OPERATOR)
API = "rest_client_requests_total"
UNANSWERED = 'code=~"429|5.."'
SYNCED = select("platform_watch_synced", OPERATOR)
LAST_EVENT = select("platform_watch_last_event_timestamp_seconds", OPERATOR)

NOW = Row(
    "Now",
    (
        Stat(
            title="Resources failing",
            description="Share of resources whose reconciles fail, for the kind with the highest share. Each resource "
            f"counts once, and conflicts do not count. The objective is at most {1 - OBJECTIVE:.0%}. No data: "
            "Prometheus has not loaded the rules.",
            unit="percentunit",
            queries=(Query(f"max({FAILING})"),),
            thresholds=warns_from(0.1, notice=float(BUDGET)),
            decimals=2,
            filled=True,
            width=3,
        ),
        Stat(
            title="Burn rate",
            description="Rate at which the error budget is consumed, over the last hour. At 1 the budget lasts exactly "
            "30 days, at 14.4 about two days.",
            unit="short",
            queries=(Query(f"max(avg_over_time({FAILING}[1h])) / {BUDGET}"),),
            thresholds=warns_from(14.4, notice=1),
            decimals=1,
            width=3,
        ),
        Stat(
            title="Leader",
            description="Whether each operator has a leading replica for all of its shards. An operator without "
            "metrics has none, if its rules are installed. A standby replica normally takes over within 15 s.",
            unit="short",
            queries=(Query(leading(OPERATOR), "{{operator}}"),),
            thresholds=good_from(None, 1),
            mappings=(("1", "leads", "green"), ("0", "no leader", "red")),
            named=True,
            width=3,
        ),
        Stat(
            title="Longest not ready",
            description="Longest time that a resource has currently been not Ready.",
            unit="s",
            queries=(or_none(f"max(time() - {UNREADY})", RESOURCES),),
            thresholds=UNREADY_FOR,
            none="all ready",
            calm="green",
            width=3,
        ),
        Stat(
            title="Queue depth",
            description="Number of resources that are queued for a worker.",
            unit="short",
            queries=(Query(f"sum({select('workqueue_depth', OPERATOR)})"),),
            thresholds=warns_from(100, notice=10),
            width=3,
        ),
        Stat(
            title="Workers busy",
            description="Share of workers that are busy, for the controller with the highest share.",
            unit="percentunit",
            queries=(
                Query(
                    f"max(sum by (controller) ({select('controller_runtime_active_workers', OPERATOR)}) / "
                    f"(sum by (controller) ({select('controller_runtime_max_concurrent_reconciles', OPERATOR)}) > 0))"
                ),
            ),
            thresholds=warns_from(0.95, notice=0.8),
            width=3,
        ),
        Stat(
            title="API errors",
            description="Requests per second that the API server answered with 429 or 5xx.",
            unit="reqps",
            queries=(or_none(f"sum({_rate(API, UNANSWERED, by='code')})", select(API, OPERATOR)),),
            thresholds=warns_from(1, notice=0.1),
            none="none",
            calm="green",
            width=3,
        ),
        Stat(
            title="Certificates to renew",
            description="Serving certificates of the operators' webhooks and metrics, and their authorities, that "
            f"should have been renewed. {TO_RENEW}",
            unit="short",
            queries=(Query(f"count(min by (cluster, job, name) ({to_renew(BEGINS, ENDS)})) or count({ENDS}) * 0"),),
            thresholds=warns_from(1),
            width=3,
        ),
    ),
)

OBJECTIVES = Row(
    "Objectives",
    (
        Graph(
            title="Error budget burn rate",
            description="Share of resources that fail divided by the error budget, over several windows, for the "
            "kind with the highest share. An alert fires while a long and a short window both exceed its threshold.",
            unit="short",
            queries=tuple(Query(f"max(avg_over_time({FAILING}[{window}])) / {BUDGET}", window) for window in WINDOWS),
            thresholds=bad_from(1, 14.4),
        ),
        Graph(
            title="Reconcile success rate",
            description="Share of reconciles that succeeded in the last 5 minutes, by kind.",
            unit="percentunit",
            queries=(quiet(f"1 - ({_failed_share('5m', 'controller')})", "{{controller}}"),),
            none="no reconciles",
            most=1,
        ),
        Graph(
            title="Time to ready",
            none="no changes",
            description="Time from a spec change until the resource is Ready: median and 95th percentile of the last "
            "hour.",
            unit="s",
            queries=tuple(
                quiet(
                    f"histogram_quantile({share}, sum by (controller, le) "
                    f"(rate({select('platform_time_to_ready_seconds_bucket', OPERATOR)}[1h])))",
                    f"{{{{controller}}}} {name}",
                )
                for share, name in ((0.5, "p50"), (0.95, "p95"))
            ),
        ),
    ),
)

RECONCILES = Row(
    "Reconciles",
    (
        Graph(
            title="Reconciles",
            description="Reconciles per second, by result: success; requeue_after is a planned requeue; error is "
            "retried with backoff; terminal_error is retried only after a change.",
            unit="ops",
            queries=(Query(_rate("controller_runtime_reconcile_total", by="result"), "{{result}}"),),
            stacked=True,
        ),
        Graph(
            title="Reconcile duration",
            description="Median and 99th percentile of the duration of a reconcile.",
            unit="s",
            queries=tuple(
                Query(_quantile(share, "controller_runtime_reconcile_time_seconds"), f"{{{{controller}}}} {name}")
                for share, name in ((0.5, "p50"), (0.99, "p99"))
            ),
        ),
        Graph(
            title="Failures",
            description="Failed reconciles per second: errors that are retried, terminal errors that need a user "
            "action, and panics (bugs of the operator).",
            unit="ops",
            queries=(
                Query(_rate("controller_runtime_reconcile_errors_total"), "{{controller}} error"),
                Query(_rate("controller_runtime_terminal_reconcile_errors_total"), "{{controller}} terminal"),
                Query(_rate("controller_runtime_reconcile_panics_total"), "{{controller}} panic"),
            ),
        ),
        Graph(
            title="Time since last success",
            description="Time since the last successful reconcile, by kind. It grows if a kind has no resources.",
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
            title="Events recorded",
            description="Kubernetes events recorded per second, by type.",
            unit="ops",
            queries=(Query(_rate("platform_events_total", by="controller, type"), "{{controller}} {{type}}"),),
        ),
        Graph(
            title="Events dropped",
            description="Kubernetes events per second that were not recorded: rate limited, or rejected by the API "
            "server.",
            unit="ops",
            queries=(Query(_rate("platform_events_dropped_total", by="pod"), "{{pod}}"),),
        ),
    ),
)

QUEUE = Row(
    "Queue",
    (
        Graph(
            title="Queue duration p99",
            description="99th percentile of the time that a resource is queued for a worker. It delays the reaction "
            "to failures.",
            unit="s",
            queries=(Query(_quantile(0.99, "workqueue_queue_duration_seconds"), "{{controller}}"),),
            thresholds=bad_from(1, 10),
        ),
        Graph(
            title="Work duration p99",
            description="99th percentile of the time that a worker processes a resource.",
            unit="s",
            queries=(Query(_quantile(0.99, "workqueue_work_duration_seconds"), "{{controller}}"),),
        ),
        Graph(
            title="Longest running reconcile",
            description="Age of the oldest reconcile in progress. A line that only rises indicates a stuck worker.",
            unit="s",
            queries=(
                Query(
                    f"max by (controller) ({select('workqueue_longest_running_processor_seconds', OPERATOR)})",
                    "{{controller}}",
                ),
            ),
        ),
        Graph(
            title="Queue depth and busy workers",
            description="Number of queued resources, and of busy workers.",
            unit="short",
            queries=(
                Query(f"sum by (controller) ({select('workqueue_depth', OPERATOR)})", "{{controller}} queued"),
                Query(
                    f"sum by (controller) ({select('controller_runtime_active_workers', OPERATOR)})",
                    "{{controller}} busy",
                ),
            ),
        ),
        Graph(
            title="Queue additions",
            description="Resources added to the queue per second, and those of them that are retries after a failure.",
            unit="ops",
            queries=(
                Query(_rate("workqueue_adds_total"), "{{controller}}"),
                Query(_rate("workqueue_retries_total"), "{{controller}} retries"),
            ),
        ),
        Graph(
            title="Cached objects",
            description="Objects in the operators' caches, by kind. They account for most of the operators' memory.",
            unit="short",
            queries=(Query(f"max by (kind) ({select('platform_cached_objects', OPERATOR)})", "{{kind}}"),),
        ),
    ),
)

WATCHES = Row(
    "Watches",
    (
        Timeline(
            title="Not observed",
            description="Collections that a replica cannot list or watch. The resources that depend on them get the "
            "condition NotObserved; the others are reconciled.",
            unit="short",
            queries=(quiet(f"min by (kind, watched_namespace, pod) ({SYNCED}) == 0", "{{pod}} {{kind}}"),),
            mappings=(("0", "not observed", "orange"),),
            none="all collections are observed",
            width=24,
        ),
        Graph(
            title="Time since the last event",
            description="Time since the last list, event or bookmark of each watched collection. The API server sends "
            "a bookmark about once a minute. A line that only rises indicates a watch that is dead.",
            unit="s",
            queries=(Query(f"time() - min by (kind, watched_namespace) ({LAST_EVENT})", "{{kind}}"),),
        ),
        Graph(
            title="Full lists",
            description="Full lists per second, by kind: at the start, at each resync, and after the version at which "
            "a watch continues has expired.",
            unit="ops",
            queries=(Query(_rate("platform_watch_lists_total", by="kind"), "{{kind}}"),),
        ),
        Graph(
            title="API server latency p99",
            description="99th percentile of the duration of a request to the API server, by verb, without watches.",
            unit="s",
            queries=(Query(_quantile(0.99, "rest_client_request_duration_seconds", "verb"), "{{verb}}"),),
            thresholds=bad_from(1, 5),
        ),
        Graph(
            title="Refused requests",
            description="Connections and requests per second that an operator's servers refused, because the client, "
            "or all clients together, had too many.",
            unit="ops",
            queries=(quiet(_rate("platform_http_refused_total", by="pod, what"), "{{pod}} {{what}}"),),
            none="none",
        ),
    ),
)

SERVING = Row(
    "Leaders, API server, webhooks",
    (
        Timeline(
            title="Leader",
            description="Leading replica of each operator. The standby replicas serve webhooks.",
            unit="short",
            queries=(
                Query(f"max by (name, pod) ({select('leader_election_master_status', OPERATOR)})", "{{name}} {{pod}}"),
            ),
            mappings=(("1", "leader", "green"), ("0", "standby", "blue")),
            width=24,
        ),
        Graph(
            title="API server requests",
            description="Requests to the API server per second, by status code. A healthy operator sends few requests "
            "while nothing changes.",
            unit="reqps",
            queries=(Query(_rate(API, by="code"), "{{code}}"),),
            stacked=True,
        ),
        Graph(
            title="Webhook latency p99",
            none="no requests",
            description="99th percentile of the latency of admission requests, which delay `kubectl apply`.",
            unit="s",
            queries=(quiet(_quantile(0.99, "controller_runtime_webhook_latency_seconds", "webhook"), "{{webhook}}"),),
            thresholds=bad_from(0.5, 2.5),
        ),
        Graph(
            title="Admission requests",
            none="no requests",
            description="Admission requests per second, by HTTP status code, and resources denied as invalid.",
            unit="reqps",
            queries=(
                quiet(_rate("controller_runtime_webhook_requests_total", by="webhook, code"), "{{webhook}} {{code}}"),
                quiet(_rate("platform_webhook_refusals_total", by="kind"), "{{kind}} denied"),
            ),
        ),
        Graph(
            title="Certificate expiry",
            description="Remaining validity of the operators' serving certificates and of the certificate authority "
            "(CA) that issued them.",
            unit="s",
            queries=(Query(f"min by (name, pod) ({ENDS}) - time()", "{{pod}} {{name}}"),),
        ),
        Graph(
            title="Memory",
            description="Resident memory of each replica. The chart value resources.limits.memory sets the limit.",
            unit="bytes",
            queries=(
                Query(
                    of_targets_with("leader_election_master_status", select("process_resident_memory_bytes", OPERATOR)),
                    "{{pod}}",
                ),
            ),
        ),
        Graph(
            title="CPU",
            description="CPU usage of each replica, in cores.",
            unit="short",
            queries=(
                Query(
                    of_targets_with(
                        "leader_election_master_status",
                        _rate("process_cpu_seconds_total", by="cluster, job, instance, pod"),
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
    description="Service level objectives, reconciles, queues, API requests and webhooks of the operators.",
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
            "{{pod}} restarted",
            "red",
        ),
    ),
    rows=(NOW, OBJECTIVES, RECONCILES, QUEUE, WATCHES, SERVING),
)
