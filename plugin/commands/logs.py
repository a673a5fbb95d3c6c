"""`kubectl platform logs`: what the operator logged about one resource."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator

import click

from plugin.commands.base import command, only, resources
from plugin.databases import Database, parsed
from plugin.health import is_of
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import LogLine, lines
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.kinds import DEPLOYMENT, Obj
from shared.kubernetes.ownership import NAME

OPERATORS = "app.kubernetes.io/component=operator,app.kubernetes.io/part-of=platform"
"""Label selector of the Deployments of operators, and of their pods."""

MAX_FOLLOWED = "50"
"""Pods that kubectl follows at once; its default of 5 refuses an operator with many shards."""


def about(written: Iterable[str], reference: str) -> Iterator[str]:
    """Yield the log lines about a resource, as text. `records` has the arguments."""
    for each in records(written, reference):
        yield from _texts(each)


def _texts(line: LogLine) -> Iterator[str]:
    yield f"{line.time} {line.level:<7} {line.message}" if line.time else line.message
    yield from line.exception.splitlines()


def records(written: Iterable[str], reference: str) -> Iterator[LogLine]:
    """Yield the log lines about a resource.

    Args:
        written: lines of the operator, in JSON or as text.
        reference: namespace and name, as `default/orders`.
    """
    named = re.compile(rf"(?<![\w./-]){re.escape(reference)}(?![\w/-]|\.\w)")  # and none whose name only begins like it
    for line in written:
        try:
            record = json.loads(line)  # noqa: TID251 (the operator's own lines; a deep one is no record)
        except (ValueError, RecursionError):
            record = None
        message = str(record.get("message")) if isinstance(record, dict) else line
        if not named.search(message):
            continue
        if isinstance(record, dict):
            level, exception = str(record.get("level")).upper(), str(record.get("exception") or "")
            yield LogLine(str(record.get("time")), level, message, exception)
        else:
            yield LogLine("", "", line.rstrip("\n"))


async def deployments(session: Session, namespace: str) -> list[Obj]:
    """Return the Deployments of the operators.

    Args:
        namespace: where they are; empty to look in all namespaces.
    """
    return await session.objects(DEPLOYMENT, namespace or None, OPERATORS)


async def sources(session: Session, database: Database, namespace: str) -> list[tuple[str, str]]:
    """Return where the operator of a kind logs: namespaces and label selectors of its pods, one for each release.

    Raises:
        Problem: there is none.
    """
    found = [each for each in await deployments(session, namespace) if is_of(each, database)]
    if not found:
        fix = "name its namespace with --operator-namespace"
        raise Problem(f"no Deployment of the {database.operator} operator was found", fix)
    names = {(each["metadata"]["namespace"], accessors.label(each, NAME)) for each in found}
    return [(where, f"{OPERATORS},{NAME}={name}") for where, name in sorted(names)]


@command(
    "logs",
    examples=["logs rediscluster/orders --since 1h", "logs rediscluster/orders -f", "logs rediscluster/orders -o json"],
    prints=lines(LogLine),
)
@resources(many=False)
@click.option("--since", default="24h", show_default=True, help="How far to look back, as for kubectl logs.")
@click.option("--follow", "-f", is_flag=True, help="Continue as lines are written.")
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def logs(
    session: Session, output: Output, words: tuple[str, ...], since: str, follow: bool, operator_namespace: str
) -> None:
    """Show what the operator logged of a resource."""
    database, name = only(parsed(words))
    found = await sources(session, database, operator_namespace)
    if follow and len(found) > 1:
        where = ", ".join(namespace for namespace, _ in found)
        raise Problem(f"several {database.operator} operators run: {where}", "choose with --operator-namespace")
    options = ["--tail", "-1", "--since", since, *(["--follow", "--max-log-requests", MAX_FOLLOWED] if follow else ())]
    shown = 0
    for namespace, labels in found:
        command = session.kubectl("logs", "--selector", labels, *options, namespace=namespace)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as process:
            assert process.stdout is not None
            for line in records(process.stdout, f"{session.namespace}/{name}"):
                if output.as_json:
                    output.json(line, line=True)
                for text in () if output.as_json else _texts(line):
                    output.text(text)
                shown += 1
        if process.returncode:
            raise Problem("kubectl logs failed", "its message is above")
    if not shown:
        output.text(f"The operator logged nothing about {session.namespace}/{name} in the last {since}.")


COMMANDS = (logs,)
