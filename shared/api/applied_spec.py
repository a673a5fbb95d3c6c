"""The last applied spec of a resource, noted on its workload: what is healed while the present spec is not applied.

A spec may bypass admission, or be one that a later version of the operator rejects. Nothing of it is applied then, but
the database that runs still needs its certificates, its members and its backups. The note is written with the objects
of the spec, and names the resource by its UID: a later resource of the same name may be another database. It never has
a consent of a user, such as a confirmed recovery: what is not in the present spec is not allowed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import orjson

from shared.api.policy import PlatformPolicy
from shared.api.spec import CustomResource, InvalidSpec, SpecModel
from shared.kubernetes.accessors import annotation
from shared.kubernetes.kinds import Obj
from shared.kubernetes.kubectl import command

APPLIED_SPEC = "platform.ydzs.io/applied-spec"
"""Annotation of a workload: the UID of the resource, and the spec from which its objects were made, as JSON."""

NOT_APPLIED = frozenset({"adopt", "changes", "deletionProtection", "pause", "paused", "recovery", "restore"})
"""Fields that no note has: consents, and what applies only to the moment at which it is in the spec."""

APPROVAL = "platform.ydzs.io/approve-change"
"""Annotation of a resource: the token of a change of its spec that a user approves."""

MAX_BYTES = 64 * 1024
"""Maximum size of a note; annotations of an object may have 256 KiB. Of a larger spec it has the digest."""

_WRAPPERS = (Annotated, Union, UnionType)

Resource = TypeVar("Resource", bound=CustomResource[Any])


def note(resource: CustomResource[Any]) -> dict[str, str]:
    """Return the annotation for the workload of a resource whose spec is applied: it is never empty."""
    spec = {field: value for field, value in (resource.obj.get("spec") or {}).items() if field not in NOT_APPLIED}
    content = orjson.dumps({"uid": resource.uid, "spec": spec}, option=orjson.OPT_SORT_KEYS)
    if len(content) > MAX_BYTES:
        content = orjson.dumps({"uid": resource.uid, "sha256": hashlib.sha256(content).hexdigest()})
    return {APPLIED_SPEC: content.decode()}


def requires_approval(resource: CustomResource[Any], policy: PlatformPolicy) -> bool:
    """Return whether changes of a spec wait for approvals: not those of an autoscaler, which makes them by itself."""
    is_policy = not {resource.namespace, "*"}.isdisjoint(policy.approval_namespaces)
    return (is_policy or resource.spec.changes == "Approved") and getattr(resource.spec, "autoscaling", None) is None


def to_apply(
    parse: Callable[[Obj], Resource], obj: Obj, workloads: Sequence[Obj | None], minimal: Obj, policy: PlatformPolicy
) -> Resource:
    """Return a resource, with its last applied spec while the present one cannot be parsed, or is not approved.

    If the present one is not approved, and no other one is known, it is `invalid`: nothing is changed or repaired.

    Raises:
        InvalidSpec: the present spec cannot be parsed, and no other one is known.
    """
    try:
        resource = parse(obj)
    except InvalidSpec as invalid:
        if (found := last_applied(parse, obj, workloads, invalid, minimal)) is None:
            raise
        return found
    if not requires_approval(resource, policy) or not (token := _unapproved(resource, workloads)):
        return resource
    waiting = dataclasses.replace(resource, awaits_approval=token)
    at_once = {field: value for field, value in obj["spec"].items() if field in NOT_APPLIED}
    if (found := last_applied(parse, obj, workloads, InvalidSpec(""), minimal | at_once)) is not None:
        return dataclasses.replace(found, awaits_approval=token)
    why = f"It is unknown what was applied last, so nothing is repaired. {how_to_approve(waiting)}"
    return dataclasses.replace(waiting, invalid=why)


def how_to_approve(resource: CustomResource[Any]) -> str:
    """Return the message about a change that waits for an approval."""
    target = f"{str(resource.obj.get('kind', '')).lower()} {resource.name}"
    token = f"{APPROVAL}={resource.awaits_approval}"
    return (
        "spec.changes: this change of the spec needs an approval; what runs is kept as last applied. `kubectl platform "
        "plan` shows what it would do. To approve exactly this: "
        f"{command('annotate', target, resource.namespace, '--overwrite', token)}"
    )


def _unapproved(resource: CustomResource[Any], workloads: Iterable[Obj | None]) -> str:
    """Return the token of the present spec if it is not applied and not approved; otherwise an empty text.

    The generation counts each change, also one back and forth. A resource that has never changed needs no approval.
    Without a note it is unknown what was applied, which is no approval either. The token is of the present spec alone:
    it lasts if the note is lost while the change is carried out, as when a StatefulSet is recreated.
    """
    generation, present = resource.obj["metadata"].get("generation"), note(resource)[APPLIED_SPEC]
    noted = next((annotation(workload, APPLIED_SPEC) for workload in workloads if workload), "")
    token = hashlib.sha256(orjson.dumps([resource.uid, generation, present])).hexdigest()[:16]
    return "" if generation == 1 or noted == present or annotation(resource.obj, APPROVAL) == token else token


def last_applied(
    parse: Callable[[Obj], Resource], obj: Obj, workloads: Iterable[Obj | None], invalid: InvalidSpec, minimal: Obj
) -> Resource | None:
    """Return a resource with the spec that its workload notes; None if there is none that can be parsed.

    A number at the top level of the note may be one that a later version of the operator rejects. It is kept: the
    objects were made with it. With any other value that is rejected, it is not known what runs.

    Args:
        workloads: objects that may have the note.
        invalid: why the present spec cannot be parsed.
        minimal: a valid spec with only the required fields.
    """
    for workload in workloads:
        spec = _noted(obj, workload)
        if spec is None:
            continue
        refused = {field: value for field, value in spec.items() if not _parses(parse, obj, minimal | {field: value})}
        accepted = {field: value for field, value in spec.items() if field not in refused}
        try:
            resource = parse({**obj, "spec": minimal | accepted})
        except InvalidSpec:
            return None
        numbers = _numbers(type(resource.spec))
        if any(type(value) is not int or field not in numbers for field, value in refused.items()):
            return None
        changed = resource.spec.model_copy(update={numbers[field]: value for field, value in refused.items()})
        return dataclasses.replace(resource, obj={**obj, "spec": spec}, spec=changed, invalid=str(invalid))
    return None


def _numbers(model: type[SpecModel]) -> dict[str, str]:
    """Return the names of the fields of a model that are whole numbers, by their names in a manifest."""
    fields = model.model_fields.items()
    return {field.alias or name: name for name, field in fields if _is_number(field.annotation)}


def _is_number(hint: object) -> bool:
    """Whether a field of this type may be a whole number, also if it is optional or has bounds."""
    return hint is int or (get_origin(hint) in _WRAPPERS and any(map(_is_number, get_args(hint))))


def _noted(obj: Obj, workload: Obj | None) -> Obj | None:
    """Return the spec that a workload notes for exactly this resource; None if there is none."""
    try:
        found = orjson.loads(annotation(workload, APPLIED_SPEC) or "{}")
        spec: Obj = {field: value for field, value in found["spec"].items() if field not in NOT_APPLIED}
        return spec if found["uid"] == obj["metadata"]["uid"] else None
    except (ValueError, LookupError, TypeError, AttributeError):  # none, or edited by hand
        return None


def _parses(parse: Callable[[Obj], CustomResource[Any]], obj: Obj, spec: Obj) -> bool:
    try:
        parse({**obj, "spec": spec})
    except InvalidSpec:
        return False
    return True
