"""The whole plan of a change: an operator's own steps to the end, in a simulation of what runs now.

The objects of a resource and its database become a simulated cluster (`simulator.mirror`, and `seed.py` of each
database). The change is applied there, and the operator's controller runs in virtual time until it writes nothing more.
What it does is recorded: no step is predicted by other code than that which executes it. Nothing is written to the real
cluster.

A state that the simulation does not know ends the plan, which then reports that.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from shared.api.applied_spec import APPROVAL
from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors
from shared.kubernetes.kinds import (
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    EVENT,
    LEASE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    STATEFUL_SET,
    Kind,
    Obj,
)
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY
from shared.pki.ca import fulfil
from shared.pki.rotation import CertificateOrder, Made
from shared.runtime.controller import Controller
from shared.runtime.operator import Operator
from shared.runtime.options import Options
from shared.runtime.steady_clock import SteadyClock
from shared.status import conditions
from shared.status.reasons import HIBERNATED
from shared.status.reconciliation_pause import is_paused
from shared.status.verdict import Progress, Verdict
from shared.steps.confirmed_recovery import awaits_confirmation
from simulator.api_server.evictions import selects
from simulator.api_server.kinds import Served
from simulator.clock import Clock
from simulator.durations import DEFAULT, Durations, measured
from simulator.harness import Harness
from simulator.kubelet.kubelet import Processes, ProcessStatus
from simulator.kubelet.timing import PodTiming
from simulator.kubelet.workloads import Workloads
from simulator.mirror import SET_BY_SERVER, Find, Mirror, adapted
from simulator.recorder import Recorder, Step, View, pods_of_workload
from simulator.virtual_time import VirtualTimeLoop

SCHEMA = "platform.ydzs.io/plan/v1"

NOTHING, SAFE, RESTARTS, PERSON, REFUSED, UNKNOWN = "nothing", "safe", "restarts", "person", "refused", "unknown"
"""Outcomes of a plan."""

MAX_TURNS = 50_000
"""Turns of operator and workloads after which a plan ends as unknown."""

TURNS_AT_ONCE = 100
"""Turns after which it is checked whether the simulation has reached a new state."""

MAX_REPEATED_TURNS, MAX_REPEATED_SECONDS = 3000, 300.0
"""Turns, and seconds of real time, without a new state after which a plan ends as unknown."""

ADDRESSES = 250
"""Pods of one simulated subnet."""


class Unmodelled(Exception):
    """The simulation does not know this state, and what follows from it."""


@dataclass(frozen=True)
class Live:
    """The present state of a resource and its database.

    Attributes:
        resource: the resource; None if it is to be created.
        objects: objects, pods, claims and Secrets of the resource, and the objects that they refer to.
        now: present time.
        resizes: whether the API server can resize running pods (Kubernetes 1.33 and later).
        unreadable_classes: StorageClasses that the user may not read: whether their volumes can grow is not known.
    """

    resource: Obj | None
    objects: Sequence[tuple[Kind, Obj]]
    now: datetime
    resizes: bool = True
    unreadable_classes: frozenset[str] = frozenset()

    def of(self, kind: Kind) -> list[Obj]:
        return [obj for of, obj in self.objects if of == kind]


@dataclass(frozen=True)
class Subject:
    """A kind whose changes can be planned.

    Attributes:
        operator: registry entry of the operator.
        controller: builds the operator's controller over a simulated database.
        seed: builds the simulated database of what runs now; raises Unmodelled.
        view: returns members, slots and the redundancy, which a step may change.
        patience: longest time without any change after which the operator is at rest, in seconds, by the spec.
        serves: further kinds that the API server must serve.
        restores: whether a step only restores live settings that the status does not have.
        unknown_start: returns why it is not known with which data a resource starts; empty if it is.
        durations: defaults of what the objects of the cluster do not show, such as the end of a server.
    """

    operator: Operator
    controller: Callable[[Options, Any], Controller[Any, Any]]
    seed: Callable[[Live, Clock], Any]
    view: Callable[[Any, Mirror, str], View]
    patience: Callable[[Obj], float]
    serves: tuple[Kind | Served, ...] = ()
    restores: Callable[[Step], bool] = lambda _: False
    unknown_start: Callable[[Obj], str] = lambda _: ""
    durations: Durations = DEFAULT


@dataclass(frozen=True)
class Person:
    """A decision or a change that only a person can make.

    Attributes:
        token: value that confirms it; empty if another change is needed.
    """

    reason: str
    message: str
    token: str = ""


@dataclass(frozen=True)
class Plan:
    """A plan to its end. Fields may be added, and do not change their meaning (`schema`).

    Attributes:
        outcome: nothing, safe, restarts, person, refused or unknown.
        steps: executed steps, in order.
        ready: whether the resource is Ready at the end.
        reason, message: condition Ready at the end; of a refusal, the words of the API server.
        person: decision that waits for a person; None if none does.
        seconds: estimated duration of all steps.
        assumptions: assumptions of the simulation.
        approval: token of the approval that the change needs (`spec.changes`) before its steps; empty if it needs none.
        creates: whether the change creates the resource.
        warnings: reasons for which the plan may not be executed as it is.
    """

    kind: str
    namespace: str
    name: str
    outcome: str
    steps: tuple[Step, ...] = ()
    ready: bool = False
    reason: str = ""
    message: str = ""
    person: Person | None = None
    seconds: float = 0.0
    assumptions: tuple[str, ...] = ()
    approval: str = ""
    creates: bool = False
    warnings: tuple[str, ...] = ()
    schema: str = SCHEMA


ASSUMPTIONS = (
    "Every pod starts: images can be pulled, nodes have enough resources, volumes can be created.",
    "A pod that restarts returns to its Kubernetes node.",
    "The resource and its objects are not changed by others meanwhile, and no server fails.",
)


async def plan(
    subject: Subject,
    options: Options,
    live: Live,
    change: Obj | None,
    find: Find,
    others: Sequence[tuple[Kind, Obj]] = (),
) -> Plan:
    """Return the plan of a change, or of what the operator does now.

    Args:
        change: the resource as the API server would store it after the change; None without a change.
        find: reads further objects of the real API server.
        others: further objects that the change creates or replaces, as the API server would store them.

    Raises:
        KubeError: an object cannot be read.
    """
    here = asyncio.get_running_loop()
    done: asyncio.Future[Plan] = here.create_future()

    async def found(*key: Any) -> Obj | None:
        """Read from the real API server, while the time of the simulation does not pass."""
        return asyncio.run_coroutine_threadsafe(find(*key), here).result()  # type: ignore[arg-type]

    def simulate() -> None:
        result: Plan | BaseException
        try:
            with _without_logs(), asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
                result = runner.run(_simulated(subject, options, live, change, found, others))
        except BaseException as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the command has ended
            here.call_soon_threadsafe(_settle, done, result)

    threading.Thread(target=simulate, daemon=True).start()
    return await done


def _settle(done: asyncio.Future[Plan], result: Plan | BaseException) -> None:
    if done.cancelled():
        return
    if isinstance(result, BaseException):
        done.set_exception(result)
    else:
        done.set_result(result)


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Show no log records of this thread: what a simulated operator reports is about no real cluster."""
    here = threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != here

    handlers = [*logging.getLogger().handlers, *([logging.lastResort] if logging.lastResort else [])]
    for handler in handlers:
        handler.addFilter(is_of_another)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_of_another)


async def _simulated(
    subject: Subject,
    options: Options,
    live: Live,
    change: Obj | None,
    find: Find,
    others: Sequence[tuple[Kind, Obj]],
) -> Plan:
    try:
        if live.resource is not None and accessors.is_terminating(live.resource):
            raise Unmodelled("The resource is being deleted: its objects follow it.")
        if live.resource is not None and awaits_confirmation(live.resource):
            return _awaiting(live.resource, change)
        if unknown := subject.unknown_start(change or live.resource or {}):
            raise Unmodelled(unknown)
        _require_known_budgets(live)
        world = _World(subject, options, live, find)
        world.start(change or live.resource or {})
        if live.resource is not None and _is_at_rest(live.resource):
            await world.rest_first()
        if change is not None:
            world.apply(live, change, others)
        token = world.approve()
        await world.run()
        world.require_known_growth(live)
        return dataclasses.replace(world.plan(), approval=token, creates=live.resource is None)
    except Unmodelled as unknown:
        named = change or live.resource
        assert named is not None
        return ended(named, UNKNOWN, "Unmodelled", str(unknown))


def ended(named: Obj, outcome: str, reason: str, message: str) -> Plan:
    """Return a plan without steps: of a change that is refused, or a state that the simulation does not know."""
    metadata = named["metadata"]
    namespace, name = metadata.get("namespace", ""), metadata["name"]
    return Plan(named["kind"], namespace, name, outcome, reason=reason, message=message)


def _is_at_rest(resource: Obj) -> bool:
    return accessors.is_current(resource) and accessors.is_true(resource, conditions.READY)


def _awaiting(resource: Obj, change: Obj | None) -> Plan:
    """Return the plan of a resource that waits for the confirmation of a loss. Nothing is simulated: servers are lost.

    Raises:
        Unmodelled: the change confirms it.
    """
    if change is not None and not awaits_confirmation({**resource, "spec": change.get("spec") or {}}):
        raise Unmodelled("The change confirms the recovery of lost data, which is not simulated.")
    ready = accessors.condition(resource, conditions.READY)
    recovery = resource["status"]["recovery"]
    message = str(recovery.get("message") or ready.get("message") or "")
    person = Person(str(ready.get("reason") or ""), message, str(recovery["token"]))
    return dataclasses.replace(ended(resource, PERSON, person.reason, message), person=person)


def _require_known_budgets(live: Live) -> None:
    """Require that no budget of a user counts pods that the simulation does not have.

    Raises:
        Unmodelled: one does.
    """
    for budget in live.of(DISRUPTION_BUDGET):
        selected = sum(selects(budget, pod) for pod in live.of(POD))
        expected = (budget.get("status") or {}).get("expectedPods", selected)
        if selected and expected != selected and not accessors.label(budget, MANAGED_BY):
            raise Unmodelled(
                f"PodDisruptionBudget {budget['metadata']['name']} counts {expected} pods, of which {selected} belong "
                "to the resource: the simulation does not know the others."
            )


class _KnownVolumes:
    """Processes that start only on volumes whose content the simulation knows.

    Args:
        known: UIDs of the claims of which the seed knows the content.
        read: UIDs of all objects of the real cluster.
    """

    def __init__(self, processes: Processes, known: frozenset[str], read: set[str]) -> None:
        self._processes, self._known, self._read = processes, known, read
        self.reads_files: bool = getattr(processes, "reads_files", False)

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        for volume in pod["spec"].get("volumes", ()):
            claim = claims.get(volume["name"]) if "persistentVolumeClaim" in volume else None
            if claim is not None and (uid := claim["metadata"]["uid"]) in self._read and uid not in self._known:
                raise Unmodelled(
                    f"Pod {pod['metadata']['name']} starts on PersistentVolumeClaim {claim['metadata']['name']}, which "
                    "no pod uses now: what is on its volume is not known."
                )
        return self._processes.run(pod, claims)

    def end(self, uid: str) -> None:
        self._processes.end(uid)


class _Repetition:
    """Ends a simulation that reaches no new state any more.

    Args:
        state: returns the present state, without what grows by itself: times, versions and counters.
    """

    def __init__(self, state: Callable[[], Hashable]) -> None:
        self._state = state
        self._seen: set[Hashable] = set()
        self._turns = self._last = 0
        self._since = time.monotonic()

    def check(self) -> None:
        """Count a turn.

        Raises:
            Unmodelled: the states repeat.
        """
        self._turns += 1
        if self._turns % TURNS_AT_ONCE:
            return
        if (state := self._state()) not in self._seen:
            self._seen.add(state)
            self._last, self._since = self._turns, time.monotonic()
            return
        turns, seconds = self._turns - self._last, time.monotonic() - self._since
        if turns >= MAX_REPEATED_TURNS or seconds >= MAX_REPEATED_SECONDS:
            raise Unmodelled(f"The operator is not at rest, and reaches no new state in {turns} turns.")


class _World:
    """A simulated cluster that begins as the real one is."""

    def __init__(self, subject: Subject, options: Options, live: Live, find: Find) -> None:
        self.subject = subject
        self.clock = Clock(live.now)
        self.database = subject.seed(live, self.clock)
        controller = subject.controller(options, self.database)
        self.kind = controller.kind
        self.server = Mirror([controller.kind, *subject.serves], self.clock, find)
        self.server.set_resizes(POD, live.resizes)
        self.server.load(adapted(live.objects))
        processes = _KnownVolumes(self.database, _mounted(live), self.server.read)
        self.workloads = Workloads(self.server, processes=processes, created=_unused(live.of(POD)))
        if hosts := sorted({str(pod["spec"]["nodeName"]) for pod in live.of(POD) if pod["spec"].get("nodeName")}):
            self.workloads.use_hosts(hosts)
        self.database.objects = self.server.objects
        self.database.clock = self.clock
        self.durations = measured(live.of(POD), subject.durations)
        self.workloads.use_timing(PodTiming(self.server, self.clock, self.durations))
        self.controller = controller
        self.name = ""
        self.pods: dict[str, str] = {}
        self.recorder: Recorder | None = None

    def start(self, named: Obj) -> None:
        """Let the kubelets report what runs, start the operator, and begin to record.

        Raises:
            Unmodelled: Kubernetes starts or stops a pod without the operator.
        """
        self.namespace, self.name = named["metadata"]["namespace"], named["metadata"]["name"]
        before = self._phases()
        for _ in range(MAX_TURNS):
            if not self.workloads.step():  # what Kubernetes does without the operator, such as a status in other words
                break
        after = self._phases()
        stopped, started = before.items() - after.items(), after.items() - before.items()
        for pod, _ in sorted(stopped or started):
            name, effect = pod.partition(" ")[0], "stops" if stopped else "starts"
            raise Unmodelled(
                f"Kubernetes {effect} pod {name} without the operator: repeat the command when that is done. "
                "Otherwise, the simulation does not match this cluster."
            )
        self.pods = self._pods()
        view = partial(self.subject.view, self.database, self.server, self.name)
        self.recorder = Recorder(self.server, self.clock, view, self.durations)
        controller = self.recorder.attached(dataclasses.replace(self.controller, issue=_issued))
        patience = self.subject.patience(named)
        self.operator = Harness(
            controller,
            workloads=self.workloads,
            clock=SteadyClock(self.clock.wall, self.clock.monotonic),
            patience=patience,
            wait=self.clock.wait,
        )

    async def rest_first(self) -> None:
        """Require that the operator has nothing to do for a resource at rest, except to restore live settings.

        Raises:
            Unmodelled: the simulation has another step, so that it does not match the cluster.
        """
        await self.run()
        assert self.recorder is not None
        steps = [step for step in self.recorder.finished() if not step.minor]
        if moved := [step for step in steps if not self.subject.restores(step)]:
            first = ", ".join((moved[0].title, *moved[0].fields[:3]))
            raise Unmodelled(
                f"The resource is at rest, and its simulation has a step: {first}. It does not match this cluster."
            )
        self.recorder.forget()

    def approve(self) -> str:
        """Approve the change in the simulation if it needs that; return the token, empty if it needs none."""
        obj = self.operator.cache.get(self.kind, self.namespace, self.name)
        try:
            token = str(self.controller.resource(obj, self.operator.cache).awaits_approval) if obj else ""
        except InvalidSpec:  # which the operator reports
            return ""
        if token:
            approved = {"metadata": {"annotations": {APPROVAL: token}}}
            self.server.actor("kubectl").merge(self.kind, self.namespace, self.name, approved)
        return token

    async def run(self) -> None:
        """Let the operator work until it is at rest.

        Raises:
            Unmodelled: the operator never rests, or needs an object that cannot be read.
        """
        assert self.recorder is not None
        check = _Repetition(self._state).check
        settled = await self.operator.rests(MAX_TURNS, check)
        while settled and (seconds := self._unavailable()):  # until then, a workload replaces no further pod
            self.clock.wait(seconds)
            self.operator.resync()
            settled = await self.operator.rests(MAX_TURNS, check)
        if self.server.unreadable:
            raise Unmodelled(self.server.unreadable)
        if not settled:
            raise Unmodelled(f"The operator is not at rest after {MAX_TURNS} turns of the simulation.")

    def _state(self) -> Hashable:
        """Return the state of the simulation, without what grows by itself."""
        assert self.recorder is not None
        verdict = self.recorder.verdict
        view = self.subject.view(self.database, self.server, self.name)
        objects = [
            (kind.name, obj["metadata"]["name"], obj.get("spec"), obj["metadata"].get("labels"))
            for kind, obj in self.server.objects()
            if kind not in (EVENT, LEASE)
        ]
        phases = [(pod.partition(" ")[0], phase) for pod, phase in self._phases().items()]  # UIDs never repeat
        found = [verdict.reason, verdict.message, view.text, view.members, view.slots, phases, objects]
        text = json.dumps(found, sort_keys=True, default=dict)
        return hash(_TIME.sub("", text))

    def _phases(self) -> dict[str, str]:
        """Return the phases of the pods that are not terminating, by name and UID."""
        return {
            f"{pod['metadata']['name']} {pod['metadata']['uid']}": str(pod["status"].get("phase"))
            for _, pod in self.server.objects(POD)
            if not accessors.is_terminating(pod)
        }

    def require_known_growth(self, live: Live) -> None:
        """Require that no volume grows of which it is not known whether it can.

        Raises:
            Unmodelled: one does.
        """
        for claim in live.of(PERSISTENT_VOLUME_CLAIM):
            metadata, given = claim["metadata"], str(claim["spec"].get("storageClassName") or "")
            after = self.server.stored(PERSISTENT_VOLUME_CLAIM, metadata["namespace"], metadata["name"])
            if given in live.unreadable_classes and after and after["spec"]["resources"] != claim["spec"]["resources"]:
                raise Unmodelled(
                    f"PersistentVolumeClaim {metadata['name']} is to grow. Whether it can depends on StorageClass "
                    f"{given}, which you may not read."
                )

    def _unavailable(self) -> int:
        """Return the seconds until each ready pod has been ready for the minReadySeconds of its workload."""
        left = [0.0]
        for kind in (STATEFUL_SET, DEPLOYMENT):
            for _, owner in self.server.objects(kind):
                minimum = owner["spec"].get("minReadySeconds") or 0
                for pod in pods_of_workload(self.server, owner) if minimum else ():
                    ready = accessors.condition(pod, "Ready")
                    if ready.get("status") == "True":
                        since = datetime.fromisoformat(ready["lastTransitionTime"])
                        left.append(minimum - (self.clock() - since).total_seconds())
        return max(0, math.ceil(max(left)))

    def plan(self) -> Plan:
        """Return what was recorded."""
        assert self.recorder is not None
        [resource] = [
            obj
            for _, obj in self.server.objects(self.kind)
            if (obj["metadata"]["namespace"], obj["metadata"]["name"]) == (self.namespace, self.name)
        ]
        steps = self.recorder.finished()
        ready = accessors.condition(resource, conditions.READY)
        is_ready = ready.get("status") == "True" and accessors.is_current(resource)
        failed = any(self.operator.queue.failures(key) for key in self.operator.cache.keys(self.kind))
        hibernates = self.recorder.verdict.reason == HIBERNATED
        person = None if is_ready or failed or hibernates else _person(resource, self.recorder.verdict)
        after, message = self._pods(), str(ready.get("message") or "")
        if failed:
            is_ready, message = False, f"The operator fails in the simulation: {self.operator.failure or message}"
        ended, fewer = len(self.pods.keys() - after.keys()), len(self.pods) - len(after)
        interrupts = ended > max(0, fewer) or (hibernates and ended > 0)
        ends_well = is_ready or (hibernates and not failed)
        outcome = _outcome(steps, is_ready=ends_well, person=person, interrupts=interrupts)
        return Plan(
            self.kind.name,
            self.namespace,
            self.name,
            outcome,
            steps=steps,
            ready=is_ready,
            reason=str(ready.get("reason") or ""),
            message=message,
            person=person,
            seconds=round(sum(step.seconds for step in steps), 1),
            assumptions=(self.durations.source, *ASSUMPTIONS),
        )

    def _pods(self) -> dict[str, str]:
        """Return the names of the pods of the resource by their UIDs."""
        return {
            pod["metadata"]["uid"]: pod["metadata"]["name"]
            for _, pod in self.server.objects(POD)
            if pod["metadata"]["namespace"] == self.namespace and accessors.label(pod, INSTANCE) == self.name
        }

    def apply(self, live: Live, change: Obj, others: Sequence[tuple[Kind, Obj]]) -> None:
        """Store the resource, and other objects of the change, as the API server would after the change."""
        user = self.server.actor("kubectl")
        for kind, obj in others:
            self.server.put(kind, obj)
        if live.resource is None:
            metadata = {key: value for key, value in change["metadata"].items() if key not in SET_BY_SERVER}
            user.create(self.kind, {**change, "metadata": metadata})
            return
        current = user.get(self.kind, self.namespace, self.name)
        former, given = live.resource["metadata"], change["metadata"]
        metadata = dict(current["metadata"])
        for key in ("labels", "annotations"):  # the operator may have added some in the simulation
            removed = (former.get(key) or {}).keys() - (given.get(key) or {}).keys()
            kept = {name: value for name, value in (metadata.get(key) or {}).items() if name not in removed}
            metadata[key] = {**kept, **(given.get(key) or {})}
            if not metadata[key]:
                del metadata[key]
        if (former.get("finalizers") or []) != (given.get("finalizers") or []):
            metadata["finalizers"] = given.get("finalizers") or []
        user.update(self.kind, {**current, "metadata": metadata, "spec": change.get("spec") or {}})
        self.operator.resync()  # other objects may change what the operator does without an event


_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")


def _mounted(live: Live) -> frozenset[str]:
    """Return the UIDs of the claims that pods mount: the seed knows what is on their volumes."""
    names = {
        (volume.get("persistentVolumeClaim") or {}).get("claimName")
        for pod in live.of(POD)
        for volume in pod["spec"].get("volumes") or ()
    }
    claims = live.of(PERSISTENT_VOLUME_CLAIM)
    return frozenset(claim["metadata"]["uid"] for claim in claims if claim["metadata"]["name"] in names)


def _outcome(steps: Iterable[Step], *, is_ready: bool, person: Person | None, interrupts: bool) -> str:
    """Return the outcome.

    Args:
        interrupts: whether servers are replaced: more of them end than the resource has fewer at the end.
    """
    shown = [step for step in steps if not step.minor]
    if person is not None:
        return PERSON
    if not is_ready:
        return UNKNOWN
    if interrupts:
        return RESTARTS
    return SAFE if shown else NOTHING


def _person(resource: Obj, verdict: Verdict) -> Person | None:
    """Return what waits for a person at the end; None if nothing does, or if the simulated servers do not answer.

    The operator is at rest, and no server fails: a warning then does not end by itself.
    """
    ready = accessors.condition(resource, conditions.READY)
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    if awaits_confirmation(resource):
        recovery = resource["status"]["recovery"]
        return Person(reason, str(recovery.get("message") or message), str(recovery["token"]))
    waits = verdict.warning or verdict.progress in (Progress.BLOCKED, Progress.PAUSED) or is_paused(resource)
    if accessors.is_true(resource, conditions.STALLED) or (waits and not reason.endswith("Unreachable")):
        return Person(reason, message)
    return None


def _unused(pods: Iterable[Obj]) -> int:
    """Return a number of created pods from which on addresses are free."""
    taken = {(pod.get("status") or {}).get("podIP") for pod in pods}
    for subnet in range(200, 250):
        if not any(str(address).startswith(f"10.244.{subnet}.") for address in taken):
            return subnet * ADDRESSES
    raise Unmodelled("The addresses of the pods leave none for the simulation.")


async def _issued(order: CertificateOrder) -> Made:
    return fulfil(order)
