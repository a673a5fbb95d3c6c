"""Names of members, and pure builders of the Kubernetes objects an EtcdCluster owns; the pod is in template.py."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from operators.etcd.api.resource import API, EtcdCluster
from operators.etcd.client.server import Endpoint
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.objects import claim_template, headless, service_port
from shared.kubernetes.ownership import Owner
from shared.steps import provisioning

if TYPE_CHECKING:
    from operators.etcd.observe import Instance

COMPONENT = "member"
CONTAINER = "etcd"

CLIENT, PEER, METRICS = "client", "peer", "metrics"
CLIENT_PORT, PEER_PORT, METRICS_PORT = 2379, 2380, 2381

DATA = "data"
"""Name of the volume, and of the directory in it, that holds what a member has stored."""

SECRETS = "etcd.ydzs.io/secrets"
"""Annotation of pods: a digest of what etcd reads from Secrets at its start alone; another one restarts members."""

SERVES = "etcd.ydzs.io/serves"
CLIENTS = "clients"
"""Label and its value of pods that clients may be sent to: etcd refuses clients of a member that has no vote yet."""

CLUSTER_UID = "etcd.ydzs.io/cluster-uid"
"""Label of volume claims: the UID of the resource whose data they hold. One of the same name is another's."""

LEAST_WITH_BUDGET = 3
"""Members from which on one may be missing without a person having allowed it: two of three still agree."""


def owner(resource: EtcdCluster, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "etcd", operator)


def member_name(resource: EtcdCluster, number: int) -> str:
    """Name of the pod and of the member at a place."""
    return f"{resource.name}-{number}"


def volume_name(resource: EtcdCluster, number: int) -> str:
    """Name of the volume claim at a place, as a StatefulSet makes it of its template."""
    return f"{DATA}-{member_name(resource, number)}"


def host(resource: EtcdCluster, member: str) -> str:
    """DNS name of a member's pod, in any cluster domain: it is completed by the pod's search list."""
    return f"{member}.{resource.name}.{resource.namespace}.svc"


def peer_url(resource: EtcdCluster, number: int) -> str:
    """Where the other members reach the one at a place; by it a member is told from others."""
    return peer_url_of(resource, member_name(resource, number))


def peer_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{PEER_PORT}"


def client_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{CLIENT_PORT}"


def scheme(resource: EtcdCluster) -> str:
    """Members and clients are encrypted together, or not at all."""
    return "http" if resource.spec.tls.mode == "none" else "https"


def client_service_name(resource: EtcdCluster) -> str:
    return f"{resource.name}-client"


def authority_secret(resource: EtcdCluster) -> str:
    """Where tls.mode is self: the Secret with what signs the cluster's certificates; nobody mounts it."""
    return f"{resource.name}-ca"


def peer_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that members show each other."""
    tls = resource.spec.tls
    return (tls.peer.secret_name or "") if tls.mode == "secret" else f"{resource.name}-peer-tls"


def server_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that members show clients."""
    tls = resource.spec.tls
    return (tls.client.secret_name or "") if tls.mode == "secret" else f"{resource.name}-server-tls"


def client_secret(resource: EtcdCluster) -> str:
    """The Secret with the certificate that the operator, and whoever may read it, shows members."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else f"{resource.name}-client-tls"


def number_of(resource: EtcdCluster, name_or_url: str) -> int | None:
    """The place of a member, by its name or one of its peer URLs; None if it is of no place of this cluster."""
    name, separator, rest = name_or_url.removeprefix("http://").removeprefix("https://").partition(".")
    if separator and rest != f"{resource.name}.{resource.namespace}.svc:{PEER_PORT}":
        return None
    found = re.fullmatch(rf"{re.escape(resource.name)}-(0|[1-9][0-9]{{0,8}})", name)
    return int(found[1]) if found else None


def endpoint(resource: EtcdCluster, place: Instance) -> Endpoint:
    """Where the operator asks the member at a place; its pod has an address."""
    address = place.pod.address if place.pod else ""
    return Endpoint(place.name, address, host(resource, place.name), CLIENT_PORT)


def headless_service(resource: EtcdCluster, own: Owner) -> Obj:
    """A name for each member's pod from its first second: members find each other by it before they are ready."""
    ports = [service_port(CLIENT, CLIENT_PORT), service_port(PEER, PEER_PORT)]
    if resource.spec.metrics.enabled:
        ports.append(service_port(METRICS, METRICS_PORT))
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=headless(own.selector(COMPONENT), ports))


def client_service(resource: EtcdCluster, own: Owner) -> Obj:
    """One address for clients, behind which are all members that take them."""
    selector = own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec: Obj = {"selector": selector, "ports": [service_port(CLIENT, CLIENT_PORT)]}
    return own.object(SERVICE, client_service_name(resource), component=COMPONENT, spec=spec)


def disruption_budget(resource: EtcdCluster, own: Owner) -> Obj | None:
    """How many members a drain may take at once: one, unless the spec says otherwise; None where nobody must be kept.

    Of one or two members none may be missing, and a node must be drainable all the same.
    """
    given = resource.spec.pod_disruption_budget
    if given is None and resource.spec.size < LEAST_WITH_BUDGET:
        return None
    spec = (given or PodDisruptionBudget()).disruption_budget(own.selector(COMPONENT))
    # A pod that is not ready may always be evicted, for it serves nobody; but not where it takes its data along.
    in_memory = resource.spec.storage.medium == "Memory"
    spec["unhealthyPodEvictionPolicy"] = "IfHealthyBudget" if in_memory else "AlwaysAllow"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)


def stateful_set(resource: EtcdCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None) -> Obj:
    """The members' pods and volumes. It starts pods together, and ends none but those above `replicas`.

    Args:
        pod: as template.py makes it.
        replicas: places, from 0 on.
        existing: the StatefulSet as it is: the size in its template for volumes cannot be changed, and stays
            (`provision.grow_volumes` makes another); None where there is none.
    """
    storage = resource.spec.storage
    spec: Obj = {
        "serviceName": resource.name,
        "replicas": replicas,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": "Retain" if storage.retain else "Delete",
            "whenScaled": "Retain",
        },
        "template": pod,
    }
    if storage.medium == "Volume":
        size = storage.size if existing is None else (provisioning.template_size(existing) or storage.size)
        spec["volumeClaimTemplates"] = [claim(resource, own, size)]
    return own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)


def claim(resource: EtcdCluster, own: Owner, size: int | str) -> Obj:
    """The template of members' volume claims."""
    labels = own.labels(COMPONENT) | {CLUSTER_UID: resource.uid}
    return claim_template(DATA, labels, size, resource.spec.storage.storage_class_name)
