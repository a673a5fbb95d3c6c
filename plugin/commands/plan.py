"""`kubectl platform plan`."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from plugin import applying, plans, version
from plugin.commands.base import command, now, only, resources
from plugin.commands.logs import deployments
from plugin.databases import BACKUP, Database, parsed
from plugin.health import is_of
from plugin.output import Output
from plugin.problem import Problem
from plugin.reading import Reader
from plugin.session import Session
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import Obj

if TYPE_CHECKING:
    from simulator.plan import Plan


class WrongUsage(click.UsageError):
    """An error in the options."""

    exit_code = 1


class PlanCommand(click.Command):
    """A command whose exit code 2 has a meaning: a wrong option ends it with 1."""

    def make_context(self, *given: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*given, **more)
        except click.UsageError as error:
            raise WrongUsage(error.format_message(), error.ctx) from None


@command(
    "plan",
    examples=["plan -f orders.yaml", "plan rediscluster/orders", "plan -f orders.yaml -o json"],
    cls=PlanCommand,
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

    Durations are estimates.
    """
    if bool(path) == bool(words):
        raise Problem("name either a resource or a file", "kubectl platform plan KIND/NAME, or plan -f FILE")
    if path:
        database, manifest = applying.read(path, sys.stdin.read() if path == "-" else None)
        manifest["metadata"].setdefault("namespace", session.namespace)
        found = await _of_manifest(session, output, database, manifest, operator_namespace)
    else:
        database, name = only(parsed(words))
        if database == BACKUP:
            raise Problem("an EtcdBackup has no plan", "name a Memcached, EtcdCluster or RedisCluster")
        live = await session.resource(database, name)
        found = await planned(session, output, database, live, None, operator_namespace)
    show(output, found, all_steps=all_steps)
    raise click.exceptions.Exit(plans.EXIT_CODES[found.outcome])


async def _of_manifest(
    session: Session, output: Output, database: Database, manifest: Obj, operator_namespace: str
) -> Plan:
    from simulator.plan import REFUSED, ended

    metadata = manifest["metadata"]
    live = await session.kube.find(database.kind, metadata["namespace"], metadata["name"])
    try:
        change = await applying.judged(session, database, manifest, live)
    except applying.ManifestRefused as refusal:
        return ended(manifest, REFUSED, "Refused", str(refusal))
    except NotFound:
        raise Problem(f"the cluster does not serve {database.kind.name}", "kubectl platform doctor") from None
    return await planned(session, output, database, live, change, operator_namespace)


async def planned(
    session: Session,
    output: Output,
    database: Database,
    live: Obj | None,
    change: Obj | None,
    operator_namespace: str,
) -> Plan:
    from simulator import subjects
    from simulator.plan import UNKNOWN, Unmodelled, ended
    from simulator.plan import plan as simulated

    named = change or live
    assert named is not None
    deployment = await _operator(session, database, operator_namespace)
    version.require_same(database, deployment)
    subject = subjects.subject(database.operator)
    reader = Reader(session, database, named["metadata"]["namespace"])
    try:
        options = subjects.options(subject, deployment)
    except Unmodelled as unknown:
        return ended(named, UNKNOWN, "Unmodelled", str(unknown))
    with output.console.status("The operator works in a simulation …"):  # for many servers, that takes minutes
        found = await simulated(subject, options, await reader.live(live, change, now()), change, reader.find)
    return dataclasses.replace(found, assumptions=(*found.assumptions, *dict.fromkeys(reader.assumptions)))


async def _operator(session: Session, database: Database, namespace: str) -> Obj:
    """Return the Deployment of the operator of a kind.

    Raises:
        Problem: there is none, or several.
    """
    found = [each for each in await deployments(session, namespace) if is_of(each, database)]
    if len(found) != 1:
        where = ", ".join(sorted(each["metadata"]["namespace"] for each in found)) or "none"
        raise Problem(
            f"{len(found)} Deployments of the {database.operator} operator were found: {where}",
            "name the namespace of the one that manages the resource with --operator-namespace",
        )
    return found[0]


def show(output: Output, found: Plan, *, all_steps: bool) -> None:
    if output.as_json:
        output.json(found)
        return
    output.text(f"{found.kind} {found.namespace}/{found.name}", style="bold")
    rows = list(plans.rows(found, everything=all_steps))
    if rows:
        output.text()
        output.table(plans.COLUMNS, rows)
        output.text()
    for pods, why in plans.restarts(found):
        output.text(f"{', '.join(pods)} restart:" if len(pods) > 1 else f"{pods[0]} restarts:", style="yellow")
        for field in why:
            output.text(f"  {field}")
    output.text(plans.summary(found))
    for line in plans.end(found):
        output.text(line, style="bold red" if found.person else "yellow")
    if rows:
        output.text("Assumptions:", style="dim")
        for line in found.assumptions:
            output.text(f"  {line}", style="dim")


COMMANDS = (plan,)
