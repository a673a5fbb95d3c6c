"""Where snapshots are, as specs name it: for people, for pods, and whether it is there."""

from __future__ import annotations

from pathlib import PurePosixPath

from operators.etcd.api.snapshot_stores import S3, Destination, RestoreSource, VolumeStore
from operators.etcd.reasons import VOLUME_MISSING
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, Obj
from shared.kubernetes.secrets import find
from shared.pki.secret_checks import SecretProblem, UnusableSecret, texts

STORE, CREDENTIALS = "store", "store-credentials"
"""Volumes of a pod."""

STORE_AT, CREDENTIALS_AT = "/var/lib/store", "/etc/store"

KEYS = ("accessKeyID", "secretAccessKey")
"""Keys of the Secret that lets into an object store; ca.crt may be a third."""


def store_of(given: Destination | RestoreSource) -> VolumeStore | S3 | None:
    """The one of the two that is given; None where neither is."""
    return given.volume or given.s3


def location(store: VolumeStore | S3, file: str) -> str:
    """Where a file is, for people."""
    if isinstance(store, VolumeStore):
        return f"volume://{PurePosixPath(store.claim_name, store.path, file)}"
    return f"s3://{store.bucket}/{_prefixed(store, file)}"


def _prefixed(store: S3, file: str) -> str:
    prefix = store.prefix.strip("/")
    return f"{prefix}/{file}" if prefix else file


async def problem(kube: Kube, namespace: str, at: str, store: VolumeStore | S3) -> SecretProblem | None:
    """What of a place is not there, and what mends it; None if all is.

    Args:
        at: the field that names the place.
    """
    if isinstance(store, VolumeStore):
        try:
            await kube.get(PERSISTENT_VOLUME_CLAIM, namespace, store.claim_name)
        except NotFound:
            return SecretProblem(
                VOLUME_MISSING,
                f"{at}.volume: there is no PersistentVolumeClaim {store.claim_name} in this namespace. Make it, or "
                "name another.",
            )
        return None
    name = store.credentials_secret
    try:
        texts(f"{at}.s3", name, (await find(kube, namespace, [name]))[name], *KEYS)
    except UnusableSecret as wrong:
        return wrong.problem
    return None


def arguments(store: VolumeStore | S3) -> list[str]:
    """What program.py is told about a place."""
    if isinstance(store, VolumeStore):
        return [f"--volume={STORE_AT}", *([f"--path={store.path}"] if store.path else ())]
    return [
        f"--s3-bucket={store.bucket}",
        f"--s3-region={store.region}",
        *([f"--s3-endpoint={store.endpoint}"] if store.endpoint else ()),
        *([f"--s3-prefix={store.prefix}"] if store.prefix else ()),
        f"--s3-credentials={CREDENTIALS_AT}",
    ]


def volume(store: VolumeStore | S3) -> Obj:
    """What a pod needs for a place, as one of its volumes."""
    if isinstance(store, VolumeStore):
        return {"name": STORE, "persistentVolumeClaim": {"claimName": store.claim_name}}
    return {"name": CREDENTIALS, "secret": {"secretName": store.credentials_secret, "defaultMode": 0o440}}


def mount(store: VolumeStore | S3, *, writing: bool) -> Obj:
    """The same, as a container sees it."""
    if isinstance(store, VolumeStore):
        return {"name": STORE, "mountPath": STORE_AT} | ({} if writing else {"readOnly": True})
    return {"name": CREDENTIALS, "mountPath": CREDENTIALS_AT, "readOnly": True}
