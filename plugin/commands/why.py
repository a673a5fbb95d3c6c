"""`kubectl platform why`."""

from __future__ import annotations

import contextlib

from plugin import diagnosis
from plugin.commands.base import command, events_of, now, only, pods_of, resources
from plugin.databases import SERVERS, parsed
from plugin.diagnosis import Fact
from plugin.output import Output
from plugin.overview import overview
from plugin.problem import Problem
from plugin.results import listed
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD
from shared.kubernetes.ownership import COMPONENT, INSTANCE, NAME


@command("why", examples=["why rediscluster/orders", "why orders-3", "why orders-3 -o json"], prints=listed(Fact))
@resources(many=False)
async def why(session: Session, output: Output, words: tuple[str, ...]) -> None:
    """Explain the state of a resource or a pod.

    It shows what waits for what, since when, and what helps.
    """
    is_pod = len(words) == 1 and ("/" not in words[0] or words[0].split("/")[0] in ("pod", "pods", "po"))
    facts = await (_of_pod(session, words[0].split("/")[-1]) if is_pod else _of_resource(session, words))
    if output.as_json:
        output.json(facts)
        return
    for fact in facts:
        output.text(f"{fact.source}: {fact.text}")
        if fact.fix:
            output.text(f"    → {fact.fix}", style="cyan")


async def _of_resource(session: Session, words: tuple[str, ...]) -> list[Fact]:
    database, name = only(parsed(words))
    resource = await session.resource(database, name)
    pods = await pods_of(session, database, resource)
    events = await events_of(session, resource, pods)
    found = overview(database, resource, pods, now())
    return diagnosis.of_resource(database, resource, found, events, now(), session.target.flags)


async def _of_pod(session: Session, name: str) -> list[Fact]:
    try:
        pod = await session.kube.get(POD, session.namespace, name)
    except NotFound:
        fix = "name a pod, or a resource as KIND/NAME"
        raise Problem(f"pod {session.namespace}/{name} does not exist", fix) from None
    facts = diagnosis.of_pod(pod, await events_of(session, pod, [pod]), now())
    for database in SERVERS:
        if accessors.label(pod, NAME) == database.operator and accessors.label(pod, COMPONENT) == database.component:
            with contextlib.suppress(Problem):  # the resource is deleted already
                facts += await _of_resource(session, (f"{database.kind.name}/{accessors.label(pod, INSTANCE)}",))
    return facts


COMMANDS = (why,)
