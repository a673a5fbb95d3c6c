"""`kubectl platform status`."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from plugin.commands import base
from plugin.commands.base import command, now, pods_of, resources
from plugin.databases import SERVERS, ZONE, Database, parsed
from plugin.output import COLUMNS, Output, row, tree
from plugin.overview import Cluster, Overview, complete, overview, selector, urgent
from plugin.problem import Problem
from plugin.results import Shape
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.errors import Forbidden, NotFound, Unavailable
from shared.kubernetes.kinds import NODE, PERSISTENT_VOLUME_CLAIM, Obj

PRINTS = Shape(Overview, "one object for one named resource, else a list of objects; with --watch, each in a line")


@command(
    "status",
    examples=[
        "status -A",
        "status rediscluster/orders",
        "status rediscluster/orders --watch",
        "status etcdcluster/settings --usage",
        "status -o json etcdcluster/settings",
    ],
    prints=PRINTS,
    all_namespaces=True,
)
@resources(required=False)
@click.option("--watch", "-w", "watches", is_flag=True, help="Continue as it changes, until Ctrl-C.")
@click.option(
    "--usage", is_flag=True, help="Read from the kubelets how full the volumes are: needs get on nodes/proxy."
)
async def status(session: Session, output: Output, words: tuple[str, ...], watches: bool, usage: bool) -> None:
    """Show resources, their conditions and servers.

    A named resource is shown as a tree: conditions, unfinished work, members or shards with role, zone, lag, version,
    and their volumes with size and StorageClass.
    """
    named = parsed(words)
    if named and session.target.all_namespaces:
        raise Problem("a resource is named, and all namespaces are chosen", "choose one with --namespace")
    if usage and not named:
        raise Problem("--usage is for named resources", "name them: KIND/NAME")

    async def observed() -> list[Overview]:
        if not named:
            return urgent([overview(kind, each, (), now()) for kind, each in await session.resources(SERVERS)])
        return [await _seen(session, kind, await session.resource(kind, name), usage=usage) for kind, name in named]

    if watches:
        await _watch(session, output, observed, is_list=not named)
    elif output.as_json:
        output.json(_values(await observed(), is_list=not named))
    else:
        _print(session, output, await observed(), is_list=not named)


def _values(found: list[Overview], *, is_list: bool) -> Any:
    return found if is_list or len(found) != 1 else found[0]


def _print(session: Session, output: Output, found: list[Overview], *, is_list: bool) -> None:
    if not is_list:
        for each in found:
            output.console.print(tree(each, session.target.flags), soft_wrap=not output.is_terminal)
    elif found:
        output.table(COLUMNS, map(row, found))
    else:
        where = "any namespace" if session.target.all_namespaces else f"namespace {session.namespace}"
        output.text(f"No resources in {where}." + ("" if session.target.all_namespaces else " -A shows all."))


async def _watch(
    session: Session, output: Output, observed: Callable[[], Awaitable[list[Overview]]], *, is_list: bool
) -> None:
    """Show what is observed again and again: in a terminal at the same lines, otherwise whenever it has changed."""
    last: list[Overview] | None = None
    is_live = output.is_terminal and not output.as_json
    with Live(console=output.console, auto_refresh=False) if is_live else contextlib.nullcontext() as live:
        while True:
            try:
                found = await observed()
            except Unavailable as error:
                if live is None:
                    output.text(str(error))
                else:
                    live.update(Text(str(error)), refresh=True)
                await base.pause()
                continue
            lasting = [_without_ages(each) for each in found]
            if live is not None:
                live.update(_rendered(session, found, is_list=is_list), refresh=True)
            elif lasting != last and output.as_json:
                output.json(_values(found, is_list=is_list), line=True)
            elif lasting != last:
                _print(session, output, found, is_list=is_list)
            last = lasting
            await base.pause()


def _without_ages(each: Overview) -> Overview:
    """Return an overview without what changes every second."""
    return replace(each, conditions=tuple(replace(condition, seconds=None) for condition in each.conditions))


def _rendered(session: Session, found: Iterable[Overview], *, is_list: bool) -> RenderableType:
    if is_list:
        return Output.grid(COLUMNS, map(row, found))
    return Group(*(tree(each, session.target.flags) for each in found))


async def _seen(session: Session, database: Database, resource: Obj, *, usage: bool) -> Overview:
    """Return the overview of a resource with its pods, zones and volumes, as far as the user may read them."""
    unread: list[str] = []
    metadata = resource["metadata"]
    if not database.component:
        return overview(database, resource, (), now())
    pods: list[Obj] | None = None
    try:
        pods = await pods_of(session, database, resource)
    except Forbidden as error:
        unread.append(f"You may not read the pods, so that only the status is shown: {error}")
    claims: list[Obj] = []
    try:
        labels = selector(database, metadata["name"])
        claims = await session.objects(PERSISTENT_VOLUME_CLAIM, metadata["namespace"], labels)
    except Forbidden as error:
        unread.append(f"You may not read the volume claims: {error}")
    used = await _used(session, pods or (), unread) if usage else {}
    zones = await _zones(session, pods or ())
    cluster = Cluster(None if pods is None else tuple(pods), tuple(claims), zones, used, tuple(unread))
    return complete(database, resource, cluster, now())


def _hosts(pods: Iterable[Obj]) -> list[str]:
    return sorted({str(name) for pod in pods if (name := (pod.get("spec") or {}).get("nodeName"))})


async def _zones(session: Session, pods: Iterable[Obj]) -> dict[str, str]:
    """Return the zone of each Kubernetes node with a pod: since Kubernetes 1.35 the pods have it, else the Nodes."""
    zones = {
        str(pod["spec"]["nodeName"]): zone
        for pod in pods
        if (zone := accessors.label(pod, ZONE)) and (pod.get("spec") or {}).get("nodeName")
    }
    for host in _hosts(pods):
        if host in zones:
            continue
        try:
            zones[host] = accessors.label(await session.kube.find(NODE, None, host), ZONE)
        except Forbidden:  # many users may not; the status of a RedisCluster has the zones
            break
    return zones


async def _used(session: Session, pods: Iterable[Obj], unread: list[str]) -> dict[str, int]:
    """Return the bytes in use of volumes, by the names of their claims, from the kubelets.

    Source: https://kubernetes.io/docs/reference/instrumentation/node-metrics/ (Summary API).
    """
    used: dict[str, int] = {}
    own = {str(pod["metadata"]["uid"]) for pod in pods}
    for host in _hosts(pods):
        try:
            found = await session.raw(f"{NODE.path(None, host)}/proxy/stats/summary")
        except (Forbidden, NotFound, Unavailable) as error:
            unread.append(f"How full the volumes on {host} are is unknown: {error}")
            continue
        for pod in (found.get("pods") if isinstance(found, dict) else None) or ():
            if str((pod.get("podRef") or {}).get("uid")) in own:
                volumes = [each for each in pod.get("volume") or () if isinstance(each.get("usedBytes"), int)]
                used |= {str((each.get("pvcRef") or {}).get("name")): each["usedBytes"] for each in volumes}
    return used


COMMANDS = (status,)
