"""Prometheus metrics with the names of controller-runtime, so that dashboards for Go operators work."""

from __future__ import annotations

import tomllib
from pathlib import Path

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # type: ignore[no-untyped-call]  # Go operators have none of these, and nobody asks for them

SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _counter(name: str) -> Counter:
    return Counter(name, _TABLE[name]["help"], _TABLE[name].get("labels", ()))


def _gauge(name: str) -> Gauge:
    return Gauge(name, _TABLE[name]["help"], _TABLE[name].get("labels", ()))


def _histogram(name: str) -> Histogram:
    row = _TABLE[name]
    return Histogram(name, row["help"], row.get("labels", ()), buckets=row.get("buckets", SECONDS))


RECONCILES = _counter("controller_runtime_reconcile")
RECONCILE_ERRORS = _counter("controller_runtime_reconcile_errors")
TERMINAL_ERRORS = _counter("controller_runtime_terminal_reconcile_errors")
PANICS = _counter("controller_runtime_reconcile_panics")
TASK_RESTARTS = _counter("platform_task_restarts")
RECONCILE_TIME = _histogram("controller_runtime_reconcile_time_seconds")
ACTIVE_WORKERS = _gauge("controller_runtime_active_workers")
MAX_WORKERS = _gauge("controller_runtime_max_concurrent_reconciles")

QUEUE_DEPTH = _gauge("workqueue_depth")
QUEUE_ADDS = _counter("workqueue_adds")
QUEUE_WAIT = _histogram("workqueue_queue_duration_seconds")
QUEUE_WORK = _histogram("workqueue_work_duration_seconds")
QUEUE_RETRIES = _counter("workqueue_retries")
QUEUE_UNFINISHED = _gauge("workqueue_unfinished_work_seconds")
QUEUE_LONGEST = _gauge("workqueue_longest_running_processor_seconds")

REST_REQUESTS = _counter("rest_client_requests")
REST_LATENCY = _histogram("rest_client_request_duration_seconds")
WATCH_LISTS = _counter("platform_watch_lists")
OVERSIZED_OBJECTS = _counter("platform_oversized_objects")
WATCH_ERRORS = _counter("platform_watch_errors")
WATCH_SYNCED = _gauge("platform_watch_synced")
WATCH_LAST_EVENT = _gauge("platform_watch_last_event_timestamp_seconds")
LEADER = _gauge("leader_election_master_status")
TIME_TO_READY = _histogram("platform_time_to_ready_seconds")
LAST_SUCCESS = _gauge("platform_last_reconcile_success_timestamp_seconds")
WEBHOOK_REQUESTS = _counter("controller_runtime_webhook_requests")
WEBHOOK_LATENCY = _histogram("controller_runtime_webhook_latency_seconds")
WEBHOOK_IN_FLIGHT = _gauge("controller_runtime_webhook_requests_in_flight")
WEBHOOK_PANICS = _counter("controller_runtime_webhook_panics")
WEBHOOK_REFUSALS = _counter("platform_webhook_refusals")
HTTP_REFUSED = _counter("platform_http_refused")
for _what in ("connection", "request"):
    HTTP_REFUSED.labels(_what)  # a rate misses the first refusal of a series that begins with it
CERTIFICATE_EXPIRY = _gauge("platform_certificate_expiry_timestamp_seconds")
CERTIFICATE_NOT_BEFORE = _gauge("platform_certificate_not_before_timestamp_seconds")
CERTIFICATE_READS = _counter("certwatcher_read_certificate")
CERTIFICATE_READ_ERRORS = _counter("certwatcher_read_certificate_errors")
CERTIFICATE_RENEWALS = _counter("platform_certificate_renewals")
CERTIFICATE_RENEWAL_ERRORS = _counter("platform_certificate_renewal_errors")
CACHED_OBJECTS = _gauge("platform_cached_objects")
RESTORATIONS = _counter("platform_restorations")
CONTESTED_OBJECTS = _gauge("platform_contested_objects")
EVENTS = _counter("platform_events")
EVENTS_DROPPED = _counter("platform_events_dropped")


def show_from_the_start(controller: str) -> None:
    """Initialize the metrics of a controller to 0, as controller-runtime does: rate() needs an initial value."""
    for result in ("success", "requeue_after", "error", "terminal_error"):
        RECONCILES.labels(controller=controller, result=result)
    for metric in (RECONCILE_ERRORS, TERMINAL_ERRORS, PANICS, RECONCILE_TIME, TIME_TO_READY, ACTIVE_WORKERS):
        metric.labels(controller=controller)
