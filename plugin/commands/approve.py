"""`kubectl platform approve`: a person approves a change of a spec that waits for it, after its plan was shown."""

from __future__ import annotations

import click

from plugin.commands.base import command, only, resources
from plugin.commands.plan import planned, show, spinner
from plugin.consent import Consent
from plugin.databases import BACKUP, parsed
from plugin.output import Output
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from shared.api.applied_spec import APPROVAL


@command(
    "approve",
    examples=["approve rediscluster/orders", "approve rediscluster/orders --token TOKEN -o json"],
    prints=acted("token"),
)
@resources(many=False)
@click.option("--token", default="", help="Token of the change, instead of a question: for scripts.")
@click.option("--operator-namespace", default="", help="Namespace of the operators (default: look in all).")
async def approve(
    session: Session, output: Output, words: tuple[str, ...], token: str, operator_namespace: str
) -> None:
    """Approve a change of a spec that waits for it.

    It shows the plan of the change, and reads the name of the resource. The approval is of exactly this change: if the
    spec changes in between, nothing is approved.
    """
    database, name = only(parsed(words))
    if database == BACKUP:
        raise Problem("changes of an EtcdBackup need no approval", "name a Memcached, EtcdCluster or RedisCluster")
    resource = await session.resource(database, name)
    with spinner(output):
        found = await planned(session, database, resource, None, operator_namespace)
    where, reference = session.flags, f"{database.kind.name} {session.namespace}/{name}"
    if not found.approval:
        unknown = f": {found.message}" if found.outcome == "unknown" else ""
        raise Problem(
            f"no change of {reference} waits for an approval{unknown}", f"kubectl platform why {words[0]} {where}"
        )
    if not output.as_json:
        show(output, found, all_steps=False)
    consent = Consent(
        verb="approve",
        noun="an approval",
        done="approved",
        prompt="approve this change",
        other="read the plan again: it is another change",
        token=found.approval,
    )
    change = {"metadata": {"annotations": {APPROVAL: found.approval}}}
    line = await consent.give(session, output, database, resource, change, word=words[0], token=token)
    output.result(Done.of("approved", database, session.namespace, name, line, token=found.approval), line)


COMMANDS = (approve,)
