"""What an operator brings for each kind that it serves: the kind, and its rooms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NoReturn, TypeVar

from shared.kubernetes import managed_fields, ownership
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.pki.ca import make
from shared.pki.rotation import CertificateOrder, Made
from shared.runtime.cache import Cache
from shared.runtime.plan import Call, Plan
from shared.status.resource_metrics import Sample

Resource = TypeVar("Resource")
Observed = TypeVar("Observed")


async def _no_calls(call: Call) -> NoReturn:
    raise TypeError(f"this operator makes no calls on a database, yet its plan asks for {call}")


@dataclass(frozen=True, slots=True)
class Controller(Generic[Resource, Observed]):
    """What an operator brings for one of its kinds.

    Attributes:
        operator: the operator's name: field manager, component of events, value of the managed-by label.
        kind: the kind it serves.
        owns: kinds of the objects it makes or looks at (pods), watched by the operator's label. What it applies of
            other kinds (Secrets, which it may not list) is looked at live.
        parse: the resource as a model; raises InvalidSpec.
        observe: gathers everything a plan may ask about, from the cache; live where no watch brings it (Secrets).
        plan: pure; what to do next.
        call: executes a step on the database; raises DatabaseError.
        issue: makes certificates; raises OSError.
        application: app.kubernetes.io/name of its objects, by which they are told from those of the operator's other
            kinds (`ownership.key_of`); empty where there is no other.
        states: pure; what a resource is in, as metrics, beside what is common to all (`states.common`).
        certificate_ends: pure; when the certificates that were seen end.
    """

    operator: str
    kind: Kind
    owns: tuple[Kind, ...]
    parse: Callable[[Obj], Resource]
    observe: Callable[[Resource, Cache, Kube], Awaitable[Observed]]
    plan: Callable[[Resource, Observed, datetime], Plan]
    call: Callable[[Call], Awaitable[None]] = _no_calls
    issue: Callable[[CertificateOrder], Awaitable[Made]] = make
    application: str = ""
    states: Callable[[Obj], Iterable[Sample]] = lambda _: ()
    certificate_ends: Callable[[Observed], Iterable[datetime]] = lambda _: ()

    @property
    def name(self) -> str:
        """Its name in metrics: the kind's, as controller-runtime has it."""
        return self.kind.name.lower()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (self.kind, *self.owns)

    def labels_of(self, kind: Kind) -> str:
        """Label selector of what it watches of a kind: every resource, and of the rest what the operator made."""
        return "" if kind == self.kind else ownership.managed_selector(self.operator)

    def cache(self, changed: Callable[[Key], None]) -> Cache:
        """An empty cache of all it watches; `changed` hears of every resource about which something is new."""
        return Cache(self.kinds, key_of=self.key_of, changed=changed, trim=self._trim, name=self.name)

    def key_of(self, kind: Kind, obj: Obj) -> Key | None:
        """The resource an object belongs to; None if to none of this kind."""
        return ownership.key_of(self.kind, self.operator, kind, obj, application=self.application)

    def _trim(self, obj: Obj) -> Obj:
        return managed_fields.trim(obj, self.operator)
