"""A Prometheus server that scrapes the recordings of real servers and the metrics of a fake operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from dashboards.render.prometheus import Prometheus as Api
from e2e.scenarios.support.commands import until
from e2e.scenarios.support.prometheus import Prometheus
from tools.local.paths import REPOSITORY

SCRAPES = REPOSITORY / "dashboards/scrapes"
RECORDED = ("etcd", "memcached", "redis")

HEALTHY, DEGRADED = ("Memcached", "shop", "sessions"), ("RedisCluster", "shop", "carts")


def operator_metrics() -> str:
    """Return the metrics of an operator with a Ready and a degraded resource."""
    lines = ['leader_election_master_status{name="memcached-operator"} 1']
    for kind, namespace, name in (HEALTHY, DEGRADED):
        ready = (kind, namespace, name) == HEALTHY
        labels = f'kind="{kind}",namespace="{namespace}",name="{name}"'
        state = 'status="True",reason="Ready"' if ready else 'status="False",reason="Degraded"'
        lines += [
            f'platform_resource_info{{{labels},version="1.2.3"}} 1',
            f'platform_resource_condition{{{labels},type="Ready",{state}}} 1',
            f"platform_resource_desired_replicas{{{labels}}} 3",
            f"platform_resource_ready_replicas{{{labels}}} {3 if ready else 2}",
        ]
    return "\n".join(lines) + "\n"


@contextmanager
def endpoint() -> Iterator[str]:
    """Serve /etcd, /memcached, /redis and /operator; yield host and port."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/")
            text = operator_metrics() if name == "operator" else (SCRAPES / f"{name}.prom").read_text()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def _job(name: str, address: str, labels: dict[str, str]) -> dict[str, Any]:
    return {
        "job_name": name,
        "metrics_path": f"/{name}",
        "honor_labels": name == "operator",
        "static_configs": [{"targets": [address], "labels": labels}],
    }


@contextmanager
def prometheus(scratch: Path) -> Iterator[Api]:
    """Run Debian's Prometheus; enter once it has scraped every target twice, which rates need."""
    with endpoint() as address:
        servers = [
            _job(name, address, {"namespace": "shop", "pod": f"{name}-0", "app_kubernetes_io_instance": name})
            for name in RECORDED
        ]
        jobs = [*servers, _job("operator", address, {"namespace": "platform-system", "pod": "operator-0"})]
        with Prometheus.scraping(scratch / "prometheus", jobs) as running:

            def scraped() -> bool:
                twice = running.query("count_over_time(up[1m]) >= 2 and up == 1")
                assert len(twice) == len(jobs), running.targets()
                return True

            until("every target has been scraped twice", scraped)
            yield Api(running.url)
