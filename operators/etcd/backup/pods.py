"""Builders of the pods that take snapshots, and of those that create a member's data from one. Pure.

The pods run `python -m operators.etcd …` (program.py) from the image of the operator. The program of etcd that restores
a snapshot comes from the image of the members, so that the same version writes and reads the data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime

from operators.etcd.api.backup import API, EtcdBackup
from operators.etcd.api.resource import EtcdCluster
from operators.etcd.api.snapshot_stores import S3, VolumeStore
from operators.etcd.api.versions import features
from operators.etcd.backup import locations
from operators.etcd.backup.snapshot import file_name
from operators.etcd.client.server import EndpointStatus
from operators.etcd.objects import bootstrap, names, stateful_set
from operators.etcd.objects.command_line import HOME
from operators.etcd.objects.pod import RUN_AS_USER as UID
from operators.etcd.security.secrets import USER
from shared.api.podspec import SAFE, restricted
from shared.api.spec import as_object
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PASSWORD_KEY, PRIVATE_KEY
from shared.runtime.settings import Settings

ATTEMPT = "etcd.ydzs.io/attempt"
"""Annotation of a snapshot's pod: number of the attempt."""

STARTED = "etcd.ydzs.io/started"
"""Annotation of a pod: time at which it was created, by the clock of the operator."""

RECIPE = "etcd.ydzs.io/recipe"
"""Annotation of a restore's pod: digest of its spec, to detect that another pod is needed."""

MESSAGE = "etcd.ydzs.io/told"
"""Annotation of a snapshot's pod: message about the source of the snapshot, with cautions for the user."""

TOKEN = "etcd.ydzs.io/token"  # noqa: S105 - public, as is the token itself
"""Annotation of a pod that creates data: token of the recovery or restore."""

MIN_BYTES_PER_SECOND = 1 << 20
"""Minimum rate of a snapshot: one that takes longer than the size at this rate, plus ten minutes, hangs."""

REVISION_BUMP = 1_000_000_000
"""Number of revisions by which restored data is ahead of the snapshot.

The number exceeds what any watcher of the former cluster can have received, so that every watcher detects the restore.

Source: https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump
"""

NO_IMAGE = (
    "Snapshots need the image of the operator itself, which is not configured. Start the operator with --agent-image, "
    "as its Helm chart does."
)

_SNAPSHOT, _RESTORE, _CLEAN = "snapshot", "restore", "clean"
_CLIENT_TLS, _PASSWORD = "/etc/etcd/tls/client", "/etc/etcd/auth"
_PRESERVED = "OnRootMismatch"


def snapshot_pod_name(backup: str) -> str:
    return f"{backup}-snapshot"


def restore_pod_name(resource: EtcdCluster) -> str:
    return f"{resource.name}-restore"


def recovery_pod_name(resource: EtcdCluster) -> str:
    """Name of the recovery's pod."""
    return f"{resource.name}-recovery"


def cleaning_pod_name(resource: EtcdCluster) -> str:
    """Name of the pod that deletes former data."""
    return f"{resource.name}-clean"


def snapshot_pod(
    settings: Settings,
    backup: EtcdBackup,
    cluster: EtcdCluster,
    member: str,
    status: EndpointStatus,
    *,
    attempt: int,
    now: datetime,
    message: str,
    keep: int | None,
    password_secret: str = "",
) -> Obj:
    """Return a pod that takes a snapshot of a member.

    Args:
        member: name of the member.
        status: status that the member reported.
        attempt: number of the attempt, from 1.
        now: present time.
        message: message to report while the pod runs.
        keep: number of scheduled snapshots to keep; None for a snapshot without a schedule.
        password_secret: name of the Secret with root's password; empty without authentication.
    """
    store = locations.store_of(backup.spec.destination)
    assert store is not None, "the spec was reviewed"
    url = names.client_url_of(cluster, member)
    file = file_name(cluster.name, cluster.uid, backup.name, backup.uid)
    arguments = [
        "snapshot",
        f"--endpoint={url}",
        f"--member={member}",
        f"--cluster-id={cluster.recorded_cluster_id:016x}",
        f"--namespace={cluster.namespace}",
        f"--cluster={cluster.name}",
        f"--cluster-uid={cluster.uid}",
        f"--backup={backup.name}",
        f"--file={file}",
        *locations.arguments(store),
        *([] if keep is None else ["--scheduled", f"--keep={keep}"]),
    ]
    volumes, mounts = [locations.volume(store)], [locations.mount(store, writing=True)]
    for flags, volume, mount in _credentials(cluster, password_secret):
        arguments += flags
        volumes.append(volume)
        mounts.append(mount)
    return _pod(
        cluster,
        Owner(API.kind, backup.namespace, backup.name, backup.uid, names.BACKUP, settings.operator),
        snapshot_pod_name(backup.name),
        _SNAPSHOT,
        {ATTEMPT: str(attempt), STARTED: rfc3339(now), MESSAGE: message},
        seconds=600 + status.db_size // MIN_BYTES_PER_SECOND,
        more=_nodes(cluster),
        containers=[_operator_container(settings, _SNAPSHOT, arguments, mounts)],
        volumes=volumes,
    )


def _credentials(cluster: EtcdCluster, password_secret: str) -> Iterator[tuple[list[str], Obj, Obj]]:
    """Yield the flags, the volume and the mount of each Secret with credentials for the cluster."""
    if cluster.spec.tls.mode != "none":
        keys = {"--tls-ca": AUTHORITY_KEY, "--tls-cert": CERTIFICATE_KEY, "--tls-key": PRIVATE_KEY}
        flags = [f"{flag}={_CLIENT_TLS}/{key}" for flag, key in keys.items()]
        volume = _secret("client-tls", names.client_mount(cluster), *keys.values())
        yield flags, volume, {"name": "client-tls", "mountPath": _CLIENT_TLS, "readOnly": True}
    if password_secret:
        flags = [f"--user={USER}", f"--password-file={_PASSWORD}/{PASSWORD_KEY}"]
        volume = _secret("auth", password_secret, PASSWORD_KEY)
        yield flags, volume, {"name": "auth", "mountPath": _PASSWORD, "readOnly": True}


def restore_token(resource: EtcdCluster, store: VolumeStore | S3, file: str) -> str:
    """Return a token that identifies the source of restored data."""
    text = json.dumps([resource.uid, type(store).__name__, as_object(store), file], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def restore_pod(settings: Settings, resource: EtcdCluster, store: VolumeStore | S3, file: str) -> Obj:
    """Return a pod that restores a snapshot onto the seed's volume, before the seed exists; it never replaces data."""
    token = restore_token(resource, store, file)
    major, minor = resource.version.series
    fetch = ["fetch", f"--home={HOME}", f"--file={file}", f"--newest={major}.{minor}", *locations.arguments(store)]
    return _made_of(
        settings,
        resource,
        restore_pod_name(resource),
        fetch,
        number=0,
        token=token,
        cluster_token=resource.uid,
        volume=locations.volume(store),
        mount=locations.mount(store, writing=False),
    )


def recovery_pod(settings: Settings, resource: EtcdCluster, number: int, token: str) -> Obj:
    """Return a pod that creates a new cluster from a member's database, with that member only (quorum_recovery.py).

    The former data directory is kept next to the new one, as data.before-TOKEN.
    """
    return _made_of(
        settings,
        resource,
        recovery_pod_name(resource),
        ["fetch", f"--home={HOME}", f"--salvage={token}"],
        number=number,
        token=token,
        cluster_token=bootstrap.recovery_cluster_token(resource, token),
    )


def cleaning_pod(settings: Settings, resource: EtcdCluster, number: int, node: str, token: str) -> Obj:
    """Return a pod that deletes data.before-TOKEN on the volume of a running member, on the same Kubernetes node."""
    claim = {"claimName": names.volume_name(resource, number)}
    arguments = ["clean", f"--home={HOME}", f"--token={token}"]
    return _pod(
        resource,
        names.owner(resource, settings.operator),
        cleaning_pod_name(resource),
        _CLEAN,
        {TOKEN: token},
        seconds=None,
        more=resource.spec.placement() | ({"nodeName": node} if node else {}),
        containers=[_operator_container(settings, _CLEAN, arguments, [{"name": names.DATA, "mountPath": HOME}])],
        volumes=[{"name": names.DATA, "persistentVolumeClaim": claim}],
    )


def _made_of(
    settings: Settings,
    resource: EtcdCluster,
    name: str,
    fetch: list[str],
    *,
    number: int,
    token: str,
    cluster_token: str,
    volume: Obj | None = None,
    mount: Obj | None = None,
) -> Obj:
    """Return a pod that fetches a snapshot, restores it with etcd's own program, and seals the result.

    A recovery has no store, and replaces existing data.
    """
    home: Obj = {"name": names.DATA, "mountPath": HOME}
    seal = ["seal", f"--home={HOME}", f"--token={token}", *([] if volume else ["--replace"])]
    claim = {"claimName": names.volume_name(resource, number)}
    # 3.4 resolves its own name before it restores; without a member's pod, DNS does not have it.
    hosts = [names.host(resource, names.member_name(resource, number))]
    fetching = _operator_container(settings, "fetch", fetch, [home, *([mount] if mount else ())])
    restoring = _restoring(settings, resource, number, cluster_token, home, has_checksum=volume is not None)
    return _pod(
        resource,
        names.owner(resource, settings.operator),
        name,
        _RESTORE,
        {TOKEN: token},
        seconds=None,
        more=resource.spec.placement() | {"hostAliases": [{"ip": "127.0.0.1", "hostnames": hosts}]},
        containers=[_operator_container(settings, "seal", seal, [home])],
        init=[fetching, restoring],
        volumes=[{"name": names.DATA, "persistentVolumeClaim": claim}, *([volume] if volume else ())],
    )


def _restoring(
    settings: Settings, resource: EtcdCluster, number: int, cluster_token: str, home: Obj, *, has_checksum: bool
) -> Obj:
    """Return the container that restores a snapshot with etcd's own program.

    A member's own database has no checksum, which the program would verify.
    """
    member, url = names.member_name(resource, number), names.peer_url(resource, number)
    able = features(resource.version)
    restore = [
        "snapshot",
        "restore",
        f"{HOME}/scratch/snapshot.db",
        f"--name={member}",
        f"--initial-cluster={member}={url}",
        f"--initial-advertise-peer-urls={url}",
        f"--initial-cluster-token={cluster_token}",
        f"--data-dir={HOME}/scratch/data",
        *([f"--bump-revision={REVISION_BUMP}", "--mark-compacted"] if able.bumps_revision else ()),
        *([] if has_checksum else ["--skip-hash-check=true"]),
    ]
    return {
        "name": _RESTORE,
        "image": resource.image_reference(settings.image_repository),
        "command": [able.restores_with],
        "args": restore,
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": [home],
    }


def seed_volume(settings: Settings, resource: EtcdCluster) -> Obj:
    """Return the seed's volume claim as the StatefulSet would create it, without owner: it outlives the resource."""
    own = names.owner(resource, settings.operator)
    made = stateful_set.claim(resource, own, resource.spec.storage.size)
    metadata = made["metadata"] | {"name": names.volume_name(resource, 0), "namespace": resource.namespace}
    return made | {"metadata": metadata, "kind": PERSISTENT_VOLUME_CLAIM.name}


def started(pod: Obj, now: datetime) -> Obj:
    """Return a pod with the time at which it is created."""
    metadata = pod["metadata"] | {"annotations": pod["metadata"]["annotations"] | {STARTED: rfc3339(now)}}
    return pod | {"metadata": metadata}


def _pod(
    cluster: EtcdCluster,
    own: Owner,
    name: str,
    component: str,
    annotations: Obj,
    *,
    seconds: int | None,
    more: Obj,
    containers: list[Obj],
    volumes: list[Obj],
    init: list[Obj] | None = None,
) -> Obj:
    spec: Obj = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": restricted(UID) | {"fsGroup": UID, "fsGroupChangePolicy": _PRESERVED},
        "terminationGracePeriodSeconds": 30,
        "containers": containers,
        "volumes": volumes,
        **more,
    }
    if init:
        spec["initContainers"] = init
    if seconds is not None:
        spec["activeDeadlineSeconds"] = seconds
    spec = cluster.spec.with_access(spec)
    made = own.object(POD, name, component=component, spec=spec)
    recipe = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    made["metadata"]["annotations"] = annotations | {RECIPE: recipe}
    return made


def _operator_container(settings: Settings, name: str, arguments: list[str], mounts: list[Obj]) -> Obj:
    return {
        "name": name,
        "image": settings.agent_image,
        "args": [argument.replace("$", "$$") for argument in arguments],  # Kubernetes expands $(NAME)
        # The program uses 90 MiB, regardless of the size of the snapshot.
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": mounts,
    }


def _nodes(cluster: EtcdCluster) -> Obj:
    """Return the constraints of the members' nodes: the store or the members may be unreachable from other nodes."""
    return {name: value for name, value in cluster.spec.placement().items() if name in ("nodeSelector", "tolerations")}


def _secret(volume: str, name: str, *keys: str) -> Obj:
    items = [{"key": key, "path": key} for key in keys]
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440, "items": items}}
