"""The pod of a member. Pure."""

from __future__ import annotations

from typing import Protocol

from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.versions import features
from operators.etcd.objects import bootstrap, command_line, names
from operators.etcd.objects.bootstrap import Closed, Start
from operators.etcd.objects.command_line import CLIENT_TLS, HOME, PEER_TLS
from operators.etcd.objects.names import CLIENT, CLIENTS, COMPONENT, CONTAINER, DATA, METRICS, PEER, SECRETS, SERVES
from shared.api.podspec import SAFE, restricted
from shared.kubernetes.kinds import Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.pods import template_digest
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PRIVATE_KEY

RUN_AS_USER = 65532
"""User and group of the members: no user of a node, and known to images that run as nonroot."""

TEMPLATE = "etcd.ydzs.io/template"
"""Annotation of pods: digest of the template from which the pod was created."""

HAND_OVER_SECONDS = 30
"""Seconds in which a terminating etcd finishes running requests; the leader hands over before."""

STARTUP_SECONDS = 900
"""Seconds until a member must serve: before that, it reads its database and compares it with its peers."""


class MountedSecrets(Protocol):
    """Content of the members' Secrets, as far as the template depends on it."""

    @property
    def digest(self) -> str:
        """Digest of the content that etcd reads only at its start; empty if there is none."""

    @property
    def authority_key(self) -> str:
        """Key in the Secrets with the certificates that members trust."""


def pod(
    resource: EtcdCluster,
    own: Owner,
    image: str,
    begins: Start,
    secrets: MountedSecrets,
    quota: int | None = None,
    *,
    serves: bool = True,
) -> Obj:
    """Return the template of the members' pods.

    Args:
        image: image of etcd.
        begins: permission of a pod with an empty volume.
        secrets: content of the members' Secrets.
        quota: size of the database in bytes; None for that of the spec.
        serves: whether a new pod receives clients at once; otherwise once its member is known to be a voter.
    """
    spec = resource.spec
    labels = own.labels(COMPONENT)
    if isinstance(begins, Closed) and serves:  # not a learner, nor a member that is not recorded yet
        labels[SERVES] = CLIENTS
    annotations = spec.annotations | ({SECRETS: secrets.digest} if secrets.digest else {})
    annotations |= bootstrap.annotated(resource, begins)
    made: Obj = {
        "metadata": {"labels": spec.labels | labels, "annotations": annotations},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # etcd allows two election timeouts for the handover, and then closes the connections of clients.
            "terminationGracePeriodSeconds": HAND_OVER_SECONDS + 2 * spec.election_timeout // 1000,
            # OnRootMismatch: otherwise each start would open etcd's private directory to the group.
            "securityContext": restricted(RUN_AS_USER)
            | {"fsGroup": RUN_AS_USER, "fsGroupChangePolicy": "OnRootMismatch"},
            "containers": [_etcd(resource, image, command_line.arguments(resource, quota))],
            "topologySpreadConstraints": spec.spread(own.selector(COMPONENT)),
            **spec.placement(),
        },
    }
    if volumes := _volumes(resource, secrets):
        made["spec"]["volumes"] = volumes
    annotations[TEMPLATE] = digest(made)
    return made


def digest(template: Obj) -> str:
    """Return a digest of the parts of a template for which a running member must be restarted.

    Excluded are the bootstrap annotations, and the label that changes when a learner is promoted.
    """
    excluded = (TEMPLATE, bootstrap.INITIAL_CLUSTER, bootstrap.INITIAL_STATE)
    return template_digest(template, labels=(SERVES,), annotations=excluded)


def _etcd(resource: EtcdCluster, image: str, arguments: list[str]) -> Obj:
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["etcd"],
        "args": arguments,
        "env": command_line.environment(resource),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in (
                (CLIENT, names.CLIENT_PORT),
                (PEER, names.PEER_PORT),
                (METRICS, names.METRICS_PORT),
            )
        ],
        "resources": resource.spec.container_resources(),
        **_probes(resource),
        # The last log lines of etcd, which writes no message: the operator reads "couldn't find local name" there.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": _mounts(resource),
    }


def _probes(resource: EtcdCluster) -> Obj:
    """Return the probes of a member.

    A member is ready if it can read what a quorum agreed on. A full database does not make it unready, because reads
    and deletions continue. A member is alive if it can read its own keys. That requires neither a quorum nor the
    absence of alarms, because a restart resolves neither. The threshold allows for a defragmentation, during which a
    member does not answer.
    """
    able = features(resource.version)
    full = "?exclude=NOSPACE" if able.exclude_alarms else ""
    ready: Obj = {"httpGet": {"path": f"/health{full}", "port": METRICS, "scheme": "HTTP"}}
    alive: Obj = {"tcpSocket": {"port": CLIENT}}
    if able.serializable_health and able.exclude_alarms:
        path = "/health?serializable=true&exclude=NOSPACE&exclude=CORRUPT"
        alive = {"httpGet": {"path": path, "port": METRICS, "scheme": "HTTP"}}
    return {
        "startupProbe": {**alive, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": STARTUP_SECONDS},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "livenessProbe": {**alive, "periodSeconds": 20, "timeoutSeconds": 10, "failureThreshold": 9},
    }


def _mounts(resource: EtcdCluster) -> list[Obj]:
    mounts: list[Obj] = [{"name": DATA, "mountPath": HOME}]
    if resource.spec.tls.mode != "none":
        mounts += [
            {"name": "client-tls", "mountPath": CLIENT_TLS, "readOnly": True},
            {"name": "peer-tls", "mountPath": PEER_TLS, "readOnly": True},
        ]
    return mounts


def _volumes(resource: EtcdCluster, secrets: MountedSecrets) -> list[Obj]:
    volumes: list[Obj] = []
    storage, tls = resource.spec.storage, resource.spec.tls
    if storage.medium == "Memory":
        volumes.append({"name": DATA, "emptyDir": {"medium": "Memory", "sizeLimit": storage.size}})
    if tls.mode != "none":
        volumes += [
            _tls_volume("client-tls", names.server_secret(resource), secrets),
            _tls_volume("peer-tls", names.peer_secret(resource), secrets),
        ]
    return volumes


def _tls_volume(volume: str, name: str, secrets: MountedSecrets) -> Obj:
    keys = {CERTIFICATE_KEY: CERTIFICATE_KEY, PRIVATE_KEY: PRIVATE_KEY, secrets.authority_key: AUTHORITY_KEY}
    items = [{"key": key, "path": path} for key, path in keys.items()]
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440, "items": items}}
