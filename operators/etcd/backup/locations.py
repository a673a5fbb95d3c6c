"""Locations of snapshots that specs name: as text, as arguments and volumes of pods, and whether they exist."""

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
"""Keys of the Secret with the credentials of an object store; ca.crt is optional."""


def store_of(given: Destination | RestoreSource) -> VolumeStore | S3 | None:
    """Return the store that is set; None if there is none."""
    return given.volume or given.s3


def location(store: VolumeStore | S3, file: str) -> str:
    """Return the location of a file as text."""
    if isinstance(store, VolumeStore):
        return f"volume://{PurePosixPath(store.claim_name, store.path, file)}"
    return f"s3://{store.bucket}/{_prefixed(store, file)}"


def _prefixed(store: S3, file: str) -> str:
    prefix = store.prefix.strip("/")
    return f"{prefix}/{file}" if prefix else file


async def problem(kube: Kube, namespace: str, at: str, store: VolumeStore | S3) -> SecretProblem | None:
    """Return what is missing of a store, and how to fix it; None if nothing is missing.

    Args:
        at: field of the spec that names the store.
    """
    if isinstance(store, VolumeStore):
        try:
            metadata = await kube.metadata(PERSISTENT_VOLUME_CLAIM, namespace, store.claim_name)
        except NotFound:
            return SecretProblem(
                VOLUME_MISSING,
                f"{at}.volume: PersistentVolumeClaim {store.claim_name} does not exist in this namespace. Create "
                "it, or name another one.",
            )
        message = (
            f"{at}.volume: PersistentVolumeClaim {store.claim_name} is being deleted, so no new pod can mount it. "
            "Create it again once it is deleted, or name another one."
        )
        return SecretProblem(VOLUME_MISSING, message) if "deletionTimestamp" in metadata else None
    name = store.credentials_secret
    try:
        texts(f"{at}.s3", name, (await find(kube, namespace, {name: KEYS}))[name], *KEYS)
    except UnusableSecret as wrong:
        return wrong.problem
    return None


def arguments(store: VolumeStore | S3) -> list[str]:
    """Return the arguments of program.py for a store."""
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
    """Return the pod's volume for a store."""
    if isinstance(store, VolumeStore):
        return {"name": STORE, "persistentVolumeClaim": {"claimName": store.claim_name}}
    return {"name": CREDENTIALS, "secret": {"secretName": store.credentials_secret, "defaultMode": 0o440}}


def mount(store: VolumeStore | S3, *, writing: bool) -> Obj:
    """Return the container's mount of that volume."""
    if isinstance(store, VolumeStore):
        return {"name": STORE, "mountPath": STORE_AT} | ({} if writing else {"readOnly": True})
    return {"name": CREDENTIALS, "mountPath": CREDENTIALS_AT, "readOnly": True}
