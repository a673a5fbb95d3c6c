"""Why a pod was replaced, or will be: fields of its template and of the spec that changed, and their writers. Pure.

All of it is recorded by Kubernetes: templates in ControllerRevisions and ReplicaSets, specs in the operator's notes on
them, writers in metadata.managedFields. What cannot be known from these is reported as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from plugin.databases import Database
from plugin.diagnosis import Fact
from plugin.overview import duration, since
from plugin.templates import Change, History, Template, noted
from shared.api.applied_spec import NOT_APPLIED
from shared.kubernetes.kinds import POD, Obj
from shared.kubernetes.managed_fields import managers_of
from simulator.differences import changes

RECENT = timedelta(hours=24)
"""Age of a change from which on it is no longer shown with its resource, only with its pods."""

LONGEST_STEP = timedelta(hours=1)
"""Time between two pods of a rolling update from which on something else may have replaced the second one."""


def of_pod(
    database: Database, resource: Obj, pod: Obj, pods: Sequence[Obj], history: History, now: datetime
) -> list[Fact]:
    """Return why a pod was created when it was.

    Args:
        pods: all pods with servers of the resource.
        history: templates of the workload.
    """
    if history.unread:
        return [_unread(history)]
    template = history.of_pod(pod)
    if history.workload is None:  # it is deleted, and its pods follow it
        return []
    if template is None:
        return [Fact("template", "Kubernetes no longer keeps the template that this pod was created from.")]
    facts: list[Fact] = []
    if ahead := history.change_since(template):
        text = "It runs a former template, and is replaced when it is its turn. The present one differs:"
        facts += [Fact("template", text, since=ahead.made), *_fields(database, resource, history, ahead, now)]
    made = str(pod["metadata"].get("creationTimestamp") or "")
    change = history.change_to(template)
    if change is None:
        text = f"Its template is the first that Kubernetes keeps, of {_ago(template.made, now)}"
        facts.append(Fact("template", f"{text}: no change of the template is known that replaced it."))
        return [*facts, *_of_workload(resource, history, now)]
    others = [str(each["metadata"].get("creationTimestamp") or "") for each in pods if _has(history, each, template)]
    when = _ago(change.made, now) if change.made else "(the workload returned to a former one)"
    if _is_of_rollout(change, made, others):
        text = f"Its template changed {when}, and the pod was replaced by that. Fields that differ:"
    else:
        later = duration(_between(change.made, made))
        text = (
            f"Its template last changed {when}, and the pod was created {later} later: a drain, an eviction or a "
            "deletion may have replaced it, of which Kubernetes keeps events for about an hour. That change was:"
        )
    return [*facts, Fact("template", text, since=change.made), *_fields(database, resource, history, change, now)]


def _of_workload(resource: Obj, history: History, now: datetime) -> Iterator[Fact]:
    """Yield the choice of the kind of workload, if the workload was created after it: all its pods are new."""
    writers, workload = _writers(resource, "spec.workload", now), history.workload
    if not writers or workload is None:
        return
    gap = _between(writers[0][1], str(workload["metadata"].get("creationTimestamp") or ""))
    if gap is not None and 0 <= gap <= LONGEST_STEP.total_seconds():
        text = f"spec.workload is {resource['spec']['workload']}, {_by(writers)}; after that, the"
        text = f"{text} {workload['kind']} {workload['metadata']['name']} was created, and all its pods."
        yield Fact("spec", text, since=writers[0][1], manager=_first(writers))


def of_resource(database: Database, resource: Obj, pods: Sequence[Obj], history: History, now: datetime) -> list[Fact]:
    """Return changes of a resource that are not applied yet, and that replace pods or did so recently.

    Args:
        pods: pods with servers.
        history: templates of the workload.
    """
    facts = list(_pending(resource, history, now))
    if history.unread:
        return [*facts, _unread(history)]
    present = history.present
    if present is None or (change := history.change_to(present)) is None:
        return facts
    names = {str(pod["metadata"]["name"]): history.of_pod(pod) for pod in pods}
    former = sorted(name for name, template in names.items() if template is not None and template.key != present.key)
    age = since(change.made, now)
    if not former and (age is None or age > RECENT.total_seconds()):
        return facts
    state = f"{len(former)} of {len(names)} pods have the former one: {', '.join(former)}"
    when = f" {_ago(change.made, now)}" if change.made else ": the workload returned to a former one"
    text = f"The template of the pods changed{when}; {state if former else 'all pods have it'}. Fields that differ:"
    return [*facts, Fact("template", text, since=change.made), *_fields(database, resource, history, change, now)]


def _unread(history: History) -> Fact:
    fix = "request the rights to list controllerrevisions and replicasets, and to get statefulsets and deployments"
    return Fact("template", f"It is unknown which change replaced pods: {history.unread}", fix)


def _has(history: History, pod: Obj, template: Template) -> bool:
    """Return whether a pod has a template, or one that replaces no pods of it."""
    found = history.of_pod(pod)
    return found is not None and found.key == template.key


def _is_of_rollout(change: Change, made: str, others: Sequence[str]) -> bool:
    """Return whether a pod was created within a step after the change, or after another pod of the same template."""
    earlier = [each for each in (change.made or change.after.made, *others) if each and each < made]
    gap = _between(max(earlier, default=""), made)
    return gap is None or gap <= LONGEST_STEP.total_seconds()


def _between(first: str, second: str) -> float | None:
    try:
        return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()
    except ValueError:
        return None


def _ago(moment: str, now: datetime) -> str:
    return f"{duration(since(moment, now))} ago"


def _fields(database: Database, resource: Obj, history: History, change: Change, now: datetime) -> Iterator[Fact]:
    """Yield the fields of a template that differ, and then what caused that."""
    operator, foreign = f"{database.operator}-operator", False
    for line in change.fields:
        path = f"spec.template.{line.partition(': ')[0]}"
        others = _writers(history.workload or {"metadata": {}}, path, now, own=operator)
        foreign = foreign or bool(others)
        written = f" On {(history.workload or {}).get('kind', 'the workload')}, {_by(others)}." if others else ""
        yield Fact("field", f"{line}.{written}", manager=others[0][0] if others else operator)
    if foreign:
        return
    yield from _causes(resource, change.before, change.after, now)


def _causes(resource: Obj, before: Template, after: Template, now: datetime) -> Iterator[Fact]:
    """Yield the fields of the spec that differ between two templates, with their writers."""
    if before.spec is None or after.spec is None:
        if last := _last_writers(resource, now):
            yield Fact("spec", f"The operator did not record the former spec; {last}.")
        return
    lines = list(changes(before.spec, after.spec, POD, "spec"))
    for line in lines:
        writers = _writers(resource, line.partition(": ")[0], now)
        text = _by(writers) if writers else _last_writers(resource, now) or "its writer is not recorded"
        yield Fact("spec", f"{line}; {text}.", since=writers[0][1] if writers else "", manager=_first(writers))
    if not lines:
        text = "The spec was the same: the operator changed the template by itself, as after its own upgrade,"
        yield Fact("spec", f"{text} or because a Secret or ConfigMap changed.")


def _pending(resource: Obj, history: History, now: datetime) -> Iterator[Fact]:
    """Yield the fields of the spec that the operator has not applied yet."""
    if (applied := noted(history.workload, resource)) is None:
        return
    spec = {key: value for key, value in (resource.get("spec") or {}).items() if key not in NOT_APPLIED}
    for line in changes(applied, spec, POD, "spec"):
        writers = _writers(resource, line.partition(": ")[0], now)
        text = f" {_by(writers)[0].upper()}{_by(writers)[1:]}." if writers else ""
        when = writers[0][1] if writers else ""
        yield Fact("spec", f"{line} is not applied yet.{text}", since=when, manager=_first(writers))


def _writers(obj: Obj, path: str, now: datetime, own: str = "") -> list[tuple[str, str, str]]:
    """Return the managers that own a field, or a part of it: name, time, and its age; the newest first."""
    found = [
        (name, str(entry.get("time") or ""), _ago(str(entry.get("time") or ""), now))
        for entry in obj["metadata"].get("managedFields") or ()
        if not entry.get("subresource") or entry.get("subresource") == "scale"
        for name in managers_of([path], {"metadata": {"managedFields": [entry]}}, own=own)
    ]
    return sorted(found, key=lambda each: each[1], reverse=True)


def _by(writers: Sequence[tuple[str, str, str]]) -> str:
    return "written by " + ", ".join(f"{name} {age}" for name, _, age in writers)


def _first(writers: Sequence[tuple[str, str, str]]) -> str:
    return writers[0][0] if writers else ""


def _last_writers(resource: Obj, now: datetime) -> str:
    """Return the newest writers of the spec: a field that was removed has no owner."""
    found = _writers(resource, "spec", now)
    return f"the spec was {_by(found[:2])}" if found else ""
