"""`kubectl platform plan`."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.console import Console

from plugin import applying, plans, version
from plugin.applying import Manifest
from plugin.commands.base import command, now, only, resources
from plugin.commands.logs import deployments
from plugin.databases import BACKUP, Database, parsed
from plugin.health import is_of
from plugin.output import Output
from plugin.problem import Problem
from plugin.reading import Reader
from plugin.results import one
from plugin.session import Session
from shared.kubernetes.errors import Forbidden, NotFound
from shared.kubernetes.kinds import CONFIG_MAP, SECRET, Kind, Obj

if TYPE_CHECKING:
    from simulator.plan import Plan

CHANGED: Mapping[str, Kind] = {kind.name: kind for kind in (SECRET, CONFIG_MAP)}
"""Kinds of other objects of a file whose changes are part of a plan."""


@command(
    "plan",
    examples=["plan -f orders.yaml", "plan rediscluster/orders", "plan -f orders.yaml -o json"],
    prints=one("simulator.plan.Plan"),
)
@resources(required=False, many=False)
@click.option("--file", "-f", "path", default="", help="Manifest of the change; - reads it from standard input.")
@click.option("--all-steps", is_flag=True, help="Also show steps that only keep records, such as annotations.")
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def plan(
    session: Session, output: Output, words: tuple[str, ...], path: str, all_steps: bool, operator_namespace: str
) -> None:
    """Show each step of a change before it is made.

    With a file, the API server first judges the manifest, as for `kubectl apply`. Then the operator's
    own code executes the change in a simulation of what runs now, to its end. With KIND/NAME, the plan has the
    remaining steps of a change in progress. Nothing is written to the cluster. The plan needs the right to read the
    resource, its objects, and its Secrets, of which it shows nothing.

    Exit codes: 0 nothing to do, 2 changes without a restart, 3 pods restart, 4 a step needs a person, 5 the manifest is
    refused; 1 for errors, and if the simulation does not know the present state, or what follows from it.

    Durations are estimates: a new pod takes as long as those that run now, everything else is a default.
    """
    if bool(path) == bool(words):
        raise Problem("name either a resource or a file", "kubectl platform plan KIND/NAME, or plan -f FILE")
    if path:
        manifest = applying.read(path, sys.stdin.read() if path == "-" else None)
        applying.set_namespace(manifest, session.namespace, session.target.namespace)
        found = await _of_manifest(session, output, manifest, operator_namespace)
    else:
        database, name = only(parsed(words))
        if database == BACKUP:
            raise Problem("an EtcdBackup has no plan", "name a Memcached, EtcdCluster or RedisCluster")
        live = await session.resource(database, name)
        with spinner(output):
            found = await planned(session, database, live, None, operator_namespace)
    show(output, found, all_steps=all_steps)
    raise click.exceptions.Exit(plans.EXIT_CODES[found.outcome])


async def _of_manifest(session: Session, output: Output, manifest: Manifest, operator_namespace: str) -> Plan:
    from simulator.plan import REFUSED, ended

    database, metadata = manifest.database, manifest.resource["metadata"]
    live = await session.kube.find(database.kind, metadata["namespace"], metadata["name"])
    try:
        others = [each async for each in _others(session, manifest)]
        change = await applying.judged(session, database.kind, manifest.resource, live)
    except applying.ManifestRefused as refusal:
        return ended(manifest.resource, REFUSED, "Refused", str(refusal))
    except NotFound:
        raise Problem(f"the cluster does not serve {database.kind.name}", "kubectl platform doctor") from None
    with spinner(output):
        found = await planned(session, database, live, change, operator_namespace, others)
    unplanned = [each for each in manifest.others if each.get("kind") not in CHANGED]
    left_out = (f"{each.get('kind')} {_name(each)} of the file is not part of the plan." for each in unplanned)
    of_tool = applying.warnings(live) if live else ()
    return dataclasses.replace(found, warnings=(*found.warnings, *left_out, *of_tool))


def _name(document: Obj) -> object:
    metadata = document.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


async def _others(session: Session, manifest: Manifest) -> AsyncIterator[tuple[Kind, Obj]]:
    """Yield the Secrets and ConfigMaps of the file in the namespace of the resource, as they would be stored."""
    namespace = manifest.resource["metadata"]["namespace"]
    for each in manifest.others:
        kind, metadata = CHANGED.get(str(each.get("kind"))), each.get("metadata")
        if kind is None or not isinstance(metadata, dict) or metadata.get("namespace") != namespace:
            continue
        live = await session.kube.find(kind, namespace, str(metadata.get("name")))
        yield kind, await applying.judged(session, kind, each, live)


async def planned(
    session: Session,
    database: Database,
    live: Obj | None,
    change: Obj | None,
    operator_namespace: str,
    others: Sequence[tuple[Kind, Obj]] = (),
) -> Plan:
    """Return the plan of a resource.

    Args:
        live: the resource as it is; None if it is to be created.
        change: the resource as the API server would store it after the change; None without a change.
        operator_namespace: namespace of the operators; empty to look in all.
        others: Secrets and ConfigMaps that change with it.

    Raises:
        Problem: the operator is not found, or has another version than the plugin.
        KubeError: an object cannot be read.
    """
    from simulator import subjects
    from simulator.plan import UNKNOWN, Unmodelled, ended
    from simulator.plan import plan as simulated

    named = change or live
    assert named is not None
    subject, namespace = subjects.subject(database.operator), named["metadata"]["namespace"]
    deployment = await _operator(session, database, operator_namespace, namespace)
    version.require_same(database, deployment)
    reader = Reader(session, database, namespace)
    try:
        options = subjects.options(subject, deployment)
    except Unmodelled as unknown:
        return ended(named, UNKNOWN, "Unmodelled", str(unknown))
    begin = await reader.live(live, change, now())
    found = await simulated(subject, options, begin, change, reader.find, others)
    is_idle = not (deployment.get("status") or {}).get("readyReplicas")
    idle = f"No replica of the {database.operator} operator is ready: nothing happens until one is."
    assumptions = (*found.assumptions, *dict.fromkeys(reader.assumptions))
    return dataclasses.replace(found, assumptions=assumptions, warnings=(idle,) if is_idle else ())


def spinner(output: Output) -> contextlib.AbstractContextManager[object]:
    """Return what shows in a terminal that the command works: for many servers, that takes minutes."""
    if output.as_json or not sys.stderr.isatty():
        return contextlib.nullcontext()
    return Console(stderr=True).status("The operator works in a simulation …")


async def _operator(session: Session, database: Database, operator_namespace: str, namespace: str) -> Obj:
    """Return the Deployment of the operator of a kind that watches a namespace.

    Raises:
        Problem: there is none, or several.
    """
    try:
        found = [each for each in await deployments(session, operator_namespace) if is_of(each, database)]
    except Forbidden as error:
        if operator_namespace:
            raise
        raise Problem(str(error), "name the namespace of the operator with --operator-namespace") from None
    watching = [each for each in found if _watches(database, each, namespace)]
    if found and not watching:
        watched = ", ".join(sorted({name for each in found for name in _watched(database, each) or ()}))
        raise Problem(
            f"no {database.operator} operator watches namespace {namespace}, only {watched}: nothing would execute "
            "the plan",
            "create the resource in one of these, or add the namespace to the operator's flag --watch-namespace",
        )
    if len(watching) != 1:
        where = ", ".join(sorted(each["metadata"]["namespace"] for each in watching)) or "none"
        raise Problem(
            f"{len(watching)} Deployments of the {database.operator} operator were found: {where}",
            "name the namespace of the one that manages the resource with --operator-namespace",
        )
    return watching[0]


def _watches(database: Database, deployment: Obj, namespace: str) -> bool:
    watched = _watched(database, deployment)
    return not watched or namespace in watched


def _watched(database: Database, deployment: Obj) -> tuple[str, ...]:
    """Return the namespaces that an operator watches; empty for all, and if its options are not known."""
    from simulator import subjects
    from simulator.plan import Unmodelled

    try:
        return subjects.options(subjects.subject(database.operator), deployment).namespaces
    except Unmodelled:
        return ()


def show(output: Output, found: Plan, *, all_steps: bool) -> None:
    if output.as_json:
        output.json(found)
        return
    output.text(f"{found.kind} {found.namespace}/{found.name}", style="bold")
    rows = list(plans.rows(found, everything=all_steps))
    if rows:
        output.text()
        if output.is_terminal and plans.width(rows) > output.console.width:
            for line in plans.blocks(rows):
                output.text(line)
        else:
            output.table(plans.COLUMNS, rows)
        output.text()
    for pods, why in plans.restarts(found):
        output.text(f"{', '.join(pods)} restart:" if len(pods) > 1 else f"{pods[0]} restarts:", style="yellow")
        for field in why:
            output.text(f"  {field}")
    output.text(plans.summary(found))
    for line in plans.end(found):
        output.text(line, style="bold red" if found.person else "yellow")
    for line in found.warnings:
        output.text(f"Warning: {line}", style="yellow")
    if rows:
        output.text("Assumptions:", style="dim")
        for line in found.assumptions:
            output.text(f"  {line}", style="dim")


COMMANDS = (plan,)
