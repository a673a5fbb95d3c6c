"""Prometheus metrics with the names of controller-runtime, so that dashboards for Go operators work."""

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
    "Reconciles that failed and need a change by a user.",
    ["controller"],
)
PANICS = Counter(
    "controller_runtime_reconcile_panics", "Reconciles that failed because of a bug in the operator.", ["controller"]
)
TASK_RESTARTS = Counter(
    "platform_task_restarts",
    "Background tasks that ended because of a bug in the operator, and were restarted.",
    ["task"],
)
RECONCILE_TIME = Histogram(
    "controller_runtime_reconcile_time_seconds", "Duration of a reconcile.", ["controller"], buckets=SECONDS
)
ACTIVE_WORKERS = Gauge("controller_runtime_active_workers", "Workers busy with a reconcile.", ["controller"])
MAX_WORKERS = Gauge("controller_runtime_max_concurrent_reconciles", "Maximum number of workers.", ["controller"])

QUEUE_DEPTH = Gauge("workqueue_depth", "Resources waiting for a worker.", ["name", "controller"])
QUEUE_ADDS = Counter("workqueue_adds", "Resources added to the queue.", ["name", "controller"])
QUEUE_WAIT = Histogram(
    "workqueue_queue_duration_seconds", "Time a resource waited for a worker.", ["name", "controller"], buckets=SECONDS
)
QUEUE_WORK = Histogram(
    "workqueue_work_duration_seconds", "Time a worker spent on a resource.", ["name", "controller"], buckets=SECONDS
)
QUEUE_RETRIES = Counter("workqueue_retries", "Retries after a failure.", ["name", "controller"])
QUEUE_UNFINISHED = Gauge(
    "workqueue_unfinished_work_seconds", "Sum of the ages of running reconciles.", ["name", "controller"]
)
QUEUE_LONGEST = Gauge(
    "workqueue_longest_running_processor_seconds", "Age of the oldest running reconcile.", ["name", "controller"]
)

REST_REQUESTS = Counter(
    "rest_client_requests", "Requests to the API server by status code.", ["code", "method", "host"]
)
REST_LATENCY = Histogram(
    "rest_client_request_duration_seconds",
    "Duration of a request to the API server, without watches.",
    ["verb", "host"],
    buckets=SECONDS,
)
WATCH_LISTS = Counter(
    "platform_watch_lists", "Full lists of a watched collection, the first one included.", ["kind", "watched_namespace"]
)
OVERSIZED_OBJECTS = Counter(
    "platform_oversized_objects",
    "Times that an object was read and left out, because it is too large to be observed; the log names it.",
    ["kind"],
)
WATCH_ERRORS = Counter(
    "platform_watch_errors",
    "Lists and watches that failed, by HTTP status; without a readable response, it is `<error>`.",
    ["kind", "watched_namespace", "code"],
)
WATCH_SYNCED = Gauge(
    "platform_watch_synced",
    "1 while a collection is listed and watched, 0 while the operator does not observe it.",
    ["kind", "watched_namespace"],
)
WATCH_LAST_EVENT = Gauge(
    "platform_watch_last_event_timestamp_seconds",
    "Unix time of the last list, event or bookmark of a watched collection.",
    ["kind", "watched_namespace"],
)
LEADER = Gauge("leader_election_master_status", "1 for the leader, 0 for a standby replica.", ["name"])
TIME_TO_READY = Histogram(
    "platform_time_to_ready_seconds",
    "Time from a change of a spec until the resource is ready.",
    ["controller"],
    buckets=(1, 2.5, 5, 10, 20, 30, 60, 90, 120, 180, 300, 600, 1200, 1800, 3600),
)
LAST_SUCCESS = Gauge(
    "platform_last_reconcile_success_timestamp_seconds",
    "Unix time of the last successful reconcile.",
    ["controller"],
)
WEBHOOK_REQUESTS = Counter(
    "controller_runtime_webhook_requests", "Requests to a webhook by HTTP status.", ["webhook", "code"]
)
WEBHOOK_LATENCY = Histogram(
    "controller_runtime_webhook_latency_seconds", "Duration of a webhook request.", ["webhook"], buckets=SECONDS
)
WEBHOOK_IN_FLIGHT = Gauge("controller_runtime_webhook_requests_in_flight", "Webhook requests in progress.", ["webhook"])
WEBHOOK_PANICS = Counter(
    "controller_runtime_webhook_panics", "Webhook requests that failed because of a bug in the operator."
)
WEBHOOK_REFUSALS = Counter("platform_webhook_refusals", "Resources rejected at admission.", ["kind"])
HTTP_REFUSED = Counter(
    "platform_http_refused",
    "Connections and requests that the operator's servers refused, because the client or all clients had too many.",
    ["what"],
)
for _what in ("connection", "request"):
    HTTP_REFUSED.labels(_what)  # a rate misses the first refusal of a series that begins with it
CERTIFICATE_EXPIRY = Gauge(
    "platform_certificate_expiry_timestamp_seconds",
    "Unix time at which the certificate `serving` or its `authority` expires.",
    ["name"],
)
CERTIFICATE_NOT_BEFORE = Gauge(
    "platform_certificate_not_before_timestamp_seconds",
    "Unix time at which the validity of the certificate `serving` or of its `authority` begins.",
    ["name"],
)
CERTIFICATE_READS = Counter("certwatcher_read_certificate", "Serving certificates loaded.")
CERTIFICATE_READ_ERRORS = Counter(
    "certwatcher_read_certificate_errors", "Failures to load certificates or to update their trust bundle."
)
CERTIFICATE_RENEWALS = Counter("platform_certificate_renewals", "Certificates issued by this replica.")
CERTIFICATE_RENEWAL_ERRORS = Counter(
    "platform_certificate_renewal_errors", "Certificates that were due and could not be issued or stored."
)
CACHED_OBJECTS = Gauge("platform_cached_objects", "Objects in the cache of a controller.", ["controller", "kind"])
RESTORATIONS = Counter(
    "platform_restorations",
    "Owned objects that another client changed or deleted, and the operator restored.",
    ["controller", "kind"],
)
CONTESTED_OBJECTS = Gauge(
    "platform_contested_objects", "Owned objects of which another client keeps changing fields.", ["controller"]
)
EVENTS = Counter(
    "platform_events",
    "Kubernetes events written, including repeats; controller is the kind of the object in lower case.",
    ["controller", "type", "reason"],
)
EVENTS_DROPPED = Counter("platform_events_dropped", "Kubernetes events not written: queue full, or rejected.")


def show_from_the_start(controller: str) -> None:
    """Initialize the metrics of a controller to 0, as controller-runtime does: rate() needs an initial value."""
    for result in ("success", "requeue_after", "error", "terminal_error"):
        RECONCILES.labels(controller=controller, result=result)
    for metric in (RECONCILE_ERRORS, TERMINAL_ERRORS, PANICS, RECONCILE_TIME, TIME_TO_READY, ACTIVE_WORKERS):
        metric.labels(controller=controller)
