"""Metrics, scraped by a real Prometheus with the ServiceMonitors of the chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, tls_client, tls_secret, users
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.operator import Account, Operator
from e2e.scenarios.support.prometheus import Prometheus, job_of
from e2e.scenarios.support.release import Release
from tools.local.pki import Authority

pytestmark = pytest.mark.nightly

LOGIN = ("app", "secret")


@pytest.fixture
def authority(operator: Operator, tmp_path: Path) -> Path:
    """Return a file with the operator's CA certificate, from the Secret that the Prometheus operator reads too."""
    file = tmp_path / "ca.crt"
    file.write_bytes(operator.authority)
    return file


def monitor(release: Release, name: str) -> dict[str, Any]:
    """Return a ServiceMonitor of the chart by name."""
    monitors = release.rendered("ServiceMonitor", "--set=memcached.metrics.serviceMonitor.enabled=true")
    return next(found for found in monitors if found["metadata"]["name"] == name)


def test_prometheus_scrapes_servers_with_authentication_and_tls(
    kubectl: Kubectl, operator: Operator, found_release: Release, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    names = [f"cache.{kubectl.namespace}.svc", f"*.cache.{kubectl.namespace}.svc"]
    own = authority.issue("client", "client")
    kubectl.apply(tls_secret("certificate", authority, authority.issue("server", "cache", hosts=names)))
    kubectl.apply(users("users", LOGIN))
    tls = {"secretName": "certificate", "clientAuth": "required"}
    access = Access(LOGIN, tls_client(authority, own, checks_names=False), Names(kubectl))
    spec = {"auth": {"secretName": "users"}, "tls": tls, "metrics": {}}
    cache = Memcached.create(kubectl, "cache", access, size=2, **spec)
    pods = set(cache.await_ready(2)["status"]["nodes"])
    assert cache.serves() == 2

    job = job_of(monitor(found_release, f"{operator.name}-operands"), kubectl)
    with Prometheus.scraping(tmp_path / "prometheus", [job]) as prometheus:

        def scraped() -> bool:
            up = {labels["pod"]: value for labels, value in prometheus.query("memcached_up")}
            assert up == dict.fromkeys(pods, 1.0), prometheus.targets()
            return True

        until("every server is scraped", scraped)
        [(_, sets)] = prometheus.query('sum(memcached_commands_total{command="set", status="hit"})')
        assert sets >= 2
        assert all(900 < value < 1024 for _, value in prometheus.query("memcached_max_connections"))


def test_prometheus_scrapes_every_replica_of_the_operator_with_a_token(
    operator: Operator, found_release: Release, account: Account, authority: Path, tmp_path: Path
) -> None:
    own = monitor(found_release, operator.name)
    token = tmp_path / "token"
    token.write_text(account("prometheus", f"{operator.name}-metrics-reader"))
    job = job_of(
        own,
        operator.system,
        authorization={"credentials_file": str(token)},
        tls_config={"ca_file": str(authority), "server_name": own["spec"]["endpoints"][0]["tlsConfig"]["serverName"]},
    )
    pods = {pod["metadata"]["name"] for pod in operator.pods}
    with Prometheus.scraping(tmp_path / "prometheus", [job]) as prometheus:

        def scraped() -> bool:
            up = {labels["pod"]: value for labels, value in prometheus.query("up")}
            assert up == dict.fromkeys(pods, 1.0), prometheus.targets()
            return True

        until("every replica is scraped", scraped)
        leads = prometheus.query('leader_election_master_status{name="memcached-operator"} == 1')
        assert [labels["pod"] for labels, _ in leads] == [operator.leader()["metadata"]["name"]]
        for name in ("controller_runtime_reconcile_total", "workqueue_depth", "rest_client_requests_total"):
            assert {labels["pod"] for labels, _ in prometheus.query(name)} == pods, name
