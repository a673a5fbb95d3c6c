"""Metrics of operators that manage the databases of docker-compose.yml, for its dashboards: no operator runs there.

What the operators report about the resources is that of healthy ones. Their own metrics are a recording
(dashboards/scrapes/operators.prom); its times count from now, and its counters of successful work grow. Uses the
standard library only, because the container has nothing else: `python operators.py RECORDING PORT`.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

NAMESPACE = "compose"
RESOURCES = (
    ("Memcached", "cache", 1, "1.6.45"),
    ("EtcdCluster", "orders", 3, "3.5.16"),
    ("RedisCluster", "sessions", 6, "8.2.9"),
)
"""Kind, name, number of servers, and version of each resource."""

CONDITIONS = (
    ("Ready", "True", "Ready"),
    ("Reconciling", "False", "Ready"),
    ("Stalled", "False", "Ready"),
    ("Available", "True", "Served"),
    ("Degraded", "False", "Redundant"),
    ("Observed", "True", "Observed"),
)
BACKUP, BACKUP_INTERVAL_SECONDS = "nightly", 6 * 3600

OF_RESOURCES = re.compile(r"platform_(resource|etcd|redis)_")
"""Recorded metrics that are replaced by those of healthy resources."""

GROWING = re.compile(
    r"controller_runtime_reconcile_(total{.*success|time)|workqueue_adds_total|workqueue_(work|queue)_duration"
    r'|rest_client_requests_total{code="200"|platform_watch_lists_total|process_cpu_seconds_total'
)
"""Recorded counters that grow."""

GROWTH_PER_SECOND = 0.1

Sample = tuple[str, dict[str, str], float]
"""Name, labels and value."""


def states(now: float) -> Iterator[Sample]:
    """Yield the states of the resources at a time, in seconds since the epoch."""
    for kind, name, size, version in RESOURCES:
        of = {"kind": kind, "name": name, "namespace": NAMESPACE}
        yield "platform_resource_info", of | {"version": version}, 1
        yield "platform_resource_phase", of | {"phase": "Running"}, 1
        for field in ("generation", "observed_generation"):
            yield f"platform_resource_{field}", of, 1
        for field in ("desired_replicas", "ready_replicas"):
            yield f"platform_resource_{field}", of, size
        yield "platform_resource_paused", of, 0
        for condition, status, reason in CONDITIONS:
            labels = of | {"type": condition, "status": status, "reason": reason}
            yield "platform_resource_condition", labels, 1
        if kind == "EtcdCluster":
            yield from _etcd(of, size, now)
        if kind == "RedisCluster":
            yield from _redis(of, size)


def _etcd(of: dict[str, str], size: int, now: float) -> Iterator[Sample]:
    completed = now - now % BACKUP_INTERVAL_SECONDS
    yield "platform_etcd_members", of | {"role": "voter"}, size
    yield "platform_etcd_members", of | {"role": "learner"}, 0
    yield "platform_etcd_has_leader", of, 1
    for alarm in ("CORRUPT", "NOSPACE"):
        yield "platform_etcd_alarms", of | {"alarm": alarm}, 0
    yield "platform_etcd_recovery_waiting", of, 0
    yield "platform_etcd_database_size_bytes", of, 20480
    yield "platform_etcd_snapshot_last_success_timestamp_seconds", of, completed
    yield "platform_etcd_snapshot_next_timestamp_seconds", of, completed + BACKUP_INTERVAL_SECONDS
    backup = of | {"kind": "EtcdBackup", "name": BACKUP}
    yield "platform_resource_info", backup | {"version": ""}, 1
    yield "platform_resource_phase", backup | {"phase": "Complete"}, 1
    for condition, status, _ in CONDITIONS[:3]:
        labels = backup | {"type": condition, "status": status, "reason": "Complete"}
        yield "platform_resource_condition", labels, 1
    cluster = {"etcdcluster": of["name"]}
    yield "platform_etcd_backup_completed_timestamp_seconds", backup | cluster, completed


def _redis(of: dict[str, str], size: int) -> Iterator[Sample]:
    yield "platform_redis_masters", of, size // 2
    yield "platform_redis_slots", of | {"state": "served"}, 16384
    yield "platform_redis_slots", of | {"state": "unserved"}, 0
    yield "platform_redis_migration_slots_left", of, 0
    yield "platform_redis_recovery_waiting", of, 0


def exposition(recording: str, started: float, now: float) -> str:
    """Return all metrics at a time in Prometheus's text format.

    Args:
        recording: metrics of real operators, in the same format.
        started: time at which the operators seem to have started.
    """
    recorded: list[tuple[str, float]] = []
    lines: list[str] = []
    for line in recording.splitlines():
        series, _, text = line.rpartition(" ")
        if not line.startswith("#") and not OF_RESOURCES.match(line):
            recorded.append((series, float(text)))
    end = max((value for series, value in recorded if series.startswith("platform_watch_last_event")), default=now)
    for series, value in recorded:
        if "_timestamp_seconds" in series:
            lines.append(f"{series} {value + now - end}")
        elif series.startswith("process_start_time_seconds"):
            lines.append(f"{series} {started}")
        else:
            growth = (now - started) * GROWTH_PER_SECOND if GROWING.match(series) else 0
            lines.append(f"{series} {value + growth}")
    for name, labels, value in states(now):
        given = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
        lines.append(f"{name}{{{given}}} {value}")
    return "\n".join(lines) + "\n"


def serve(recording: str, port: int) -> None:
    """Serve the metrics at /metrics until the process ends."""
    started = time.time()

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = exposition(recording, started, time.time()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    ThreadingHTTPServer(("", port), Answer).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]).read_text(), int(sys.argv[2]))
