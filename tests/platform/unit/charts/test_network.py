"""The NetworkPolicies allow the required ingress in a namespace that denies all by default, and nothing else.

The tests evaluate the subset of https://kubernetes.io/docs/concepts/services-networking/network-policies/ that the
charts use: a policy must allow a connection at each end, and traffic of unselected pods is denied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.charts import NAMESPACE, OPERATORS, Obj, pods, render


@dataclass(frozen=True)
class End:
    """One end of a connection; without labels, an address outside of the cluster's pods."""

    namespace: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)


OUTSIDE = End()


@pytest.fixture(params=OPERATORS)
def operator_chart(request: pytest.FixtureRequest, charts: Path) -> Path:
    return charts / str(request.param)


def allows(policies: list[Obj], source: End, target: End, port: int, protocol: str = "TCP") -> bool:
    """Return whether policies allow a connection in namespaces that deny all traffic by default."""
    egress = source == OUTSIDE or _allowed(policies, "egress", "to", source, target, (port, protocol))
    ingress = target == OUTSIDE or _allowed(policies, "ingress", "from", target, source, (port, protocol))
    return egress and ingress


def _allowed(policies: list[Obj], direction: str, peers: str, end: End, other: End, port: tuple[int, str]) -> bool:
    target = end if direction == "ingress" else other
    return any(
        _ports(rule, target, port) and (("from" not in rule and "to" not in rule) or _peers(rule[peers], other))
        for policy in policies
        if policy["metadata"]["namespace"] == end.namespace and _matches(policy["spec"]["podSelector"], end.labels)
        for rule in policy["spec"].get(direction, ())
    )


def _ports(rule: Obj, target: End, port: tuple[int, str]) -> bool:
    if "ports" not in rule:
        return True
    return port in [(target.ports.get(each["port"], each["port"]), each["protocol"]) for each in rule["ports"]]


def _peers(peers: list[Obj], other: End) -> bool:
    return other != OUTSIDE and any(
        _matches(peer["namespaceSelector"], {"kubernetes.io/metadata.name": other.namespace})
        and _matches(peer["podSelector"], other.labels)
        for peer in peers
        if "ipBlock" not in peer
    )


def _matches(selector: Obj, labels: dict[str, str]) -> bool:
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def ends(objects: list[Obj]) -> tuple[End, End]:
    """Return the operator's pod and the pod of `helm test`."""
    found = {}
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        metadata = pod["metadata"]
        found[container["name"]] = End(metadata["namespace"], metadata["labels"], ports)
    return found["operator"], found["check"]


def server(chart: Path, instance: str, namespace: str = NAMESPACE) -> End:
    """Return a database pod with the labels that the operators set."""
    labels = {"app.kubernetes.io/managed-by": chart.name, "app.kubernetes.io/instance": instance}
    return End(namespace, {**labels, "app.kubernetes.io/component": "server"})


def policies(chart: Path, **values: object) -> tuple[list[Obj], End, End]:
    objects = render(chart, {"networkPolicy": {"restrictEgress": True}, **values})
    return [obj for obj in objects if obj["kind"] == "NetworkPolicy"], *ends(objects)


def test_policy_limits_ingress_to_the_ports_by_default_and_no_egress(operator_chart: Path) -> None:
    """Ports of API servers, of DNS and of object stores differ: a limit that guesses could break an installation."""
    found, operator, check = policies(operator_chart, networkPolicy={})
    assert {policy["metadata"]["name"] for policy in found} >= {f"platform-{operator_chart.name}"}
    assert {tuple(policy["spec"]["policyTypes"]) for policy in found} == {("Ingress",)}
    assert all(allows(found, OUTSIDE, operator, port) for port in operator.ports.values())
    assert not allows(found, OUTSIDE, operator, 6060)
    assert not allows(found, OUTSIDE, check, 80)
    assert not policies(operator_chart, networkPolicy={"enabled": False})[0]


def test_webhook_admits_only_the_named_sources_of_the_api_server(operator_chart: Path) -> None:
    tunnel = {"namespaceSelector": _named("kube-system"), "podSelector": {"matchLabels": {"app": "konnectivity-agent"}}}
    nodes = {"ipBlock": {"cidr": "10.0.0.0/16"}}
    found, operator, _ = policies(operator_chart, networkPolicy={"apiServer": [tunnel, nodes]})
    found += [_open_egress("kube-system"), _open_egress("shop")]
    assert allows(found, End("kube-system", {"app": "konnectivity-agent"}), operator, 9443)
    assert not allows(found, End("shop", {"app": "shop"}), operator, 9443)
    assert allows(found, OUTSIDE, operator, 8081), "the kubelet"
    assert allows(found, OUTSIDE, operator, 8443)
    (policy,) = (each for each in found if each["metadata"].get("name") == f"platform-{operator_chart.name}")
    (webhook,) = (rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == "webhook")
    assert nodes in webhook["from"]


def test_metrics_admit_only_the_named_clients(operator_chart: Path) -> None:
    monitoring = {"namespaceSelector": _named("monitoring"), "podSelector": {}}
    found, operator, _ = policies(operator_chart, networkPolicy={"metricsFrom": [monitoring]})
    found += [_open_egress("monitoring"), _open_egress("shop")]
    assert allows(found, End("monitoring", {"app": "prometheus"}), operator, 8443)
    assert not allows(found, End("shop", {"app": "shop"}), operator, 8443)
    assert allows(found, OUTSIDE, operator, 9443)


def _open_egress(namespace: str) -> Obj:
    return {"metadata": {"namespace": namespace}, "spec": {"podSelector": {}, "egress": [{}]}}


def _named(namespace: str) -> Obj:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


def test_operator_egress_is_limited_to_dns_api_server_and_databases(operator_chart: Path) -> None:
    found, operator, _ = policies(operator_chart)
    for port, protocol in ((53, "UDP"), (53, "TCP"), (443, "TCP"), (6443, "TCP")):
        assert allows(found, operator, OUTSIDE, port, protocol)
    assert not allows(found, operator, OUTSIDE, 80)
    assert not allows(found, operator, OUTSIDE, 4318)
    open_ingress = {"metadata": {"namespace": "shop"}, "spec": {"podSelector": {}, "ingress": [{}]}}
    assert allows([*found, open_ingress], operator, server(operator_chart, "cache", "shop"), 11211)
    assert not allows([*found, open_ingress], operator, End("shop", {"app": "shop"}), 11211)


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [("http://collector:4318", 4318), ("http://collector/v1", 80), ("https://[::1]/x", 443)],
)
def test_operator_egress_includes_the_otlp_endpoint(operator_chart: Path, endpoint: str, port: int) -> None:
    found, operator, _ = policies(operator_chart, otlpEndpoint=endpoint)
    assert allows(found, operator, OUTSIDE, port)
    assert not allows(found, operator, OUTSIDE, 1234)


def test_api_server_ports_can_be_changed(operator_chart: Path) -> None:
    found, operator, check = policies(operator_chart, networkPolicy={"restrictEgress": True, "apiServerPorts": [16443]})
    assert allows(found, operator, OUTSIDE, 16443)
    assert allows(found, check, OUTSIDE, 16443)
    assert not allows(found, operator, OUTSIDE, 6443)


def test_ingress_is_limited_to_the_served_ports(operator_chart: Path) -> None:
    found, operator, _ = policies(operator_chart)
    assert set(operator.ports.values()) == {8081, 8443, 9443}
    assert all(allows(found, OUTSIDE, operator, port) for port in operator.ports.values())
    assert not allows(found, OUTSIDE, operator, 6060), "profiles are served on the loopback interface only"
    found, operator, _ = policies(operator_chart, webhook={"enabled": False}, metrics={"enabled": False})
    assert allows(found, OUTSIDE, operator, 8081)
    assert not allows(found, OUTSIDE, operator, 9443)


@pytest.mark.parametrize("namespaces", [[], ["shop"]], ids=["release-namespace", "other-namespace"])
def test_network_policies_allow_helm_test(operator_chart: Path, namespaces: list[str]) -> None:
    found, operator, check = policies(operator_chart, watchNamespaces=namespaces)
    where = (namespaces or [NAMESPACE])[0]
    checked = server(operator_chart, f"check-platform-{operator_chart.name}", where)
    assert allows(found, check, OUTSIDE, 443)
    assert allows(found, check, OUTSIDE, 53, "UDP")
    assert allows(found, check, checked, 11211)
    assert allows(found, operator, checked, 11211)
    assert not allows(found, check, server(operator_chart, "cache", where), 11211), "servers of another resource"
    assert not allows(found, End(NAMESPACE, {"app": "shop"}), checked, 11211)
    assert not allows(found, End(NAMESPACE, {"app": "shop"}), check, 11211)
