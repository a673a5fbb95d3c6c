"""Steps that the operator and Kubernetes took after a change, in the words of a plan. Pure.

Three sources, each with times: the operator's log has its writes, calls and reasons; watches of the API server have the
pods, and the resource, whose status has members, roles and slots.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from operators.redis.slots.hash_slots import Slots
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, REPLICA_SET, SECRET, Obj
from shared.kubernetes.ownership import controller_of
from shared.status import conditions
from simulator.recorder import (
    KUBERNETES,
    METADATA,
    OPERATOR,
    RESTARTS,
    STARTS,
    STOPS,
    Move,
    PodChange,
    Step,
    moved,
    plain,
)

EXECUTOR, RECONCILER = "shared.runtime.executor", "shared.runtime.reconciler"
"""Loggers of the operator: of what it writes and calls, and of the reasons that it reports."""

WRITES = {"created": "create", "applied": "change", "changed": "change", "deleted": "delete", "evicted": "evict"}
"""Words of the log, and actions of a plan."""

SAME_SECONDS = 5.0
"""Longest time between the log line of an eviction or deletion and the first event of the pod that shows it."""

_WRITE = re.compile(r"(created|applied|changed|deleted|evicted|replaced) ([A-Z]\w*) ([a-z0-9.-]+)(?::? ?(.*))?")
_REASON = re.compile(r"([A-Z][A-Za-z]*): .*", re.DOTALL)
_ROLES = {"leader": "voter", "master": "primary", "slave": "replica"}


class Event(NamedTuple):
    """An event of a watch.

    Attributes:
        at: Unix time at which it was received.
        change: ADDED, MODIFIED or DELETED.
        obj: the object: a pod, or the resource.
    """

    at: float
    change: str
    obj: Obj


@dataclass(frozen=True)
class Execution:
    """Steps and effects after a change.

    Attributes:
        steps: steps in order.
        begins: Unix time at which each of them began.
        ended: Unix time at which the operator reported the result.
        roles: roles of each member or node in order, as the status had them; the first is that before the change, and
            an empty one means that it did not belong to the database.
        moves: slots that moved, as the status had them.
        reasons: reasons that the operator reported, in order.
        reason: reason of the condition Ready at the end.
        ready: whether the resource is Ready at the end, in its present generation.
    """

    steps: tuple[Step, ...]
    begins: tuple[float, ...]
    ended: float
    roles: Mapping[str, tuple[str, ...]]
    moves: tuple[Move, ...]
    reasons: tuple[str, ...]
    reason: str
    ready: bool


@dataclass
class _Row:
    at: float
    step: Step


@dataclass(frozen=True)
class _Members:
    """The members or nodes in a status.

    Attributes:
        roles: role by name.
        slots: slots of each primary, as a bit mask.
        primaries: name of the primary of each replica.
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    slots: Mapping[str, int] = field(default_factory=dict)
    primaries: Mapping[str, str] = field(default_factory=dict)


def execution(events: Iterable[Event], log: Iterable[str], began: float, reference: str) -> Execution:
    """Return the steps and effects since a change.

    Args:
        events: events of the pods and of the resource. Those before the change are its initial state.
        log: lines of the operator, in JSON; others are ignored.
        began: Unix time of the change.
        reference: namespace and name of the resource, as `default/orders`.
    """
    seen = _Seen(began)
    for event in sorted(events, key=lambda each: each.at):
        seen.note(event)
    entries = [each for line in log if (each := _entry(line, reference)) is not None and each.at >= began]
    rows = [*seen.rows, *_operations(entries, seen.names)]
    rows.sort(key=lambda row: row.at)
    rows = _attributed(rows)
    ready = accessors.condition(seen.resource, conditions.READY)
    return Execution(
        tuple(row.step for row in rows),
        tuple(row.at for row in rows),
        seen.ended,
        {name: tuple(roles) for name, roles in seen.roles.items()},
        tuple(seen.moves),
        tuple(each.text for each in entries if each.logger == RECONCILER),
        str(ready.get("reason") or ""),
        ready.get("status") == "True" and accessors.is_current(seen.resource),
    )


class _Seen:
    """Effects that the events of the pods and of the resource show."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._known: set[str] = set()
        self._leaving: set[str] = set()
        self._stopped: dict[str, _Row] = {}
        self._members = _Members()
        self.rows: list[_Row] = []
        self.names: dict[str, str] = {}
        self.roles: dict[str, list[str]] = {}
        self.moves: list[Move] = []
        self.resource: Obj = {}
        self.ended = began

    def note(self, event: Event) -> None:
        if event.obj["kind"] == POD.name:
            self._note_pod(event)
        elif event.change != "DELETED":
            self._note_resource(event)

    def _note_pod(self, event: Event) -> None:
        metadata = event.obj["metadata"]
        uid, owner = metadata["uid"], controller_of(event.obj) or {}
        is_new, is_replica = uid not in self._known, owner.get("kind") == REPLICA_SET.name
        self._known.add(uid)
        if event.at < self._began:
            return
        if is_new and event.change != "DELETED":
            deployment = f"{str(owner.get('name')).rpartition('-')[0]} (new)"
            self._start(event.at, deployment if is_replica else metadata["name"])
        if uid not in self._leaving and (event.change == "DELETED" or metadata.get("deletionTimestamp")):
            self._leaving.add(uid)
            row = self._add(event.at, STOPS, metadata["name"])
            if not is_replica:
                self._stopped[metadata["name"]] = row

    def _start(self, at: float, name: str) -> None:
        stopped = self._stopped.pop(name, None)
        if stopped is None:
            self._add(at, STARTS, name)
        else:
            stopped.step = _of_pod(RESTARTS, name)

    def _add(self, at: float, effect: str, name: str) -> _Row:
        row = _Row(at, _of_pod(effect, name))
        self.rows.append(row)
        return row

    def _note_resource(self, event: Event) -> None:
        before, self._members = self._members, _members(event.obj)
        self.names |= _names(event.obj)
        former, now = (accessors.condition(each, conditions.READY) for each in (self.resource, event.obj))
        self.resource = event.obj
        for name in {*before.roles, *self._members.roles, *self.roles}:
            role = self._members.roles.get(name, "")
            known = self.roles.setdefault(name, [""])
            if event.at < self._began:
                self.roles[name] = [role]
            elif known[-1] != role:
                known.append(role)
        if event.at < self._began:
            return
        if (former.get("status"), former.get("reason")) != (now.get("status"), now.get("reason")):
            self.ended = event.at
        self.moves += _moves(before, self._members)


def _of_pod(effect: str, name: str) -> Step:
    return Step(KUBERNETES, effect, f"Pod {name}", pods=(PodChange(name, effect),))


def _members(resource: Obj) -> _Members:
    nodes, names = _entries(resource, "nodes", "nodeId"), _names(resource)
    entries = [*nodes, *_entries(resource, "members", "id")]
    roles = {each["name"]: _ROLES.get(each["role"], each["role"]) for each in entries if each.get("role")}
    slots = {
        each["name"]: Slots.parse(each["slots"]).mask
        for each in nodes
        if roles.get(each["name"]) == "primary" and each.get("slots")
    }
    replicas = [each for each in nodes if roles.get(each["name"]) == "replica"]
    primaries = {each["name"]: names.get(str(each.get("primaryId")), "") for each in replicas}
    return _Members(roles, slots, primaries)


def _names(resource: Obj) -> dict[str, str]:
    """Return the names of nodes by the ids that texts have; texts about members have both."""
    return {each["nodeId"]: each["name"] for each in _entries(resource, "nodes", "nodeId")}


def _entries(resource: Obj, of: str, key: str) -> list[Obj]:
    """Return the entries of a list in the status that have a name and an id; those of a Memcached are names only."""
    found = (resource.get("status") or {}).get(of) or ()
    return [each for each in found if isinstance(each, dict) and each.get("name") and each.get(key)]


def _moves(before: _Members, after: _Members) -> Iterator[Move]:
    """Yield the slots that moved between two states. Those of a primary that its replica replaces do not move."""
    if not before.slots or not after.slots:
        return
    owned = dict(before.slots)
    for name, primary in before.primaries.items():
        if after.roles.get(name) == "primary" and after.roles.get(primary) != "primary" and primary in owned:
            owned[name] = owned.pop(primary)
    counts = [{name: mask.bit_count() for name, mask in each.items()} for each in (owned, after.slots)]
    yield from moved(*counts)


class _Entry(NamedTuple):
    """A line of the log about the resource; `text` is without its name."""

    at: float
    logger: str
    text: str


def _entry(line: str, reference: str) -> _Entry | None:
    """Return a line about what the operator did, or the reason that it reported; None for any other."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or found.get("level") != "info":
        return None
    subject, _, text = str(found.get("message")).partition(": ")
    logger = str(found.get("logger"))
    if subject != reference or logger not in (EXECUTOR, RECONCILER):
        return None
    if logger == RECONCILER:
        reason = _REASON.fullmatch(text)
        if reason is None:
            return None
        text = reason[1]
    return _Entry(datetime.fromisoformat(found["time"]).timestamp(), logger, text)


def _operations(entries: Iterable[_Entry], names: Mapping[str, str]) -> Iterator[_Row]:
    """Yield the writes and calls of the operator."""
    for entry in entries:
        if entry.logger != EXECUTOR:
            continue
        write = _WRITE.fullmatch(entry.text)
        if write is None:
            yield _Row(entry.at, Step(OPERATOR, "call", plain(entry.text, names)))
            continue
        verb, kind, name, rest = write.groups()
        fields = tuple(rest.split(", ")) if rest and verb in ("applied", "changed") else ()
        is_record = bool(fields) and all(f"{each}.".startswith((*METADATA, "changed intent")) for each in fields)
        action = WRITES.get(verb, "change")
        yield _Row(entry.at, Step(OPERATOR, action, f"{kind} {name}", fields, minor=is_record or kind == SECRET.name))


def _attributed(rows: list[_Row]) -> list[_Row]:
    """Return the steps with each pod that the operator evicts or deletes as an effect of that, and not as a step."""
    causes = [row for row in rows if row.step.action in ("evict", "delete") and row.step.target.startswith("Pod ")]
    found: list[_Row] = []
    for row in rows:
        cause = next((each for each in causes if _is_effect(row, each)), None)
        if cause is None:
            found.append(row)
        else:
            causes.remove(cause)
            cause.step, cause.at = dataclasses.replace(cause.step, pods=row.step.pods), min(cause.at, row.at)
    found.sort(key=lambda row: row.at)
    return found


def _is_effect(row: _Row, cause: _Row) -> bool:
    stops = row.step.by == KUBERNETES and row.step.action in (STOPS, RESTARTS)
    return stops and row.step.target == cause.step.target and abs(cause.at - row.at) <= SAME_SECONDS
