"""`kubectl platform backup` and `restore`: a snapshot now, and the manifest of a cluster with its data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import click
import yaml

from plugin.commands.base import command, now, only, resources, until
from plugin.databases import BACKUP, ETCD, parsed
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import Done, acted, one
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions

MAX_NAME_CHARACTERS = 63
"""Longest name of an EtcdBackup, which is the value of a label."""

NOT_RESTORED = frozenset({"adopt", "backup", "deletionProtection", "hibernate", "paused", "recovery", "restore"})
"""Fields of the spec that a restored cluster does not get: volumes, schedule and consents of another one."""

REPORTED = ("location", "file", "size", "sizeBytes", "revision", "sha256", "current", "etcdVersion", "member")
"""Fields of the status of an EtcdBackup that -o json has."""


def name_of(cluster: str, moment: datetime) -> str:
    """Return the name of a backup of a cluster."""
    suffix = f"-{moment:%Y%m%d-%H%M%S}"
    return cluster[: MAX_NAME_CHARACTERS - len(suffix)].rstrip("-.") + suffix


def destination(cluster: Obj, claim: str, path: str) -> Obj:
    """Return where a snapshot is stored: the claim that the user names, or else that of the scheduled snapshots.

    Raises:
        Problem: there is neither.
    """
    if path and not claim:
        raise Problem("--path is a directory in a claim, and no claim is named", "name it with --claim")
    if claim:
        return {"volume": {"claimName": claim, **({"path": path} if path else {})}}
    found: Obj = ((cluster.get("spec") or {}).get("backup") or {}).get("destination") or {}
    if not found:
        name = cluster["metadata"]["name"]
        fix = "name a claim with --claim, or set spec.backup.destination: docs/how-to/back-up-and-restore.md"
        raise Problem(f"EtcdCluster {name} has no destination for scheduled snapshots", fix)
    return found


@command(
    "backup",
    examples=[
        "backup etcdcluster/settings",
        "backup etcdcluster/settings --claim snapshots --path settings",
        "backup etcdcluster/settings -o json",
    ],
    prints=acted(*REPORTED, "backup", "restore"),
)
@resources(many=False)
@click.option("--claim", default="", help="Claim for the snapshot (default: the destination of spec.backup).")
@click.option("--path", default="", help="Directory in the claim.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait until it is complete.")
async def backup(
    session: Session, output: Output, words: tuple[str, ...], claim: str, path: str, timeout: float
) -> None:
    """Take a verified snapshot of an EtcdCluster.

    It creates an EtcdBackup, waits until the snapshot is complete, and shows how to restore it.
    """
    database, name = only(parsed(words))
    if database != ETCD:
        raise Problem(f"{database.kind.name} has no backups yet", "docs/how-to/back-up-and-restore.md")
    cluster = await session.resource(database, name)
    made: Obj = {
        "apiVersion": BACKUP.kind.api_version,
        "kind": BACKUP.kind.name,
        "metadata": {"name": name_of(name, now()), "namespace": session.namespace},
        "spec": {"clusterName": name, "destination": destination(cluster, claim, path)},
    }
    await session.kube.create(BACKUP.kind, made)
    backup_name = made["metadata"]["name"]
    output.text(f"created etcdbackup/{backup_name}")
    where = f"etcdbackup/{backup_name} {session.flags}"

    async def missing() -> str:
        found = await session.resource(BACKUP, backup_name)
        ready = accessors.condition(found, conditions.READY)
        if accessors.is_true(found, conditions.STALLED) or accessors.status_of(found).get("phase") == "Failed":
            raise Problem(f"{ready.get('reason')}: {ready.get('message')}", f"kubectl platform why {where}")
        if ready.get("status") == "True":
            return ""
        return f"{ready.get('reason') or 'Pending'}: {ready.get('message') or 'the operator has not begun'}"

    await until(missing, timeout, output.text, f"it continues; watch it with: kubectl platform status {where}")
    made = await session.resource(BACKUP, backup_name)
    status = accessors.status_of(made)
    output.text(f"{status.get('location')}: {status.get('size')}, revision {status.get('revision')}")
    if status.get("current") not in (None, True):  # an earlier version of the operator does not report it
        output.text(f"it may lack changes: {accessors.condition(made, conditions.READY).get('message')}")
    restores = f"kubectl platform restore {where} --as {name}-restored"
    details = {key: status.get(key) for key in REPORTED} | {"backup": backup_name, "restore": restores}
    line = f"restore it as a new cluster: {restores} | kubectl apply -f -"
    output.result(Done.of("backed up", database, session.namespace, name, line, **details), line)


def restored(backup: Obj, cluster: Obj | None, name: str) -> Obj:
    """Return the manifest of a new EtcdCluster with the data of a backup.

    It has the spec of the cluster that was backed up, without the fields that are only of that one (`NOT_RESTORED`).

    Args:
        cluster: the cluster that was backed up; None if it no longer exists.
        name: name of the new cluster.

    Raises:
        Problem: the backup is not complete, or the name is that of a cluster with data.
    """
    metadata, status = backup["metadata"], accessors.status_of(backup)
    if status.get("phase") != "Complete":
        ready = accessors.condition(backup, conditions.READY)
        why = f"{ready.get('reason')}: {ready.get('message')}" if ready else "the operator has not begun"
        fix = "choose a complete one: kubectl get etcdbackups"
        raise Problem(f"EtcdBackup {metadata['name']} is not complete: {why}", fix)
    source = str((backup.get("spec") or {}).get("clusterName") or "")
    if name == source and cluster is not None:
        fix = f"choose another name: --as {name}-restored"
        raise Problem(f"EtcdCluster {name} exists, and a restore always creates a new cluster", fix)
    spec = {key: value for key, value in ((cluster or {}).get("spec") or {}).items() if key not in NOT_RESTORED}
    spec = {"size": 3, "version": status.get("etcdVersion")} | spec
    return {
        "apiVersion": ETCD.kind.api_version,
        "kind": ETCD.kind.name,
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "spec": spec | {"restore": {"from": {"backup": metadata["name"]}}},
    }


@command(
    "restore",
    examples=[
        "restore etcdbackup/settings-20260101-120000 --as settings-restored",
        "restore etcdbackup/settings-20260101-120000 --as settings-restored > restored.yaml",
        "restore etcdbackup/settings-20260101-120000 --as settings-restored -o json",
    ],
    prints=one(Mapping),
)
@resources(many=False)
@click.option("--as", "name", required=True, help="Name of the new EtcdCluster.")
async def restore(session: Session, output: Output, words: tuple[str, ...], name: str) -> None:
    """Print the manifest of a new EtcdCluster with the data of a backup.

    A restore always creates a new cluster. Nothing is written: read the manifest, then apply it, and confirm the data
    before clients use the new Service. The spec is that of the cluster that was backed up, without its schedule of
    backups. With passwords, the new cluster needs the former one of root once: docs/how-to/back-up-and-restore.md.
    """
    database, backup_name = only(parsed(words))
    if database != BACKUP:
        fix = "name an EtcdBackup: kubectl get etcdbackups lists them"
        raise Problem(f"{database.kind.name} is not a backup", fix)
    found = await session.resource(BACKUP, backup_name)
    source = str((found.get("spec") or {}).get("clusterName") or "")
    cluster = await session.kube.find(ETCD.kind, session.namespace, source) if source else None
    made = restored(found, cluster, name)
    if name != source and await session.kube.find(ETCD.kind, session.namespace, name) is not None:
        raise Problem(f"EtcdCluster {name} exists, and a restore always creates a new cluster", "choose another name")
    if output.as_json:
        output.json(made)
        return
    if cluster is None:
        output.text(f"# EtcdCluster {source} no longer exists: compare size and settings with its manifest.")
    if "auth" in made["spec"]:
        page = "docs/how-to/back-up-and-restore.md#restore"
        output.text(f"# The Secret of the new cluster needs previousPassword once: {page}.")
    output.text(yaml.safe_dump(made, sort_keys=False).rstrip())


COMMANDS = (backup, restore)
