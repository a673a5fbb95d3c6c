"""Pictures of the dashboards from the local cluster: `make dashboards`.

Debian's Prometheus runs on the host for some minutes. It scrapes the targets that the charts' ServiceMonitors select,
with a temporary account, and evaluates the alert rules. Meanwhile clients use a database of each kind, which are
rebalanced, rolled, scaled and failed over (busy.py). Then each dashboard is drawn from its data. Nothing remains in the
cluster.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from dashboards.render.page import View, load, picture
from dashboards.render.prometheus import Prometheus as Api
from e2e.busy import Shop
from e2e.scenarios.support.commands import RELEASE, SYSTEM, Helm, Kubectl, Refused
from e2e.scenarios.support.discovery import Discovery
from e2e.scenarios.support.prometheus import Prometheus
from e2e.scenarios.support.release import Release
from tools.local.cluster import Cluster
from tools.local.environment import forget_clusters
from tools.local.errors import ClusterError
from tools.local.paths import REPOSITORY
from tools.local.release import operators

GENERATED = REPOSITORY / "dashboards" / "generated"
ACCOUNT = "pictures"

SCRAPE_SECONDS = 5
"""Interval of scrapes; each costs 20 ms of CPU time per exporter, which the databases lack on a small machine."""

INTERVAL = f"{4 * SCRAPE_SECONDS}s"
"""Window of rates."""


def main(arguments: list[str] | None = None) -> int:
    """Scrape, then draw the dashboards; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.pictures", description="Draw the dashboards of the cluster.")
    parser.add_argument("--minutes", type=float, default=5, help="duration of the scrape (default: 5)")
    parser.add_argument(
        "--into", type=Path, default=REPOSITORY / "docs/pictures", help="output directory (default: docs/pictures)"
    )
    options = parser.parse_args(arguments)
    forget_clusters()
    try:
        draw(options.minutes * 60, options.into)
    except (ClusterError, Refused, AssertionError) as error:  # the latter: a state was not reached in time
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def draw(seconds: float, into: Path) -> None:
    """Draw every dashboard from the metrics of the cluster.

    Args:
        seconds: duration of the scrape.
        into: output directory.

    Raises:
        ClusterError: no cluster of this clone is running.
    """
    running = Cluster.running()
    if running is None:
        raise ClusterError("no local cluster is running, which the pictures are taken from", "make up")
    system = Kubectl(SYSTEM, {**os.environ, "KUBECONFIG": str(running.kubeconfig)})
    into.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        shop = stack.enter_context(Shop.opened(system.environment, _report))
        discovery = Discovery(scratch)
        found = list(jobs(stack, system, scratch, discovery))
        rules = sorted((GENERATED / "rules").glob("*.yaml"))
        prometheus = stack.enter_context(
            Prometheus.scraping(scratch / "prometheus", found, rules=rules, seconds=SCRAPE_SECONDS)
        )
        _report(f"Prometheus at {prometheus.url} scrapes the cluster for {seconds:.0f} s")
        began = time.time()
        with discovery.refreshing():
            shop.play(seconds, _report)
        for target in prometheus.targets():
            if " up" not in target:
                _report(f"warning: target is not up: {target}")
        view = View(time.time(), time.time() - began, INTERVAL)
        for file in sorted(GENERATED.glob("*.json")):
            output = into / f"{file.stem}.png"
            picture(load(file), Api(prometheus.url), view, output)
            _report(f"wrote {output}")


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def jobs(stack: ExitStack, system: Kubectl, scratch: Path, discovery: Discovery) -> Iterator[dict[str, Any]]:
    """Yield a scrape configuration for each ServiceMonitor of the release and each namespace that it selects.

    Args:
        stack: removes the temporary account from the cluster when it is closed.
        system: kubectl in the namespace of the release.
        scratch: directory for the token and the CA certificates.
        discovery: keeps the targets current.
    """
    release = Release.found(Helm(system.environment), system, scratch / "values.json")
    enabled = [f"--set={name}.metrics.serviceMonitor.enabled=true" for name in operators()]
    monitors = release.rendered("ServiceMonitor", *enabled)
    own = [monitor for monitor in monitors if "bearerTokenFile" in monitor["spec"]["endpoints"][0]]
    token = scratch / "token"
    token.write_text(stack.enter_context(_reader(system, [monitor["metadata"]["name"] for monitor in own])))
    namespaces = [found["metadata"]["name"] for found in system.items("namespaces")]
    for monitor in monitors:
        name = monitor["metadata"]["name"]
        if monitor not in own:
            for namespace in namespaces:
                yield discovery.job(monitor, system.within(namespace), job_name=f"{namespace}/{name}")
            continue
        tls = monitor["spec"]["endpoints"][0]["tlsConfig"]
        secret = system.get("secret", tls["ca"]["secret"]["name"])["data"]
        trusted = scratch / f"{name}.crt"
        trusted.write_bytes(base64.b64decode(secret[tls["ca"]["secret"]["key"]]))
        yield discovery.job(
            monitor,
            system,
            job_name=f"{SYSTEM}/{name}",
            authorization={"credentials_file": str(token)},
            tls_config={"ca_file": str(trusted), "server_name": tls["serverName"]},
        )


@contextmanager
def _reader(system: Kubectl, operators: list[str]) -> Iterator[str]:
    """Create an account that can read the operators' metrics; yield its token and delete the account at the end."""
    name = f"{RELEASE}-{ACCOUNT}"
    bindings = [f"{name}-{operator}" for operator in operators]
    _delete_account(system, name, bindings)  # left by a run that was killed
    try:
        system("create", "serviceaccount", name)
        for operator, binding in zip(operators, bindings, strict=True):
            subject = f"--serviceaccount={SYSTEM}:{name}"
            system("create", "clusterrolebinding", binding, f"--clusterrole={operator}-metrics-reader", subject)
        yield system("create", "token", name, "--duration=2h").strip()
    finally:
        _delete_account(system, name, bindings)


def _delete_account(system: Kubectl, account: str, bindings: list[str]) -> None:
    system("delete", "serviceaccount", account, "--ignore-not-found")
    system("delete", "clusterrolebinding", *bindings, "--ignore-not-found")


if __name__ == "__main__":
    sys.exit(main())
