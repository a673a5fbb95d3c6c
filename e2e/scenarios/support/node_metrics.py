"""Metrics about pods and volumes, in the names of kube-state-metrics and of the kubelet, for a real Prometheus.

Neither exporter exists here: Debian has no kube-state-metrics, and the kubelet of the local cluster has no statistics
of volumes. So this one serves the few series that the rules use: what the API server reports about containers, the
space of the volumes' file systems, and the kubelet's own cAdvisor.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes import client, config

from e2e.scenarios.support.commands import Kubectl
from shared.kubernetes.quantity import parse_quantity
from tools.local.cluster import Cluster

TIMEOUT_SECONDS = 3
JOB = "nodes"
WORKING_SET = "container_memory_working_set_bytes{"


@contextmanager
def serving(kubectl: Kubectl) -> Iterator[dict[str, Any]]:
    """Serve the metrics of a namespace on the loopback interface; yield the scrape configuration."""
    source = _Source(kubectl)

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            lines: list[str] = []
            for part in (source.containers, source.memory, source.volumes):
                with suppress(Exception):  # without the API server, the series end
                    lines += part()
            with suppress(ConnectionError):  # Prometheus does not wait longer
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write("".join(f"{line}\n" for line in lines).encode())

        def log_message(self, *_: object) -> None:
            """Write nothing to stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    target = f"127.0.0.1:{server.server_port}"
    try:
        yield {
            "job_name": JOB,
            "honor_labels": True,
            "scrape_interval": "3s",
            "scrape_timeout": "3s",
            "static_configs": [{"targets": [target]}],
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


class _Source:
    """Reads the state of the pods and volumes of a namespace."""

    def __init__(self, kubectl: Kubectl) -> None:
        connection: Any = config.new_client_from_config(kubectl.environment["KUBECONFIG"])  # type: ignore[no-untyped-call]
        self._core: Any = client.CoreV1Api(connection)
        self._namespace = kubectl.namespace

    def containers(self) -> Iterator[str]:
        """Yield the memory limit, the restarts and the last termination of each container, as kube-state-metrics."""
        for pod in self._core.list_namespaced_pod(self._namespace, _request_timeout=TIMEOUT_SECONDS).items:
            for container in pod.spec.containers:
                if limit := (container.resources.limits or {}).get("memory"):
                    more = 'resource="memory",unit="byte"'
                    yield _line("kube_pod_container_resource_limits", pod, container, parse_quantity(limit), more)
            for state in pod.status.container_statuses or ():
                yield _line("kube_pod_container_status_restarts_total", pod, state, state.restart_count)
                if state.last_state.terminated:
                    reason = f'reason="{state.last_state.terminated.reason}"'
                    yield _line("kube_pod_container_status_last_terminated_reason", pod, state, 1, reason)

    def memory(self) -> Iterator[str]:
        """Yield the working set of each container, as the cAdvisor of the kubelets reports it."""
        for node in self._core.list_node(_request_timeout=TIMEOUT_SECONDS).items:
            text = self._core.connect_get_node_proxy_with_path(
                node.metadata.name, "metrics/cadvisor", _request_timeout=TIMEOUT_SECONDS
            )
            for line in text.splitlines():
                if line.startswith(WORKING_SET) and f'namespace="{self._namespace}"' in line:
                    yield line.rpartition(" ")[0]  # without the time of the sample

    def volumes(self) -> Iterator[str]:
        """Yield the space of each pod's volume that is a file system of its own, as the kubelet of its node does."""
        running = Cluster.running()
        nodes = {node.at.name: node for node in running.nodes} if running else {}
        for pod in self._core.list_namespaced_pod(self._namespace, _request_timeout=TIMEOUT_SECONDS).items:
            claims = [each.persistent_volume_claim for each in pod.spec.volumes if each.persistent_volume_claim]
            for name in (claim.claim_name for claim in claims if pod.spec.node_name in nodes):
                claim = self._core.read_namespaced_persistent_volume_claim(name, self._namespace)
                volume = self._core.read_persistent_volume(claim.spec.volume_name, _request_timeout=TIMEOUT_SECONDS)
                directory = nodes[pod.spec.node_name].path(volume.spec.local.path)
                if not os.path.ismount(directory):
                    continue
                found = os.statvfs(directory)
                sizes = {
                    "capacity": found.f_blocks,
                    "available": found.f_bavail,
                    "used": found.f_blocks - found.f_bfree,
                }
                for which, blocks in sizes.items():
                    labels = f'namespace="{self._namespace}",persistentvolumeclaim="{name}"'
                    yield f"kubelet_volume_stats_{which}_bytes{{{labels}}} {blocks * found.f_frsize}"


def _line(name: str, pod: Any, container: Any, value: Any, more: str = "") -> str:
    labels = f'namespace="{pod.metadata.namespace}",pod="{pod.metadata.name}",container="{container.name}"'
    return f"{name}{{{labels}{more and ','}{more}}} {float(value):g}"
