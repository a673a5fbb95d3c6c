"""Fields that differ between two versions of an object, in words for people, without what may be secret."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shared.kubernetes.kinds import SECRET, Kind

MAX_FIELDS = 20
"""Maximum number of changed fields that a step lists."""

MAX_VALUE = 60
"""Maximum length of a listed value."""

HIDDEN = "(hidden)"
"""Instead of values that may be secret: of environment variables, and of annotations that are documents."""

_UNLISTED = frozenset(
    {"managedFields", "resourceVersion", "generation", "creationTimestamp", "uid", "selfLink", "status"}
)
_NAMES = ("name", "mountPath", "containerPort", "key", "ip", "topologyKey", "port", "uid")
_REVISIONS = frozenset({"controller-revision-hash", "pod-template-hash"})
_RECORDS = "platform.ydzs.io/"
"""Prefix of annotations in which the operator keeps records."""


def changes(before: Any, after: Any, kind: Kind, path: str = "") -> Iterator[str]:
    """Yield the fields that differ, as "path: old → new", without those that the API server sets."""
    found = list(_differences(before, after, path, is_secret=kind == SECRET))
    yield from found[:MAX_FIELDS]
    if len(found) > MAX_FIELDS:
        yield f"and {len(found) - MAX_FIELDS} more fields"


def _differences(before: Any, after: Any, path: str, *, is_secret: bool) -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict | None) and isinstance(after, dict):
        for key in filter(_is_listed, sorted({*(before or ()), *after})):
            inner = f"{path}.{key}" if path else str(key)
            hides = is_secret or (".env[" in path and key == "value")
            yield from _differences((before or {}).get(key), after.get(key), inner, is_secret=hides)
        return
    lists = isinstance(before, list) and isinstance(after, list)
    if lists and (keyed := _keyed(before, after)) is not None:
        old, new = keyed
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}[{key}]", is_secret=is_secret)
        return
    if is_secret:
        yield f"{path}: {HIDDEN}"
    elif (texts := _texts(before, after)) is not None:
        yield f"{path}: {texts}"
    elif isinstance(before, dict) and after is None:
        yield f"{path}: removed"
    else:
        yield f"{path}: {_short(before)} → {_short(after)}"


def _is_listed(key: str) -> bool:
    is_record = key.startswith(_RECORDS) or key.endswith("/template")
    return not (is_record or key in _UNLISTED or key in _REVISIONS)


def _keyed(before: list[Any], after: list[Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return two lists of objects by their names; None if they have none, or not each its own."""
    both = [*before, *after]
    for name in _NAMES:
        if both and all(isinstance(each, dict) and name in each for each in both):
            old, new = ({str(each[name]): each for each in items} for items in (before, after))
            if len(old) == len(before) and len(new) == len(after):
                return old, new
    return None


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict | list):
        return _cut(_text(value))
    return HIDDEN if str(value).lstrip().startswith(("{", "[")) else _cut(str(value))


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_text(each)}" for key, each in value.items() if key != "value") + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return str(value)


def _cut(text: str) -> str:
    text = text.replace("\n", ", ")
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _texts(before: Any, after: Any) -> str | None:
    """Return the lines, or the items of lists of texts, that differ; None for other values."""
    if isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        before, after = before.splitlines(), after.splitlines()
    if not (isinstance(before, list) and isinstance(after, list)):
        return None
    if not all(isinstance(each, str) for each in (*before, *after)):
        return None
    removed, added = (
        [each for each in one if each not in other and not each.startswith("#")]
        for one, other in ((before, after), (after, before))
    )
    return f"{_cut(', '.join(removed)) or 'none'} → {_cut(', '.join(added)) or 'none'}"
