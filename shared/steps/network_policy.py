"""The NetworkPolicy of a resource, and the step that keeps it; the same for all databases. Pure.

A NetworkPolicy denies what it does not list, and several policies add up. So the policy lists every port: those of
peers only for the pods of the resource and the operator, those of clients and metrics for everyone unless the spec
restricts them. Probes come from the node, which policies do not affect.

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shared.api.network import Network, Peer, as_peers
from shared.kubernetes.kinds import NETWORK_POLICY, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.plan import PASS, Apply, Step
from shared.status.reasons import OPERATOR_NOT_ADMITTED
from shared.status.verdict import Progress
from shared.steps.provisioning import keep


def network_policy_name(resource: str) -> str:
    """Return the name of the NetworkPolicy of a resource."""
    return f"{resource}-network"


@dataclass(frozen=True, slots=True)
class Access:
    """The ports of a resource's pods, and the peers that may connect to them.

    Attributes:
        network: spec.network.
        clients: ports of clients, which the operator needs too, and ports of extra containers.
        metrics: ports of metrics.
        peers: ports on which the pods connect to each other.
        helpers: further pods of the operator that connect as clients, as the `from` of a NetworkPolicy.
    """

    own: Owner
    component: str
    network: Network
    clients: tuple[int, ...]
    metrics: tuple[int, ...] = ()
    peers: tuple[int, ...] = ()
    helpers: tuple[Obj, ...] = ()

    def policy(self, operator: Sequence[Obj]) -> Obj:
        """Return the NetworkPolicy.

        Args:
            operator: peers as which the operator connects. Empty if they are unknown: no port that the operator may
                need is restricted then.
        """
        selector = {"matchLabels": self.own.selector(self.component)}
        inner: Obj = {
            "from": [{"podSelector": selector}, *operator],
            "ports": _ports(*self.clients, *self.metrics, *self.peers),
        }
        rules = [inner]
        if self.helpers:
            rules.append({"from": [*self.helpers], "ports": _ports(*self.clients)})
        for ports, given in ((self.clients, self.network.allow_from), (self.metrics, self.network.metrics_from)):
            rules += _rule(ports, given if operator else None)
        return self.own.object(
            NETWORK_POLICY,
            network_policy_name(self.own.name),
            component=self.component,
            spec={"podSelector": selector, "policyTypes": ["Ingress"], "ingress": rules},
        )

    @property
    def restricted(self) -> list[str]:
        """Fields of the spec that restrict ports which the operator may need."""
        given = {"allowFrom": self.network.allow_from, "metricsFrom": self.network.metrics_from}
        return [f"spec.network.{name}" for name, peers in given.items() if peers is not None]


def keep_network_policy(access: Access, operator: Sequence[Obj], found: Obj | None) -> Step:
    """Apply the NetworkPolicy, or delete it if the spec disables it.

    Without knowledge of its own peers, the operator writes no policy that could cut it off: the present one stays if it
    has the ports of the pods, and otherwise everyone is admitted to the ports that the operator may need.

    Args:
        operator: peers as which the operator connects; empty if they are unknown.
        found: the policy with that name, of any owner.
    """
    desired = access.policy(operator)
    if not access.network.enabled or operator or not access.restricted:
        return keep(access.own, NETWORK_POLICY, desired if access.network.enabled else None, found)
    fields = " and ".join(access.restricted)
    stays = found is not None and access.own.owns(found) and _all_ports(found) == _all_ports(desired)
    effect = f"NetworkPolicy {desired['metadata']['name']} was not changed" if stays else "all clients are admitted"
    return Step(
        () if stays else (Apply(NETWORK_POLICY, desired),),
        Progress.DONE,
        OPERATOR_NOT_ADMITTED,
        f"{fields}: not applied, because the operator does not know as which peers it connects, and the policy could "
        f"cut it off; {effect}. Start the operator with --operator-peers, as its chart does.",
        warning=True,
    )


def admit_operator(access: Access, operator: Sequence[Obj], found: Obj | None) -> Step:
    """Apply the NetworkPolicy if the existing one does not admit the operator, for example after it moved.

    Args:
        operator: peers as which the operator connects; empty if they are unknown.
        found: the policy with that name, of any owner.
    """
    if found is None or not access.own.owns(found) or not access.network.enabled:
        return PASS
    inner, *_ = found["spec"].get("ingress") or [{}]
    admitted = inner.get("from") or ()
    return (
        PASS if all(peer in admitted for peer in operator) else Step.do(Apply(NETWORK_POLICY, access.policy(operator)))
    )


def _rule(ports: Sequence[int], given: Sequence[Peer] | None) -> list[Obj]:
    """Return the rule for ports: no rule admits no client, and a rule without `from` admits everyone."""
    if not ports or (given is not None and not given):
        return []
    return [({"from": as_peers(given)} if given else {}) | {"ports": _ports(*ports)}]


def _ports(*numbers: int) -> list[Obj]:
    return [{"port": number, "protocol": "TCP"} for number in numbers]


def _all_ports(policy: Obj) -> set[int]:
    rules: Iterable[Obj] = policy["spec"].get("ingress") or ()
    return {port["port"] for rule in rules for port in rule.get("ports") or ()}
