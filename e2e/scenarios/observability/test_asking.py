"""Every question of the dashboards and every rule is put to a real Prometheus over the real platform."""

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
from e2e.scenarios.observability.watch import NAMES, Watch
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.resource import Resource

pytestmark = pytest.mark.timeout(900)

SLOW = ("EtcdLogSlow", "EtcdDatabaseSlow", "EtcdPeersSlow")
"""What the machine that runs the tests may well be."""

BOUNDED = {"limits": {"memory": "192Mi"}, "requests": {"cpu": "10m", "memory": "32Mi"}}


def all_three(kubectl: Kubectl) -> Sequence[Resource]:
    """One resource of each kind, with some traffic on it; Ready, with metrics."""
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


def test_every_question_of_the_dashboards_has_an_answer_and_every_rule_is_evaluated(
    kubectl: Kubectl, watch: Watch, record_property: Callable[[str, object], None]
) -> None:
    made = all_three(kubectl)
    asked = list(queries())
    expected = [each for each in asked if not each.quiet and not each.panel.startswith("variable ")]
    assert len(expected) > 100

    silent = list(expected)

    def answered() -> bool:
        """Whether each had an answer once: on a busy machine a scrape may fail for a second."""
        watch.look()
        silent[:] = [each for each in silent if not watch.prometheus.ask(filled(each.expr, interval="5s"))]
        told = "\n".join(f"{each.dashboard}, {each.panel}: {each.expr}" for each in silent)
        assert not silent, f"{len(silent)} of {len(expected)} without an answer:\n{told}\n{watch.prometheus.targets()}"
        return True

    until("every question has an answer", answered, seconds=240, every=5)
    for each in asked:  # those that may be silent must be questions all the same
        watch.prometheus.ask(filled(each.expr, interval="5s"))
    rules = watch.prometheus.rules()
    failing = [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule["health"] != "ok"]
    assert not failing
    recorded = {rule["name"] for rule in rules if rule["type"] == "recording"}
    for name in recorded:
        until(f"{name} is recorded", lambda name=name: watch.prometheus.ask(name), seconds=30)  # type: ignore[misc]
    ours = [alert for alert in watch.prometheus.alerts() if alert["labels"].get("namespace") == kubectl.namespace]
    assert not [alert for alert in ours if alert["state"] == "firing" and alert["labels"]["alertname"] not in SLOW]
    record_property(
        "told",
        f"dashboards: {len(expected)}/{len(expected)} questions answered, {len(asked) - len(expected)} may be silent; "
        f"{len(rules)}/{len(rules)} rules evaluated",
    )

    told = {labels["kind"] for labels, _ in _told(watch, kubectl)}
    assert told == {resource.KIND for resource in made}
    for resource in made:
        kubectl("delete", resource.KIND.lower(), resource.name, "--wait=false")
    until("series of deleted resources vanish", lambda: not _told(watch, kubectl), seconds=60)


def _told(watch: Watch, kubectl: Kubectl) -> list[tuple[dict[str, str], float]]:
    return watch.prometheus.ask(f'platform_resource_info{{namespace="{kubectl.namespace}"}}')


@pytest.mark.parametrize("name", NAMES)
def test_metrics_are_for_those_who_may_read_them(name: str, system: Kubectl, account: Account, tmp_path: Path) -> None:
    operator = Operator(system, name)
    authority = tmp_path / "ca.crt"
    authority.write_bytes(operator.authority)
    trusting = ssl.create_default_context(cafile=str(authority))
    trusting.check_hostname = False  # asked by its address, which changes
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
    assert status("nobodys") == 401
    assert status(account("stranger")) == 403
    token = account("prometheus", f"{operator.name}-metrics-reader")
    until("the role is known to all", lambda: status(token) == 200, seconds=15)
    with pytest.raises(OSError, match=r"refused|reset|timed out"):
        urllib.request.urlopen(f"http://{address}:8080/metrics", timeout=5)
