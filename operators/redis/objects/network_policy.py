"""The NetworkPolicy of the nodes: only nodes of the cluster may connect to the cluster bus. Pure."""

from __future__ import annotations

from operators.redis.api.resource import RedisCluster
from operators.redis.client.server import BUS_PORT, PORT
from operators.redis.objects.names import COMPONENT, METRICS_PORT, network_policy_name
from shared.kubernetes.kinds import NETWORK_POLICY, Obj
from shared.kubernetes.ownership import Owner


def network_policy(resource: RedisCluster, own: Owner) -> Obj:
    """Return the NetworkPolicy that admits the bus port from pods of the cluster only.

    Without TLS the bus has no authentication: a node of another cluster that gets the former address of a pod would be
    met, and both clusters would merge. A policy denies what it does not list, so it lists the ports of clients and
    metrics, for everyone, as without a policy.
    """
    selector = own.selector(COMPONENT)
    public = [PORT, METRICS_PORT] if resource.spec.exporter_image else [PORT]
    spec: Obj = {
        "podSelector": {"matchLabels": selector},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [_port(number) for number in public]},
            {"from": [{"podSelector": {"matchLabels": selector}}], "ports": [_port(BUS_PORT)]},
        ],
    }
    return own.object(NETWORK_POLICY, network_policy_name(resource), component=COMPONENT, spec=spec)


def _port(number: int) -> Obj:
    return {"port": number, "protocol": "TCP"}
