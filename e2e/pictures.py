"""Pictures of the dashboards from the local cluster: `make dashboards`.

Debian's Prometheus runs beside the cluster for a while, scrapes what the charts' ServiceMonitors select, as an account
that may, and evaluates the rules; then each dashboard is drawn from it. Nothing stays in the cluster.
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
from e2e.cluster.cluster import Cluster
from e2e.cluster.errors import ClusterError
from e2e.cluster.paths import REPOSITORY
from e2e.cluster.release import operators
from e2e.scenarios.support.commands import RELEASE, SYSTEM, Helm, Kubectl, Refused
from e2e.scenarios.support.prometheus import Prometheus, job_of
from e2e.scenarios.support.release import Release

GENERATED = REPOSITORY / "dashboards" / "generated"
ACCOUNT = "pictures"

INTERVAL = "10s"
"""Of rates: scrapes are a second apart."""


def main(arguments: list[str] | None = None) -> int:
    """Scrape for a while, then draw; a failure says what is wrong and what mends it."""
    parser = argparse.ArgumentParser(prog="python -m e2e.pictures", description="Draws the dashboards of the cluster.")
    parser.add_argument("--minutes", type=float, default=3, help="how long to scrape before")
    parser.add_argument("--into", type=Path, default=REPOSITORY / "docs/pictures", help="directory of the pictures")
    options = parser.parse_args(arguments)
    try:
        draw(options.minutes * 60, options.into)
    except (ClusterError, Refused) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


def draw(seconds: float, into: Path) -> None:
    """Draw every dashboard from what the cluster's metrics are for so long.

    Raises:
        ClusterError: no cluster of this clone is up.
    """
    running = Cluster.running()
    if running is None:
        raise ClusterError("no local cluster is up, and the pictures are of one", "make up")
    system = Kubectl(SYSTEM, {**os.environ, "KUBECONFIG": str(running.kubeconfig)})
    into.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        found = list(jobs(stack, system, scratch))
        rules = sorted((GENERATED / "rules").glob("*.yaml"))
        prometheus = stack.enter_context(Prometheus.scraping(scratch / "prometheus", found, rules=rules))
        sys.stdout.write(f"{prometheus.url} scrapes for {seconds:.0f} s\n")
        sys.stdout.flush()
        time.sleep(seconds)
        for target in prometheus.targets():
            if " up" not in target:
                sys.stdout.write(f"not scraped: {target}\n")
        view = View(time.time(), seconds, INTERVAL)
        for file in sorted(GENERATED.glob("*.json")):
            drawn = into / f"{file.stem}.png"
            picture(load(file), Api(prometheus.url), view, drawn)
            sys.stdout.write(f"{drawn}\n")


def jobs(stack: ExitStack, system: Kubectl, scratch: Path) -> Iterator[dict[str, Any]]:
    """A scrape configuration for each ServiceMonitor of the release and each namespace that it looks at.

    Args:
        stack: when it is left, what was made in the cluster for them is gone.
        system: a kubectl in the release's namespace.
        scratch: a directory for the token and for whom to trust.
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
                yield job_of(monitor, system.within(namespace), job_name=f"{namespace}/{name}")
            continue
        tls = monitor["spec"]["endpoints"][0]["tlsConfig"]
        held = system.get("secret", tls["ca"]["secret"]["name"])["data"]
        trusted = scratch / f"{name}.crt"
        trusted.write_bytes(base64.b64decode(held[tls["ca"]["secret"]["key"]]))
        yield job_of(
            monitor,
            system,
            job_name=f"{SYSTEM}/{name}",
            authorization={"credentials_file": str(token)},
            tls_config={"ca_file": str(trusted), "server_name": tls["serverName"]},
        )


@contextmanager
def _reader(system: Kubectl, operators: list[str]) -> Iterator[str]:
    """The token of an account that may read these operators' metrics, until the context is left."""
    name = f"{RELEASE}-{ACCOUNT}"
    bindings = [f"{name}-{operator}" for operator in operators]
    _forget(system, name, bindings)  # of a run that was killed
    try:
        system("create", "serviceaccount", name)
        for operator, binding in zip(operators, bindings, strict=True):
            who = f"--serviceaccount={SYSTEM}:{name}"
            system("create", "clusterrolebinding", binding, f"--clusterrole={operator}-metrics-reader", who)
        yield system("create", "token", name, "--duration=2h").strip()
    finally:
        _forget(system, name, bindings)


def _forget(system: Kubectl, account: str, bindings: list[str]) -> None:
    system("delete", "serviceaccount", account, "--ignore-not-found")
    system("delete", "clusterrolebinding", *bindings, "--ignore-not-found")


if __name__ == "__main__":
    sys.exit(main())
