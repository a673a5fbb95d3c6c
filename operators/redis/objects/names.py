"""Names of a RedisCluster's nodes and owned objects, and the labels and annotations that they carry. Pure."""

from __future__ import annotations

from operators.redis.api.resource import API, RedisCluster
from shared.kubernetes import secret_provenance
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ordinals import ordinal
from shared.kubernetes.ownership import Owner
from shared.pki import secret_names
from shared.steps import claims, connection, passwords

COMPONENT = "node"
CONTAINER, EXPORTER = "redis", "exporter"

CLIENT, BUS, METRICS = "client", "bus", "metrics"
METRICS_PORT = 9121

EXPORTER_USER, EXPORTER_PASSWORD_KEY = "exporter", "exporterPassword"
"""ACL user of the exporter, and key of its password in the operator's Secret with the users."""

REPLICATION_PASSWORD_KEY = "replicationPassword"  # noqa: S105
"""Key of the password of the replicas' user in the same Secret."""

DATA = "data"
"""Name of the volume with the data and the identity of a node."""

SERVES = "redis.middleware.hc.cn/serves"
CLIENTS = "clients"
"""Label and value of pods behind the client Service: the kubelet also reports servers as ready that are in no cluster
yet.
"""

USERS_MARK = "redis.middleware.hc.cn/users"
CERTIFICATE_MARK = "redis.middleware.hc.cn/certificate"
CONFIG_MARK = "redis.middleware.hc.cn/configured"
"""Annotations of pods: the users, certificates and settings that the server applied (rollout_markers.py)."""

LAST_RUN = "redis.middleware.hc.cn/last-run"
"""Annotation of pods of nodes without persistence: run id of the last known process."""

READ_ONCE = "redis.middleware.hc.cn/read-once"
"""Annotation of pods: digest of the settings that a server reads only when it starts; a change restarts the pods."""

FILES = "redis.middleware.hc.cn/files"
"""Annotation of pods and volume claims: number of the files with the node id and the snapshot; none for 0."""

APPLIED_PERSISTENCE = "redis.middleware.hc.cn/applied-persistence"
"""Annotation of the StatefulSet and of volume claims: lines of persistence in the ConfigMap, which another client may
change or delete. That of the claims outlives the resource.
"""

NODE_ID, PRIMARY, COPY_OF, HOST, VERSION, NODES, CLAIM_UID = (
    f"redis.middleware.hc.cn/{key}"
    for key in ("node-id", "primary", "copy-of", "host", "version", "nodes", "claim-uid")
)
"""Annotations of volume claims: id, role and address of the node whose data the volume has, all nodes of the cluster
as NAME=ID,NAME=ID, and the UID of the claim itself, from which that of a restored claim differs (volume_record.py).
"""

ADOPT_COPIES = "redis.middleware.hc.cn/adopt-copies"
"""Annotation of a RedisCluster: its UID, as a user's consent to adopt copies of volumes, whose original is deleted."""

CLUSTER_UID = "redis.middleware.hc.cn/cluster-uid"
"""Label of the StatefulSet and of volume claims: UID of the resource that owns the data."""

ORIGIN = "redis.middleware.hc.cn/origin-uid"
"""Label of volume claims: UID of the resource that created them. It names the file with the node id and the addresses
(`volume_record.origin`), and stays when another resource adopts the volume. Volumes of earlier builds have none.
"""


def owner(resource: RedisCluster, operator: str) -> Owner:
    """Return the owner of the objects; with spec.finalizers empty they outlive the resource."""
    return Owner(
        API.kind,
        resource.namespace,
        resource.name,
        resource.uid,
        "redis",
        operator,
        lasting=not resource.spec.finalizers,
    )


def selector(resource: RedisCluster) -> dict[str, str]:
    """Return the labels by which the StatefulSet selects its pods."""
    return owner(resource, "").selector(COMPONENT)


def is_foreign(resource: RedisCluster, obj: Obj) -> bool:
    """Return whether a StatefulSet or volume claim belongs to another owner, whose data it may hold."""
    return claims.is_foreign(obj, CLUSTER_UID, name=resource.name, uid=resource.uid)


def node_name(resource: RedisCluster, number: int) -> str:
    """Return the name of the pod of an instance."""
    return f"{resource.name}-{number}"


def volume_name(resource: RedisCluster, number: int) -> str:
    """Return the name of the volume claim of an instance, as the StatefulSet creates it."""
    return f"{DATA}-{node_name(resource, number)}"


def volume_number(resource: RedisCluster, name: str) -> int | None:
    """Return the number of the instance of a volume claim; None if the name belongs to no instance of this cluster."""
    return ordinal(name, f"{DATA}-{resource.name}")


def host(resource: RedisCluster, node: str) -> str:
    """Return the DNS name of a pod without the cluster domain, which the search list of pods completes."""
    return f"{node}.{resource.name}.{resource.namespace}.svc"


def domain_name(resource: RedisCluster, node: str) -> str:
    """Return the DNS name of a pod with the default cluster domain, for the status."""
    return f"{host(resource, node)}.cluster.local"


def client_service_name(resource: RedisCluster) -> str:
    return f"{resource.name}-client"


def config_name(resource: RedisCluster) -> str:
    """Return the name of the ConfigMap with redis.conf."""
    return f"{resource.name}-config"


def users_secret(resource: RedisCluster) -> str:
    """Return the name of the operator's Secret with the users of the nodes; it also exists without authentication."""
    return f"{resource.name}-users"


def user_secret(resource: RedisCluster, user: str) -> str:
    """Return the name of the Secret with what a client needs to connect as a user of the spec."""
    return connection.secret_name(resource.name, user)


def recorded_user_secrets(resource: RedisCluster) -> set[str]:
    """Return the names of these Secrets that the operator has written, also of users that the spec no longer has."""
    return {name for name in secret_provenance.recorded(resource.obj) if name.startswith(f"{resource.name}-user-")}


def password_secret(resource: RedisCluster) -> str:
    """Return the name of the Secret with the desired password; empty without spec.auth."""
    auth = resource.spec.auth
    return "" if auth is None else auth.secret_name or passwords.secret_name(resource.name)


def tls_secret(resource: RedisCluster) -> str:
    """Return the name of the operator's Secret with the certificate and authorities that nodes mount."""
    return f"{resource.name}-nodes-tls"


def server_secret(resource: RedisCluster) -> str:
    """Return the name of the Secret with the certificate of the nodes; empty without TLS."""
    tls = resource.spec.tls
    if tls.mode == "none":
        return ""
    return (tls.secret_name or "") if tls.mode == "secret" else secret_names.server_secret(resource.name)


def client_secret(resource: RedisCluster) -> str:
    """Return the name of the Secret with the client certificate, which the operator uses."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else secret_names.client_secret(resource.name)
