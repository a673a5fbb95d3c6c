"""`kubectl platform backup`: a snapshot now."""

from __future__ import annotations

from datetime import datetime

import click

from plugin.commands.base import command, now, only, resources, until
from plugin.databases import BACKUP, ETCD, parsed
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.kinds import Obj
from shared.status import conditions

MAX_NAME_CHARACTERS = 63
"""Longest name of an EtcdBackup, which is the value of a label."""

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
    prints=acted(*REPORTED, "backup"),
)
@resources(many=False)
@click.option("--claim", default="", help="Claim for the snapshot (default: the destination of spec.backup).")
@click.option("--path", default="", help="Directory in the claim.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait until it is complete.")
async def backup(
    session: Session, output: Output, words: tuple[str, ...], claim: str, path: str, timeout: float
) -> None:
    """Take a verified snapshot of an EtcdCluster."""
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
    if output.as_json:
        details = {key: status.get(key) for key in REPORTED} | {"backup": backup_name}
        output.json(Done.of("backed up", database, session.namespace, name, str(status.get("location")), **details))


COMMANDS = (backup,)
