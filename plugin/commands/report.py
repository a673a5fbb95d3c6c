"""`kubectl platform report`: what an engineer needs to understand an incident elsewhere, without Secrets."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from plugin import diagnosis, restarts
from plugin.commands.base import command, events_of, now, only, pods_of, resources
from plugin.commands.logs import about, sources
from plugin.databases import Database, parsed
from plugin.output import Output
from plugin.overview import overview
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from plugin.workloads import history_of
from shared.kubernetes.errors import Forbidden
from shared.kubernetes.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    STATEFUL_SET,
    Obj,
)
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY

OWNED = (STATEFUL_SET, DEPLOYMENT, SERVICE, CONFIG_MAP, DISRUPTION_BUDGET, NETWORK_POLICY, PERSISTENT_VOLUME_CLAIM)
"""Kinds of objects in a report. Secrets are not read at all: their content is in no report."""

REDACTED = "(redacted)"


def redacted(found: Any) -> Any:
    """Return an object without what may be secret: values of environment variables, and the copy of kubectl apply.

    Content of ConfigMaps that operators own has no secrets: passwords are in Secrets, which are not read.
    """
    if isinstance(found, dict):
        return {key: _redacted(key, value) for key, value in found.items() if key != "managedFields"}
    if isinstance(found, list):
        return [redacted(each) for each in found]
    return found


def _redacted(key: str, value: Any) -> Any:
    if key == "annotations" and isinstance(value, dict):
        return {name: REDACTED if _is_copy(name, str(text)) else text for name, text in value.items()}
    if key == "env" and isinstance(value, list):
        return [{**each, "value": REDACTED} if isinstance(each, dict) and "value" in each else each for each in value]
    return redacted(value)


def _is_copy(annotation: str, text: str) -> bool:
    """Whether an annotation has a manifest, as kubectl, kapp and others keep the one that they applied."""
    return annotation.endswith("last-applied-configuration") or text.lstrip().startswith("{")


@command(
    "report",
    examples=["report rediscluster/orders", "report rediscluster/orders --file orders.tar.gz -o json"],
    prints=acted("file", "files", "bytes"),
)
@resources(many=False)
@click.option("--file", "-f", "path", default="", help="File to write (default: NAME-report.tar.gz).")
@click.option("--since", default="24h", show_default=True, help="How far the log goes back.")
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def report(
    session: Session, output: Output, words: tuple[str, ...], path: str, since: str, operator_namespace: str
) -> None:
    """Pack what is known of a resource into one file.

    It has the resource, its objects, events and the lines of the operator's log, for another engineer to read.

    Secrets are not read. Values of environment variables are left out.
    """
    database, name = only(parsed(words))
    resource = await session.resource(database, name)
    pods = await pods_of(session, database, resource)
    events = await events_of(session, resource, pods)
    changed = restarts.of_resource(database, resource, pods, await history_of(session, database, resource), now())
    seen = overview(database, resource, pods, now())
    facts = diagnosis.of_resource(database, resource, seen, events, now(), session.target.flags, changed)
    files: dict[str, str] = {
        "why.txt": "".join(f"{fact.source}: {fact.text}\n" for fact in facts),
        "resource.json": _json(resource),
        "pods.json": _json(pods),
        "events.json": _json(events),
        "versions.json": _json(await session.raw("/version")),
    }
    labels = f"{INSTANCE}={name},{MANAGED_BY}={database.operator}-operator"
    for kind in OWNED:
        try:
            files[f"{kind.plural}.json"] = _json(await session.objects(kind, session.namespace, labels))
        except Forbidden as error:
            files[f"{kind.plural}.txt"] = f"not allowed: {error}\n"
    files["operator.log"] = await _log(session, database, name, operator_namespace, since)
    target = Path(path or f"{name}-report.tar.gz")
    pack(target, name, files)
    size = target.stat().st_size
    line = f"{target}: {len(files)} files, {size} bytes. Read it before you send it on."
    details = {"file": str(target), "files": sorted(files), "bytes": size}
    output.result(Done.of("reported", database, session.namespace, name, line, **details), line)


async def _log(session: Session, database: Database, name: str, namespace: str, since: str) -> str:
    """Return the operator's lines about a resource; why there are none, if they cannot be read."""
    try:
        texts = [
            session.run("logs", "--selector", labels, "--tail", "-1", "--since", since, namespace=found)
            for found, labels in await sources(session, database, namespace)
        ]
    except (Forbidden, Problem) as error:
        return f"cannot read the operator's log: {error}\n"
    return "".join(f"{line}\n" for text in texts for line in about(text.splitlines(), f"{session.namespace}/{name}"))


def _json(value: Obj | list[Obj]) -> str:
    return json.dumps(redacted(value), indent=1, ensure_ascii=False) + "\n"


def pack(target: Path, name: str, files: Mapping[str, str]) -> None:
    """Write the files as a compressed archive, which only this user may read."""
    target.touch(mode=0o600)
    if target.is_file():  # a present one keeps its mode otherwise
        target.chmod(0o600)
    with tarfile.open(target, "w:gz") as archive:
        for file, content in files.items():
            data = content.encode()
            entry = tarfile.TarInfo(f"{name}-report/{file}")
            entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(data))


COMMANDS = (report,)
