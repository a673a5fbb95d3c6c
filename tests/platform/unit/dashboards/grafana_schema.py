"""Check a dashboard's JSON against Grafana's schema, as published in the types of grafana-foundation-sdk.

The SDK is generated from Grafana's CUE schemas. Its `from_json` accepts any value for a field, so the types of the
parsed objects are compared with their annotations here. The JSON schemas in the repository of the SDK are not used:
they refuse what Grafana itself writes, such as the null of a base threshold, and they are not packaged.
"""

from __future__ import annotations

import enum
import json
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime, UnknownDataquery
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

OF_PROMETHEUS = ("titleFormat", "step", "useValueForTime")
"""Fields of an annotation that its data source defines, and the schema of dashboards does not."""


ADDED = "custom"
"""Optional field that the SDK adds to the defaults of each table."""


def breaches(found: dict[str, Any]) -> list[str]:
    """Return each field of a dashboard that Grafana's schema does not know, lacks, or defines with another type."""
    register_default_plugins()
    whole = json.loads(json.dumps(found))
    for mark in whole.get("annotations", {}).get("list", ()):
        for name in OF_PROMETHEUS:
            mark.pop(name, None)
    try:
        parsed = Dashboard.from_json(whole)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return [f"the structure is not that of a dashboard: {error!r}"]
    encoded = json.loads(json.dumps(parsed, cls=JSONEncoder))
    return [*_differences(whole, encoded, ""), *_misfits(parsed, "")]


def _differences(given: Any, encoded: Any, path: str) -> Iterator[str]:
    """Describe fields that parsing dropped, as the schema has none of that name, and required ones that it added."""
    if isinstance(given, dict) and isinstance(encoded, dict):
        yield from (f"{path}.{name}: unknown field" for name in given.keys() - encoded.keys())
        yield from (f"{path}.{name}: missing" for name in encoded.keys() - given.keys() - {ADDED})
        for name in given.keys() & encoded.keys():
            yield from _differences(given[name], encoded[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(encoded, list):
        for index, (one, other) in enumerate(zip(given, encoded, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif given != encoded:
        yield f"{path}: {given!r} was read as {encoded!r}"


def _misfits(obj: Any, path: str) -> Iterator[str]:
    """Describe the attributes of an object of the SDK whose values do not fit their annotations."""
    if isinstance(obj, UnknownDataquery):
        yield f"{path}: query of an unknown data source"
        return
    if isinstance(obj, Panel) and Runtime().panelcfg_config(obj.type_val) is None:
        yield f"{path}.type: unknown panel type {obj.type_val}"
    model: Any = type(obj)
    for name, hint in _hints(model).items():
        if hasattr(obj, name):
            yield from _wrong(getattr(obj, name), hint, f"{path}.{name.removesuffix('_val')}")


@cache
def _hints(of: type) -> dict[str, Any]:
    return get_type_hints(of)


def _wrong(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Describe what of a value does not fit an annotation."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        tried = [list(_wrong(value, each, path)) for each in arguments if each is not type(None) or value is None]
        yield from min(tried, key=len, default=[f"{path}: {value!r} fits none of {hint}"])
    elif origin is Literal:
        if value not in arguments:
            yield f"{path}: {value!r} is none of {arguments}"
    elif origin is list and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _wrong(each, arguments[0], f"{path}[{index}]")
    elif origin is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _wrong(each, arguments[1], f"{path}.{key}")
    else:
        yield from _wrong_one(value, origin or (object if hint is Any else hint), path)


def _wrong_one(value: Any, hint: type, path: str) -> Iterator[str]:
    """Describe what of a value does not fit a class."""
    if issubclass(hint, enum.Enum):
        if value not in [each.value for each in hint] and not isinstance(value, hint):
            yield f"{path}: {value!r} is no {hint.__name__}"
    elif isinstance(value, dict) and hasattr(hint, "from_json"):  # the SDK does not parse these
        parsed = hint.from_json(value)
        yield from _differences(value, json.loads(json.dumps(parsed, cls=JSONEncoder)), path)
        yield from _misfits(parsed, path)
    elif not _is_a(value, hint):
        yield f"{path}: {value!r} is no {hint.__name__}"
    elif hasattr(value, "to_json"):
        yield from _misfits(value, path)


def _is_a(value: Any, hint: type) -> bool:
    """Whether a value has a type; in JSON, a number may lack decimals, and a boolean is no number."""
    if isinstance(value, bool):
        return hint in (bool, object)
    return isinstance(value, int | float if hint is float else hint)
