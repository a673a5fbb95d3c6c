"""Parts of all commands: flags, the session, errors, and waiting."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from datetime import UTC, datetime
from typing import Any

import click
from click.shell_completion import CompletionItem
from rich.console import Console

from plugin.databases import ALL, Database, named
from plugin.output import Output
from plugin.overview import Overview, overview, selector
from plugin.problem import Problem
from plugin.results import Failure, Shape
from plugin.session import Session, Target, connected, described
from shared.kubernetes.errors import KubeError, Unavailable
from shared.kubernetes.kinds import EVENT, POD, Obj
from shared.kubernetes.ownership import ForeignObject, require_part
from shared.runtime.steady_clock import elapsed

POLL_SECONDS = 1.0
"""Seconds between two observations while a command waits."""

REPEAT = "repeat the command to continue, or set --timeout"

WIDE = 10_000
"""Width of what is no terminal, in characters: no line is broken there."""

Run = Callable[..., Awaitable[object]]
"""A command: gets the session, the output, and its own arguments."""

SHAPES: dict[str, Shape] = {}
"""Shapes of the values that commands print with -o json, by their names."""


def command(
    name: str,
    examples: Sequence[str],
    *,
    prints: Shape,
    all_namespaces: bool = False,
) -> Callable[[Run], click.Command]:
    """Make a command of an asynchronous function; its docstring is the help.

    Args:
        examples: command lines for the help, without `kubectl platform`.
        prints: shape of the values that it prints with -o json.
        all_namespaces: whether it has the flag -A.
    """

    def make(function: Run) -> click.Command:
        @functools.wraps(function)
        def run(
            namespace: str, context: str, kubeconfig: str, form: str, *, all_namespaces: bool = False, **rest: Any
        ) -> None:
            target, as_json = Target(kubeconfig, context, namespace, all_namespaces), form == "json"
            width = None if sys.stdout.isatty() else WIDE
            output = Output(Console(width=width, emoji=False), as_json=as_json)
            try:
                asyncio.run(_connected(function, target, output, rest))
            except Problem as problem:
                _exit(problem, as_json=as_json)
            except KubeError as error:
                _exit(described(error), as_json=as_json)
            except OSError as error:  # such as a file that cannot be written
                _exit(Problem(str(error)), as_json=as_json)
            except (click.ClickException, click.exceptions.Exit, click.Abort):
                raise  # click ends the process
            except Exception as error:  # no traceback at users
                if os.environ.get("PLATFORM_DEBUG"):
                    raise
                fix = "set PLATFORM_DEBUG=1 for the details, and report it"
                found = Problem(f"{type(error).__name__}: {error}. This is a defect of the plugin.", fix)
                _exit(found, as_json=as_json)

        options = [
            click.option("--namespace", "-n", default="", help="Namespace (default: that of the context)."),
            click.option("--context", default="", help="Context of the kubeconfig (default: its current one)."),
            click.option("--kubeconfig", default="", help="Path of the kubeconfig (default: as kubectl)."),
        ]
        if all_namespaces:
            options.append(click.option("--all-namespaces", "-A", is_flag=True, help="All namespaces."))
        forms = click.Choice(["text", "json"])
        options.append(click.option("--output", "-o", "form", type=forms, default="text", help="Format."))
        for option in reversed(options):
            run = option(run)
        lines = "\n".join(f"  kubectl platform {each}" for each in examples)
        SHAPES[name] = prints
        return click.command(name, epilog=f"\b\nExamples:\n{lines}")(run)

    return make


async def _connected(function: Run, target: Target, output: Output, rest: dict[str, Any]) -> None:
    async with connected(target) as session:
        await function(session, output, **rest)


def _exit(problem: Problem, *, as_json: bool) -> None:
    """Print what is wrong and what would fix it, and end with exit code 1."""
    if as_json:
        found = dataclasses.asdict(Failure(str(problem), problem.fix, 1))
        sys.stderr.write(json.dumps(found, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"error: {problem}\n" + (f"  fix: {problem.fix}\n" if problem.fix else ""))
    sys.exit(1)


def resources(*, required: bool = True, many: bool = True) -> Callable[[Any], Any]:
    """Return the argument KIND/NAME of a command, whose names a shell completes."""
    name = "KIND/NAME..." if many else "KIND/NAME"
    return click.argument("words", nargs=-1, required=required, metavar=name, shell_complete=_complete)


def only(found: list[tuple[Database, str]]) -> tuple[Database, str]:
    """Return the one resource that a command is about.

    Raises:
        Problem: several are named.
    """
    if len(found) != 1:
        raise Problem(f"{len(found)} resources are named", "name one: KIND/NAME")
    return found[0]


async def seen(session: Session, database: Database, resource: Obj) -> Overview:
    """Return the overview of a resource, with its pods."""
    return overview(database, resource, await pods_of(session, database, resource), now())


async def pods_of(session: Session, database: Database, resource: Obj) -> list[Obj]:
    """Return the pods with the servers of a resource."""
    if not database.component:
        return []
    metadata = resource["metadata"]
    found = await session.objects(POD, metadata["namespace"], selector(database, metadata["name"]))
    return [pod for pod in found if _is_part(pod, database, resource)]


def _is_part(pod: Obj, database: Database, resource: Obj) -> bool:
    """Whether a pod belongs to a resource, by the rule of the operators: a copied manifest has its labels, too."""
    try:
        require_part(pod, f"{database.operator}-operator", resource)
    except ForeignObject:
        return False
    return True


async def events_of(session: Session, of: Obj, pods: Iterable[Obj]) -> list[Obj]:
    """Return the events about an object, its workload, and pods, also earlier ones of the same names."""
    found = await session.objects(EVENT, of["metadata"]["namespace"])
    names = {pod["metadata"]["name"] for pod in pods}
    return [event for event in found if concerns(event.get("involvedObject") or {}, of, names)]


def concerns(regarding: Obj, of: Obj, pods: Set[str]) -> bool:
    """Whether an event is about an object, its workload, or a pod; an object of another kind may have the same name."""
    kind, name, own = regarding.get("kind"), str(regarding.get("name")), str(of["metadata"]["name"])
    if kind == POD.name:
        return name in pods
    if kind == "ReplicaSet":
        return name.rpartition("-")[0] == own
    is_it = bool(regarding.get("uid") == of["metadata"]["uid"])
    return is_it or (kind in ("StatefulSet", "Deployment") and name == own)


def now() -> datetime:
    return datetime.now(UTC)


async def pause() -> None:
    """Wait until the next observation."""
    await asyncio.sleep(POLL_SECONDS)


async def until(
    attempt: Callable[[], Awaitable[str]], seconds: float, show: Callable[[str], object], fix: str = REPEAT
) -> None:
    """Repeat an attempt until it returns that nothing is missing.

    Args:
        attempt: returns what is still missing; empty when it is done.
        seconds: seconds after which it fails.
        show: shows what is missing, when it changes.
        fix: command that helps if something is still missing.

    Raises:
        Problem: something was still missing.
    """
    deadline, last = elapsed() + seconds, ""
    while missing := await _tried(attempt):
        if missing != last:
            show(missing)
            last = missing
        if elapsed() >= deadline:
            raise Problem(f"after {seconds:.0f} s: {missing}", fix)
        await pause()


async def _tried(attempt: Callable[[], Awaitable[str]]) -> str:
    """Return what is missing: also that the API server cannot answer now, which ends no command that waits."""
    try:
        return await attempt()
    except Unavailable as error:
        return str(error)


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 (click passes it)
    """Return names of resources, or of kinds while no slash is typed. None if the cluster does not answer."""
    if "/" not in incomplete:
        kinds = (each.kind.name.lower() for each in ALL)
        return [CompletionItem(f"{kind}/") for kind in kinds if kind.startswith(incomplete.lower())]
    kind, _, beginning = incomplete.partition("/")
    given = context.params
    target = Target(given.get("kubeconfig") or "", given.get("context") or "", given.get("namespace") or "")
    try:
        names = asyncio.run(_names(target, named(kind)))
    except (Problem, KubeError):
        return []
    return [CompletionItem(f"{kind}/{name}") for name in names if name.startswith(beginning)]


async def _names(target: Target, database: Database) -> list[str]:
    async with connected(target) as session:
        return [each["metadata"]["name"] for each in await session.objects(database.kind, session.namespace)]
