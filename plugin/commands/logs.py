"""`kubectl platform logs`: what the operator logged about one resource."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator

import click

from plugin.commands.base import command, only, resources
from plugin.databases import Database, parsed
from plugin.output import Output
from plugin.problem import Problem
from plugin.session import Session
from shared.kubernetes.kinds import DEPLOYMENT, Obj

OPERATORS = "app.kubernetes.io/component=operator,app.kubernetes.io/part-of=platform"
"""Label selector of the Deployments of operators, and of their pods."""


def about(lines: Iterable[str], reference: str) -> Iterator[str]:
    """Yield the log lines about a resource, as text.

    Args:
        lines: lines of the operator, in JSON or as text.
        reference: namespace and name, as `default/orders`.
    """
    for line in lines:
        try:
            record = json.loads(line)  # noqa: TID251 (the operator's own lines; a deep one is no record)
        except (ValueError, RecursionError):
            record = None
        message = str(record.get("message")) if isinstance(record, dict) else line
        if not _names(message, reference):
            continue
        if isinstance(record, dict):
            yield f"{record.get('time')} {str(record.get('level')).upper():<7} {message}"
        else:
            yield line.rstrip("\n")


def _names(message: str, reference: str) -> bool:
    """Whether a message names a resource, and not one whose name only begins in the same way."""
    before, found, after = message.partition(reference)
    ends = not after or not (after[0].isalnum() or after[0] in "-./")
    return bool(found) and ends and not (before and (before[-1].isalnum() or before[-1] in "-./"))


async def deployments(session: Session, namespace: str) -> list[Obj]:
    """Return the Deployments of the operators.

    Args:
        namespace: where they are; empty to look in all namespaces.
    """
    return await session.objects(DEPLOYMENT, namespace or None, OPERATORS)


@command("logs", examples=["logs rediscluster/orders --since 1h"], has_output=False)
@resources(many=False)
@click.option("--since", default="24h", show_default=True, help="How far to look back, as for kubectl logs.")
@click.option("--follow", "-f", is_flag=True, help="Continue as lines are written.")
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def logs(
    session: Session, output: Output, words: tuple[str, ...], since: str, follow: bool, operator_namespace: str
) -> None:
    """Show what the operator logged of a resource."""
    database, name = only(parsed(words))
    found = [each for each in await deployments(session, operator_namespace) if _is_of(each, database)]
    if not found:
        fix = "name its namespace with --operator-namespace"
        raise Problem(f"no Deployment of the {database.operator} operator was found", fix)
    metadata = found[0]["metadata"]
    labels = f"{OPERATORS},app.kubernetes.io/name={metadata['labels']['app.kubernetes.io/name']}"
    arguments = ["logs", "--selector", labels, "--tail", "-1", "--since", since, *(["--follow"] if follow else ())]
    command = session.kubectl(*arguments, namespace=metadata["namespace"])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None
        lines = about(process.stdout, f"{session.namespace}/{name}")
        shown = 0
        for line in lines:
            output.text(line)
            shown += 1
    if process.returncode:
        raise Problem("kubectl logs failed", "its message is above")
    if not shown:
        output.text(f"The operator logged nothing about {session.namespace}/{name} in the last {since}.")


def _is_of(deployment: Obj, database: Database) -> bool:
    return database.operator in str(deployment["metadata"].get("labels", {}).get("app.kubernetes.io/name"))


COMMANDS = (logs,)
