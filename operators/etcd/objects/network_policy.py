"""Ports of the members, and the peers that may connect to them. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.objects.names import BACKUP, CLIENT_PORT, COMPONENT, METRICS_PORT, PEER_PORT
from shared.kubernetes.ownership import MANAGED_BY, NAME, Owner
from shared.steps.network_policy import Access


def access(resource: EtcdCluster, own: Owner) -> Access:
    """Return the access to the members: pods that take snapshots are clients too."""
    snapshots = {"podSelector": {"matchLabels": {NAME: BACKUP, MANAGED_BY: own.operator}}}
    return Access(
        own,
        COMPONENT,
        resource.spec.network,
        clients=(CLIENT_PORT, *resource.spec.extra_ports),
        metrics=(METRICS_PORT,),
        peers=(PEER_PORT,),
        helpers=(snapshots,),
    )
