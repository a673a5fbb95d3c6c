"""A real Prometheus beside a test: it scrapes what a ServiceMonitor of the charts selects."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.cluster.machine import debian, processes
from e2e.cluster.machine.network import free_ports
from e2e.scenarios.support.commands import Kubectl

SECOND = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}


class Prometheus:
    """One that runs.

    Args:
        url: where it answers.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    @classmethod
    @contextmanager
    def scraping(
        cls, directory: Path, jobs: Sequence[dict[str, Any]], *, rules: Sequence[Path] = ()
    ) -> Iterator[Prometheus]:
        """One with these scrape configurations, on loopback; it ends with the block.

        Args:
            directory: made for its configuration, samples and log.
            jobs: entries of scrape_configs.
            rules: files of rules, which it evaluates each second.
        """
        program = debian.program("prometheus", "prometheus")
        directory.mkdir()
        configuration = directory / "prometheus.json"  # JSON is YAML
        told = {"global": SECOND, "scrape_configs": list(jobs), "rule_files": [str(path.resolve()) for path in rules]}
        configuration.write_text(json.dumps(told))
        [port] = free_ports(1)
        address = f"127.0.0.1:{port}"
        files = [f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'samples'}"]
        command: list[str | Path] = [program, *files, f"--web.listen-address={address}"]
        process = processes.start("prometheus", command, log=directory / "prometheus.log", dies_with_us=True)
        prometheus = cls(f"http://{address}")
        try:
            processes.wait_until(prometheus._is_ready, "Prometheus", needs=[process], timeout=30)
            yield prometheus
        finally:
            processes.stop([process])

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """What a query is now: labels and value of each series."""
        found = self._get("query", query=query)["result"]
        return [(series["metric"], float(series["value"][1])) for series in found]

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that are pending or firing: state, labels and annotations."""
        found: list[dict[str, Any]] = self._get("alerts")["alerts"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with how its last evaluation went: health, and lastError."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[str]:
        """Each target with its health and its last error, as a failure shall show it."""
        return [
            f"{target['scrapeUrl']} {target['health']} {target['lastError']}".strip()
            for target in self._get("targets")["activeTargets"]
        ]

    def _get(self, path: str, **query: str) -> Any:
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def job_of(monitor: dict[str, Any], kubectl: Kubectl, **rest: Any) -> dict[str, Any]:
    """The scrape configuration that the Prometheus operator makes of a ServiceMonitor, with what it selects now.

    Args:
        monitor: the ServiceMonitor; it has one endpoint, and its selector matchLabels only.
        kubectl: in the namespace whose Services are looked at.
        rest: settings of the scrape that the test has otherwise, such as files that lie elsewhere in a pod.
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
    """The targets that a ServiceMonitor selects now, each with the labels that the Prometheus operator gives it.

    Debian builds Prometheus without the discovery of Kubernetes, so its part is done here: the endpoints of Services
    that bear the labels, on the port of that name.

    Args:
        monitor, kubectl: as `job_of` takes them.
    """
    spec = monitor["spec"]
    [endpoint] = spec["endpoints"]
    chosen = spec.get("namespaceSelector", {})
    allowed = chosen.get("matchNames", [monitor["metadata"]["namespace"]])
    assert chosen.get("any") or kubectl.namespace in allowed, f"it looks at {allowed} only"
    labels = ",".join(f"{name}={value}" for name, value in spec["selector"]["matchLabels"].items())
    return [
        {
            "targets": [f"{endpoints['addresses'][0]}:{port['port']}"],
            "labels": _labels(spec, service) | {"pod": endpoints["targetRef"]["name"]},
        }
        for service in kubectl.items("services", "-l", labels)
        for piece in kubectl.items("endpointslices", "-l", f"kubernetes.io/service-name={service['metadata']['name']}")
        for port in piece["ports"] or ()
        if port["name"] == endpoint["port"]
        for endpoints in piece["endpoints"] or ()
    ]


def _labels(spec: dict[str, Any], service: dict[str, Any]) -> dict[str, str]:
    """What a target bears of its Service, beside the pod."""
    metadata = service["metadata"]
    own = metadata["labels"]
    taken = {re.sub(r"\W", "_", name): own[name] for name in spec.get("targetLabels", ()) if name in own}
    job = own.get(spec.get("jobLabel", ""), metadata["name"])
    return {"namespace": metadata["namespace"], "service": metadata["name"], "job": job, **taken}
