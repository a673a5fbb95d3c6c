"""The resource with its last applied spec, read from the cache, while its present spec cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from shared.api.applied_spec import last_applied
from shared.api.spec import CustomResource, InvalidSpec
from shared.kubernetes.kinds import Kind, Obj
from shared.runtime.cache import Cache

Resource = TypeVar("Resource", bound=CustomResource[Any])


def from_workload(
    parse: Callable[[Obj], Resource], minimal: Obj, *kinds: Kind
) -> Callable[[Obj, Cache, InvalidSpec], Resource | None]:
    """Return `Controller.fallback` for a kind whose workload has the name of the resource.

    Args:
        minimal: a valid spec with only the required fields.
        kinds: kinds of the workload.
    """

    def fallback(obj: Obj, cache: Cache, invalid: InvalidSpec) -> Resource | None:
        metadata = obj["metadata"]
        workloads = (cache.get(kind, metadata["namespace"], metadata["name"]) for kind in kinds)
        return last_applied(parse, obj, workloads, invalid, minimal)

    return fallback
