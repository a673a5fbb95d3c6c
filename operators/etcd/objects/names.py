"""Names, ports and labels of the objects that an EtcdCluster owns. Pure."""

from __future__ import annotations

from operators.etcd.api.resource import API, EtcdCluster
from operators.etcd.api.spec import MAX_SIZE
from shared.kubernetes.kinds import STATEFUL_SET, Obj
from shared.kubernetes.ordinals import ordinal
from shared.kubernetes.ownership import Owner, is_replica
from shared.pki import secret_names
from shared.steps import passwords

COMPONENT = "member"
CONTAINER = "etcd"

BACKUP = "etcd-backup"
"""Label app.kubernetes.io/name of objects that an EtcdBackup owns: a cluster may have the same name."""

CLIENT, PEER, METRICS = "client", "peer", "metrics"
CLIENT_PORT, PEER_PORT, METRICS_PORT = 2379, 2380, 2381

DATA = "data"
"""Name of the volume, and of the data directory in it."""

SECRETS = "etcd.ydzs.io/secrets"
"""Annotation of pods: digest of the Secrets' content that etcd reads only at its start; a change restarts members."""

COPIED = "etcd.ydzs.io/copied-at"
"""Annotation of the Secrets that members mount: time of the last change of the copy."""

VERSION = "etcd.ydzs.io/version"
"""Annotation of the StatefulSet: version of etcd that its template starts; the tag of an image may not show it.

Of volume claims: version of etcd that last wrote the data.
"""

SERVES = "etcd.ydzs.io/serves"
CLIENTS = "clients"
"""Label and value of pods that receive clients: etcd rejects clients of a learner."""

CLUSTER_UID = "etcd.ydzs.io/cluster-uid"
"""Label of volume claims: UID of the resource that owns the data. A later resource may have the same name."""

CLUSTER_ID, MEMBER_ID = "etcd.ydzs.io/cluster-id", "etcd.ydzs.io/member-id"
PEER_URL, VOTERS = "etcd.ydzs.io/peer-url", "etcd.ydzs.io/voters"
"""Annotations of volume claims: the member whose data the volume has, and all voters of the cluster, as
NAME=ID,NAME=ID; without a name, those of no pod.
"""

KEPT, SET_ASIDE = "etcd.ydzs.io/kept-by-recovery", "etcd.ydzs.io/former-data"
"""Annotations of volume claims, each with marks of recoveries (`recovery_marks`): the volume was not used, and is kept
with its data; or it was used, and its former data directory is kept as data.before-TOKEN. Until a user releases the
token.
"""


def owner(resource: EtcdCluster, operator: str) -> Owner:
    return Owner(API.kind, resource.namespace, resource.name, resource.uid, "etcd", operator)


def selector(resource: EtcdCluster) -> dict[str, str]:
    """Return the labels by which the StatefulSet selects its pods."""
    return owner(resource, "").selector(COMPONENT)


def member_name(resource: EtcdCluster, number: int) -> str:
    """Return the name of a member and of its pod."""
    return f"{resource.name}-{number}"


def volume_name(resource: EtcdCluster, number: int) -> str:
    """Return the name of a member's volume claim, as a StatefulSet creates it from its template."""
    return f"{DATA}-{member_name(resource, number)}"


def host(resource: EtcdCluster, member: str) -> str:
    """Return the DNS name of a member's pod, without the cluster domain: the search list of the pod completes it."""
    return f"{member}.{resource.name}.{resource.namespace}.svc"


def peer_url(resource: EtcdCluster, number: int) -> str:
    """Return the URL of a member for other members, which identifies the member."""
    return peer_url_of(resource, member_name(resource, number))


def peer_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{PEER_PORT}"


def client_url_of(resource: EtcdCluster, member: str) -> str:
    return f"{scheme(resource)}://{host(resource, member)}:{CLIENT_PORT}"


def scheme(resource: EtcdCluster) -> str:
    """Return the URL scheme, which is the same for members and clients."""
    return "http" if resource.spec.tls.mode == "none" else "https"


def client_service_name(resource: EtcdCluster) -> str:
    return f"{resource.name}-client"


def peer_secret(resource: EtcdCluster) -> str:
    """Return the Secret with the certificate between members."""
    tls = resource.spec.tls
    return (tls.peer.secret_name or "") if tls.mode == "secret" else f"{resource.name}-peer-tls"


def server_secret(resource: EtcdCluster) -> str:
    """Return the Secret with the certificate that members present to clients."""
    tls = resource.spec.tls
    return (tls.client.secret_name or "") if tls.mode == "secret" else secret_names.server_secret(resource.name)


def client_secret(resource: EtcdCluster) -> str:
    """Return the Secret with the certificate that the operator and other clients present to members."""
    return server_secret(resource) if resource.spec.tls.mode == "secret" else secret_names.client_secret(resource.name)


def root_secret(resource: EtcdCluster) -> str:
    """Return the Secret with root's password: that of the user, or the generated one; empty without spec.auth."""
    auth = resource.spec.auth
    return "" if auth is None else auth.root_secret_name or passwords.secret_name(resource.name)


def credentials_secret(resource: EtcdCluster) -> str:
    """Return the Secret in which the operator keeps root's valid password; no pod of a member mounts it."""
    return f"{resource.name}-operator-auth"


def client_password_secret(resource: EtcdCluster) -> str:
    """Return the Secret with the password of the user `client`; empty if applications get root, or no user."""
    return f"{resource.name}-client-password" if resource.offers_user and resource.connect_as != "root" else ""


def peer_copy(resource: EtcdCluster) -> str:
    """Return the operator's copy of the peer Secret, which members mount with tls.mode certManager or secret."""
    return f"{resource.name}-peer-mounted"


def server_copy(resource: EtcdCluster) -> str:
    """Return the operator's copy of the server Secret, which members mount with tls.mode certManager or secret."""
    return f"{resource.name}-server-mounted"


def client_copy(resource: EtcdCluster) -> str:
    """Return the operator's copy of the client Secret, which clients mount with tls.mode certManager or secret."""
    return server_copy(resource) if resource.spec.tls.mode == "secret" else f"{resource.name}-client-mounted"


def client_mount(resource: EtcdCluster) -> str:
    """Return the Secret that clients mount: its certificate and trust bundle are never ahead of the members."""
    return client_secret(resource) if resource.spec.tls.mode == "self" else client_copy(resource)


def number_of(resource: EtcdCluster, name_or_url: str) -> int | None:
    """Return the number of a member, from its name or a peer URL; None if no member of this cluster may have it."""
    name, separator, rest = name_or_url.removeprefix("http://").removeprefix("https://").partition(".")
    if separator and rest != f"{resource.name}.{resource.namespace}.svc:{PEER_PORT}":
        return None
    found = ordinal(name, resource.name)
    return found if found is not None and found < MAX_SIZE else None


def member_of(resource: EtcdCluster, pod: Obj) -> int | None:
    """Return the number of a pod of this cluster's StatefulSet; None of another one."""
    if not is_replica(pod, STATEFUL_SET, resource.name, selector(resource)):
        return None
    return ordinal(pod["metadata"]["name"], resource.name)
