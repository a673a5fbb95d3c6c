"""Scrape configuration and target labels of the charts' ServiceMonitors, as the Prometheus operator generates them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.prometheus import job_of
from tests.support import charts as rendering


class Cluster(Kubectl):
    """A cluster with one Service of the etcd operator and one pod."""

    def items(self, *what: str) -> list[Any]:
        labels = {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/instance": "orders"}
        if what[0] == "services":
            return [{"metadata": {"name": "orders-headless", "namespace": self.namespace, "labels": labels}}]
        endpoint = {"addresses": ["10.0.0.7"], "targetRef": {"name": "orders-0"}}
        ports = [{"name": "client", "port": 2379}, {"name": "metrics", "port": 2381}]
        of_service = {"labels": {"kubernetes.io/service-name": "orders-headless"}}
        of_other = {"labels": {"kubernetes.io/service-name": "other"}}
        return [{"metadata": each, "ports": ports, "endpoints": [endpoint]} for each in (of_service, of_other)]


def test_server_targets_have_labels_of_pod_resource_and_namespace(charts: Path) -> None:
    given = {"metrics": {"serviceMonitor": {"enabled": True}}}
    monitor = rendering.named(rendering.render(charts / "etcd-operator", given), "ServiceMonitor", "-operands")
    job = job_of(monitor, Cluster("shop", {}))
    [found] = job["static_configs"]
    assert found["targets"] == ["10.0.0.7:2381"]
    assert found["labels"] == {
        "namespace": "shop",
        "service": "orders-headless",
        "job": "etcd",
        "pod": "orders-0",
        "app_kubernetes_io_instance": "orders",
    }
    assert job["honor_labels"] is False


def test_operator_targets_keep_the_namespace_of_the_described_resource(charts: Path) -> None:
    given = {"metrics": {"serviceMonitor": {"enabled": True}}}
    monitors = rendering.of_kind(rendering.render(charts / "etcd-operator", given), "ServiceMonitor")
    [own] = [found for found in monitors if not found["metadata"]["name"].endswith("-operands")]
    assert job_of(own, Cluster(rendering.NAMESPACE, {}), scheme="http")["honor_labels"] is True
