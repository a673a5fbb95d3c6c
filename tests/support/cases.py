"""Specs that a CRD takes or refuses, and how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Case:
    """A spec, and what is said of it.

    Attributes:
        name: what it shows.
        spec: what it gives; `...` takes a field of `base` away.
        says: words that the API server's refusal holds.
        advises: words that the operator's own refusal holds; empty where only the API server refuses.
        resource: the resource's name.
        base: what stands in the spec unless `spec` says otherwise.
    """

    name: str
    spec: dict[str, Any] = field(default_factory=dict)
    says: str = ""
    advises: str = ""
    resource: str = "cache"
    base: dict[str, Any] = field(default_factory=lambda: {"size": 1})

    def __str__(self) -> str:
        return self.name

    @property
    def whole_spec(self) -> dict[str, Any]:
        return {key: value for key, value in (self.base | self.spec).items() if value is not ...}


@dataclass(frozen=True)
class Change:
    """A spec that follows another, and what is said of that.

    Attributes:
        name: what it shows.
        old: the case that was accepted before.
        new: the case that is to follow.
        says: words that the API server's refusal holds; empty where it is taken.
        advises: words that the operator's own refusal holds.
        status: what stands in the status meanwhile.
    """

    name: str
    old: Case
    new: Case
    says: str = ""
    advises: str = ""
    status: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def over(base: dict[str, Any], cases: Iterable[Case]) -> tuple[Case, ...]:
    """The same cases, for a kind whose spec needs something else to stand."""
    return tuple(replace(case, base=base) for case in cases)


def at_least(path: str, value: int, least: int, **beside: Any) -> Case:
    """A number at a path that is too small; `beside` is what must be given with it."""
    words = f"spec.{path} in body should be greater than or equal to {least}"
    return Case(f"{path} of {value}", _at(path, value, beside), words, f"too small; use at least {least}")


def at_most(path: str, value: int, most: int, **beside: Any) -> Case:
    words = f"spec.{path} in body should be less than or equal to {most}"
    return Case(f"{path} of {value}", _at(path, value, beside), words, f"too large; use at most {most}")


def _at(path: str, value: int, beside: dict[str, Any]) -> dict[str, Any]:
    outer, _, inner = path.partition(".")
    return {outer: {**beside, inner: value}} if inner else {outer: value}
