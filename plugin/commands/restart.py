"""`kubectl platform restart`: end pods one at a time, by eviction, which respects the disruption budget.

All servers of a Memcached restart as in a change of its spec: then the operator shortens the pause after each one by
the evidence that clients have filled it. Nothing measures that after an eviction, so that some servers restart with
the longest pause between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from plugin.commands.base import command, now, only, pause, pods_of, resources, until
from plugin.databases import MEMCACHED, Database, parsed
from plugin.output import Output
from plugin.overview import GOOD, Server, for_cluster, overview
from plugin.problem import Problem
from plugin.results import Done, acted
from plugin.session import Session
from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.errors import Conflict, NotEvictable, NotFound
from shared.kubernetes.kinds import DEPLOYMENT, POD, STATEFUL_SET, Kind, Obj
from shared.kubernetes.ownership import controller_of
from shared.status import conditions

RESTARTED = "kubectl.kubernetes.io/restartedAt"
"""Annotation of a pod template, by which `kubectl rollout restart` replaces the pods of a workload."""

TIMEOUT_SECONDS = 600.0
"""Time that each pod may take by default, without the pause."""

LAST = ("primary", "leader")
"""Roles of servers that restart last: each hands over to one that has restarted."""


def ordered(servers: tuple[Server, ...]) -> list[str]:
    """Return the pods in the order in which they restart: as a rolling update, the servers that lead last."""
    return [server.name for server in sorted(servers, key=lambda each: each.role in LAST)]


@command(
    "restart",
    examples=[
        "restart rediscluster/orders",
        "restart rediscluster/orders --pod orders-3",
        "restart rediscluster/orders --yes -o json",
    ],
    prints=acted("pods"),
)
@resources(many=False)
@click.option("--pod", "chosen", multiple=True, help="Restart only this pod (repeatable).")
@click.option(
    "--timeout", default=TIMEOUT_SECONDS, show_default=True, help="Seconds that each pod may take, without the pause."
)
@click.option("--yes", "-y", is_flag=True, help="Restart without a confirmation.")
async def restart(
    session: Session, output: Output, words: tuple[str, ...], chosen: tuple[str, ...], timeout: float, yes: bool
) -> None:
    """Restart pods one at a time, by eviction.

    Each waits until the resource is Ready again.

    Pods are evicted, so that the disruption budget holds, and a primary or leader hands over first. It waits while the
    resource is not Ready, and refuses a paused one, because its operator hands nothing over. If it is interrupted,
    nothing is left behind: run it again with the pods that are left.

    All servers of a Memcached are replaced by their workload, as in a change of the spec, with a pause after each until
    clients have filled it. If the command is interrupted, that continues.
    """
    database, name = only(parsed(words))
    resource = await session.resource(database, name)
    found = await pods_of(session, database, resource)
    pods = {pod["metadata"]["name"]: pod for pod in found if controller_of(pod)}  # which replaces the pod
    order = [pod for pod in ordered(overview(database, resource, found, now()).servers) if pod in pods]
    if unknown := [pod for pod in chosen if pod not in pods]:
        raise Problem(f"{', '.join(unknown)} is no pod of {database.kind.name} {name}", f"its pods: {', '.join(order)}")
    order = [pod for pod in order if pod in chosen] if chosen else order
    if not order:
        raise Problem(f"{database.kind.name} {name} has no pods", f"kubectl platform why {words[0]} {session.flags}")
    lost = " Each server loses its items." if database == MEMCACHED else ""
    if not yes:
        reference = f"{database.kind.name} {session.namespace}/{name}"
        click.confirm(f"Restart {', '.join(order)} of {reference}, one after the other?{lost}", abort=True, err=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console, disable=not output.is_terminal) as progress:
        task = progress.add_task("", total=len(order))
        if database == MEMCACHED and not chosen:
            uids = {pods[pod]["metadata"]["uid"] for pod in order}
            await _roll(session, output, name, uids, timeout, lambda done: progress.update(task, completed=done))
        for number, pod in enumerate(order if database != MEMCACHED or chosen else ()):
            await _restart(session, output, database, name, pods[pod], order[number + 1 :], timeout)
            progress.advance(task)
    line = f"Restarted {', '.join(order)}."
    output.result(Done.of("restarted", database, session.namespace, name, line, pods=order), line)


async def _restart(
    session: Session, output: Output, database: Database, name: str, pod: Obj, later: Sequence[str], timeout: float
) -> None:
    """Evict one pod, and wait until the resource is Ready again.

    Args:
        later: names of the pods that follow.
        timeout: seconds that it may take.
    """
    uid, pod_name = pod["metadata"]["uid"], pod["metadata"]["name"]
    fix = _continue(session, database, name, [pod_name, *later], timeout)
    await until(lambda: _missing(session, database, name, ""), timeout, output.text, fix)
    if database == MEMCACHED:
        _, workload = await _workload(session, name)
        await until(lambda: _unfilled(session, name), timeout + _pause_of(workload), output.text, fix)

    async def evicted() -> str:
        try:
            await session.kube.evict(session.namespace, pod_name, uid=uid)
        except NotEvictable as error:
            return f"waiting until the disruption budget allows the eviction of {pod_name}: {error}"
        except (NotFound, Conflict):  # it has ended in another way, and restarts as requested, unless it is still there
            return f"{pod_name} changes" if await _uid(session, pod_name) == uid else ""
        return ""

    output.text(f"evicting {pod_name}")
    await until(evicted, timeout, output.text, fix)
    await pause()  # the operator observes the eviction
    fix = _continue(session, database, name, later, timeout)
    await until(lambda: _missing(session, database, name, uid), timeout, output.text, fix)


def _continue(session: Session, database: Database, name: str, left: Sequence[str], timeout: float) -> str:
    """Return how to continue after a failure: the same command would restart pods again that have restarted."""
    where = f"{database.kind.name.lower()}/{name} {session.flags}"
    if not left:
        return f"it continues; watch it with: kubectl platform status {where}"
    pods = " ".join(f"--pod {pod}" for pod in left)
    limit = f" --timeout {timeout:g}" if timeout != TIMEOUT_SECONDS else ""
    return f"continue with the pods that are left: kubectl platform restart {where} {pods}{limit}"


async def _roll(
    session: Session, output: Output, name: str, uids: set[str], timeout: float, done: Callable[[int], object]
) -> None:
    """Replace all servers of a Memcached, and wait until none of them is left.

    Args:
        uids: UIDs of the pods.
        timeout: seconds that each may take, without the pause.
        done: gets the number of pods that were replaced.
    """
    await until(lambda: _missing(session, MEMCACHED, name, ""), timeout, output.text)
    kind, workload = await _workload(session, name)
    template = {"metadata": {"annotations": {RESTARTED: rfc3339(now())}}}
    patch = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": {"template": template}}
    await session.kube.merge(kind, session.namespace, name, patch)

    async def replaced() -> str:
        resource = await session.resource(MEMCACHED, name)
        pods = await pods_of(session, MEMCACHED, resource)
        left = uids & {pod["metadata"]["uid"] for pod in pods}
        done(len(uids) - len(left))
        message = overview(MEMCACHED, resource, pods, now()).ready.message
        return f"{len(left)} of {len(uids)} pods are left: {message}" if left else ""

    fix = _continue(session, MEMCACHED, name, (), timeout)
    await until(replaced, (timeout + _pause_of(workload)) * len(uids), output.text, fix)
    await until(lambda: _missing(session, MEMCACHED, name, ""), timeout, output.text, fix)


async def _workload(session: Session, name: str) -> tuple[Kind, Obj]:
    """Return the workload of a Memcached that clients use.

    Raises:
        Problem: the workload of that name belongs to another owner.
    """
    resource = await session.resource(MEMCACHED, name)
    kind = DEPLOYMENT if (resource.get("status") or {}).get("workload") == DEPLOYMENT.name else STATEFUL_SET
    found = await session.kube.get(kind, session.namespace, name)
    if (controller_of(found) or {}).get("uid") != resource["metadata"]["uid"]:
        raise Problem(f"{kind.name} {session.namespace}/{name} is not that of Memcached {name}")
    return kind, found


async def _unfilled(session: Session, name: str) -> str:
    """Return that a new server of a Memcached has not been ready for the pause yet, by which clients have filled it."""
    _, workload = await _workload(session, name)
    available, desired = (workload.get("status") or {}).get("availableReplicas") or 0, workload["spec"]["replicas"]
    if available >= desired:
        return ""
    new = f"{desired - available} of {desired} servers are new"
    return f"{new}: waiting until clients have filled them, {_pause_of(workload)} s"


def _pause_of(workload: Obj) -> int:
    """Return the longest pause after each new server of a Memcached, in seconds."""
    return int(workload["spec"].get("minReadySeconds") or 0)


async def _uid(session: Session, pod: str) -> str:
    """Return the UID of a pod; empty if there is none."""
    try:
        found = await session.kube.get(POD, session.namespace, pod)
    except NotFound:
        return ""
    return str(found["metadata"]["uid"])


async def _missing(session: Session, database: Database, name: str, ended: str) -> str:
    """Return why the next pod cannot restart yet; empty if it can.

    Args:
        ended: UID of the pod that must have been replaced; empty for none.

    Raises:
        Problem: the operator does not hand over, because the resource is paused or being deleted; or nothing has ended
            yet, and the resource waits for the user.
    """
    resource = await session.resource(database, name)
    pods = await pods_of(session, database, resource)
    if left := [pod["metadata"]["name"] for pod in pods if pod["metadata"]["uid"] == ended]:
        return f"waiting for the end of {left[0]}"
    found = overview(database, resource, pods, now())
    if found.paused:
        fix = f"kubectl platform resume {database.kind.name.lower()}/{name} {session.flags}"
        raise Problem(f"{found.reference} is paused, so that no primary or leader hands over", fix)
    if found.deleting:
        raise Problem(f"{found.reference} is being deleted")
    stalled = found.condition(conditions.STALLED)
    if stalled and not stalled.normal and not ended:
        fix = f"kubectl platform why {database.kind.name.lower()}/{name} {session.flags}"
        message = for_cluster(stalled.message, session.target.flags)
        raise Problem(f"{found.reference} waits for you: {stalled.reason}: {message}", fix)
    waiting = [server.name for server in found.servers if server.status != GOOD]
    waiting += [pod["metadata"]["name"] for pod in pods if not accessors.is_true(pod, "Ready")]  # newer than the status
    if waiting:
        return f"waiting for {', '.join(dict.fromkeys(waiting))}"
    available = found.condition(conditions.AVAILABLE)
    if not found.observed or not found.ready.normal or (available and not available.normal):
        return f"waiting until {found.reference} is Ready: {found.ready.reason}: {found.ready.message}"
    return ""


COMMANDS = (restart,)
