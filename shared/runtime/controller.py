"""The interface of an operator to the runtime, for each kind that it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, NoReturn, TypeVar, cast

from shared.api.applied_spec import to_apply
from shared.api.catalogue import Weaknesses
from shared.api.policy import PlatformPolicy
from shared.kubernetes import managed_fields, ownership, pods
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import POD, SECRET, Key, Kind, Obj
from shared.pki.issuing import make
from shared.pki.rotation import CertificateOrder, Made
from shared.pki.validity import Validity
from shared.runtime.cache import Cache
from shared.runtime.plan import Call, Plan, Record
from shared.status.resource_metrics import ADVISORY, Sample

Resource = TypeVar("Resource")
Observed = TypeVar("Observed")


async def _no_calls(call: Call, _: Record) -> NoReturn:
    raise TypeError(f"this operator does not implement database calls, but its plan contains {call}")


@dataclass(frozen=True, slots=True)
class Controller(Generic[Resource, Observed]):
    """The implementation of one kind by an operator.

    Attributes:
        operator: name of the operator: field manager, component of events, value of the managed-by label.
        kind: kind that the controller serves.
        owns: kinds of the objects it creates or reads (pods), watched by the label of the operator. Objects of other
            kinds that it applies (Secrets, which it cannot list) are read live.
        makes_secrets: whether the operator makes Secrets for the resources; their status records which
            (`shared.kubernetes.secret_provenance`).
        reads: kinds of the objects that a spec names and that `observe` reads by name, such as Secrets. A change of one
            that was read starts a reconcile (`shared.runtime.dependencies`).
        parse: parses a resource; raises InvalidSpec.
        workloads: kinds of the object with the name of a resource that notes its applied spec (`applied_spec`).
        minimal: a valid spec with only the required fields, for a kind with workloads.
        policy: policy of the platform's administrator.
        observe: reads everything that a plan needs, from the cache, or live if there is no watch (Secrets).
        plan: computes the next actions; pure.
        call: executes a database call, which may record its progress in the status; raises DatabaseError, and KubeError
            if it cannot record.
        issue: issues certificates; raises OSError.
        application: value of app.kubernetes.io/name, which distinguishes the objects of the operator's kinds
            (`ownership.key_of`); empty if the operator has one kind.
        states: returns the metrics of a resource in addition to the common ones (`resource_metrics.common`); pure.
        weaknesses: returns the advisories that apply to what a resource runs, from its spec and status; pure.
        validity: returns the periods of the observed certificates, by the name of the Secret to renew; pure.
        probe: queries a running database cheaply, every few seconds, and returns whether to reconcile the resource now;
            None if watches and the regular reconciles report every change in time.
    """

    operator: str
    kind: Kind
    owns: tuple[Kind, ...]
    parse: Callable[[Obj], Resource]
    observe: Callable[[Resource, Cache, Kube], Awaitable[Observed]]
    plan: Callable[[Resource, Observed, datetime], Plan]
    call: Callable[[Call, Record], Awaitable[None]] = _no_calls
    issue: Callable[[CertificateOrder], Awaitable[Made]] = make
    application: str = ""
    states: Callable[[Obj], Iterable[Sample]] = lambda _: ()
    weaknesses: Callable[[Obj], Weaknesses] = lambda _: Weaknesses()
    validity: Callable[[Observed], Mapping[str, Validity]] = lambda _: {}
    probe: Callable[[Obj, Cache], Awaitable[bool]] | None = None
    reads: tuple[Kind, ...] = (SECRET,)
    makes_secrets: bool = False
    workloads: tuple[Kind, ...] = ()
    minimal: Obj = field(default_factory=dict)
    policy: PlatformPolicy = field(default_factory=PlatformPolicy)

    @property
    def name(self) -> str:
        """Name in metrics: the kind in lower case, as in controller-runtime."""
        return self.kind.name.lower()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (self.kind, *self.owns)

    def resource(self, obj: Obj, cache: Cache) -> Resource:
        """Return a resource with the spec to apply.

        Raises:
            InvalidSpec: the spec cannot be parsed, or is not approved, and no other one is known.
        """
        if not self.workloads:
            return self.parse(obj)
        parse: Any = self.parse  # kinds with workloads have a CustomResource
        metadata = obj["metadata"]
        workloads = [cache.get(kind, metadata["namespace"], metadata["name"]) for kind in self.workloads]
        return cast("Resource", to_apply(parse, obj, workloads, self.minimal, self.policy))

    def samples(self, obj: Obj) -> Iterator[Sample]:
        """Yield the metrics of a resource in addition to the common ones."""
        yield from self.states(obj)
        yield from (ADVISORY(1, each) for each in self.weaknesses(obj).ids)

    def labels_of(self, kind: Kind) -> str:
        """Return the label selector of the watch of a kind: every resource, or the objects of the operator."""
        return "" if kind == self.kind else ownership.managed_selector(self.operator)

    def cache(self, changed: Callable[[Key], None]) -> Cache:
        """Return an empty cache of the watched kinds; `changed` is called for resources with new observations."""
        return Cache(self.kinds, key_of=self.key_of, changed=changed, trim=self._trim, name=self.name)

    def key_of(self, kind: Kind, obj: Obj) -> Key | None:
        """Return the resource to which an object belongs; None if it is none of this kind."""
        return ownership.key_of(self.kind, self.operator, kind, obj, application=self.application)

    def _trim(self, kind: Kind, obj: Obj) -> Obj:
        return managed_fields.trim(pods.trim(obj) if kind == POD else obj, self.operator)
