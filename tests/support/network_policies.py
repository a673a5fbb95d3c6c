"""Evaluate NetworkPolicies, for networks that do not enforce them: may one pod connect to a port of another?

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from shared.kubernetes.kinds import Obj

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""Label of every namespace with its name."""


@dataclass(frozen=True)
class Peer:
    """One end of a connection.

    Attributes:
        namespace: namespace of the pod; empty for an address outside of the pods.
        labels: labels of the pod.
        address: address, for rules with an ipBlock.
    """

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    address: str = "192.0.2.1"

    @classmethod
    def of(cls, pod: Obj) -> Peer:
        metadata = pod["metadata"]
        return cls(metadata["namespace"], metadata.get("labels") or {})


def admits(policies: Iterable[Obj], source: Peer, target: Peer, port: int) -> bool:
    """Return whether the policies let a connection into the target; without a policy for it, everything is let in."""
    selecting = [
        policy
        for policy in policies
        if policy["metadata"]["namespace"] == target.namespace
        and "Ingress" in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], target.labels)
    ]
    return not selecting or any(
        _has_port(rule, port) and _is_from(rule, source, target.namespace)
        for policy in selecting
        for rule in policy["spec"].get("ingress") or ()
    )


def selects(selector: Obj, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector selects an object with these labels; an empty selector selects all."""
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        _meets(each, labels) for each in selector.get("matchExpressions") or ()
    )


def _meets(expression: Obj, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    return {
        "In": labels.get(key) in values,
        "NotIn": labels.get(key) not in values,
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
    }[expression["operator"]]


def _has_port(rule: Obj, port: int) -> bool:
    """Return whether a rule is for a port; one without ports is for all, also one with an empty list."""
    return not rule.get("ports") or any(
        each.get("protocol", "TCP") == "TCP" and each.get("port", port) == port for each in rule["ports"]
    )


def _is_from(rule: Obj, source: Peer, namespace: str) -> bool:
    """Return whether a rule admits a source; one without `from` admits all, also one with an empty list."""
    return not rule.get("from") or any(_is(peer, source, namespace) for peer in rule["from"])


def _is(peer: Obj, source: Peer, namespace: str) -> bool:
    if block := peer.get("ipBlock"):
        excluded = any(_in(source.address, part) for part in block.get("except") or ())
        return _in(source.address, block["cidr"]) and not excluded
    if not source.namespace:
        return False
    in_namespace = source.namespace == namespace
    if "namespaceSelector" in peer:
        in_namespace = selects(peer["namespaceSelector"], {NAMESPACE_NAME: source.namespace})
    return in_namespace and selects(peer.get("podSelector") or {}, source.labels)


def _in(address: str, cidr: str) -> bool:
    return ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)
