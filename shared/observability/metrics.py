"""Prometheus metrics under controller-runtime's names, so that dashboards made for Go operators work here too."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # Go operators have none of these, and nobody asks for them

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

RECONCILES = Counter(
    "controller_runtime_reconcile",
    "Reconciles by result: success, requeue_after (waiting, as planned), error (retried), terminal_error (stalled).",
    ["controller", "result"],
)
RECONCILE_ERRORS = Counter(
    "controller_runtime_reconcile_errors", "Reconciles that failed and are retried.", ["controller"]
)
TERMINAL_ERRORS = Counter(
    "controller_runtime_terminal_reconcile_errors",
    "Reconciles that failed in a way only a change by a person mends.",
    ["controller"],
)
PANICS = Counter(
    "controller_runtime_reconcile_panics", "Reconciles ended by a defect of the operator itself.", ["controller"]
)
RECONCILE_TIME = Histogram(
    "controller_runtime_reconcile_time_seconds", "Time a reconcile took.", ["controller"], buckets=SECONDS
)
ACTIVE_WORKERS = Gauge("controller_runtime_active_workers", "Workers busy with a reconcile.", ["controller"])
MAX_WORKERS = Gauge("controller_runtime_max_concurrent_reconciles", "Workers at most.", ["controller"])

QUEUE_DEPTH = Gauge("workqueue_depth", "Resources waiting for a worker.", ["name", "controller"])
QUEUE_ADDS = Counter("workqueue_adds", "Resources put into the queue.", ["name", "controller"])
QUEUE_WAIT = Histogram(
    "workqueue_queue_duration_seconds", "Time a resource waited for a worker.", ["name", "controller"], buckets=SECONDS
)
QUEUE_WORK = Histogram(
    "workqueue_work_duration_seconds", "Time a worker took for a resource.", ["name", "controller"], buckets=SECONDS
)
QUEUE_RETRIES = Counter("workqueue_retries", "Retries after a failure.", ["name", "controller"])
QUEUE_UNFINISHED = Gauge(
    "workqueue_unfinished_work_seconds", "Sum of the ages of the work under way.", ["name", "controller"]
)
QUEUE_LONGEST = Gauge(
    "workqueue_longest_running_processor_seconds", "Age of the oldest work under way.", ["name", "controller"]
)

REST_REQUESTS = Counter(
    "rest_client_requests", "Requests to the API server by status code.", ["code", "method", "host"]
)
LEADER = Gauge("leader_election_master_status", "1 for the replica that leads, 0 for one that stands by.", ["name"])
TIME_TO_READY = Histogram(
    "platform_time_to_ready_seconds",
    "Time from a change of a spec until the resource is as it says.",
    ["controller"],
    buckets=(1, 2.5, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600),
)
LAST_SUCCESS = Gauge(
    "platform_last_reconcile_success_timestamp_seconds",
    "When a reconcile last succeeded, in Unix time.",
    ["controller"],
)
WEBHOOK_REQUESTS = Counter(
    "controller_runtime_webhook_requests", "Requests to a webhook by HTTP status.", ["webhook", "code"]
)
WEBHOOK_LATENCY = Histogram(
    "controller_runtime_webhook_latency_seconds", "Time a webhook took to answer.", ["webhook"], buckets=SECONDS
)
WEBHOOK_IN_FLIGHT = Gauge(
    "controller_runtime_webhook_requests_in_flight", "Requests that a webhook has not answered yet.", ["webhook"]
)
WEBHOOK_PANICS = Counter(
    "controller_runtime_webhook_panics", "Requests to webhooks that met a defect of the operator itself."
)
WEBHOOK_REFUSALS = Counter("platform_webhook_refusals", "Resources that were refused at admission.", ["kind"])
CERTIFICATE_EXPIRY = Gauge(
    "platform_certificate_expiry_timestamp_seconds",
    "When a certificate ends, in Unix time: `serving`, or the `authority` that signed it.",
    ["name"],
)
CERTIFICATE_READS = Counter("certwatcher_read_certificate", "Certificates taken up to serve with.")
CERTIFICATE_READ_ERRORS = Counter(
    "certwatcher_read_certificate_errors", "Times that certificates, or who trusts them, were not as they should be."
)
CERTIFICATE_RENEWALS = Counter("platform_certificate_renewals", "Certificates made by this replica.")
CERTIFICATE_RENEWAL_ERRORS = Counter(
    "platform_certificate_renewal_errors", "Certificates that were due and could not be made or kept."
)
CACHED_OBJECTS = Gauge("platform_cached_objects", "Objects held in a controller's cache.", ["controller", "kind"])
EVENTS = Counter(
    "platform_events",
    "Kubernetes events written, repeats too; the controller is the kind that they tell of, in lower case.",
    ["controller", "type", "reason"],
)
EVENTS_DROPPED = Counter("platform_events_dropped", "Kubernetes events not written: too many, or refused.")


def show_from_the_start(controller: str) -> None:
    """Show a controller's results as 0 before there are any, as controller-runtime does: a rate needs a first value."""
    for result in ("success", "requeue_after", "error", "terminal_error"):
        RECONCILES.labels(controller=controller, result=result)
    for metric in (RECONCILE_ERRORS, TERMINAL_ERRORS, PANICS, RECONCILE_TIME, TIME_TO_READY, ACTIVE_WORKERS):
        metric.labels(controller=controller)
