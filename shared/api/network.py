"""spec.network, which all kinds have: the clients that the NetworkPolicy of a resource admits."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from shared.api.podspec import OPAQUE
from shared.api.spec import Rule, SpecModel, as_object
from shared.kubernetes.kinds import Obj

_SELECTOR_KEYS = {"matchLabels", "matchExpressions"}
_CIDR_LENGTH = 43  # of an IPv6 address with its prefix


def _selector(value: dict[str, Any]) -> dict[str, Any]:
    """Return a label selector; a misspelled key would make it empty, and an empty one selects everything."""
    if unknown := sorted(value.keys() - _SELECTOR_KEYS):
        raise ValueError(f"a selector has matchLabels and matchExpressions, not {', '.join(unknown)}")
    return value


Selector = Annotated[dict[str, Any], AfterValidator(_selector)]
Cidr = Annotated[str, Field(min_length=1, max_length=_CIDR_LENGTH, json_schema_extra={"format": "cidr"})]
"""A range of addresses. Every version of Kubernetes checks the format; CEL has functions for ranges from 1.31 only."""


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the range of addresses; None if the text is none. Like Kubernetes, accept one with host bits."""
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None


def _within(inner: str, outer: str) -> bool:
    """Return whether a range is a part of another one, and not all of it."""
    part, whole = _network(inner), _network(outer)
    if part is None or whole is None or part.version != whole.version:
        return False
    return part.prefixlen > whole.prefixlen and part.network_address in whole


class IpBlock(SpecModel):
    """A range of addresses."""

    cidr: Cidr = Field(description="Range of addresses, such as 10.0.0.0/8.")
    except_: Annotated[list[Cidr], Field(max_length=16)] | None = Field(
        None,
        alias="except",
        description="Parts of the range that are not admitted: smaller ranges within it. Default: none.",
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "",  # the format of the schema
            lambda given: _network(given.cidr) is not None,
            "'{}' is not a range of addresses; use a form such as 10.0.0.0/8 or 2001:db8::/32.",
            at="cidr",
            value=("", lambda given: given.cidr),
        ),
        Rule(
            "",
            lambda given: (
                _network(given.cidr) is None or all(_within(part, given.cidr) for part in given.except_ or ())
            ),
            "each entry must be a range within cidr, and smaller than it.",
            at="except",
        ),
    )


class Peer(SpecModel):
    """Clients that are admitted, as a NetworkPolicyPeer of Kubernetes."""

    pod_selector: Selector | None = Field(
        None,
        description="Label selector of pods; {} selects all. Without namespaceSelector, pods of the resource's own "
        "namespace.",
        json_schema_extra=OPAQUE,
    )
    namespace_selector: Selector | None = Field(
        None,
        description="Label selector of namespaces; {} selects all. Without podSelector, all pods in them.",
        json_schema_extra=OPAQUE,
    )
    ip_block: IpBlock | None = Field(
        None, description="Range of addresses outside of the pods, such as the nodes of a private network."
    )

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.podSelector) || has(self.namespaceSelector) || has(self.ipBlock)",
            lambda peer: any(part is not None for part in (peer.pod_selector, peer.namespace_selector, peer.ip_block)),
            "selects nothing; set podSelector, namespaceSelector or ipBlock.",
        ),
        Rule(
            "!has(self.ipBlock) || !(has(self.podSelector) || has(self.namespaceSelector))",
            lambda peer: peer.ip_block is None or (peer.pod_selector is None and peer.namespace_selector is None),
            "cannot be combined with podSelector or namespaceSelector; use a second entry.",
            at="ipBlock",
        ),
    )


Peers = Annotated[list[Peer], Field(max_length=32)]

NETWORK = (
    "Clients that may connect to the pods. It has an effect if the network plugin of Kubernetes enforces policies."
)
"""Description of spec.network."""


class Network(SpecModel):
    """The NetworkPolicy NAME-network of the pods."""

    enabled: bool = Field(
        True,
        description="Whether the NetworkPolicy NAME-network exists. It admits the pods of this resource and the "
        "operator to all ports, and others to the ports of clients and metrics only. Policies add up: set false if "
        "policies of yours restrict these ports, and admit the pods of the resource and the operator there. No "
        "restart.",
    )
    allow_from: Peers | None = Field(
        None,
        description="Clients that may connect. Default: all. An empty list admits none but the pods of this resource "
        "and the operator. No restart.",
    )
    metrics_from: Peers | None = Field(
        None,
        description="Clients that may read metrics, such as Prometheus. Default: all. An empty list admits none but "
        "the pods of this resource and the operator. No effect while no port serves metrics. No restart.",
    )

    @property
    def restricts_clients(self) -> bool:
        """Whether the NetworkPolicy restricts clients."""
        return self.enabled and self.allow_from is not None

    def without_effect(self, *, has_metrics: bool) -> list[str]:
        """Return a warning for each field that is accepted and changes nothing.

        Args:
            has_metrics: whether a port of the pods serves metrics.
        """
        given = {"allowFrom": self.allow_from, "metricsFrom": self.metrics_from}
        set_fields = [f"spec.network.{name}" for name, peers in given.items() if peers is not None]
        if not self.enabled:
            return [f"{at}: has no effect with enabled: false. Set enabled: true, or remove it." for at in set_fields]
        if self.metrics_from is not None and not has_metrics:
            return ["spec.network.metricsFrom: has no effect, because no port serves metrics. Set spec.metrics."]
        return []


def as_peers(given: Sequence[Peer]) -> list[Obj]:
    """Return clients as the `from` of a NetworkPolicy."""
    return [_as_stored(as_object(peer)) for peer in given]


def _as_stored(peer: Obj) -> Obj:
    """Return a peer without an empty list of exceptions, which the API server drops."""
    block = peer.get("ipBlock")
    return peer | {"ipBlock": {name: value for name, value in block.items() if value}} if block else peer
