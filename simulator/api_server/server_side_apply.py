"""Field ownership: server-side apply, and the tracking of every other write.

Follows the reference implementation (sigs.k8s.io/structured-merge-diff, merge/update.go) with one version per kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from shared.kubernetes.kinds import Obj
from simulator.api_server.field_sets import (
    FieldSet,
    Path,
    Schema,
    compare,
    decode,
    encode,
    fields_of,
    with_maps,
    without,
)

_METADATA = (
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
)
UNTRACKED: FieldSet = frozenset(
    {(), ("f:apiVersion",), ("f:kind",), ("f:metadata",), *(("f:metadata", f"f:{name}") for name in _METADATA)}
)
"""Fields without an owner."""


class Manager(NamedTuple):
    """A writer and its kind of write. Entries of `managedFields` are distinct by all of these."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""


Records = dict[Manager, FieldSet]
"""The fields of every manager."""


class FieldConflict(Exception):
    """An apply without force would change fields that other managers own.

    Attributes:
        fields: conflicting fields by their owners.
    """

    def __init__(self, fields: Mapping[Manager, FieldSet]) -> None:
        super().__init__(", ".join(manager.name for manager in fields))
        self.fields = fields


def apply(
    schema: Schema, live: Obj, records: Records, config: Obj, manager: Manager, *, force: bool
) -> tuple[Obj, Records]:
    """Apply a configuration as server-side apply does.

    Every field in `config` is set. A field that the manager applied before and omits now is removed, unless another
    manager owns it as well. All other fields stay.

    Args:
        live: object as stored, empty if it does not exist.
        records: fields of every manager before the apply.

    Returns:
        The object and the records afterwards.

    Raises:
        FieldConflict: the apply would change fields of other managers, and `force` is not set.
        MissingKey, DuplicateKey: items of a list in `config` cannot be distinguished.
    """
    applied = frozenset(fields_of(schema, config))
    dropped = with_maps(records.get(manager, ())) - with_maps(
        applied.union(*(records[other] for other in records if other != manager))
    )
    after = records | {manager: applied - UNTRACKED}
    new = without(schema, _merge(schema, live, config), dropped)
    change = compare(schema, live, new)
    changed = change.added | change.modified
    conflicts = {other: fields & changed for other, fields in after.items() if other != manager and fields & changed}
    if conflicts and not force:
        raise FieldConflict(conflicts)
    kept = {other: f if other == manager else f - changed - change.removed for other, f in after.items()}
    return new, {other: fields for other, fields in kept.items() if fields}


def track(schema: Schema, live: Obj, records: Records, new: Obj, manager: Manager) -> Records:
    """Return the records after a write other than apply: the writer owns every field whose value it changed."""
    change = compare(schema, live, new)
    changed = change.added | change.modified
    after = {other: fields - changed - change.removed for other, fields in records.items()}
    after[manager] = (after.get(manager, frozenset()) | changed) - UNTRACKED
    return {other: fields for other, fields in after.items() if fields}


def read_records(obj: Obj) -> Records:
    """Read the fields of every manager from `managedFields`."""
    return {_manager(entry): frozenset(decode(entry.get("fieldsV1", {}))) for entry in _entries(obj)}


def write_records(records: Records, before: Obj, now: str) -> list[Obj]:
    """Build `managedFields` from the records; an entry keeps its time while its fields do not change.

    Args:
        before: object before the write.
        now: time of the changed entries.
    """
    known = {_manager(entry): entry for entry in _entries(before)}
    entries = []
    for manager, fields in records.items():
        entry = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": manager.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode(fields),
        } | ({"subresource": manager.subresource} if manager.subresource else {})
        old = known.get(manager)
        entries.append(old if old is not None and old["fieldsV1"] == entry["fieldsV1"] else entry)
    return sorted(entries, key=lambda entry: (entry["operation"], entry["time"], entry["manager"]))


def describe(path: Path) -> str:
    """Format a path as messages of the API server do: `.spec.ports[port=80,protocol="TCP"].name`."""
    steps = (f".{step[2:]}" if step.startswith("f:") else f"[{step[2:].strip('{}')}]" for step in path)
    return "".join(steps)


def _merge(schema: Schema, live: Any, config: Any, path: Path = ()) -> Any:
    """Merge `config` over `live`, item by item in lists of type map or set; applied items keep their order."""
    applied_parts, live_parts = schema.parts(path, config), schema.parts(path, live)
    if applied_parts is None or live_parts is None:
        return config
    if isinstance(config, list):  # items of other managers keep their position relative to their neighbours
        steps = list(applied_parts)
        for position, step in enumerate(live_parts):
            if step not in applied_parts:
                steps.insert(min(position, len(steps)), step)
    else:
        steps = list(live_parts | applied_parts)
    merged = {
        step: _merge(schema, live_parts[step], applied_parts[step], (*path, step))
        if step in live_parts and step in applied_parts
        else (applied_parts | live_parts)[step]
        for step in steps
    }
    return list(merged.values()) if isinstance(config, list) else {step[2:]: part for step, part in merged.items()}


def _entries(obj: Obj) -> list[Obj]:
    entries: list[Obj] = obj.get("metadata", {}).get("managedFields") or []
    return entries


def _manager(entry: Obj) -> Manager:
    return Manager(entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", ""))
