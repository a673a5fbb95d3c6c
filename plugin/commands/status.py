"""`kubectl platform status`."""

from __future__ import annotations

from plugin.commands.base import command, now, resources, seen
from plugin.databases import SERVERS, parsed
from plugin.output import COLUMNS, Output, row, tree
from plugin.overview import Overview, overview, urgent
from plugin.problem import Problem
from plugin.results import Shape
from plugin.session import Session


@command(
    "status",
    examples=["status -A", "status rediscluster/orders", "status -o json etcdcluster/settings"],
    prints=Shape(Overview, "one object for one named resource, else a list of objects"),
    all_namespaces=True,
)
@resources(required=False)
async def status(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """Show resources, their conditions and servers."""
    named = parsed(words)
    if named and session.target.all_namespaces:
        raise Problem("a resource is named, and all namespaces are chosen", "choose one with --namespace")
    if not named:
        listed = [overview(kind, each, (), now()) for kind, each in await session.resources(SERVERS)]
        found = urgent(listed)
        if output.as_json:
            output.json(found)
        elif found:
            output.table(COLUMNS, map(row, found))
        else:
            where = "any namespace" if session.target.all_namespaces else f"namespace {session.namespace}"
            output.text(f"No resources in {where}." + ("" if session.target.all_namespaces else " -A shows all."))
        return
    shown = [await seen(session, kind, await session.resource(kind, name)) for kind, name in named]
    if output.as_json:
        output.json(shown if len(shown) > 1 else shown[0])
        return
    for each in shown:
        output.console.print(tree(each, session.target.flags), soft_wrap=not output.is_terminal)


COMMANDS = (status,)
