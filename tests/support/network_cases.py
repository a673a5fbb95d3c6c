"""Values of spec.network that every CRD accepts or rejects."""

from __future__ import annotations

from typing import Any

from tests.support.cases import Case


def _from(*peers: dict[str, Any]) -> dict[str, Any]:
    return {"network": {"allowFrom": list(peers)}}


SELECTOR: dict[str, Any] = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "stage", "operator": "In", "values": ["live"]}],
}
WEB: dict[str, Any] = {"podSelector": {"matchLabels": {"a": "b"}}}
SELECTED: dict[str, Any] = {"podSelector": SELECTOR, "namespaceSelector": SELECTOR}
PEERS: dict[str, Any] = {
    "podSelector": WEB,
    "namespaceSelector": {"namespaceSelector": {}},
    "ipBlock.cidr": {"ipBlock": {"cidr": "10.0.0.0/8"}},
    "ipBlock.except[]": {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
}
"""A client for each leaf of one."""

PRIVATE: dict[str, Any] = {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}

ACCEPTED = (
    Case("no NetworkPolicy", {"network": {"enabled": False}}),
    Case("restricted clients", {"network": {"allowFrom": [SELECTED, PRIVATE], "metricsFrom": [SELECTED, PRIVATE]}}),
    Case("no clients", {"network": {"allowFrom": [], "metricsFrom": []}}),
    Case("clients of all namespaces", _from({"namespaceSelector": {}})),
    Case("clients in a range with host bits", _from({"ipBlock": {"cidr": "10.1.2.3/16", "except": []}})),
    Case("clients in a range of IPv6", _from({"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}})),
)

_REFUSED_CLIENTS = (
    Case("a client that selects nothing", _from({}), "selects nothing", "spec.network.allowFrom[0]: selects nothing"),
    Case(
        "pods in a range",
        _from({**WEB, "ipBlock": {"cidr": "10.0.0.0/8"}}),
        "cannot be combined with podSelector",
        "spec.network.allowFrom[0].ipBlock: cannot be combined",
    ),
    Case(
        "an address without a prefix",
        _from({"ipBlock": {"cidr": "10.0.0.1"}}),
        'must be of type cidr: "10.0.0.1"',
        "spec.network.allowFrom[0].ipBlock.cidr: '10.0.0.1' is not a range",
    ),
    Case(
        "an exception that is no range",
        _from({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["web"]}}),
        'must be of type cidr: "web"',
        "ipBlock.except: each entry must be a range within cidr",
    ),
    Case("a range without addresses", _from({"ipBlock": {}}), "cidr: Required value", "cidr: is required"),
    Case("an empty range", _from({"ipBlock": {"cidr": ""}}), "at least 1 chars", "is too short"),
    Case("a range that is too long", _from({"ipBlock": {"cidr": "1" * 44}}), "more than 43", "at most 43 characters"),
    Case("too many clients", _from(*[WEB] * 33), "must have at most 32 items", "at most 32"),
    Case(
        "too many exceptions",
        _from({"ipBlock": {"cidr": "10.0.0.0/8", "except": [f"10.{n}.0.0/16" for n in range(17)]}}),
        "must have at most 16",
        "at most 16",
    ),
    Case(
        "an exception that is too long",
        _from({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["1" * 44]}}),
        "more than 43",
        "at most 43",
    ),
    Case(
        "an empty exception",
        _from({"ipBlock": {"cidr": "10.0.0.0/8", "except": [""]}}),
        "at least 1 chars",
        "is too short",
    ),
)

REFUSED = (
    *_REFUSED_CLIENTS,
    *(
        Case(
            f"{case.name}, for metrics",
            {"network": {"metricsFrom": case.spec["network"]["allowFrom"]}},
            case.api_error,
            case.operator_error.replace("allowFrom", "metricsFrom"),
        )
        for case in _REFUSED_CLIENTS
    ),
)

RANGES = ("10.0.0.0/8", "10.0.0.0/12", "0.0.0.0/0")
PARTS = ("10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16")
"""Ranges, and parts that are within each of them."""
