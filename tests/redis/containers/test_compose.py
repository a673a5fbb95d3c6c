"""docker-compose.yml at rest: a real Redis Cluster, exporter and Prometheus fill every table, and no alert fires.

The containers' commands and configuration are used as they are; only addresses differ. memcached and etcd are
recordings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from dashboards.contract import SCRAPES
from dashboards.promql import filled
from dashboards.record import started_by_its_own_loader
from dashboards.render.page import load
from dashboards.scraping import running
from e2e.scenarios.support.commands import until
from e2e.scenarios.support.prometheus import Prometheus
from tools.databases import redis_programs
from tools.databases.redis_servers import Cluster, Redis
from tools.local import debian
from tools.local.machine.network import free_ports
from tools.local.paths import REPOSITORY

pytestmark = pytest.mark.nightly

COMPOSE: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
PARTS = REPOSITORY / "dashboards/compose"
RECORDED = {"memcached-exporter:9150": "memcached", **{f"etcd-{number}:2381": "etcd" for number in range(3)}}
NODES = COMPOSE["redis-cluster"]["command"]
ENGINE = ("redis", "8.0.2")


@pytest.fixture(scope="module")
def cluster(redis: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Start the nodes with the flags of their container, and form the cluster as its container does."""
    words = COMPOSE["redis-0"]["command"]
    flags: dict[str, Any] = {
        name.removeprefix("--"): text or '""' for name, text in zip(words[::2], words[1::2], strict=True)
    }
    with redis.cluster(ENGINE, **flags) as nodes:
        for _ in NODES:
            nodes.add()
        form(nodes, tmp_path_factory.mktemp("bin"))
        yield nodes


def form(nodes: Cluster, directory: Path) -> None:
    """Run the program of the container redis-cluster."""
    client = directory / "redis-cli"
    client.write_text(f'#!/bin/sh\nexec {" ".join(map(str, redis_programs.cli(*ENGINE)))} "$@"\n')
    client.chmod(0o755)
    program: list[str | Path] = [*COMPOSE["redis-cluster"]["entrypoint"][:1], PARTS / "redis-cluster.sh"]
    environment = os.environ | {"PATH": f"{directory}:{os.environ['PATH']}"}
    given = [f"127.0.0.1:{node.port}" for node in nodes.nodes]
    done = subprocess.run([*program, *given], env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_cluster_has_a_replica_of_each_primary_and_can_be_introduced_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.identify()
    reports = await cluster.settled()
    primaries = {node_id for node_id, report in reports.items() if report.me.slots}
    assert len(primaries) == 3
    assert {report.me.primary for report in reports.values() if report.me.is_replica} == primaries
    form(cluster, tmp_path)
    assert (await cluster.settled()).keys() == reports.keys()


@contextmanager
def recordings() -> Iterator[int]:
    """Serve each recording below its name; yield the port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write((SCRAPES / f"{self.path.strip('/')}.prom").read_bytes())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def replaced(label: str, addresses: dict[str, str], target: str = "") -> list[dict[str, Any]]:
    """Return relabelling rules that replace the addresses of containers by those of this machine."""
    return [
        {"source_labels": [label], "regex": name, "target_label": target or label, "replacement": address}
        for name, address in addresses.items()
    ]


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run Prometheus with the jobs and the rules of its container."""
    scratch = tmp_path_factory.mktemp("compose")
    suite, package, _ = redis_programs.EXPORTER
    exporter = started_by_its_own_loader(debian.unpacked(suite, package), "prometheus-redis-exporter")
    exporting, serving = free_ports(2)
    exporter += [*COMPOSE["redis-exporter"]["command"], f"--web.listen-address=127.0.0.1:{exporting}"]
    operators: list[str | Path] = [sys.executable, PARTS / "operators.py", SCRAPES / "operators.prom", str(serving)]
    jobs = yaml.safe_load((PARTS / "prometheus.yml").read_text())["scrape_configs"]
    with ExitStack() as stack:
        port = stack.enter_context(recordings())
        stack.enter_context(running(scratch, "exporter", f"http://127.0.0.1:{exporting}/metrics", *exporter))
        stack.enter_context(running(scratch, "operators", f"http://127.0.0.1:{serving}/metrics", *operators))
        local = {"redis-exporter:9121": f"127.0.0.1:{exporting}", "operators:8080": f"127.0.0.1:{serving}"}
        local |= {"host.docker.internal:8080": "127.0.0.1:1"} | dict.fromkeys(RECORDED, f"127.0.0.1:{port}")
        nodes = {
            f"redis://{name}": f"redis://127.0.0.1:{node.port}" for name, node in zip(NODES, cluster.nodes, strict=True)
        }
        for job in jobs:
            rules = job.setdefault("relabel_configs", [])
            kept = (
                [] if job["job_name"] == "redis" else [{"source_labels": ["__address__"], "target_label": "instance"}]
            )
            paths = {name: f"/{text}" for name, text in RECORDED.items()}
            rules += [*kept, *replaced("__address__", paths, "__metrics_path__"), *replaced("__address__", local)]
            rules += replaced("__param_target", nodes)
        files = sorted((REPOSITORY / "dashboards/generated/rules").glob("*.yaml"))
        found = stack.enter_context(Prometheus.scraping(scratch / "prometheus", jobs, rules=files))
        until("every target has been scraped", lambda: len(found.query("count_over_time(up[1m]) >= 5")) == 12)
        yield found


def test_only_an_operator_on_this_machine_may_be_missing(prometheus: Prometheus) -> None:
    down = [labels["job"] for labels, _ in prometheus.query("up == 0")]
    assert down == ["operator-on-this-machine"], prometheus.targets()


def test_no_alert_is_pending_or_firing_and_every_rule_can_be_evaluated(prometheus: Prometheus) -> None:
    assert [(alert["labels"]["alertname"], alert["labels"]) for alert in prometheus.alerts()] == []
    assert [rule for rule in prometheus.rules() if rule["health"] != "ok"] == []


MAY_BE_EMPTY = ("Firing alerts",)
TABLES = [
    pytest.param(panel, id=f"{file.stem}: {panel['title']}")
    for file in sorted((REPOSITORY / "dashboards/generated").glob("*.json"))
    for panel in load(file)["panels"]
    if panel["type"] == "table" and panel["title"] not in MAY_BE_EMPTY
]
UNSET = ("unready_since", "certificate_expiry")
"""Columns that are empty for resources that are ready and without TLS."""


@pytest.mark.parametrize("panel", TABLES)
def test_every_column_of_every_table_is_filled(prometheus: Prometheus, panel: dict[str, Any]) -> None:
    queries = [target["expr"] for target in panel["targets"] if not any(name in target["expr"] for name in UNSET)]
    assert queries
    assert [query for query in queries if not prometheus.query(filled(query, interval="10s"))] == []


def test_nodes_of_the_table_are_those_of_the_cluster(prometheus: Prometheus) -> None:
    rows = prometheus.query('redis_instance_info{namespace="compose",app_kubernetes_io_instance="sessions"}')
    roles = sorted((labels["pod"], labels["role"]) for labels, _ in rows)
    assert [pod for pod, _ in roles] == [f"redis-{number}" for number in range(6)]
    assert sorted(role for _, role in roles) == ["master"] * 3 + ["slave"] * 3
