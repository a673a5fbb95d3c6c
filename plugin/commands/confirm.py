"""`kubectl platform confirm`: the consent to a loss, which a person gives for exactly what was shown."""

from __future__ import annotations

import click

from plugin.commands.base import command, only, resources
from plugin.consent import Consent
from plugin.databases import parsed
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from shared.kubernetes import accessors
from shared.steps.confirmed_recovery import awaits_confirmation


@command(
    "confirm",
    examples=["confirm rediscluster/orders", "confirm rediscluster/orders --token TOKEN -o json"],
    prints=acted("token"),
)
@resources(many=False)
@click.option("--token", default="", help="Token of the loss, instead of a question: for scripts.")
async def confirm(session: Session, output: Output, words: tuple[str, ...], token: str) -> None:
    """Confirm a recovery that gives data up.

    It shows what would be lost, and reads the name of the resource. The consent is for exactly this loss: if the
    status changes in between, nothing is confirmed.
    """
    database, name = only(parsed(words))
    resource = await session.resource(database, name)
    recovery = accessors.status_of(resource).get("recovery") or {}
    offered = str(recovery.get("token") or "")
    where = session.flags
    reference = f"{database.kind.name} {session.namespace}/{name}"
    message = str(recovery.get("message") or "The operator does not report what would be lost.")
    if not awaits_confirmation(resource):  # confirmed already, or at present unknown
        why = f" now: {message}" if offered else ""
        raise Problem(
            f"nothing of {reference} waits for a confirmation{why}", f"kubectl platform status {words[0]} {where}"
        )
    output.text(f"{reference}:", style="bold")
    output.text(message)
    consent = Consent(
        verb="confirm",
        noun="a confirmation",
        done="confirmed",
        prompt="give this data up permanently",
        other="read the message again: it is another loss",
        token=offered,
    )
    change = {"spec": {"recovery": {"confirm": offered}}}
    line = await consent.give(session, output, database, resource, change, word=words[0], token=token)
    output.result(Done.of("confirmed", database, session.namespace, name, message, token=offered), line)


COMMANDS = (confirm,)
