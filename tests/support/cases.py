"""Specs that a CRD accepts or rejects, with the expected messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Case:
    """A spec with the expected messages.

    Attributes:
        name: description of the case, and its test ID.
        spec: fields of the spec; `...` removes a field of `base`.
        api_error: part of the API server's error message; empty if it accepts the spec.
        operator_error: part of the operator's own error message; empty if only the API server rejects the spec.
        resource: name of the resource.
        base: fields of the spec that `spec` may override.
    """

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    api_error: str = ""
    operator_error: str = ""
    resource: str = "cache"
    base: dict[str, Any] = field(default_factory=lambda: {"size": 1})

    def __str__(self) -> str:
        return self.name

    @property
    def whole_spec(self) -> dict[str, Any]:
        return {key: value for key, value in (self.base | self.spec).items() if value is not ...}


@dataclass(frozen=True)
class Change:
    """A change from one spec to another, with the expected messages.

    Attributes:
        name: description of the case, and its test ID.
        old: case that was accepted before.
        new: case that replaces it.
        api_error: part of the API server's error message; empty if it accepts the change.
        operator_error: part of the operator's own error message.
        status: status of the resource when the change arrives.
    """

    name: str
    old: Case
    new: Case
    api_error: str = ""
    operator_error: str = ""
    status: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def over(base: dict[str, Any], cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return the same cases for a kind whose spec requires other fields."""
    return tuple(replace(case, base=base) for case in cases)


def at_least(path: str, value: int, least: int, **siblings: Any) -> Case:
    """Return a case with a number below its minimum; `siblings` are fields that the spec requires with it."""
    words = f"spec.{path} in body should be greater than or equal to {least}"
    return Case(f"{path} of {value}", _at(path, value, siblings), words, f"too small; use at least {least}")


def at_most(path: str, value: int, most: int, **siblings: Any) -> Case:
    words = f"spec.{path} in body should be less than or equal to {most}"
    return Case(f"{path} of {value}", _at(path, value, siblings), words, f"too large; use at most {most}")


def _at(path: str, value: int, siblings: dict[str, Any]) -> dict[str, Any]:
    outer, _, inner = path.partition(".")
    return {outer: {**siblings, inner: value}} if inner else {outer: value}


ADOPTION_REFUSED = (
    Case("an adoption without a UID", {"adopt": {}}, "fromUID: Required value", "fromUID: is required"),
    Case("a UID that is too long", {"adopt": {"fromUID": "a" * 64}}, "more than 63", "at most 63"),
    Case("a UID that is no label", {"adopt": {"fromUID": "a/b"}}, "should match", "does not match"),
)
"""Refused values of spec.adopt, which several kinds have."""
