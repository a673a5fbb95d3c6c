"""Why a resource is as it is: the facts that the API server has about it, in the order in which they explain it. Pure.

Each fact is quoted from where Kubernetes or the operator reported it. Nothing is guessed.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from plugin import reasons
from plugin.databases import Database
from plugin.overview import Condition, Overview, duration, for_cluster, since
from shared.kubernetes import accessors
from shared.kubernetes.accessors import rfc3339
from shared.kubernetes.exit_reason import exit_reason
from shared.kubernetes.kinds import Obj
from shared.kubernetes.pod_problems import problem_of, restarts
from shared.status import conditions
from shared.status.reasons import COMMON

MAX_EVENTS = 12


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence, and where it comes from.

    Attributes:
        source: origin of the sentence: a condition, a pod, an event, the resource.
        text: the sentence.
        fix: a command or a page that helps; empty if there is none.
        since: time from which on it is so, or of the write, as RFC 3339; empty if it is not recorded.
        ends: how it ends; empty if that is not known, or if nothing has to end.
        manager: field manager that wrote the field; empty if it is about none.
    """

    source: str
    text: str
    fix: str = ""
    since: str = ""
    ends: str = ""
    manager: str = ""


def of_resource(
    database: Database,
    resource: Obj,
    seen: Overview,
    events: Sequence[Obj],
    now: datetime,
    target: Sequence[str] = (),
    changed: Sequence[Fact] = (),
) -> list[Fact]:
    """Return why a resource is as it is.

    Args:
        seen: overview of the resource.
        events: events about it and its pods.
        target: flags for its cluster, in commands that a user may copy.
        changed: facts about changes of its spec and of the template of its pods.
    """
    where = f" {shlex.join([*target, '--namespace', seen.namespace])}"
    facts = [_ready(database, seen, now), *_others(database, seen, now)]
    facts = [replace(fact, text=for_cluster(fact.text, target)) for fact in facts]
    if seen.deleting:
        fix = "docs/runbook/README.md#a-resource-is-not-deleted"
        facts.append(Fact("resource", f"It is being deleted since {resource['metadata']['deletionTimestamp']}.", fix))
    if seen.paused:
        fix = f"kubectl platform resume {seen.kind.lower()}/{seen.name}{where}"
        facts.append(
            Fact("resource", "A user paused the reconciliation: the operator changes and repairs nothing.", fix)
        )
    if not seen.observed:
        fix = shlex.join(["kubectl", "platform", "doctor", *target])
        facts.append(Fact("resource", "The operator has not observed the last change of the spec.", fix))
    facts += [Fact("progress", f"Unfinished: {work}.") for work in seen.progress]
    if seen.decision:
        fix = f"kubectl platform confirm {seen.kind.lower()}/{seen.name}{where}"
        facts.append(Fact("recovery", seen.decision["message"], fix))
    for server in seen.servers:
        if server.message:
            facts.append(
                Fact(server.name, f"{server.reason}: {server.message}", f"kubectl platform why {server.name}{where}")
            )
    if last := _last_change(resource, now):
        facts.append(last)
    return [*facts, *changed, *_events(events, now)]


def of_pod(pod: Obj, events: Sequence[Obj], now: datetime) -> list[Fact]:
    """Return why a pod is as it is, and why its containers restarted."""
    facts: list[Fact] = []
    metadata, status = pod["metadata"], accessors.status_of(pod)
    if deleted := metadata.get("deletionTimestamp"):
        facts.append(Fact("pod", f"It is being deleted: its time to stop ends at {deleted}."))
    if moved := accessors.condition(pod, "DisruptionTarget"):
        facts.append(Fact("pod", f"{moved.get('reason')}: {moved.get('message')}"))
    age = duration(since(metadata.get("creationTimestamp"), now))
    facts.append(Fact("pod", f"It was created {age} ago and is {status.get('phase')}. {_scheduled(pod)}"))
    if status.get("reason"):  # such as Evicted
        facts.append(Fact("pod", f"{status['reason']}: {status.get('message') or ''}".rstrip(": ")))
    if problem := problem_of(pod).text or restarts(pod).text:
        facts.append(Fact("pod", f"It does not start: {problem}."))
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        facts += _container(container, now)
    return [*facts, *_events(events, now)]


def _ready(database: Database, seen: Overview, now: datetime) -> Fact:
    ready = seen.ready
    state = "is Ready" if ready.normal else "is not Ready" if ready.status == "False" else "has an unknown state"
    text = f"{seen.reference} {state} for {duration(ready.seconds)}: {ready.reason}: {ready.message}"
    return _of_condition(database, ready, text, now)


def _others(database: Database, seen: Overview, now: datetime) -> Iterator[Fact]:
    for condition in seen.conditions:
        known = (conditions.READY, conditions.PAUSED)
        if condition.normal or condition.type in known or condition.message == seen.ready.message:
            continue
        text = f"{condition.type} is {condition.status} for {duration(condition.seconds)}: "
        yield _of_condition(database, condition, f"{text}{condition.reason}: {condition.message}", now)


def _of_condition(database: Database, condition: Condition, text: str, now: datetime) -> Fact:
    """Return a fact with the time since when a condition has its status, and with what ends one that is not normal."""
    at = rfc3339(now - timedelta(seconds=condition.seconds)) if condition.seconds is not None else ""
    if condition.normal or (condition.type == conditions.READY and condition.seconds is None):  # or none is reported
        return Fact(condition.type, text, since=at)
    page, ends = _page(database, condition.reason), reasons.ends(database, condition.reason)
    return Fact(condition.type, text, page, since=at, ends=ends)


def _page(database: Database, reason: str) -> str:
    """Return the section of the runbook about a reason, which all operators or only this one has."""
    page = f"docs/{COMMON.page}" if reason in COMMON.reasons else database.runbook
    return f"{page}#{reason.lower()}"


def _scheduled(pod: Obj) -> str:
    node = (pod.get("spec") or {}).get("nodeName")
    return f"It runs on {node}." if node else "It is not scheduled."


def _container(container: Obj, now: datetime) -> Iterator[Fact]:
    name, count = container.get("name"), container.get("restartCount") or 0
    waiting = (container.get("state") or {}).get("waiting") or {}
    if waiting:
        yield Fact(
            f"container {name}", f"It waits: {waiting.get('reason')}: {waiting.get('message') or ''}".rstrip(": ")
        )
    ended = (container.get("lastState") or {}).get("terminated") or {}
    if count and ended:
        ago = duration(since(ended.get("finishedAt"), now))
        why = exit_reason(ended.get("message") or "")
        text = f"It was restarted {count} times. It last ended {ago} ago with exit code {ended.get('exitCode')}"
        yield Fact(f"container {name}", f"{text} ({ended.get('reason')}){': ' + why if why else ''}.")


def _last_change(resource: Obj, now: datetime) -> Fact | None:
    """Return the last writer of the spec, as the API server recorded it; None if it did not."""
    entries = [
        entry
        for entry in resource["metadata"].get("managedFields") or ()
        if "f:spec" in (entry.get("fieldsV1") or {}) and not entry.get("subresource")
    ]
    if not entries:
        return None
    last = max(entries, key=lambda entry: str(entry.get("time") or ""))
    fields = ", ".join(sorted(_fields(last["fieldsV1"]["f:spec"])))
    ago = duration(since(last.get("time"), now))
    text = f"{last.get('manager')} wrote the spec last, {ago} ago. Fields that it owns: {fields or 'none'}."
    return Fact("managedFields", text, since=str(last.get("time") or ""), manager=str(last.get("manager") or ""))


def _fields(owned: Obj, path: str = "spec") -> Iterator[str]:
    """Yield the paths of two levels of a field set."""
    for key, below in owned.items():
        if key.startswith("f:"):
            name = f"{path}.{key[2:]}"
            deeper = [each for each in below if each.startswith("f:")] if path == "spec" else []
            yield from (f"{name}.{each[2:]}" for each in deeper) if deeper else (name,)


def _events(events: Iterable[Obj], now: datetime) -> Iterator[Fact]:
    """Yield the newest events, oldest first."""
    ordered = sorted(events, key=_time)[-MAX_EVENTS:]
    for event in ordered:
        regarding = event.get("involvedObject") or event.get("regarding") or {}
        times = event.get("count") or (event.get("series") or {}).get("count") or 1
        repeated = f" ({times} times)" if times > 1 else ""
        text = f"{duration(since(_time(event), now))} ago: {event.get('reason')}: {event.get('message')}{repeated}"
        yield Fact(f"event of {regarding.get('name')}", text)


def _time(event: Obj) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")
