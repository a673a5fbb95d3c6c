"""`kubectl platform advisories`."""

from __future__ import annotations

from plugin.commands.base import command, now
from plugin.databases import SERVERS
from plugin.output import Output
from plugin.overview import overview
from plugin.results import Advisory, listed
from plugin.session import Session
from shared.status import conditions


@command(
    "advisories",
    examples=["advisories -A", "advisories -A -o json"],
    prints=listed(Advisory),
    all_namespaces=True,
)
async def advisories(session: Session, output: Output) -> None:
    """List resources with a published advisory."""
    found = [overview(database, each, (), now()) for database, each in await session.resources(SERVERS)]
    affected = [(each, condition) for each in found if (condition := each.condition(conditions.VULNERABLE))]
    if output.as_json:
        output.json(
            [
                Advisory(each.kind, each.namespace, each.name, each.version, condition.reason, condition.message)
                for each, condition in affected
            ]
        )
    elif affected:
        output.table(
            ("NAMESPACE", "RESOURCE", "VERSION", "ADVISORY"),
            [(each.namespace, f"{each.kind}/{each.name}", each.version, found.message) for each, found in affected],
        )
    else:
        output.text(f"No known advisory applies to the {len(found)} resources.")


COMMANDS = (advisories,)
