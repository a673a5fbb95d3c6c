"""A Prometheus server and an Alertmanager, configured by the charts' ServiceMonitors and rules.

Every alert exists at two paces. At the fast pace durations are divided by `FACTOR`, so that a test sees what fires
during a long incident. At the real pace they are those of the charts, so that a test sees that a short incident fires
nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.scenarios.support import node_metrics
from e2e.scenarios.support.alertmanager import Alertmanager
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.discovery import Discovery
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.prometheus import Prometheus
from e2e.scenarios.support.release import Release
from tools.local.release import operators

FACTOR = 60
"""Divisor of the rules' durations at the fast pace: 15 minutes in the charts are 15 seconds there.

It applies to `for`, to range windows and to thresholds on waiting time. A window has at least three scrapes.
"""

SHORTEST = 10
"""Seconds of the shortest range window."""

FORGOTTEN = 20
"""Seconds after the end of a pod in which Prometheus surely forgets it; the shortest `for` of an alert about `up`.

Until then, the pod is down. These delays are Prometheus's own and are not divided: it takes over changed targets every
five seconds, and ends the series of a removed target two scrape intervals later, in case that the target returns.
"""

OF_SERVERS = {"scrape_interval": "3s", "scrape_timeout": "3s"}
"""Scrapes of servers: exporters report within two seconds that a server hangs."""

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

FAST, REAL = "fast", "real"
"""Values of the label `pace` of alerts."""

NAMES = tuple(operators())
WAITING = {
    **{(name, "unreadySeconds"): 900 for name in NAMES},
    **{(name, "changeSeconds"): 3600 for name in NAMES},
    ("etcd", "snapshotLateSeconds"): 3600,
}
"""Thresholds of the charts on waiting time, with their defaults in seconds."""

TRUE_HERE = {
    "PlatformResourceBadlyPlaced": "two nodes have the majority of three primaries on one of them",
    "PlatformResourceVulnerable": "Debian's version of a database may be older than the newest patch",
    "EtcdNoBackupScheduled": "the cluster of the test has no backup",
    "PlatformOperatorNotReconciling": "operators reconcile healthy resources every ten minutes, which is not divided",
    "EtcdLogSlow": "the disk of the test machine may be slow",
    "EtcdDatabaseSlow": "the disk of the test machine may be slow",
    "EtcdPeersSlow": "the test machine may be busy",
}
"""Alerts that may rightly fire about healthy resources on a test machine, each with the reason."""

Obj = dict[str, Any]


@dataclass(frozen=True)
class Watch:
    """A running Prometheus server, which discovers its targets, and the Alertmanager that gets its alerts."""

    prometheus: Prometheus
    alertmanager: Alertmanager

    def firing(self, pace: str = FAST) -> list[dict[str, str]]:
        """Return the labels of the firing alerts of a pace."""
        alerts = [alert["labels"] for alert in self.prometheus.alerts() if alert["state"] == "firing"]
        return [labels for labels in alerts if labels["pace"] == pace]

    def fired(self, seconds: float, pace: str = FAST) -> list[dict[str, str]]:
        """Return the labels of the alerts of a pace that have been firing at some time within the last seconds."""
        selector = f'ALERTS{{alertstate="firing",pace="{pace}"}}'
        return [labels for labels, _ in self.prometheus.query(f"max_over_time({selector}[{max(1, round(seconds))}s])")]


@contextmanager
def watching(
    directory: Path, release: Release, operators: Sequence[Operator], kubectl: Kubectl, account: Account
) -> Iterator[Watch]:
    """Run a Prometheus server that scrapes all operators, and the databases of one namespace.

    Args:
        directory: working directory; it is created.
        release: release whose charts provide the ServiceMonitors and rules.
        kubectl: client for the namespace whose databases are scraped.
        account: creates the ServiceAccount `prometheus`.
    """
    directory.mkdir()
    token = directory / TOKEN_FILE
    token.write_text(account("prometheus", *(f"{operator.name}-metrics-reader" for operator in operators)))
    monitors = {
        found["metadata"]["name"]: found for found in release.rendered("ServiceMonitor", *_enabled("serviceMonitor"))
    }
    discovery, jobs = Discovery(directory), []
    for operator in operators:
        authority = directory / f"{operator.name}.crt"
        authority.write_bytes(operator.authority)
        own = monitors[operator.name]
        server = own["spec"]["endpoints"][0]["tlsConfig"]["serverName"]
        tls = {"ca_file": str(authority), "server_name": server}
        jobs += [
            discovery.job(own, operator.system, authorization={"credentials_file": str(token)}, tls_config=tls),
            discovery.job(monitors[f"{operator.name}-operands"], kubectl, **OF_SERVERS),
        ]
    fast, real = directory / "fast.json", directory / "real.json"
    fast.write_text(json.dumps({"groups": shortened(groups(release, FACTOR))}))
    real.write_text(json.dumps({"groups": only_alerts(groups(release, 1))}))
    with (
        Alertmanager.running(directory / "alertmanager", factor=FACTOR) as alertmanager,
        node_metrics.serving(kubectl) as nodes,
    ):
        alerting = {
            "alertmanagers": [{"static_configs": [{"targets": [alertmanager.address]}]}],
            "alert_relabel_configs": [{"source_labels": ["pace"], "regex": REAL, "action": "drop"}],
        }
        scratch = directory / "prometheus"
        with (
            Prometheus.scraping(scratch, [*jobs, nodes], rules=[fast, real], alerting=alerting) as prometheus,
            discovery.refreshing(),
        ):
            yield Watch(prometheus, alertmanager)


TOKEN_FILE = "token"
"""File with the token with which Prometheus scrapes the operators; it is read at each scrape."""


def groups(release: Release, factor: float) -> list[Obj]:
    """Return the rule groups of the charts, with thresholds on waiting time divided by `factor`."""
    thresholds = [
        f"--set={name}.metrics.prometheusRule.thresholds.{threshold}={seconds / factor:g}"
        for (name, threshold), seconds in WAITING.items()
    ]
    grafana = [f"--set={name}.metrics.prometheusRule.dashboardsUrl=https://grafana.example.com" for name in NAMES]
    found = release.rendered("PrometheusRule", *_enabled("prometheusRule"), *thresholds, *grafana)
    assert len(found) == len(NAMES), [rule["metadata"]["name"] for rule in found]
    return [group for rule in found for group in rule["spec"]["groups"]]


def _enabled(what: str) -> list[str]:
    return [f"--set={name}.metrics.{what}.enabled=true" for name in NAMES]


def shortened(given: Sequence[Obj], factor: int = FACTOR) -> list[Obj]:
    """Return the rule groups with their durations divided by `factor`, and alerts with the fast pace."""

    def duration(text: str, least: int) -> str:
        return f"{max(least, int(text[:-1]) * UNITS[text[-1]] // factor)}s"

    def rule(made: Obj) -> Obj:
        expr = re.sub(r"\[(\d+[smhd])\]", lambda found: f"[{duration(found[1], SHORTEST)}]", made["expr"])
        least = FORGOTTEN if re.search(r"\bup\b", expr) else 1
        return {**made, "expr": expr, **({"for": duration(made["for"], least)} if "for" in made else {})}

    return [{**group, "rules": [_paced(rule(made), FAST) for made in group["rules"]]} for group in given]


def only_alerts(given: Sequence[Obj]) -> list[Obj]:
    """Return the alerts of the rule groups, with the real pace; they use the series that the fast ones record."""
    return [
        {"name": f"{group['name']}-{REAL}", "rules": [_paced(made, REAL) for made in group["rules"] if "alert" in made]}
        for group in given
    ]


def _paced(rule: Obj, pace: str) -> Obj:
    return {**rule, "labels": {**rule["labels"], "pace": pace}} if "alert" in rule else rule
