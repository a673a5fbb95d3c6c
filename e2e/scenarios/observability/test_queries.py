"""A real Prometheus that scrapes the platform evaluates every query of the dashboards and every rule."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dashboards.catalogue import queries
from dashboards.promql import filled
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.observability.watch import NAMES, TRUE_HERE, Watch
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.resource import Resource

pytestmark = pytest.mark.timeout(900)

BOUNDED = {"limits": {"memory": "192Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}}


def all_three(kubectl: Kubectl) -> Sequence[Resource]:
    """Create one resource of each kind with metrics, wait until they are Ready, and generate traffic."""
    cache = Memcached.create(kubectl, "cache", size=2, metrics={})
    etcd = EtcdCluster.create(kubectl, "orders", size=3)
    redis = Cluster.create(kubectl, "carts", replicas=6, metrics={}, resources=BOUNDED)
    cache.await_ready(2)
    etcd.await_ready(3)
    redis.await_ready(6)
    assert cache.serves() == 2
    with etcd.load(clients=1) as load:
        load.put("key", "value")
    redis.fill(100)
    return cache, etcd, redis


@pytest.mark.nightly
def test_dashboard_queries_return_series_and_rules_are_evaluated(
    kubectl: Kubectl, watch: Watch, record_property: Callable[[str, object], None]
) -> None:
    resources = all_three(kubectl)
    every = list(queries())
    expected = [query for query in every if not query.quiet and not query.panel.startswith("variable ")]
    assert len(expected) > 100

    empty = list(expected)

    def answered() -> bool:
        """Return whether each query has returned series once: on a busy machine single scrapes may fail."""
        empty[:] = [query for query in empty if not watch.prometheus.query(filled(query.expr, interval="12s"))]
        listed = "\n".join(f"{query.dashboard}, {query.panel}: {query.expr}" for query in empty)
        assert not empty, f"{len(empty)} of {len(expected)} without series:\n{listed}\n{watch.prometheus.targets()}"
        return True

    until("every query returns series", answered, seconds=240, every=5)
    for query in every:  # queries that may be empty must be valid nevertheless
        watch.prometheus.query(filled(query.expr, interval="12s"))
    rules = watch.prometheus.rules()
    failing = [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
    assert not failing
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    for name in recorded:
        until(f"{name} is recorded", lambda name=name: watch.prometheus.query(name), seconds=30)  # type: ignore[misc]

    def quiet() -> bool:
        """Return whether only alerts fire that are true of these resources."""
        alerts = [labels for labels in watch.firing() if labels.get("namespace") == kubectl.namespace]
        wrong = [labels for labels in alerts if labels["alertname"] not in TRUE_HERE]
        assert not wrong, wrong
        return True

    until("no other alert fires", quiet, seconds=120)
    record_property(
        "summary",
        f"dashboards: {len(expected)}/{len(expected)} queries with series, {len(every) - len(expected)} may be empty; "
        f"{len(rules)}/{len(rules)} rules evaluated",
    )

    def complete() -> bool:
        kinds = {labels["kind"] for labels, _ in _resource_info(watch, kubectl)}
        assert kinds == {resource.KIND for resource in resources}
        return True

    until("every kind is reported", complete)
    for resource in resources:
        kubectl("delete", resource.KIND.lower(), resource.name, "--wait=false")
    until("series of deleted resources vanish", lambda: not _resource_info(watch, kubectl), seconds=60)


def _resource_info(watch: Watch, kubectl: Kubectl) -> list[tuple[dict[str, str], float]]:
    return watch.prometheus.query(f'platform_resource_info{{namespace="{kubectl.namespace}"}}')


@pytest.mark.parametrize("name", NAMES)
def test_metrics_require_authentication_and_permission(
    name: str, system: Kubectl, account: Account, tmp_path: Path
) -> None:
    operator = Operator(system, name)
    authority = tmp_path / "ca.crt"
    authority.write_bytes(operator.authority)
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.check_hostname = False  # requested by the pod's address, which is not in the certificate
    address = operator.pods[0]["status"]["podIP"]

    def status(token: str | None) -> int:
        request = urllib.request.Request(f"https://{address}:8443/metrics")
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=trusting, timeout=10) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    assert status(None) == 401
    assert status("invalid") == 401
    assert status(account("unauthorized")) == 403
    token = account("prometheus", f"{operator.name}-metrics-reader")
    until("the role binding is in effect", lambda: status(token) == 200, seconds=15)
    with pytest.raises(OSError, match=r"refused|reset|timed out"):
        urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=5)
