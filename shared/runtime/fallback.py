"""The resource with its last applied spec, read from the cache, while its present spec must not be applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from shared.api.applied_spec import NOT_APPLIED, last_applied, unapproved
from shared.api.policy import PlatformPolicy
from shared.api.spec import CustomResource, InvalidSpec
from shared.kubernetes.kinds import Kind, Obj
from shared.runtime.cache import Cache

Resource = TypeVar("Resource", bound=CustomResource[Any])


@dataclass(frozen=True, slots=True)
class Fallback(Generic[Resource]):
    """`Controller.fallback` of a kind whose workload has the name of the resource.

    Attributes:
        parse: parses a resource; raises InvalidSpec.
        minimal: a valid spec with only the required fields.
        kinds: kinds of the workload.
        policy: policy of the platform's administrator.
    """

    parse: Callable[[Obj], Resource]
    minimal: Obj
    kinds: tuple[Kind, ...]
    policy: PlatformPolicy

    def __call__(self, obj: Obj, cache: Cache) -> Resource:
        """Return the resource, with its last applied spec while the present one is invalid, or not approved.

        Raises:
            InvalidSpec: the spec cannot be parsed, and no other one is known.
        """
        metadata = obj["metadata"]
        workloads = [cache.get(kind, metadata["namespace"], metadata["name"]) for kind in self.kinds]
        try:
            resource = self.parse(obj)
        except InvalidSpec as invalid:
            if (found := last_applied(self.parse, obj, workloads, invalid, self.minimal)) is None:
                raise
            return found
        if resource.spec.changes != "Approved" and not self.policy.requires_approval(resource.namespace):
            return resource
        if not (token := unapproved(resource, workloads)):
            return resource
        at_once = {field: value for field, value in obj["spec"].items() if field in NOT_APPLIED}
        found = last_applied(self.parse, obj, workloads, InvalidSpec(""), self.minimal | at_once)
        return replace(found or resource, awaits_approval=token)
