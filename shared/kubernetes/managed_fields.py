"""Field ownership: compute the changes of a server-side apply from the observed object alone.

The API server records the fields of every manager in `metadata.managedFields` (fieldsV1). A field that another manager
sets to a different value leaves this manager's record. A field that this manager no longer sends stays in it until the
next apply. If the record has the same fields with the same values as the desired object, no client changed it.

The record does not show what was sent inside an atomic value (a toleration, an affinity term, a secretKeyRef): the API
server adds defaults there, and a field that is no longer sent looks like one of them. Each applied object therefore has
an annotation with the digest of what was sent: another intent is a difference, even if the rest looks equal.

Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import orjson

from shared.kubernetes.accessors import annotation
from shared.kubernetes.encoding import canonical
from shared.kubernetes.kinds import Obj
from shared.kubernetes.quantity import parse_quantity

APPLIED = "platform.ydzs.io/applied"
"""Annotation of an owned object: digest of the object as it was sent. It is not part of any pod template."""

APPLIED_PATH = f"metadata.annotations.{APPLIED}"

_IDENTITY = frozenset({"name", "namespace", "uid", "resourceVersion"})
_DROPPED: tuple[Any, ...] = ("", [], {})
"""Empty values: the API server drops them, and no manager owns them."""

_DEFAULT_KEYS = {"protocol": "TCP"}
_QUANTITIES = frozenset({"limits", "requests", "sizeLimit", "capacity", "hard"})

_MAX_PATHS, _MAX_PATH_LENGTH = 100, 1_000
"""Number and length of the paths whose managers are named; a client that edits records can make many."""


def record_of(obj: Obj, manager: str) -> Obj | None:
    """Return the fieldsV1 that a manager applied to an object; None if there is none."""
    own = trim(obj, manager)["metadata"].get("managedFields", ())
    found: Obj | None = next((entry.get("fieldsV1", {}) for entry in own if entry.get("operation") == "Apply"), None)
    return found


def trim(obj: Obj, manager: str) -> Obj:
    """Return an object without the managedFields of other managers, which are most of its size and never read."""
    metadata = dict(obj["metadata"])
    entries = (entry for entry in metadata.pop("managedFields", ()) if entry.get("manager") == manager)
    own = [entry for entry in entries if not entry.get("subresource")]
    return {**obj, "metadata": metadata | ({"managedFields": own} if own else {})}


def with_digest(desired: Obj) -> Obj:
    """Return the object to send: with an annotation that distinguishes it from every other intent."""
    digest = hashlib.sha256(canonical(desired)).hexdigest()[:16]
    metadata = desired["metadata"]
    return {**desired, "metadata": metadata | {"annotations": metadata.get("annotations", {}) | {APPLIED: digest}}}


def applied_digest(obj: Obj | None) -> str:
    """Return the digest of what was last applied to an object; empty if it has none."""
    return annotation(obj, APPLIED)


def applied(obj: Obj, manager: str, *paths: Sequence[str]) -> Obj | None:
    """Return the part of an object that a manager applied, to apply it again with a change; None if there is none.

    The digest of the former intent is not in it.

    Args:
        paths: each has the names of nested fields (of an item of a list: `named`), to return only what is in the last
            one; without any, everything is returned.

    Source: "extract, modify, apply" of client-go's apply configurations (ExtractStatefulSet and others).
    """
    record = record_of(obj, manager)
    if record is None:
        return None
    found: Obj = _extract(obj, _restricted(record, paths) if paths else record)
    identity = {key: obj["metadata"][key] for key in ("name", "namespace") if key in obj["metadata"]}
    kind = {key: obj[key] for key in ("apiVersion", "kind")}
    metadata = found.get("metadata", {})
    if annotations := {key: text for key, text in metadata.pop("annotations", {}).items() if key != APPLIED}:
        metadata["annotations"] = annotations
    return kind | found | {"metadata": metadata | identity}


def is_applied(obj: Obj, *path: str, operation: str = "Apply") -> bool:
    """Return whether a field has the value that was last applied: one that another client changed is in no record.

    Args:
        obj: the object without records of other managers (`trim`).
        path: names of nested fields.
        operation: Update for a field that was written with a merge patch.
    """
    for entry in obj["metadata"].get("managedFields", ()):
        fields = entry.get("fieldsV1", {}) if entry.get("operation") == operation else None
        for name in path:
            fields = None if fields is None else fields.get(f"f:{name}")
        if fields is not None:
            return True
    return False


def named(name: str) -> str:
    """Return the element of a path for the item of this name, in a list of items that are identified by their names."""
    return f"k:{json.dumps({'name': name}, separators=(',', ':'))}"


def _restricted(record: Obj, paths: Sequence[Sequence[str]]) -> Obj:
    """Return the part of a record under paths."""
    if not all(paths):
        return record
    found = {}
    for name in dict.fromkeys(first for first, *_ in paths):
        key = name if name.startswith("k:") else f"f:{name}"
        if key in record:
            found[key] = _restricted(record[key], [rest for first, *rest in paths if first == name])
    return found


def _extract(value: Any, node: Obj) -> Any:
    if isinstance(value, dict) and any(name.startswith("f:") for name in node):
        return {
            name[2:]: _extract(value[name[2:]], child)
            for name, child in node.items()
            if name.startswith("f:") and name[2:] in value
        }
    if isinstance(value, list) and any(name.startswith("k:") for name in node):
        own = sorted((at, name) for name, at in _positions(value, node).items())  # a variable may refer to earlier ones
        return [_extract(value[at], node[name]) for at, name in own]
    return value


def difference(desired: Obj, observed: Obj, manager: str) -> list[str]:
    """Return the paths of the fields that applying `desired` would change; empty if it would change nothing.

    Args:
        desired: the object to apply.
        observed: the object as last observed, with this manager's entry of managedFields.
        manager: the field manager.
    """
    record = record_of(observed, manager)
    if record is None:
        return ["metadata.managedFields"]
    return list(_map(_without_identity(desired), _without_identity(observed), record, ""))


def managers_of(paths: Sequence[str], obj: Obj, *, own: str) -> list[str]:
    """Return the other field managers that own one of the fields, or a part of one; a removed field has no owner.

    Args:
        paths: paths from `difference`; only some of many are examined.
        obj: the object with the managedFields of all managers, as a live read returns it.
        own: the manager that is not returned.
    """
    requested = {path for path in paths[:_MAX_PATHS] if len(path) <= _MAX_PATH_LENGTH}
    above = {path[: part.start()] for path in requested for part in re.finditer(r"[.\[]", path)}
    entries = (
        (entry.get("manager", ""), entry.get("fieldsV1", {})) for entry in obj["metadata"].get("managedFields", ())
    )
    return sorted({name for name, record in entries if name not in ("", own) and _has(record, requested, above)})


def shared_keys(secret: Obj | None, keys: Iterable[str], *, own: str) -> dict[str, str]:
    """Return those of the keys that other managers own, too, with an empty text: only a text replaces another one."""
    entries = (secret or {"metadata": {}})["metadata"].get("managedFields", ())
    others = [each.get("fieldsV1", {}) for each in entries if each.get("manager") not in (None, "", own)]
    shared = {name for each in others for name in each.get("f:data", {})}
    return {key: "" for key in keys if f"f:{key}" in shared}


def _has(record: Obj, requested: Set[str], above: Set[str]) -> bool:
    """Return whether a fieldsV1 has a requested field, a part of one, or a whole that contains one.

    Args:
        above: paths that contain a requested one; nothing else is searched, with any record.
    """
    nodes = [("", record)]
    while nodes:
        path, node = nodes.pop()
        for name, child in node.items():
            at = _child(path, name)
            if at in requested or (at in above and not child):
                return True
            if at in above:
                nodes.append((at, child))
    return False


def _child(path: str, name: str) -> str:
    """Return the path of a part of a fieldsV1, as `difference` writes it; empty for the whole itself."""
    if name.startswith("k:"):
        return f"{path}[{','.join(str(value) for value in orjson.loads(name[2:]).values())}]"
    return (f"{path}.{name[2:]}" if path else name[2:]) if name.startswith("f:") else ""


def changed_by(patch: Obj, observed: Obj, path: str = "") -> list[str]:
    """Return the paths of the fields that a JSON merge patch would change; empty if it would change nothing."""
    found = []
    for key, value in patch.items():
        child, have = f"{path}.{key}" if path else key, observed.get(key)
        if isinstance(value, dict):
            found += changed_by(value, have, child) if isinstance(have, dict) else [child]
        elif value is None:
            found += [child] if key in observed else []
        elif not _same_value(value, have, child):
            found.append(child)
    return found


def _without_identity(obj: Obj) -> Obj:
    body = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    body["metadata"] = {key: value for key, value in obj["metadata"].items() if key not in _IDENTITY}
    return body if body["metadata"] else {key: value for key, value in body.items() if key != "metadata"}


def _map(desired: Obj, observed: Any, record: Obj, path: str) -> Iterator[str]:
    if not isinstance(observed, dict):
        yield path
        return
    for key, value in desired.items():
        child = f"{path}.{key}" if path else key
        node = record.get(f"f:{key}")
        if node is None or key not in observed:
            if value not in _DROPPED:
                yield child
        else:
            yield from _value(value, observed[key], node, child)
    for name in record:
        if name.startswith("f:") and name[2:] not in desired:
            yield f"{path}.{name[2:]}" if path else name[2:]


def _value(desired: Any, observed: Any, node: Obj, path: str) -> Iterator[str]:
    if isinstance(desired, dict) and any(name.startswith("f:") for name in node):
        yield from _map(desired, observed, node, path)
    elif isinstance(desired, list) and any(name.startswith("k:") for name in node):
        yield from _keyed_list(desired, observed, node, path)
    elif not _same(desired, observed, path):
        yield path


def _keyed_list(desired: list[Any], observed: Any, record: Obj, path: str) -> Iterator[str]:
    own = {name: node for name, node in record.items() if name.startswith("k:")}
    if len(own) > len(desired) + _MAX_PATHS:  # another client has added them to the record
        yield path
        return
    sent, present = _positions(desired, own), _positions(observed, own)
    for name, node in own.items():
        child = _child(path, name)
        if name not in sent or name not in present:
            yield child
        else:
            yield from _value(desired[sent[name]], observed[present[name]], node, child)
    if len(desired) > len(own):
        yield path


def _positions(items: Any, record: Obj) -> dict[str, int]:
    """Return the positions in a list of the items that a record has, by their names in it.

    Each name (`k:{"port":80,"protocol":"TCP"}`) has the same keys, and texts or numbers.
    """
    own = {name: orjson.loads(name[2:]) for name in record if name.startswith("k:")}
    keys = tuple(next(iter(own.values()), {}))
    found: dict[tuple[Any, ...], int] = {}
    try:
        for at, item in enumerate(items or ()):
            found.setdefault(tuple([item.get(key, _DEFAULT_KEYS.get(key)) for key in keys]), at)
        positions = ((name, found.get(tuple(map(given.get, keys)))) for name, given in own.items())
        return {name: at for name, at in positions if at is not None}
    except TypeError:  # another client has written the record
        return {}


def _same(desired: Any, observed: Any, path: str) -> bool:
    """Compare values, ignoring what the API server adds (defaults inside atomic values) or rewrites (quantities)."""
    if isinstance(desired, dict):
        return isinstance(observed, dict) and all(
            _same(value, observed[key], f"{path}.{key}") if key in observed else value in _DROPPED
            for key, value in desired.items()
        )
    if isinstance(desired, list):
        return (
            isinstance(observed, list)
            and len(desired) == len(observed)
            and all(_same(want, have, path) for want, have in zip(desired, observed, strict=True))
        )
    return _same_value(desired, observed, path)


def _same_value(desired: Any, observed: Any, path: str) -> bool:
    if desired == observed:
        return True
    if not _QUANTITIES.isdisjoint(path.split(".")):
        try:
            return parse_quantity(desired) == parse_quantity(observed)
        except ValueError:
            return False
    return False
