"""The value that the steps of a reconcile read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Self, TypeVar

from shared.api.spec import CustomResource
from shared.runtime import settings

Resource = TypeVar("Resource", bound=CustomResource[Any])
Settings = TypeVar("Settings", bound=settings.Settings)
Fact = TypeVar("Fact")


@dataclass(frozen=True, kw_only=True)
class View(Generic[Resource, Settings]):
    """All that a step of a reconcile reads, as one frozen value.

    An operator adds what it observed, and the facts that follow. What runs while the spec cannot be applied is a second
    value of the same type.

    Attributes:
        resource: the resource with its spec and status.
        settings: options of the operator.
        now: time of the reconcile.
        hibernation: record of the hibernation; empty if there is none (`shared.steps.hibernation`).
    """

    resource: Resource
    settings: Settings
    now: datetime
    hibernation: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, resource: Resource, observed: Any, settings: Settings, now: datetime) -> Self:
        """Return the view of an observed state, whose fields are also fields of the view."""
        own = {each.name for each in fields(View)}
        found = {each.name: getattr(observed, each.name) for each in fields(observed) if each.name not in own}
        return cls(resource=resource, settings=settings, now=now, **found)


Seen = TypeVar("Seen", bound=View[Any, Any])


def once(fact: Callable[[Seen], Fact]) -> Callable[[Seen], Fact]:
    """Compute a fact once for each view, as `cached_property` does for facts that are attributes of the view."""
    found = cached_property(fact)
    found.__set_name__(View, f"{fact.__module__}.{fact.__qualname__}")
    return found.__get__
