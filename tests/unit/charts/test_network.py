"""The NetworkPolicies allow the required traffic in a namespace that denies all by default, and nothing else.

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
    objects = render(chart, {"networkPolicy": {"enabled": True}, **values})
    return [obj for obj in objects if obj["kind"] == "NetworkPolicy"], *ends(objects)


def test_no_network_policy_by_default(operator_chart: Path) -> None:
    assert not [obj for obj in render(operator_chart) if obj["kind"] == "NetworkPolicy"]


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
    found, operator, check = policies(operator_chart, networkPolicy={"enabled": True, "apiServerPorts": [16443]})
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
