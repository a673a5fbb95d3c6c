"""A Prometheus server configured by the charts' ServiceMonitors and rules, with shortened durations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster.release import operators
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.prometheus import Prometheus, job_of, selected
from e2e.scenarios.support.release import Release

FACTOR = 60
"""Divisor of the rules' durations: 15 minutes in the charts are 15 seconds here.

It applies to `for`, to range windows and to thresholds on waiting time. A window has at least five scrapes.
"""

SHORTEST = 5
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

NAMES = tuple(operators())
WAITING = {"unreadySeconds": 900, "changeSeconds": 3600}
"""Thresholds of all charts on waiting time, with their defaults in seconds."""

Obj = dict[str, Any]
Targets = Callable[[], list[Obj]]


@dataclass(frozen=True)
class Watch:
    """A running Prometheus server and the discovery of its targets.

    Attributes:
        files: functions that return current targets, by the target file that Prometheus reads.
    """

    prometheus: Prometheus
    files: Mapping[Path, Targets]

    def refresh_targets(self) -> None:
        """Update the target files, as the Prometheus operator does when pods change."""
        for file, targets in self.files.items():
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps(targets()))
            fresh.replace(file)

    def firing(self, name: str, labels: Mapping[str, str]) -> list[Obj]:
        """Return the firing alerts with a name and labels."""
        return [
            alert
            for alert in self.prometheus.alerts()
            if alert["state"] == "firing" and {"alertname": name, **labels}.items() <= alert["labels"].items()
        ]

    def await_alert(self, name: str, labels: Mapping[str, str], *, seconds: float = 120) -> Obj:
        """Wait until an alert fires, check its annotations and return it."""

        def first_firing() -> Obj:
            self.refresh_targets()
            found = self.firing(name, labels)
            assert found, f"active alerts: {sorted(self._active())}"
            return found[0]

        alert = until(f"{name} fires", first_firing, seconds=seconds, every=1)
        texts = alert["annotations"]
        assert {"summary", "description", "dashboard_url", "runbook_url"} <= texts.keys()
        assert not any(wrong in text for text in texts.values() for wrong in ("<error", "<no value>", "{{")), texts
        return alert

    def await_end(self, name: str, labels: Mapping[str, str], *, seconds: float = 180) -> None:
        """Wait until no alert with this name and these labels fires."""

        def resolved() -> bool:
            self.refresh_targets()
            left = self.firing(name, labels)
            assert not left, left
            return True

        until(f"{name} is resolved", resolved, seconds=seconds, every=1)

    def _active(self) -> set[str]:
        return {f"{alert['labels']['alertname']} {alert['state']}" for alert in self.prometheus.alerts()}


@contextmanager
def watching(
    directory: Path, release: Release, operators: Sequence[Operator], kubectl: Kubectl, account: Account
) -> Iterator[Watch]:
    """Run a Prometheus server that scrapes all operators, and the databases of one namespace.

    Args:
        directory: empty working directory.
        release: release whose charts provide the ServiceMonitors and rules.
        kubectl: client for the namespace whose databases are scraped.
        account: creates the ServiceAccount of Prometheus.
    """
    token = directory / "token"
    token.write_text(account("prometheus", *(f"{operator.name}-metrics-reader" for operator in operators)))
    monitors = {
        found["metadata"]["name"]: found for found in release.rendered("ServiceMonitor", *_enabled("serviceMonitor"))
    }
    jobs, files = [], {}

    def add(monitor: Obj, within: Kubectl, **rest: Any) -> None:
        file = directory / f"{monitor['metadata']['name']}.targets.json"
        job = job_of(monitor, within, **rest)
        file.write_text(json.dumps(job.pop("static_configs")))
        jobs.append({**job, "file_sd_configs": [{"files": [str(file)]}]})
        files[file] = lambda: selected(monitor, within)

    for operator in operators:
        authority = directory / f"{operator.name}.crt"
        authority.write_bytes(operator.authority)
        own = monitors[operator.name]
        server = own["spec"]["endpoints"][0]["tlsConfig"]["serverName"]
        tls = {"ca_file": str(authority), "server_name": server}
        add(own, operator.system, authorization={"credentials_file": str(token)}, tls_config=tls)
        add(monitors[f"{operator.name}-operands"], kubectl)
    rules = directory / "rules.json"
    rules.write_text(json.dumps({"groups": shortened(groups(release))}))
    with Prometheus.scraping(directory / "prometheus", jobs, rules=[rules]) as prometheus:
        yield Watch(prometheus, files)


def groups(release: Release) -> list[Obj]:
    """Return the rule groups of the charts, with shortened thresholds on waiting time."""
    thresholds = [
        f"--set={name}.metrics.prometheusRule.thresholds.{threshold}={seconds / FACTOR:g}"
        for name in NAMES
        for threshold, seconds in WAITING.items()
    ]
    grafana = [f"--set={name}.metrics.prometheusRule.dashboardsUrl=https://grafana.example.com" for name in NAMES]
    found = release.rendered("PrometheusRule", *_enabled("prometheusRule"), *thresholds, *grafana)
    assert len(found) == len(NAMES), [rule["metadata"]["name"] for rule in found]
    return [group for rule in found for group in rule["spec"]["groups"]]


def _enabled(what: str) -> list[str]:
    return [f"--set={name}.metrics.{what}.enabled=true" for name in NAMES]


def shortened(given: Sequence[Obj], factor: int = FACTOR) -> list[Obj]:
    """Return the rule groups with their durations divided by `factor`."""

    def duration(text: str, least: int) -> str:
        return f"{max(least, int(text[:-1]) * UNITS[text[-1]] // factor)}s"

    def rule(made: Obj) -> Obj:
        expr = re.sub(r"\[(\d+[smhd])\]", lambda found: f"[{duration(found[1], SHORTEST)}]", made["expr"])
        return {**made, "expr": expr, **({"for": duration(made["for"], 1)} if "for" in made else {})}

    return [{**group, "rules": [rule(made) for made in group["rules"]]} for group in given]
