"""`kubectl platform failover`: let a replica take over, without a lost write."""

from __future__ import annotations

import click

from plugin.access import access_of, once, redis_cli
from plugin.commands.base import command, only, resources, seen, until
from plugin.databases import REDIS, parsed
from plugin.output import Output
from plugin.overview import GOOD, Overview, Server
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from shared.kubernetes.kinds import Obj


@command(
    "failover",
    examples=["failover rediscluster/orders --to orders-3", "failover rediscluster/orders --to orders-3 -o json"],
    prints=acted("pod", "group"),
)
@resources(many=False)
@click.option("--to", "chosen", required=True, help="Pod of the replica that takes over.")
@click.option("--timeout", default=30.0, show_default=True, help="Seconds that it may take.")
async def failover(session: Session, output: Output, words: tuple[str, ...], chosen: str, timeout: float) -> None:
    """Let a replica take over from its primary.

    The failover is coordinated (CLUSTER FAILOVER): the primary stops accepting writes for some milliseconds, until the
    replica has all of them. If the primary does not answer, nothing happens; if the replica does not catch up within
    five seconds, the primary continues. The operator may move the role again, if
    fewer primaries share a host or zone afterwards.
    """
    database, name = only(parsed(words))
    if database != REDIS:
        raise Problem(f"{database.kind.name} has no replicas that a user promotes", "name a RedisCluster")
    resource = await session.resource(database, name)
    found = await seen(session, database, resource)
    server = replica(found, chosen)
    access = await access_of(session, database, name)
    client = redis_cli(access, server.details.get("version") or found.version, ["cluster", "failover"])
    arguments, password = once(server.name, access, client)
    answer = session.run(*arguments, stdin=password).strip()
    if answer != "OK":
        fix = f"kubectl platform why {words[0]} {session.flags}"
        raise Problem(f"{server.name} refused the failover: {answer}", fix)

    async def missing() -> str:
        found = await session.resource(database, name)
        return "" if _is_primary(found, server.name) else f"waiting until {server.name} is reported as a primary"

    fix = f"kubectl platform status {words[0]} {session.flags} shows the roles"
    await until(missing, timeout, output.text, fix)
    line = f"{server.name} is the primary of {server.group}."
    details = {"pod": server.name, "group": server.group}
    output.result(Done.of("failed over", database, session.namespace, name, line, **details), line)


def replica(found: Overview, name: str) -> Server:
    """Return a replica that can take over.

    Raises:
        Problem: the pod is no replica, or does not serve.
    """
    replicas = [each for each in found.servers if each.role == "replica"]
    server = next((each for each in replicas if each.name == name), None)
    if server is None:
        names = ", ".join(each.name for each in replicas) or "none"
        raise Problem(f"{name} is no replica of {found.reference}", f"its replicas: {names}")
    if server.status != GOOD:
        why = f"{server.reason}: {server.message}"
        raise Problem(f"{name} cannot take over: {why}", "choose another replica, or wait until it serves")
    return server


def _is_primary(resource: Obj, pod: str) -> bool:
    nodes = (resource.get("status") or {}).get("nodes") or ()
    return any(node.get("name") == pod and node.get("role") == "primary" for node in nodes)


COMMANDS = (failover,)
