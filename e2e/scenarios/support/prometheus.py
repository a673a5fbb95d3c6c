"""A real Prometheus for tests, which scrapes the targets of the charts' ServiceMonitors."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.scenarios.support.commands import Kubectl
from tools.local import debian
from tools.local.machine import processes
from tools.local.machine.network import free_ports


class Prometheus:
    """A running Prometheus.

    Args:
        url: base URL of its API.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    @contextmanager
    def scraping(
        cls,
        directory: Path,
        jobs: Sequence[dict[str, Any]],
        *,
        rules: Sequence[Path] = (),
        alerting: dict[str, Any] | None = None,
        seconds: int = 1,
    ) -> Iterator[Prometheus]:
        """Run Prometheus on the loopback interface until the end of the context.

        Args:
            directory: directory for configuration, samples and log; it is created.
            jobs: entries of scrape_configs.
            rules: rule files.
            alerting: section of the same name of the configuration; None for no Alertmanager.
            seconds: interval of scrapes and of evaluations of rules.
        """
        program = debian.program("prometheus", "prometheus")
        directory.mkdir()
        configuration = directory / "prometheus.json"  # JSON is YAML
        content: dict[str, Any] = {
            "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{seconds}s"),
            "scrape_configs": list(jobs),
            "rule_files": [str(path.resolve()) for path in rules],
        }
        if alerting:
            content["alerting"] = alerting
        configuration.write_text(json.dumps(content))
        [port] = free_ports(1)
        address = f"127.0.0.1:{port}"
        files = [f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'samples'}"]
        settings = [f"--web.listen-address={address}", "--scrape.discovery-reload-interval=1s"]  # five by default
        command: list[str | Path] = [program, *files, *settings]
        process = processes.start("prometheus", command, log=directory / "prometheus.log", dies_with_us=True)
        prometheus = cls(f"http://{address}")
        try:
            processes.wait_until(prometheus._is_ready, "Prometheus", needs=[process], timeout=30)
            yield prometheus
        finally:
            processes.stop([process])

    def query(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Evaluate a query now; return the labels and the value of each series."""
        found = self._get("query", query=query)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the pending and firing alerts with state, labels and annotations."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules with the result of their last evaluation: health and lastError."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[str]:
        """Return a line with the URL, the health and the last error of each target, for failure messages."""
        return [
            f"{target['scrapeUrl']} {target['health']} {target['lastError']}".strip()
            for target in self._get("targets")["activeTargets"]
        ]

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)["data"]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False


def job_of(monitor: dict[str, Any], kubectl: Kubectl, **rest: Any) -> dict[str, Any]:
    """Return the scrape configuration that the Prometheus operator generates for a ServiceMonitor, with static targets.

    Args:
        monitor: ServiceMonitor with one endpoint and a selector with matchLabels only.
        kubectl: kubectl in the namespace of the Services.
        rest: scrape settings that differ in the test, such as paths of files.
    """
    [endpoint] = monitor["spec"]["endpoints"]
    return {
        "job_name": monitor["metadata"]["name"],
        "scheme": endpoint.get("scheme", "http"),
        "metrics_path": endpoint.get("path", "/metrics"),
        "honor_labels": endpoint.get("honorLabels", False),
        "static_configs": selected(monitor, kubectl),
        **rest,
    }


def selected(monitor: dict[str, Any], kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the current targets of a ServiceMonitor, as `targets_of` does.

    Args:
        monitor: ServiceMonitor, as in `job_of`.
        kubectl: kubectl, as in `job_of`.
    """
    services = kubectl.items("services", "-l", selector_of(monitor))
    return targets_of(monitor, kubectl.namespace, services, kubectl.items("endpointslices"))


def selector_of(monitor: dict[str, Any]) -> str:
    """Return the label selector of a ServiceMonitor's Services."""
    return ",".join(f"{name}={value}" for name, value in monitor["spec"]["selector"]["matchLabels"].items())


def targets_of(
    monitor: dict[str, Any], namespace: str, services: Sequence[dict[str, Any]], slices: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the targets of a ServiceMonitor with the labels that the Prometheus operator sets. Pure.

    Debian builds Prometheus without Kubernetes service discovery. This function replaces it: it returns the endpoints
    of the selected Services on the named port.

    Args:
        monitor: ServiceMonitor, as in `job_of`.
        namespace: namespace of the Services.
        services: the selected Services.
        slices: EndpointSlices of the namespace.
    """
    spec = monitor["spec"]
    [endpoint] = spec["endpoints"]
    chosen = spec.get("namespaceSelector", {})
    allowed = chosen.get("matchNames", [monitor["metadata"]["namespace"]])
    assert chosen.get("any") or namespace in allowed, f"the ServiceMonitor selects only namespaces {allowed}"
    return [
        {
            "targets": [f"{endpoints['addresses'][0]}:{port['port']}"],
            "labels": _labels(spec, service) | {"pod": endpoints["targetRef"]["name"]},
        }
        for service in services
        for piece in slices
        if piece["metadata"]["labels"].get("kubernetes.io/service-name") == service["metadata"]["name"]
        for port in piece["ports"] or ()
        if port["name"] == endpoint["port"]
        for endpoints in piece["endpoints"] or ()
    ]


def _labels(spec: dict[str, Any], service: dict[str, Any]) -> dict[str, str]:
    """Return the labels of a target that come from its Service."""
    metadata = service["metadata"]
    own = metadata["labels"]
    taken = {re.sub(r"\W", "_", name): own[name] for name in spec.get("targetLabels", ()) if name in own}
    job = own.get(spec.get("jobLabel", ""), metadata["name"])
    return {"namespace": metadata["namespace"], "service": metadata["name"], "job": job, **taken}
