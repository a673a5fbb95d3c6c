"""From a key to the world as its resource wants it: observe → plan → execute → status.

The only place that acts. Everything is level-triggered: a reconcile may start from any state, at any time, twice. It
runs until the plan asks for nothing more, or for something that must be waited for, and then writes the status, once,
if it changed. A healthy resource costs no request at all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, NoReturn, TypeVar

from shared import fields, kube, metrics, ownership, status, tracing
from shared.cache import Cache
from shared.events import Event, Recorder
from shared.kube import Kind, Kube, Obj
from shared.plan import Action, Apply, Call, Delete, Plan, Progress, Verdict
from shared.queue import Key, Queue
from shared.spec import InvalidSpec

log = logging.getLogger(__name__)

ROUNDS = 5
"""Observe-plan-execute rounds in one reconcile before others get their turn."""

SHOW_AFTER = 3
"""Failures in a row before the status tells of them: what the first retry mends is no news."""

RECHECK = 60.0
"""Seconds until a resource that a person must mend is looked at again (what is in its way may not be watched)."""

Resource = TypeVar("Resource")
Observed = TypeVar("Observed")


async def _no_calls(call: Call) -> NoReturn:
    raise TypeError(f"this operator makes no calls on a database, yet its plan asks for {call}")


@dataclass(frozen=True, slots=True)
class Controller(Generic[Resource, Observed]):
    """What an operator brings: its kind and its rooms.

    Attributes:
        name: the operator's name: field manager, component of events, label of metrics.
        kind: the kind it serves.
        owns: kinds of the objects it makes or looks at (pods), watched by the operator's label.
        parse: the resource as a model; raises InvalidSpec.
        observe: gathers everything a plan may ask about, from the cache; live where no watch brings it (Secrets).
        plan: pure; what to do next.
        call: executes a step on the database.
    """

    name: str
    kind: Kind
    owns: tuple[Kind, ...]
    parse: Callable[[Obj], Resource]
    observe: Callable[[Resource, Cache, Kube], Awaitable[Observed]]
    plan: Callable[[Resource, Observed, datetime], Plan]
    call: Callable[[Call], Awaitable[None]] = _no_calls

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return (self.kind, *self.owns)

    def labels_of(self, kind: Kind) -> str:
        """Label selector of what it watches of a kind: every resource, and of the rest what it made."""
        return "" if kind == self.kind else ownership.managed_selector(self.name)

    def cache(self, changed: Callable[[Key], None]) -> Cache:
        """An empty cache of all it watches; `changed` hears of every resource about which something is new."""
        return Cache(self.kinds, key_of=self._key_of, changed=changed, trim=self._trim)

    def _key_of(self, kind: Kind, obj: Obj) -> Key | None:
        return ownership.key_of(self.kind, self.name, kind, obj)

    def _trim(self, obj: Obj) -> Obj:
        return fields.trim(obj, self.name)


class Reconciler(Generic[Resource, Observed]):
    """Workers that make resources real.

    Args:
        clock: the wall clock that plans and transitions see.
    """

    def __init__(
        self,
        controller: Controller[Resource, Observed],
        *,
        kube: Kube,
        cache: Cache,
        queue: Queue,
        recorder: Recorder,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._controller = controller
        self._kube = kube
        self._cache = cache
        self._queue = queue
        self._recorder = recorder
        self._clock = clock

    async def work(self) -> None:
        """Be one worker, for ever."""
        name = self._controller.name
        busy = metrics.ACTIVE_WORKERS.labels(controller=name)
        while True:
            key = await self._queue.get()
            busy.inc()
            started = time.perf_counter()
            try:
                with tracing.span("reconcile", namespace=key.namespace, resource=key.name):
                    result = await self.reconcile(key)
                    tracing.note(result=result)
                metrics.RECONCILES.labels(controller=name, result=result).inc()
            finally:
                metrics.RECONCILE_TIME.labels(controller=name).observe(time.perf_counter() - started)
                busy.dec()
                self._queue.done(key)

    async def reconcile(self, key: Key) -> str:
        """Make one resource as its spec says, as far as can be done now.

        Returns:
            The result as controller-runtime counts it: success, requeue_after, error or terminal_error.
        """
        obj = self._cache.get(self._controller.kind, key.namespace, key.name)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            self._queue.forget_failures(key)  # what it owned goes by owner references
            return "success"
        try:
            plan = await self._converge(key, obj)
        except kube.Conflict as error:
            log.debug("%s: looked at an old view, looking again: %s", key, error)
            return self._retry(key)
        except (InvalidSpec, ownership.NotOurs, kube.Invalid) as error:
            return await self._stall(key, error)
        except kube.KubeError as error:
            return await self._fail(key, error)
        except Exception:
            metrics.PANICS.labels(controller=self._controller.name).inc()
            log.exception("%s: a defect of the operator; it is retried", key)
            return self._retry(key)
        self._queue.forget_failures(key)
        metrics.LAST_SUCCESS.labels(controller=self._controller.name).set_to_current_time()
        if plan.requeue is not None:
            self._queue.add_after(key, plan.requeue)
            return "requeue_after"
        return "success"

    async def _converge(self, key: Key, obj: Obj) -> Plan:
        resource = self._controller.parse(obj)
        for _ in range(ROUNDS):
            with tracing.span("observe"):
                seen = await self._controller.observe(resource, self._cache, self._kube)
            with tracing.span("plan"):
                plan = self._controller.plan(resource, seen, self._clock())
            if not await self._execute(obj, plan.actions):
                await self._report(obj, plan.status, plan.verdict)
                return plan
        await self._report(obj, plan.status, plan.verdict)
        self._queue.add(key)
        return plan

    async def _execute(self, resource: Obj, actions: tuple[Action, ...]) -> bool:
        """Do what the plan asks for.

        Returns:
            Whether anything changed, so that the world must be looked at again.
        """
        changed = False
        for action in actions:
            match action:
                case Apply():
                    changed |= await self._apply(resource, action)
                case Delete():
                    await self._delete(action)
                    changed = True
                case Call():
                    log.info("%s: %s", _key(resource), action)
                    await self._controller.call(action)
                    changed = True
        return changed

    async def _apply(self, resource: Obj, action: Apply) -> bool:
        kind, desired = action.kind, action.obj
        namespace, name = desired["metadata"]["namespace"], desired["metadata"]["name"]
        observed = self._cache.get(kind, namespace, name)
        if observed is None:
            applied = await self._cache.written(kind, namespace, name, self._create(kind, desired))
            log.info("%s: created %s %s", _key(resource), kind, name)
            self._tell_restored(resource, f"{kind} {name} was missing; made again.")
        else:
            ownership.require_ours(desired, observed)
            if observed["metadata"].get("deletionTimestamp"):
                raise kube.Conflict(f"{kind} {name} is still being deleted")
            paths = fields.difference(desired, observed, self._kube.manager)
            if not paths:
                return False
            pinned = _pinned(desired, uid=observed["metadata"]["uid"])
            applied = await self._cache.written(kind, namespace, name, self._kube.apply(kind, pinned))
            if kube.resource_version(applied) == kube.resource_version(observed):
                log.debug("%s: applying %s %s changed nothing: %s", _key(resource), kind, name, ", ".join(paths))
                return False
            log.info("%s: applied %s %s: %s", _key(resource), kind, name, ", ".join(paths))
            differed = f"{kind} {name} differed from what this resource asks for"
            self._tell_restored(resource, f"{differed}; put back: {', '.join(paths)}.")
        return True

    async def _create(self, kind: Kind, desired: Obj) -> Obj:
        """Create an object that the cache does not have; one that exists all the same is taken only if it is ours."""
        try:
            return await self._kube.create_by_apply(kind, desired)
        except kube.Conflict:
            metadata = desired["metadata"]
            live = await self._kube.get(kind, metadata["namespace"], metadata["name"])
            ownership.require_ours(desired, live)
            return await self._kube.apply(kind, _pinned(desired, uid=live["metadata"]["uid"]))

    async def _delete(self, action: Delete) -> None:
        metadata = action.obj["metadata"]
        version = metadata["resourceVersion"] if action.unchanged else None
        try:
            left = await self._kube.delete(
                action.kind, metadata["namespace"], metadata["name"], uid=metadata["uid"], resource_version=version
            )
        except kube.NotFound:
            left = None
        if left is None:
            self._cache.drop(action.kind, action.obj)
        else:
            self._cache.put(action.kind, left)

    def _tell_restored(self, resource: Obj, message: str) -> None:
        """If the spec did not change, somebody else changed what is ours: they should learn that it was put back."""
        if status.is_current(resource):
            self._recorder.record(Event.about(resource, "Restored", message))

    async def _report(self, resource: Obj, reported: Obj, verdict: Verdict) -> None:
        """Write the status if it changed, and tell of a turn in the resource's story."""
        composed = status.compose(resource, reported, verdict, kube.now_rfc3339())
        patch = status.change(resource, composed)
        if patch is None:
            return
        metadata = resource["metadata"]
        # What the status tells of is this very version: not a later spec, nor a later resource of the same name.
        patch["metadata"] = {"resourceVersion": metadata["resourceVersion"]}
        kind, namespace, name = self._controller.kind, metadata["namespace"], metadata["name"]
        try:
            write = self._kube.merge(kind, namespace, name, patch, subresource="status")
            await self._cache.written(kind, namespace, name, write)
        except kube.NotFound:
            return
        if status.condition(resource, status.READY).get("reason") != verdict.reason:
            log.info("%s: %s: %s", _key(resource), verdict.reason, verdict.message)
            self._recorder.record(Event.about(resource, verdict.reason, verdict.message, warning=verdict.warning))

    def _retry(self, key: Key, error: kube.KubeError | None = None) -> str:
        metrics.RECONCILE_ERRORS.labels(controller=self._controller.name).inc()
        self._queue.retry(key, at_least=(error.retry_after or 0.0) if error else 0.0)
        return "error"

    async def _fail(self, key: Key, error: kube.KubeError) -> str:
        """Something that time may mend: try again, and say so if it lasts."""
        result = self._retry(key, error)
        if self._queue.failures(key) >= SHOW_AFTER:
            reason = "ApiUnavailable" if isinstance(error, kube.Unavailable) else type(error).__name__
            log.warning("%s: %s: %s", key, reason, error)
            await self._report_trouble(key, Verdict(Progress.WAITING, reason, str(error), warning=True), {})
        return result

    async def _stall(self, key: Key, error: Exception) -> str:
        """Something that only a person mends: say so, and look again at leisure."""
        metrics.TERMINAL_ERRORS.labels(controller=self._controller.name).inc()
        reason = {InvalidSpec: "InvalidSpec", ownership.NotOurs: "NotOurs"}.get(type(error), "Rejected")
        verdict = Verdict(Progress.STALLED, reason, str(error), warning=True)
        await self._report_trouble(key, verdict, {"phase": "Failed"})
        self._queue.forget_failures(key)
        self._queue.add_after(key, RECHECK)
        return "terminal_error"

    async def _report_trouble(self, key: Key, verdict: Verdict, change: Obj) -> None:
        """Report what runs all the same, and why the spec is not reality."""
        obj = self._cache.get(self._controller.kind, key.namespace, key.name)
        if obj is None:
            return
        try:
            await self._report(obj, await self._what_runs(obj) | change, verdict)
        except kube.KubeError as error:
            log.warning("%s: status not written: %s", key, error)

    async def _what_runs(self, obj: Obj) -> Obj:
        """The status as a plan would report it; as it was, where the spec cannot be read or the world not be seen."""
        try:
            resource = self._controller.parse(obj)
            seen = await self._controller.observe(resource, self._cache, self._kube)
        except (InvalidSpec, kube.KubeError):
            before: Obj = obj.get("status") or {}
            return before
        return self._controller.plan(resource, seen, self._clock()).status


def _key(obj: Obj) -> Key:
    return Key(obj["metadata"]["namespace"], obj["metadata"]["name"])


def _pinned(desired: Obj, *, uid: str) -> Obj:
    """The object with a precondition: apply to this very object, and never bring it back if it is gone."""
    return {**desired, "metadata": {**desired["metadata"], "uid": uid}}
