"""Names of nodes, and pure builders of the Kubernetes objects a RedisCluster owns; the pod is in template.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from operators.redis.api.resource import API, RedisCluster
from operators.redis.client.server import BUS_PORT, PORT, Endpoint
from shared.api.podspec import PodDisruptionBudget
from shared.kubernetes.kinds import CONFIG_MAP, DISRUPTION_BUDGET, SERVICE, STATEFUL_SET, Obj
from shared.kubernetes.objects import claim_template, headless, service_port
from shared.kubernetes.ownership import Owner

if TYPE_CHECKING:
    from operators.redis.observe import Instance

COMPONENT = "node"
CONTAINER, EXPORTER = "redis", "exporter"

CLIENT, BUS, METRICS = "client", "bus", "metrics"
METRICS_PORT = 9121

DATA = "data"
"""Name of the volume that holds what a node has stored, and who it is."""

SERVES = "redis.middleware.hc.cn/serves"
CLIENTS = "clients"
"""Label and its value of pods that clients may be sent to: a kubelet finds a server ready that is in no cluster yet."""

USERS_MARK = "redis.middleware.hc.cn/users"
CERTIFICATE_MARK = "redis.middleware.hc.cn/certificate"
CONFIG_MARK = "redis.middleware.hc.cn/configured"
"""Annotations of pods: what of users, certificates and settings its server has heard (telling.py)."""

READ_ONCE = "redis.middleware.hc.cn/read-once"
"""Annotation of pods: the digest of what a server reads of redis.conf at its start alone; another one rolls them."""

CLUSTER_UID = "redis.middleware.hc.cn/cluster-uid"
"""Label of the StatefulSet and of volume claims: the UID of the resource whose data they hold."""


def owner(resource: RedisCluster, operator: str) -> Owner:
    """Whose the objects are; with spec.finalizers empty they outlive the resource."""
    return Owner(
        API.kind,
        resource.namespace,
        resource.name,
        resource.uid,
        "redis",
        operator,
        lasting=not resource.spec.finalizers,
    )


def node_name(resource: RedisCluster, number: int) -> str:
    """Name of the pod at a place."""
    return f"{resource.name}-{number}"


def number_of(resource: RedisCluster, name: str) -> int | None:
    """The place of a pod, by its name; None if it is of no place of this cluster."""
    return _number(resource.name, name)


def volume_name(resource: RedisCluster, number: int) -> str:
    """Name of the volume claim at a place, as a StatefulSet makes it of its template."""
    return f"{DATA}-{node_name(resource, number)}"


def volume_number(resource: RedisCluster, name: str) -> int | None:
    """The place of a volume claim, by its name; None if it is of no place of this cluster."""
    return _number(f"{DATA}-{resource.name}", name)


def _number(before: str, name: str) -> int | None:
    found = re.fullmatch(rf"{re.escape(before)}-(0|[1-9][0-9]{{0,8}})", name)
    return int(found[1]) if found else None


def host(resource: RedisCluster, node: str) -> str:
    """DNS name of a node's pod, in any cluster domain: it is completed by the pod's search list."""
    return f"{node}.{resource.name}.{resource.namespace}.svc"


def domain_name(resource: RedisCluster, node: str) -> str:
    """The same with the domain that most clusters have, as the status tells it."""
    return f"{host(resource, node)}.cluster.local"


def endpoint(resource: RedisCluster, place: Instance) -> Endpoint:
    """Where the operator asks the node at a place; its pod has an address."""
    return Endpoint(place.name, place.pod.address if place.pod else "", host(resource, place.name), id=place.id)


def client_service_name(resource: RedisCluster) -> str:
    return f"{resource.name}-client"


def config_name(resource: RedisCluster) -> str:
    """The ConfigMap with redis.conf."""
    return f"{resource.name}-config"


def users_secret(resource: RedisCluster) -> str:
    """Our Secret with the users that nodes start with; there is one also where nobody is asked for a password."""
    return f"{resource.name}-users"


def tls_secret(resource: RedisCluster) -> str:
    """Our Secret with the certificate and the authorities that nodes mount (certificates.py)."""
    return f"{resource.name}-nodes-tls"


def authority_secret(resource: RedisCluster) -> str:
    """Where tls.mode is self: the Secret with what signs the cluster's certificates; nobody mounts it."""
    return f"{resource.name}-ca"


def server_secret(resource: RedisCluster) -> str:
    """The Secret with the certificate that nodes show clients and each other; empty where there is no TLS."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return ""
    return (tls.secret_name or "") if tls.mode == "secret" else f"{resource.name}-server-tls"


def client_secret(resource: RedisCluster) -> str:
    """The Secret with the certificate that the operator, and whoever may read it, shows nodes."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else f"{resource.name}-client-tls"


def headless_service(resource: RedisCluster, own: Owner) -> Obj:
    """A name for each node's pod from its first second."""
    ports = [service_port(CLIENT, PORT), service_port(BUS, BUS_PORT)]
    if resource.spec.exporter_image:
        ports.append(service_port(METRICS, METRICS_PORT))
    return own.object(SERVICE, resource.name, component=COMPONENT, spec=headless(own.selector(COMPONENT), ports))


def client_service(resource: RedisCluster, own: Owner) -> Obj:
    """One address where clients learn of all nodes, behind which are those that take them."""
    selector = own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec: Obj = {"selector": selector, "ports": [service_port(CLIENT, PORT)]}
    return own.object(SERVICE, client_service_name(resource), component=COMPONENT, spec=spec)


def config_map(resource: RedisCluster, own: Owner, content: Mapping[str, str]) -> Obj:
    """What nodes read at their start.

    Args:
        content: redis.conf, as config.py renders it, by its key.
    """
    return own.object(CONFIG_MAP, config_name(resource), component=COMPONENT, data=dict(content))


def disruption_budget(resource: RedisCluster, own: Owner) -> Obj:
    """How many nodes a drain may take at once: one, unless the spec says otherwise.

    It counts on those alone that clients are sent to. So while one that came back is not in step yet, no other goes:
    its master might be the one that has the data.
    """
    given, selector = resource.spec.pod_disruption_budget, own.selector(COMPONENT) | {SERVES: CLIENTS}
    spec = (given or PodDisruptionBudget()).disruption_budget(selector)
    # A pod that is not ready may always be evicted, for it serves nobody; but not where it takes its data along.
    spec["unhealthyPodEvictionPolicy"] = "AlwaysAllow" if resource.has_storage else "IfHealthyBudget"
    return own.object(DISRUPTION_BUDGET, resource.name, component=COMPONENT, spec=spec)


def stateful_set(resource: RedisCluster, own: Owner, pod: Obj, replicas: int, existing: Obj | None = None) -> Obj:
    """The nodes' pods and volumes. It starts pods together, and ends none but those above `replicas`.

    Args:
        pod: as template.py makes it.
        replicas: places, from 0 on.
        existing: the StatefulSet as it is: its template for volumes cannot be changed, and stays
            (`provision.grow_volumes` makes another); None where there is none.
    """
    spec: Obj = {
        "serviceName": resource.name,
        "replicas": replicas,
        "selector": {"matchLabels": own.selector(COMPONENT)},
        "revisionHistoryLimit": 2,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "template": pod,
    }
    storage = resource.spec.storage
    if storage is not None:
        keep = storage.retain or own.lasting
        spec["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Retain" if keep else "Delete",
            "whenScaled": "Retain",
        }
        size, uid = (None, None) if existing is None else template_claim(existing)
        labels = own.labels(COMPONENT) | {CLUSTER_UID: uid or resource.uid}
        claim = claim_template(DATA, labels, size or storage.size, storage.storage_class_name)
        spec["volumeClaimTemplates"] = [claim]
    made = own.object(STATEFUL_SET, resource.name, component=COMPONENT, spec=spec)
    made["metadata"]["labels"][CLUSTER_UID] = resource.uid
    return made


def template_claim(stateful_set: Obj) -> tuple[int | str | None, str | None]:
    """What new volumes of a StatefulSet ask for, and the UID that they bear; None where it makes none."""
    for claim in stateful_set["spec"].get("volumeClaimTemplates") or ():
        size: int | str = claim["spec"]["resources"]["requests"]["storage"]
        return size, (claim["metadata"].get("labels") or {}).get(CLUSTER_UID)
    return None, None
