"""A small database operator for the tests of the harness: a correct variant and many faulty ones.

A Ring owns a Service, a number of members that only database calls add and remove, one at a time, and a ConfigMap with
notes (spec.text) if spec.notes is true.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NamedTuple

from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import CONFIG_MAP, SERVICE, Key, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.plan import PASS, Apply, Call, Delete, Plan, Record, Step, follow, unrecorded
from shared.status.reasons import Reason
from simulator.api_server.requests import TargetedRequest
from simulator.harness import NAMESPACE
from simulator.kubelet.kubelet import ProcessStatus
from tests.harness.scenario import Subject, Unsafe

RING = Kind("example.com", "v1", "Ring", "rings")
OPERATOR = "ring-operator"


@dataclass
class Members:
    """The database: assigns an ID to each member and accepts every call."""

    joined: list[str] = field(default_factory=list)
    ids: int = 0

    def state(self) -> Any:
        return {"members": len(self.joined)}

    def counts(self) -> Counter[str]:
        return Counter({"joins": self.ids, "leaves": self.ids - len(self.joined)})

    async def execute(self, call: Call) -> None:
        if isinstance(call, Join):
            self.ids += 1
            self.joined.append(f"m{self.ids}")
        elif isinstance(call, Leave):
            self.joined.remove(call.member)


@dataclass(frozen=True)
class Join(Call):
    def __str__(self) -> str:
        return "add a member"


@dataclass(frozen=True)
class Leave(Call):
    member: str

    def __str__(self) -> str:
        return f"remove member {self.member}"


@dataclass(frozen=True)
class Ring:
    obj: Obj

    @property
    def name(self) -> str:
        return str(self.obj["metadata"]["name"])

    @property
    def size(self) -> int:
        return int(self.obj["spec"].get("members", 0))

    @property
    def notes(self) -> bool:
        return bool(self.obj["spec"].get("notes"))

    @property
    def status(self) -> Obj:
        return self.obj.get("status") or {}

    @property
    def owner(self) -> Owner:
        metadata = self.obj["metadata"]
        return Owner(RING, metadata["namespace"], self.name, metadata["uid"], "ring", OPERATOR)

    def service(self) -> Obj:
        spec = {"clusterIP": "None", "ports": [{"name": "ring", "port": 1234, "protocol": "TCP"}]}
        return self.owner.object(SERVICE, self.name, component="ring", spec=spec)

    def config_map(self, name: str) -> Obj:
        return self.owner.object(CONFIG_MAP, name, component="notes", data={"notes": str(self.obj["spec"].get("text"))})


@dataclass(frozen=True)
class Observed:
    members: tuple[str, ...]
    service: Obj | None
    notes: tuple[Obj, ...]


class View(NamedTuple):
    ring: Ring
    seen: Observed
    now: datetime


@dataclass
class RingOperator:
    """The correct operator. Each faulty variant overrides one method. In-memory state ends with the process."""

    database: Members

    @property
    def controller(self) -> Controller[Ring, Observed]:
        return Controller(
            OPERATOR, RING, (SERVICE, CONFIG_MAP), parse=Ring, observe=self.observe, plan=self.plan, call=self.call
        )

    async def call(self, call: Call, _: Record = unrecorded) -> None:
        await self.database.execute(call)

    async def observe(self, ring: Ring, cache: Cache, kube: Kube) -> Observed:
        key = Key(ring.obj["metadata"]["namespace"], ring.name)
        return Observed(tuple(self.database.joined), cache.get(SERVICE, *key), tuple(cache.owned(CONFIG_MAP, key)))

    def plan(self, ring: Ring, seen: Observed, now: datetime) -> Plan:
        steps = (self.keep_service, self.keep_notes, self.keep_members)
        actions, verdict, requeue, _ = follow(steps, View(ring, seen, now))
        return Plan((actions,), verdict, self.status(ring, seen), requeue)

    def status(self, ring: Ring, seen: Observed) -> Obj:
        return {"members": len(seen.members)}

    def keep_service(self, view: View) -> Step:
        return Step.do(Apply(SERVICE, view.ring.service()))

    def keep_notes(self, view: View) -> Step:
        if view.ring.notes:
            return Step.do(Apply(CONFIG_MAP, view.ring.config_map(view.ring.name)))
        return Step.do(*(Delete(CONFIG_MAP, found) for found in view.seen.notes))

    def keep_members(self, view: View) -> Step:
        if len(view.seen.members) < view.ring.size:
            return Step.wait(Reason("Growing"), "adding a member", Join())
        if len(view.seen.members) > view.ring.size:
            return Step.wait(Reason("Shrinking"), "removing a member", Leave(view.seen.members[-1]))
        return PASS


@dataclass
class KeepsStateInMemory(RingOperator):
    """Creates the notes only if the same process created the Service."""

    started: bool = False

    def keep_notes(self, view: View) -> Step:
        self.started |= view.seen.service is None or bool(view.seen.notes)
        return super().keep_notes(view) if self.started else PASS


class GeneratesNames(RingOperator):
    """Creates notes under a random name if it observes none."""

    def keep_notes(self, view: View) -> Step:
        if not view.ring.notes or view.seen.notes:
            return PASS
        return Step.do(Apply(CONFIG_MAP, view.ring.config_map(f"{view.ring.name}-{uuid.uuid4().hex[:6]}")))


class DeletesByName(RingOperator):
    """Replaces spoiled notes: finds them in its cache, and deletes the object that now has their name."""

    async def observe(self, ring: Ring, cache: Cache, kube: Kube) -> Observed:
        seen = await super().observe(ring, cache, kube)
        want = ring.config_map(ring.name)["data"]
        spoiled = [found["metadata"]["name"] for found in seen.notes if found["data"] != want]
        return replace(seen, notes=tuple([await kube.get(CONFIG_MAP, NAMESPACE, name) for name in spoiled]))

    def keep_notes(self, view: View) -> Step:
        if view.seen.notes:
            return Step.wait(
                Reason("Remaking"), "replacing spoiled notes", *(Delete(CONFIG_MAP, found) for found in view.seen.notes)
            )
        return super().keep_notes(view)


class PatchesByName(RingOperator):
    """Finds wrong notes in its cache, and patches the object that now has their name."""

    async def observe(self, ring: Ring, cache: Cache, kube: Kube) -> Observed:
        seen = await super().observe(ring, cache, kube)
        want = ring.config_map(ring.name)["data"]
        for found in seen.notes:
            if found["data"] != want:
                await kube.merge(CONFIG_MAP, NAMESPACE, ring.name, {"data": want})
        return seen


class RecordsTooLate(RingOperator):
    """Adds the first member if there are no notes, and creates the notes only afterwards."""

    def keep_notes(self, view: View) -> Step:
        return PASS

    def keep_members(self, view: View) -> Step:
        return PASS if view.seen.notes else Step.do(Join(), Apply(CONFIG_MAP, view.ring.config_map(view.ring.name)))


class ActsWhileObserving(RingOperator):
    """Adds and removes members while observing, without a plan, so that nothing verifies that the spec is current."""

    async def observe(self, ring: Ring, cache: Cache, kube: Kube) -> Observed:
        while len(self.database.joined) != ring.size:
            joined = self.database.joined
            await self.call(Join() if len(joined) < ring.size else Leave(joined[-1]))
        return await super().observe(ring, cache, kube)


class CountsToggles(RingOperator):
    """Reports how often spec.notes changed, as far as it observed the changes."""

    def status(self, ring: Ring, seen: Observed) -> Obj:
        toggled = bool(ring.status.get("notes")) != ring.notes
        return super().status(ring, seen) | {"notes": ring.notes, "toggles": ring.status.get("toggles", 0) + toggled}


@dataclass
class DeletesAtStart(RingOperator):
    """Deletes existing notes when it starts, and creates them again."""

    started: bool = False

    def keep_notes(self, view: View) -> Step:
        started, self.started = self.started, True
        return super().keep_notes(view) if started else Step.do(*(Delete(CONFIG_MAP, it) for it in view.seen.notes))


@dataclass
class ReportsProcess(RingOperator):
    """Reports the process that reconciled."""

    process: str = field(default_factory=lambda: uuid.uuid4().hex)

    def status(self, ring: Ring, seen: Observed) -> Obj:
        return super().status(ring, seen) | {"process": self.process}


@dataclass
class Alternates(RingOperator):
    """Reports two reasons in turn before it adds members."""

    reconciles: int = 0

    def keep_members(self, view: View) -> Step:
        self.reconciles += 1
        if len(view.seen.members) < view.ring.size and self.reconciles < 6:
            return Step.wait(Reason("Odd" if self.reconciles % 2 else "Even"), "checking", requeue=1.0)
        return super().keep_members(view)


@dataclass
class CountsReconciles(RingOperator):
    """Records the number of its reconciles."""

    reconciles: int = 0

    def keep_notes(self, view: View) -> Step:
        self.reconciles += 1
        ring = view.ring
        return Step.do(Apply(CONFIG_MAP, ring.config_map(ring.name) | {"data": {"reconciles": str(self.reconciles)}}))


@dataclass
class FailsOnForeignStatus(RingOperator):
    """Fails once on a resource that another process reconciled first."""

    started: set[str] = field(default_factory=set)

    def keep_service(self, view: View) -> Step:
        known = view.ring.name in self.started
        self.started.add(view.ring.name)
        if view.ring.status and not known:
            raise KeyError(view.ring.name)
        return super().keep_service(view)


@dataclass
class Guarded(Members):
    """Members without processes, none of which may be removed, and whose Service must not change."""

    violations: list[str] = field(default_factory=list)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        return ProcessStatus()

    def end(self, uid: str) -> None:
        pass

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        if target.kind == SERVICE and live is not None:
            self.violations.append(f"the operator wrote to {live['metadata']['name']}")
            raise Unsafe(self.violations[-1])


@dataclass
class WaitsBeforeJoining(RingOperator):
    """Adds a member only after the Ring has not changed for a number of seconds."""

    seconds: float = 6.0
    since: datetime | None = None

    def keep_members(self, view: View) -> Step:
        self.since = self.since or view.now
        left = self.seconds - (view.now - self.since).total_seconds()
        if len(view.seen.members) < view.ring.size and left > 0:
            return Step.wait(Reason("Waiting"), "waiting before adding a member", requeue=left)
        return super().keep_members(view)


def subject(operator: type[RingOperator]) -> Subject:
    return Subject("ring", lambda database: operator(database).controller, database=Members)
