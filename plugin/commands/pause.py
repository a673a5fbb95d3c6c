"""`kubectl platform pause` and `resume`: take a resource out of the operator's hands, and give it back."""

from __future__ import annotations

from plugin.commands.base import command, resources
from plugin.databases import Database, parsed
from plugin.output import Output
from plugin.session import Session
from shared.status.reconciliation_pause import NOTICE, PAUSE


@command("pause", examples=["pause rediscluster/orders"], has_output=False)
@resources()
async def pause(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """Pause the reconciliation of a resource.

    The operator observes it, and changes and repairs nothing.
    """
    for database, name in parsed(words):
        await _set(session, database, name, "true")
        output.text(f"{database.kind.name} {session.namespace}/{name}: {NOTICE}")
        where = f"{database.kind.name.lower()}/{name} {session.flags}"
        output.text(f"Resume with: kubectl platform resume {where}")


@command("resume", examples=["resume rediscluster/orders"], has_output=False)
@resources()
async def resume(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """End the pause of a resource."""
    for database, name in parsed(words):
        await _set(session, database, name, None)
        output.text(f"{database.kind.name} {session.namespace}/{name}: the operator continues.")


async def _set(session: Session, database: Database, name: str, value: str | None) -> None:
    uid = (await session.resource(database, name))["metadata"]["uid"]
    patch = {"metadata": {"uid": uid, "annotations": {PAUSE: value}}}
    await session.kube.merge(database.kind, session.namespace, name, patch)


COMMANDS = (pause, resume)
