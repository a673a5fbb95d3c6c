"""The pods that take snapshots, and that make a member's data of one. Pure builders.

They run `python -m operators.etcd …` (program.py) from the operator's own image, and etcd's restoring program from the
members' image: who is to read the data is who makes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

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
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Obj
from shared.kubernetes.ownership import Owner
from shared.kubernetes.secrets import AUTHORITY_KEY, CERTIFICATE_KEY, PASSWORD_KEY, PRIVATE_KEY
from shared.runtime.settings import Settings

APPLICATION = "etcd-backup"
"""app.kubernetes.io/name of what an EtcdBackup owns: a cluster may have the same name."""

ATTEMPT = "etcd.ydzs.io/attempt"
"""Annotation of a snapshot's pod: which try it is."""

RECIPE = "etcd.ydzs.io/recipe"
"""Annotation of a restore's pod: digest of its spec; another one is made of another pod."""

MESSAGE = "etcd.ydzs.io/told"
"""Annotation of a snapshot's pod: who gives it, and what a person should know of that."""

TOKEN = "etcd.ydzs.io/token"  # noqa: S105 - public, like what it stands for
"""Annotation of a pod that makes data: which recovery or restore it is for."""

MIN_BYTES_PER_SECOND = 1 << 20
"""Bytes a second: a snapshot that takes longer than this allows, and ten minutes, hangs."""

REVISION_BUMP = 1_000_000_000
"""Revisions by which restored data is ahead of the snapshot: more than anybody who watched the former cluster saw, so
that all of them notice. Source: https://etcd.io/docs/v3.6/op-guide/recovery/#restoring-with-revision-bump"""

_SNAPSHOT, _RESTORE = "snapshot", "restore"
_CLIENT_TLS, _PASSWORD = "/etc/etcd/tls/client", "/etc/etcd/auth"
_PRESERVED = "OnRootMismatch"


def backup_owner(backup: EtcdBackup, operator: str) -> Owner:
    return Owner(API.kind, backup.namespace, backup.name, backup.uid, APPLICATION, operator)


def snapshot_pod_name(backup: str) -> str:
    return f"{backup}-snapshot"


def restore_pod_name(resource: EtcdCluster) -> str:
    return f"{resource.name}-restore"


def recovery_pod_name(resource: EtcdCluster) -> str:
    """Name of the recovery's pod."""
    return f"{resource.name}-recovery"


def snapshot_pod(
    settings: Settings,
    backup: EtcdBackup,
    cluster: EtcdCluster,
    member: str,
    status: EndpointStatus,
    *,
    attempt: int,
    message: str,
    keep: int | None,
) -> Obj:
    """Takes a snapshot from a member.

    Args:
        member: its name.
        said: what it said of itself.
        attempt: which try it is, from 1.
        told: what is said of it while it runs.
        keep: how many snapshots of the schedule are kept; None for a snapshot that no schedule asked for.
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
    for flags, volume, mount in _credentials(cluster):
        arguments += flags
        volumes.append(volume)
        mounts.append(mount)
    return _pod(
        backup_owner(backup, settings.operator),
        snapshot_pod_name(backup.name),
        _SNAPSHOT,
        {ATTEMPT: str(attempt), MESSAGE: message},
        seconds=600 + status.db_size // MIN_BYTES_PER_SECOND,
        more=_nodes(cluster),
        containers=[_ours(settings, _SNAPSHOT, arguments, mounts)],
        volumes=volumes,
    )


def _credentials(cluster: EtcdCluster) -> Iterator[tuple[list[str], Obj, Obj]]:
    """What a client of the cluster shows: for each Secret its flags, its volume, and its mount."""
    if cluster.spec.tls.mode != "none":
        keys = {"--tls-ca": AUTHORITY_KEY, "--tls-cert": CERTIFICATE_KEY, "--tls-key": PRIVATE_KEY}
        flags = [f"{flag}={_CLIENT_TLS}/{key}" for flag, key in keys.items()]
        volume = _secret("client-tls", names.client_secret(cluster), *keys.values())
        yield flags, volume, {"name": "client-tls", "mountPath": _CLIENT_TLS, "readOnly": True}
    if cluster.spec.auth is not None and cluster.spec.auth.enabled:
        flags = [f"--user={USER}", f"--password-file={_PASSWORD}/{PASSWORD_KEY}"]
        volume = _secret("auth", cluster.spec.auth.root_secret_name, PASSWORD_KEY)
        yield flags, volume, {"name": "auth", "mountPath": _PASSWORD, "readOnly": True}


def restore_token(resource: EtcdCluster, store: VolumeStore | S3, file: str) -> str:
    """Tells data apart by where it came from."""
    text = json.dumps([resource.uid, type(store).__name__, as_object(store), file], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def restore_pod(settings: Settings, resource: EtcdCluster, store: VolumeStore | S3, file: str) -> Obj:
    """Makes a snapshot the seed's data, before there is a seed; data that is there already stays as it is."""
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
    """Makes a new cluster of the database at a place, of which that member is the only one (quorum_recovery.py).

    The former data directory stays beside the new one, as data.before-TOKEN.
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
    """Fetches, lets etcd's own program make data of it, and seals that. A recovery has no store, and replaces data."""
    home: Obj = {"name": names.DATA, "mountPath": HOME}
    seal = ["seal", f"--home={HOME}", f"--token={token}", *([] if volume else ["--replace"])]
    claim = {"claimName": names.volume_name(resource, number)}
    # 3.4 looks its own name up before it restores, and without a member's pod nothing else resolves it.
    hosts = [names.host(resource, names.member_name(resource, number))]
    fetching = _ours(settings, "fetch", fetch, [home, *([mount] if mount else ())])
    restoring = _restoring(settings, resource, number, cluster_token, home, has_checksum=volume is not None)
    return _pod(
        names.owner(resource, settings.operator),
        name,
        _RESTORE,
        {TOKEN: token},
        seconds=None,
        more=resource.spec.placement() | {"hostAliases": [{"ip": "127.0.0.1", "hostnames": hosts}]},
        containers=[_ours(settings, "seal", seal, [home])],
        init=[fetching, restoring],
        volumes=[{"name": names.DATA, "persistentVolumeClaim": claim}, *([volume] if volume else ())],
    )


def _restoring(
    settings: Settings, resource: EtcdCluster, number: int, cluster_token: str, home: Obj, *, has_checksum: bool
) -> Obj:
    """The container in which etcd's own program makes data of a snapshot; a member's own database has no checksum."""
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
    """The seed's volume claim, as the StatefulSet would make it; nobody owns it, for it outlives the resource."""
    own = names.owner(resource, settings.operator)
    made = stateful_set.claim(resource, own, resource.spec.storage.size)
    metadata = made["metadata"] | {
        "name": names.volume_name(resource, 0),
        "namespace": resource.namespace,
    }
    return made | {"metadata": metadata, "kind": PERSISTENT_VOLUME_CLAIM.name}


def _pod(
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
    made = own.object(POD, name, component=component, spec=spec)
    recipe = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()[:16]
    made["metadata"]["annotations"] = annotations | {RECIPE: recipe}
    return made


def _ours(settings: Settings, name: str, arguments: list[str], mounts: list[Obj]) -> Obj:
    return {
        "name": name,
        "image": settings.agent_image,
        "args": arguments,
        # It holds 90 MiB, however large the snapshot is.
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": SAFE,
        "volumeMounts": mounts,
    }


def _nodes(cluster: EtcdCluster) -> Obj:
    """Nodes that the members may run on: on others the store, or the members, may be out of reach."""
    return {name: value for name, value in cluster.spec.placement().items() if name in ("nodeSelector", "tolerations")}


def _secret(volume: str, name: str, *keys: str) -> Obj:
    items = [{"key": key, "path": key} for key in keys]
    return {"name": volume, "secret": {"secretName": name, "defaultMode": 0o440, "items": items}}
