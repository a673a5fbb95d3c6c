"""`kubectl platform why`."""

from __future__ import annotations

import contextlib

from plugin import diagnosis, restarts
from plugin.commands.base import command, events_of, now, only, pods_of, resources
from plugin.databases import SERVERS, Database, parsed
from plugin.diagnosis import Fact
from plugin.output import Output
from plugin.overview import overview
from plugin.problem import Problem
from plugin.results import listed
from plugin.session import REQUEST_RIGHT, Session
from plugin.workloads import history_of
from shared.kubernetes import accessors
from shared.kubernetes.errors import Forbidden, NotFound
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.ownership import COMPONENT, INSTANCE, NAME


@command("why", examples=["why rediscluster/orders", "why orders-3", "why orders-3 -o json"], prints=listed(Fact))
@resources(many=False)
async def why(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """Explain the state of a resource or a pod.

    It shows what waits for what, since when, what ends it, and the page of the runbook. For a pod that was replaced,
    it shows which field of its template changed, which field of the spec, and which client wrote that.
    """
    is_pod = len(words) == 1 and ("/" not in words[0] or words[0].split("/")[0] in ("pod", "pods", "po"))
    facts = await (_of_pod(session, words[0].split("/")[-1]) if is_pod else _of_resource(session, words))
    if output.as_json:
        output.json(facts)
        return
    for fact in facts:
        output.text(f"{fact.source}: {fact.text}")
        if fact.ends:
            output.text(f"    {fact.ends}", style="dim")
        if fact.fix:
            output.text(f"    → {fact.fix}", style="cyan")


async def _of_resource(session: Session, words: tuple[str, ...]) -> list[Fact]:
    database, name = only(parsed(words))
    resource = await session.resource(database, name)
    pods = await pods_of(session, database, resource)
    history = await history_of(session, database, resource)
    changed = restarts.of_resource(database, resource, pods, history, now())
    return await _explained(session, database, resource, pods, changed)


async def _explained(
    session: Session, database: Database, resource: Obj, pods: list[Obj], changed: list[Fact]
) -> list[Fact]:
    """Return the facts about a resource; those about its changes come before the events."""
    events, unread = await _events(session, resource, pods)
    found = overview(database, resource, pods, now())
    return [*diagnosis.of_resource(database, resource, found, events, now(), session.target.flags, changed), *unread]


async def _events(session: Session, of: Obj, pods: list[Obj]) -> tuple[list[Obj], list[Fact]]:
    """Return the events about an object and its pods; and that they are not known, if the user may not read them."""
    try:
        return await events_of(session, of, pods), []
    except Forbidden as error:
        return [], [Fact("events", f"You may not read them: {error}", REQUEST_RIGHT)]


async def _of_pod(session: Session, name: str) -> list[Fact]:
    try:
        pod = await session.kube.get(POD, session.namespace, name)
    except NotFound:
        fix = "name a pod, or a resource as KIND/NAME"
        raise Problem(f"pod {session.namespace}/{name} does not exist", fix) from None
    events, unread = await _events(session, pod, [pod])
    facts = diagnosis.of_pod(pod, events, now())
    for database in SERVERS:
        if accessors.label(pod, NAME) == database.operator and accessors.label(pod, COMPONENT) == database.component:
            with contextlib.suppress(Problem):  # the resource is deleted already
                resource = await session.resource(database, accessors.label(pod, INSTANCE))
                pods = await pods_of(session, database, resource)
                history = await history_of(session, database, resource)
                facts += restarts.of_pod(database, resource, pod, pods, history, now())
                facts += await _explained(session, database, resource, pods, [])
    return [*facts, *(each for each in unread if each not in facts)]


COMMANDS = (why,)
