"""Simulated servers as the nodes of a real RedisCluster are now."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from operators.redis.api.resource import API
from operators.redis.client.commands import Pause
from operators.redis.operator import OPERATOR, clusters
from operators.redis.slots.hash_slots import Slots
from shared.kubernetes.kinds import Obj
from shared.runtime.controller import Controller
from shared.runtime.options import Options
from shared.runtime.plan import Call, Record
from simulator.api_server.kinds import CUSTOM, Served
from simulator.clock import Clock
from simulator.mirror import Mirror
from simulator.plan import Live, Subject, Unmodelled
from simulator.recorder import Step, View
from simulator.redis.client import Entry
from simulator.redis.command_line import Command, command
from simulator.redis.database import SimulatedRedis
from simulator.redis.node import ALL, Known, Node, slot_of
from simulator.seeding import servers, status, unknown_adoption, volumes

PATIENCE_SECONDS = 20.0

SETTLING_SECONDS = 4.0
"""Simulated time in which nodes that were started exchange messages and replicas connect, before the plan begins."""

MAX_SETTLING = 10
"""Maximum number of these times; a replica may wait for its full sync (repl-diskless-sync-delay)."""

UPTIME_SECONDS = 86_400.0
"""Time for which the servers count as running: they are ready, and did not start just now."""

DELAY = "repl-diskless-sync-delay"
"""Setting that delays the full sync of a replica; the operator may have changed it since a server started."""

UNFINISHED = ("moves", "jobs", "migration", "assigned", "forming", "recovery", "adoption", "placement", "foreign")
"""Work in the status of which the simulation does not know how far it is."""

_SETTINGS = re.compile(r"set [a-z0-9-]+(, [a-z0-9-]+)* of \S+")
_VERSION = re.compile(r"\d+\.\d+")


def seed(live: Live, clock: Clock) -> SimulatedRedis:
    """Return the servers of the pods with the ids, roles and slots of the status.

    Each shard has one key if its replicas have any: a plan depends on whether there are keys, not on their number.

    Raises:
        Unmodelled: a node does not serve, or the status does not describe all nodes, or slots are being moved.
    """
    redis = SimulatedRedis(clock=clock, longest=SETTLING_SECONDS, greets=True)
    redis.client.idle, redis.client.missing = True, []
    redis.advance()
    entries: dict[str, Obj] = {each["name"]: each for each in status(live).get("nodes") or ()}
    pods = {pod["metadata"]["name"]: pod for pod in servers(live, "redis")}
    if not pods:
        if status(live).get("formed"):
            raise Unmodelled("The nodes do not run: what is on their volumes is not known.")
        return redis
    _require_known(status(live), entries, pods)
    commands = {name: _command(live, pod) for name, pod in pods.items()}
    known = _known(entries, pods)
    keys = _keys(entries)
    for name, start in commands.items():
        entry = entries[name]
        node = Node(start.name, entry["nodeId"], cluster=name.rpartition("-")[0], family="family")
        node.epoch, node.logged = len(known), start.settings.get("appendonly", "yes") == "yes"
        node.known = {each.id: dataclasses.replace(each, flags=set(), reports={}) for each in known}
        node.keys = dict(keys.get(entry.get("primaryId") or entry["nodeId"], {}))
        redis.disks[start.disk] = node
        redis.files[start.disk] = start.settings.get("cluster-config-file", "nodes.conf")
    for name, start in sorted(commands.items(), key=lambda item: (len(item[0]), item[0])):
        pod, had = pods[name], dict(redis.disks[start.disk].keys)
        process = redis.begin(pod["metadata"]["uid"], name, pod["status"]["podIP"], start)
        process.node.keys = had
        process.settings[DELAY] = "0"  # at rest, replicas are in sync
        if process.exit_message:
            raise Unmodelled(f"The simulated server of pod {name} does not start: {process.exit_message}")
    for process in redis.running:
        for other in process.node.others:
            other.port, other.bus = process.port, process.bus
    for _ in range(MAX_SETTLING):
        clock.wait(SETTLING_SECONDS)
        redis.advance()
        apart = [each.pod for each in redis.running if not each.serves or (each.node.me.primary and not each.linked)]
        if not apart:
            break
    else:
        raise Unmodelled(f"The simulated node {apart[0]} does not connect to its cluster.")
    for process in redis.running:
        process.began -= UPTIME_SECONDS
        process.settings.pop(DELAY)
        process.settings |= {name: value for name, value in commands[process.pod].settings.items() if name == DELAY}
    return redis


def _require_known(reported: Obj, entries: Mapping[str, Obj], pods: Mapping[str, Obj]) -> None:
    if not reported.get("formed"):
        raise Unmodelled("The cluster is being created: repeat the command when it is Ready.")
    if busy := [name for name in UNFINISHED if reported.get(name)]:
        raise Unmodelled(f"The status has unfinished work ({', '.join(busy)}): repeat the command when it is done.")
    if entries.keys() != pods.keys():
        raise Unmodelled(f"The status describes {len(entries)} nodes, and {len(pods)} pods with servers run.")
    for name, entry in entries.items():
        if entry.get("status") != "True" or not entry.get("nodeId") or entry.get("flags"):
            raise Unmodelled(f"Node {name} does not serve: {entry.get('message') or entry.get('reason') or 'unknown'}")
        if entry["role"] in ("replica", "slave") and (not entry.get("primaryId") or entry.get("inSync") != "True"):
            raise Unmodelled(f"Replica {name} is not in sync: the simulation does not know how far it is.")


def _command(live: Live, pod: Obj) -> Command:
    found = command(pod, volumes(live, pod))
    if found is None:
        raise Unmodelled(f"The command line of pod {pod['metadata']['name']} is not that of a server.")
    if not _VERSION.match(found.version):
        raise Unmodelled(f"The tag of the image of pod {pod['metadata']['name']}, {found.tag}, names no version.")
    return found


def _known(entries: Mapping[str, Obj], pods: Mapping[str, Obj]) -> list[Known]:
    """Return the cluster view that all nodes have."""
    found = []
    for number, (name, entry) in enumerate(sorted(entries.items()), 1):
        is_replica = entry["role"] in ("replica", "slave")
        slots = 0 if is_replica else Slots.parse(entry.get("slots") or "").mask
        primary = entry["primaryId"] if is_replica else ""
        found.append(Known(entry["nodeId"], pods[name]["status"]["podIP"], primary=primary, epoch=number, slots=slots))
    if (owned := sum(each.slots for each in found)) != ALL:
        raise Unmodelled(f"{ALL.bit_count() - owned.bit_count()} slots have no owner.")
    return found


def _keys(entries: Mapping[str, Obj]) -> dict[str, dict[bytes, Entry]]:
    """Return a key of each shard that has any, by the id of its primary."""
    filled = {entry.get("copyOf") for entry in entries.values() if entry.get("copyHasKeys")}
    slots = {
        entry["nodeId"]: Slots.parse(entry["slots"]).mask
        for entry in entries.values()
        if entry["nodeId"] in filled and entry.get("slots")
    }
    found: dict[str, dict[bytes, Entry]] = {}
    number = 0
    while len(found) < len(slots):
        key = b"key:%d" % (number := number + 1)
        for node, mask in slots.items():
            if node not in found and mask >> slot_of(key) & 1:
                found[node] = {key: Entry(number)}
    return found


def build(options: Options, database: SimulatedRedis) -> Controller[Any, Any]:
    made = clusters(options, database.connect, lambda: database.clock().timestamp())

    async def call(given: Call, record: Record) -> None:
        if isinstance(given, Pause):
            database.pass_by(given.seconds)
        else:
            await made.call(given, record)

    return dataclasses.replace(made, call=call)


def view(database: SimulatedRedis, server: Mirror, name: str) -> View:
    """Return roles and slots of the nodes, and how many servers of the weakest shard may fail."""
    running = {process.node.id: process for process in database.running if process.cluster == name}
    members = {each.pod: "replica" if each.node.me.primary else "primary" for each in running.values()}
    owned = {
        running[node].pod if node in running else database.name(node): slots.bit_count()
        for node, slots in database.owners(name).items()
    }
    replicas = dict.fromkeys(owned, 0)
    for each in running.values():
        lead = running.get(each.node.me.primary)
        if lead is not None and each.linked and lead.pod in replicas:
            replicas[lead.pod] += 1
    spare = min(replicas.values(), default=0)
    up = sum(pod in members for pod in owned)
    names = {node.id: node.name.removeprefix("data-") for node in database.disks.values() if node.id}
    text = f"{up} of {len(owned)} primaries up, each with {spare} or more replicas in sync" if owned else "no primaries"
    return View(members, owned, spare, text, names)


def restores(step: Step) -> bool:
    """Whether a step changes settings of a running server, which other settings in its files do not have."""
    return step.action == "call" and _SETTINGS.fullmatch(step.target) is not None


def patience(resource: Obj) -> float:
    """Return the longest time for which the operator may wait without any change."""
    return PATIENCE_SECONDS


SUBJECT = Subject(
    OPERATOR,
    build,
    seed,
    view,
    patience,
    restores=restores,
    unknown_start=unknown_adoption,
    serves=(Served(API.kind, schema=dataclasses.replace(CUSTOM, keys={"metadata.ownerReferences": ("uid",)})),),
)
