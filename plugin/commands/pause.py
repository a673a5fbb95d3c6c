"""`kubectl platform pause` and `resume`: take a resource out of the operator's hands, and give it back."""

from __future__ import annotations

from plugin.commands.base import command, resources
from plugin.databases import Database, parsed
from plugin.output import Output
from plugin.results import Done, acted
from plugin.session import Session
from shared.status.reconciliation_pause import NOTICE, PAUSE


@command("pause", examples=["pause rediscluster/orders", "pause rediscluster/orders -o json"], prints=acted(many=True))
@resources()
async def pause(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """Pause the reconciliation of a resource.

    The operator observes it, and changes and repairs nothing.
    """
    done = []
    for database, name in parsed(words):
        await _set(session, database, name, "true")
        done.append(Done.of("paused", database, session.namespace, name, NOTICE))
        output.text(f"{database.kind.name} {session.namespace}/{name}: {NOTICE}")
        where = f"{database.kind.name.lower()}/{name} {session.flags}"
        output.text(f"Resume with: kubectl platform resume {where}")
    if output.as_json:
        output.json(done)


@command(
    "resume", examples=["resume rediscluster/orders", "resume rediscluster/orders -o json"], prints=acted(many=True)
)
@resources()
async def resume(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """End the pause of a resource."""
    done = []
    for database, name in parsed(words):
        await _set(session, database, name, None)
        done.append(Done.of("resumed", database, session.namespace, name, "The operator continues."))
        output.text(f"{database.kind.name} {session.namespace}/{name}: the operator continues.")
    if output.as_json:
        output.json(done)


async def _set(session: Session, database: Database, name: str, value: str | None) -> None:
    uid = (await session.resource(database, name))["metadata"]["uid"]
    patch = {"metadata": {"uid": uid, "annotations": {PAUSE: value}}}
    await session.kube.merge(database.kind, session.namespace, name, patch)


COMMANDS = (pause, resume)
