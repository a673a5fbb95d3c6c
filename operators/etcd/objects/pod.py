"""The pod of a member. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

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
from shared.steps.deferred import AFFINITY, Deferred, Digest, without

RUN_AS_USER = 65532
"""User and group of the members: no user of a node, and known to images that run as nonroot."""

TEMPLATE = "etcd.ydzs.io/template"
"""Annotation of pods: digest of the template from which the pod was created."""

STARTUP_SECONDS = 900
"""Seconds until a member must serve: before that, it reads its database and compares it with its peers."""

LIVENESS_PERIOD_SECONDS = 20
MIN_HANG_SECONDS = 180
"""Minimum time for which a member may not answer before the kubelet restarts it."""

INCONSISTENT = "found data inconsistency with peers"
"""Last message of etcd if its data differs from a peer's at the start."""

DEFRAGMENTED_BYTES_PER_SECOND = 10 * 10**6
"""Cautious speed of a defragmentation. With a local disk, 55 to 95 MB/s were measured (etcd 3.5 and 3.6)."""

DEFERRED = (Deferred(CONTAINER, "livenessProbe"), Deferred(CONTAINER, "readinessProbe"), AFFINITY)
"""Parts of the template that do not restart members by themselves."""


class Mount(NamedTuple):
    """A Secret as members mount it.

    Attributes:
        secret: name of the Secret.
        authority_key: key in the Secret with the trust bundle.
    """

    secret: str
    authority_key: str = AUTHORITY_KEY


_NOTHING = Mount("")


@dataclass(frozen=True, slots=True)
class MountedSecrets:
    """Secrets that members mount, as far as the template depends on them.

    Attributes:
        digest: digest of the content that etcd reads only at its start; empty if there is none.
        peer: certificate between members.
        server: certificate that members present to clients.
    """

    digest: str = ""
    peer: Mount = _NOTHING
    server: Mount = _NOTHING


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
        secrets: Secrets that the members mount.
        quota: size of the database in bytes; None for that of the spec.
        serves: whether a new pod receives clients at once; otherwise once its member is known to be a voter.
    """
    spec = resource.spec
    labels = own.labels(COMPONENT) | serving_label(begins, serves=serves)
    annotations = spec.annotations | ({SECRETS: secrets.digest} if secrets.digest else {})
    annotations |= bootstrap.annotated(resource, begins)
    pod_spec: Obj = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": spec.stop_seconds,
        # OnRootMismatch: otherwise each start would open etcd's private directory to the group.
        "securityContext": restricted(RUN_AS_USER) | {"fsGroup": RUN_AS_USER, "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": [_etcd(resource, image, quota or spec.quota)],
        "topologySpreadConstraints": spec.spread(own.selector(COMPONENT)),
        **spec.apart(own.selector(COMPONENT)),
        **spec.placement(),
    }
    if volumes := _volumes(resource, secrets):
        pod_spec["volumes"] = volumes
    made: Obj = {
        "metadata": {"labels": spec.labels | labels, "annotations": annotations},
        "spec": spec.extended(pod_spec),
    }
    annotations[TEMPLATE] = digest(made)
    return made


def from_spec(resource: EtcdCluster) -> tuple[Deferred, ...]:
    """Return the deferred parts that the spec sets: a change of these restarts members."""
    return () if resource.spec.affinity is None else (AFFINITY,)


def restarts(before: Obj, after: Obj) -> bool:
    """Return whether a change of a valid spec restarts the members.

    Raises:
        InvalidSpec: a field is invalid.
    """
    return _lasting(EtcdCluster.parse(before)) != _lasting(EtcdCluster.parse(after))


def _lasting(resource: EtcdCluster) -> str:
    """Return a digest of what restarts members, as far as the spec determines it."""
    template = pod(resource, names.owner(resource, ""), resource.image_reference(""), Closed(), MountedSecrets())
    return digest(without(template, {*DEFERRED} - {*from_spec(resource)}))


def serving_label(begins: Start, *, serves: bool) -> dict[str, str]:
    """Return the label of pods that receive clients, if the template's pods do.

    Learners receive no clients, and neither does a member that is not recorded yet.
    """
    return {SERVES: CLIENTS} if isinstance(begins, Closed) and serves else {}


def with_permission(resource: EtcdCluster, template: Obj, begins: Start, *, serves: bool) -> Obj:
    """Return a template with another permission of a pod with an empty volume, and otherwise unchanged."""
    metadata = template["metadata"]
    labels = {name: value for name, value in metadata["labels"].items() if name != SERVES}
    labels |= serving_label(begins, serves=serves)
    annotations = metadata["annotations"] | bootstrap.annotated(resource, begins)
    return template | {"metadata": metadata | {"labels": labels, "annotations": annotations}}


def digest(template: Obj) -> str:
    """Return a digest of the parts of a template for which a running member must be restarted.

    Excluded are the bootstrap annotations, and the label that changes when a learner is promoted.
    """
    excluded = (TEMPLATE, bootstrap.INITIAL_CLUSTER, bootstrap.INITIAL_STATE)
    return template_digest(template, labels=(SERVES,), annotations=excluded)


DIGEST = Digest(TEMPLATE, digest)


def _etcd(resource: EtcdCluster, image: str, quota: int) -> Obj:
    return {
        "name": CONTAINER,
        "image": image,
        "command": ["etcd"],
        "args": command_line.arguments(resource, quota),
        "env": command_line.environment(resource),
        "ports": [
            {"name": name, "containerPort": port, "protocol": "TCP"}
            for name, port in ((CLIENT, names.CLIENT_PORT), (PEER, names.PEER_PORT), (METRICS, names.METRICS_PORT))
        ],
        "resources": resource.spec.container_resources(),
        **_probes(resource, quota),
        # The last log lines of etcd, which writes no message: the operator reads "couldn't find local name" there.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": _mounts(resource),
    }


def _probes(resource: EtcdCluster, quota: int) -> Obj:
    """Return the probes of a member.

    A member is ready if it can read what a quorum agreed on. A new member cannot before it is promoted, so that the
    probe is frequent: changes wait for it. A full database does not make it unready, because reads
    and deletions continue. A member is alive if it can read its own keys. That requires neither a quorum nor the
    absence of alarms, because a restart resolves neither. A member that is defragmented answers no request but that for
    its metrics, /livez included (3.5.35, 3.6.16). So the threshold allows for the defragmentation of a full database.
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
        "readinessProbe": {**ready, "periodSeconds": 2, "timeoutSeconds": 3, "failureThreshold": 5},
        "livenessProbe": {
            **alive,
            "periodSeconds": LIVENESS_PERIOD_SECONDS,
            "timeoutSeconds": 10,
            "failureThreshold": math.ceil(_hang_seconds(quota) / LIVENESS_PERIOD_SECONDS),
        },
    }


def _hang_seconds(quota: int) -> float:
    """Return how long a member may not answer: a defragmentation of a file of this many bytes takes that time."""
    return max(MIN_HANG_SECONDS, 60 + quota / DEFRAGMENTED_BYTES_PER_SECOND)


def ended_inconsistent(pod: Obj | None) -> bool:
    """Whether etcd ended in a pod because its data differs from its peers', in its present or last container."""
    containers = ((pod or {}).get("status") or {}).get("containerStatuses") or ()
    ends = ((each.get(state) or {}).get("terminated") for each in containers for state in ("state", "lastState"))
    return any(INCONSISTENT in (end.get("message") or "") for end in ends if end)


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
        volumes += [_tls_volume("client-tls", secrets.server), _tls_volume("peer-tls", secrets.peer)]
    return volumes


def _tls_volume(volume: str, mount: Mount) -> Obj:
    keys = {CERTIFICATE_KEY: CERTIFICATE_KEY, PRIVATE_KEY: PRIVATE_KEY, mount.authority_key: AUTHORITY_KEY}
    items = [{"key": key, "path": path} for key, path in keys.items()]
    return {"name": volume, "secret": {"secretName": mount.secret, "defaultMode": 0o440, "items": items}}
