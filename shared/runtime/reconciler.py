"""The reconcile loop of a resource: observe → plan → execute → status.

Everything is level-triggered: a reconcile may start from any state, at any time, and twice. It repeats until the plan
has no more actions or must wait, and then writes the status once, if it changed. A healthy resource costs no requests.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any

from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors, errors, ownership, secret_provenance
from shared.kubernetes.accessors import is_terminating, rfc3339
from shared.kubernetes.client import Kube
from shared.kubernetes.kinds import Key, Obj
from shared.kubernetes.secret_provenance import RECORD
from shared.observability import metrics, tracing
from shared.pki.validity import Validity
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.dependencies import Dependencies
from shared.runtime.errors import DatabaseError
from shared.runtime.executor import Executor, Permit, always
from shared.runtime.pacing import metered
from shared.runtime.plan import Action, Attempt, Call, Plan, shortest
from shared.runtime.queue import MAX_RETRY_SECONDS, Queue
from shared.runtime.reflector import LOSS_REPORTED_SECONDS, Loss
from shared.runtime.steady_clock import ResourceClock, SteadyClock
from shared.runtime.supervisor import Cancelled, end_if_cancelled, time_limit
from shared.status import conditions, reconciliation_pause
from shared.status.events import Event, Recorder
from shared.status.health import Finding, Health
from shared.status.readiness import Readiness
from shared.status.reasons import (
    API_UNAVAILABLE,
    CONFLICT,
    FIELD_CONFLICT,
    FORBIDDEN,
    FOREIGN_OBJECT,
    INTERNAL_ERROR,
    INVALID_SPEC,
    NOT_FOUND,
    NOT_OBSERVED,
    RECONCILE_TIMEOUT,
    REJECTED,
    TERMINATING,
    TOO_LARGE,
    Reason,
)
from shared.status.resource_metrics import Certificates, Period
from shared.status.verdict import Progress, Verdict

log = logging.getLogger(__name__)

MAX_CYCLES = 5
"""Maximum number of observe-plan-execute cycles in one reconcile, before other resources continue."""

CYCLES_SECONDS = 30.0
"""Seconds after which a reconcile begins no further cycle: one call, such as a defragmentation, may take minutes."""

RECONCILE_TIMEOUT_SECONDS = 540.0
"""Seconds after which a reconcile is stopped. One cycle takes less, unless a server prolongs its responses."""

FAILURES = frozenset({"error", "terminal_error"})
"""Results of a reconcile that failed."""

MIN_FAILURES_REPORTED = 3
"""Number of consecutive failures before the status reports them: the first retry usually succeeds."""

OVERLOADED = frozenset({0, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
"""Status of requests that the API server did not answer, or did not want now."""

MAX_COLLECTION_FAILURES = 9
"""Failures in a row, about 30 seconds, after which an object of a deleted resource counts as foreign."""

DISCOVERY_RETRY_SECONDS = 2.0
MAX_DISCOVERY_FAILURES = 40
"""Failures in a row, about a minute, after which it is reported that the API server does not know a kind: it looks for
new kinds every 30 seconds."""

MAX_REPAIR_DELAY_SECONDS = 5.0
"""Longest delay after a failure while the running database needs repairs, in seconds."""

EVICTION_RETRY_SECONDS = 10.0
"""Seconds until an eviction is tried again. A change of the disruption budget, which is watched, starts it earlier."""

MAX_CONFLICT_SECONDS = 30.0
"""Seconds of conflicts without a success after which the status reports them."""

RECHECK_SECONDS = 60.0
"""Seconds between reconciles of a resource that needs a user's change (which may not be watched)."""

PAUSED_POLL_SECONDS = 30.0
"""Seconds between observations of a resource whose reconciliation is paused: people may change its database."""


class NotObserved(Exception):
    """A collection that a resource needs is not observed, so what to do is not known."""

    def __init__(self, loss: Loss) -> None:
        super().__init__(str(loss))
        self.loss = loss


class Reconciler:
    """Reconciles the resources of a controller.

    Args:
        clock: present time; by default a `SteadyClock`.
        permit: called before each database call (`Executor`).
        loss: returns a collection that the resource needs and that is not observed; None if all are.
        dependencies: where objects that the resources name are noted.

    Attributes:
        certificates: certificates of each resource that has any, as last observed.
    """

    def __init__(
        self,
        controller: Controller[Any, Any],
        *,
        kube: Kube,
        cache: Cache,
        queue: Queue,
        recorder: Recorder,
        clock: Callable[[], datetime] | None = None,
        permit: Permit = always,
        loss: Callable[[Key], Loss | None] = lambda _: None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._controller = controller
        self._kube = kube
        self._cache = cache
        self._queue = queue
        self._recorder = recorder
        self._clock = clock = clock or SteadyClock()
        self._clocks: dict[Key, ResourceClock] = {}
        self._loss = loss
        self._dependencies = dependencies or Dependencies(controller.reads, queue.add)
        self._executor = Executor(
            controller,
            kube=kube,
            cache=cache,
            recorder=recorder,
            dependencies=self._dependencies,
            permit=permit,
            clock=clock,
        )
        self._readiness = Readiness(controller.name)
        self._failing_since: dict[Key, datetime] = {}
        self._abandoned: dict[Key, str] = {}  # UIDs of resources whose namespace is being deleted
        self.certificates: dict[Key, Certificates] = {}

    def begin(self) -> None:
        """Forget earlier observations: another replica may have led in the meantime."""
        self._readiness.clear()
        self._failing_since.clear()
        self._clocks.clear()
        self._executor.conflicts.clear()
        self.certificates.clear()

    async def work(self) -> None:
        """Run one worker until cancelled."""
        while True:
            key = await self._queue.get()
            try:
                with tracing.trace("reconcile", self._traced(key)):
                    await self._reconcile_measured(key)
            except Exception:  # of the retry itself, or of a metric: the next event or resync reconciles the resource
                log.exception("%s: internal error (a bug in the operator)", key)
            finally:
                self._queue.done(key)
            end_if_cancelled()  # a failure of the clean-up may have replaced the cancellation

    async def _reconcile_measured(self, key: Key) -> None:
        name = self._controller.name
        started = time.perf_counter()
        try:
            with metrics.ACTIVE_WORKERS.labels(controller=name).track_inprogress():
                result = await metered(self.reconcile(key), self._queue.pace.note)
            tracing.note({"result": result})
            if result in FAILURES:
                tracing.fail(result)
            metrics.RECONCILES.labels(controller=name, result=result).inc()
            took = time.perf_counter() - started
            metrics.RECONCILE_TIME.labels(controller=name).observe(took, tracing.exemplar())
        finally:
            self._queue.done(key)  # within the trace, which the measured duration refers to

    def _traced(self, key: Key) -> tracing.Attributes:
        kind = self._controller.kind.name
        return {tracing.OBJECT_KIND: kind, tracing.NAMESPACE: key.namespace, tracing.OBJECT_NAME: key.name}

    async def reconcile(self, key: Key) -> str:
        """Reconcile one resource as far as possible now. No error of it reaches the caller, and so other resources.

        Returns:
            Result as counted by controller-runtime: success, requeue_after, error or terminal_error.
        """
        deadline = time_limit(RECONCILE_TIMEOUT_SECONDS)
        try:
            async with deadline:
                return await self._reconcile(key)
        except (Exception, Cancelled):  # such as one in the report of another error
            end_if_cancelled()
            if deadline.expired():
                return await self._overrun(key)
            log.exception("%s: internal error (a bug in the operator); retrying", key)
            metrics.PANICS.labels(controller=self._controller.name).inc()
            self._queue.retry(key)
            return "error"

    async def _reconcile(self, key: Key) -> str:
        obj = self._cache.get(self._controller.kind, key.namespace, key.name)
        if obj is None or is_terminating(obj):
            self._forget(key)  # owned objects are garbage collected
            return "success"
        if self._abandoned.get(key) == obj["metadata"]["uid"]:
            return "success"
        self._readiness.begin(key, obj, self._clock())
        try:
            with self._dependencies.reconcile(key):
                plan = await self._converge(key, obj)
        except NotObserved as error:
            return await self._postpone(key, obj, error.loss)
        except errors.Conflict as error:
            return await self._repeat(key, error)
        except ownership.FormerObject as error:
            return await self._await_collection(key, error)
        except errors.NamespaceTerminating as error:
            log.info("%s: nothing is changed any more: %s", key, error)
            self._forget(key)
            self._abandoned[key] = obj["metadata"]["uid"]
            return "success"
        except (InvalidSpec, ownership.ForeignObject, errors.Invalid) as error:
            return await self._stall(key, error)
        except (errors.KubeError, DatabaseError) as error:
            return await self._fail(key, error)
        except Exception as error:
            return await self._panic(key, error)
        self._forget_failures(key)
        metrics.LAST_SUCCESS.labels(controller=self._controller.name).set_to_current_time()
        if plan.requeue is not None:
            self._queue.add_after(key, plan.requeue)
        if plan.poll is not None:
            self._queue.poll(key, plan.poll)
        return "success" if shortest(plan.requeue, plan.poll) is None else "requeue_after"

    async def _await_collection(self, key: Key, error: ownership.FormerObject) -> str:
        """Wait for the garbage collector to delete an object of a former resource."""
        if self._queue.failures(key) < MAX_COLLECTION_FAILURES:
            log.debug("%s: waiting for the garbage collector: %s", key, error)
            return self._retry(key)
        return await self._stall(key, error)

    def _forget(self, key: Key) -> None:
        """Forget a resource that is deleted, or will be."""
        self._forget_failures(key)
        self._readiness.forget(key)
        self._executor.conflicts.forget(key)
        self._clocks.pop(key, None)
        self._dependencies.forget(key)
        self.certificates.pop(key, None)
        self._abandoned.pop(key, None)

    async def _converge(self, key: Key, obj: Obj) -> Plan:
        for _ in range(MAX_CYCLES):
            resource = self._controller.resource(obj, self._cache)
            if loss := self._loss(key):
                raise NotObserved(loss)
            with tracing.span("observe"), self._dependencies.noting(key, self._kube, _spec(obj)) as kube:
                seen = await self._controller.observe(resource, self._cache, kube)
            self._note_certificates(key, self._controller.validity(seen))
            with tracing.span("plan"):
                plan = self._controller.plan(resource, seen, self._now(obj))
            if reconciliation_pause.is_paused(obj):
                return await self._report_paused(key, obj, plan)
            del seen  # the following writes may wait, and so may hundreds of others: 60 KiB each
            before = accessors.status_of(obj)
            try:
                obj, has_changed = await self._execute(key, obj, plan)
            except errors.NotEvictable as refusal:
                plan, has_changed = _awaiting_budget(plan, refusal), False
            if not has_changed:
                plan = dataclasses.replace(self._naming_conflicts(key, plan), chains=())
                await self._report(obj, plan.status, plan.verdict, plan.health)
                self._dependencies.settle(key, _spec(obj))
                return plan
            if is_late := self._queue.age(key) > CYCLES_SECONDS:
                break
        if plan.verdict.done and not is_late:
            actions = "; ".join(sorted({_described(action) for action in plan.actions}))
            raise errors.Conflict(f"The spec is met, and yet the operator finds changes to make each time: {actions}.")
        if not plan.verdict.done:  # of the state before the changes, which the next reconcile observes at once
            reported = _with_records(plan.status, before, accessors.status_of(obj))
            await self._report(obj, reported, plan.verdict, plan.health)
        self._queue.add(key)
        return plan

    async def _report_paused(self, key: Key, obj: Obj, plan: Plan) -> Plan:
        """Report what is observed, and what the operator would do, of a resource that a user keeps out of its hands."""
        pending = "; ".join(sorted({_described(action) for action in await self._executor.pending(plan.chains)}))
        verdict = plan.verdict if plan.is_final else reconciliation_pause.judged(obj, plan.verdict, pending)
        await self._report(obj, plan.status, verdict, plan.health)
        self._dependencies.settle(key, _spec(obj))
        return dataclasses.replace(
            plan, chains=(), verdict=verdict, requeue=None, heals_after=None, poll=PAUSED_POLL_SECONDS
        )

    def _naming_conflicts(self, key: Key, plan: Plan) -> Plan:
        """Return the plan with the conflicts with other field managers in its verdict."""
        message, seconds = self._executor.conflicts.report(key, self._clock())
        verdict = dataclasses.replace(plan.verdict, message=f"{plan.verdict.message} {message}".strip())
        if message and verdict.done:
            verdict = dataclasses.replace(verdict, reason=FIELD_CONFLICT, warning=True)
        return dataclasses.replace(plan, verdict=verdict, requeue=shortest(plan.requeue, seconds))

    def _now(self, resource: Obj) -> datetime:
        """Return the time of plans and transitions of a resource."""
        key = _key(resource)
        if key not in self._clocks:
            self._clocks[key] = ResourceClock(resource, self._clock)
        return self._clocks[key]()

    async def _execute(self, key: Key, obj: Obj, plan: Plan) -> tuple[Obj, bool]:
        """Execute a plan; return the resource, whose record of Secrets may have changed, and whether anything changed.

        Raises:
            KubeError, DatabaseError, ForeignObject: the first failure. Its back-off hardly delays repairs by others.
        """
        done = await self._executor.execute(obj, plan.chains, plan.status.get(RECORD))
        if done.failure is None or done.chain is None:
            return done.resource, done.changed
        if plan.heals_after is not None and done.chain >= plan.repairs:
            self._queue.add_after(key, max(plan.heals_after, MAX_REPAIR_DELAY_SECONDS))
        raise done.failure

    async def _report(self, resource: Obj, reported: Obj, verdict: Verdict, health: Health | None) -> None:
        """Report the progress of a resource in its status."""
        if await self._write(resource, reported, verdict, health):
            self._readiness.report(_key(resource), verdict, self._clock())

    async def _write(self, resource: Obj, reported: Obj, verdict: Verdict, health: Health | None) -> bool:
        """Write the status if it changed, and record an event if the reason changed.

        Returns:
            Whether the resource still exists.
        """
        if self._controller.makes_secrets:
            reported = secret_provenance.with_record(resource, reported)
        weaknesses = self._controller.weaknesses({**resource, "status": reported}).message
        now = rfc3339(self._now(resource))
        composed = conditions.compose(resource, reported, verdict, now, weaknesses, health)
        patch = conditions.change(resource, composed)
        if patch is None:
            return True
        metadata = resource["metadata"]
        # The status describes this version of the resource, not a later spec or a later resource of the same name.
        patch["metadata"] = {"resourceVersion": metadata["resourceVersion"]}
        kind, namespace, name = self._controller.kind, metadata["namespace"], metadata["name"]
        try:
            write = self._kube.merge(kind, namespace, name, patch, subresource="status")
            await self._cache.written(kind, namespace, name, write)
        except errors.NotFound:
            return False
        if accessors.condition(resource, conditions.READY).get("reason") != verdict.reason:
            log.info("%s: %s: %s", _key(resource), verdict.reason, verdict.message)
            self._recorder.record(Event.about(resource, verdict.reason, verdict.message, warning=verdict.warning))
        return True

    def _note_certificates(self, key: Key, validity: Mapping[str, Validity]) -> None:
        if validity:
            periods = ((name, Period(of.lives_from.timestamp(), of.ends.timestamp())) for name, of in validity.items())
            self.certificates[key] = dict(periods)
        else:
            self.certificates.pop(key, None)

    async def _repeat(self, key: Key, error: errors.Conflict) -> str:
        """Retry at once because the observed state was outdated, and report it if that does not help."""
        log.debug("%s: observed state was outdated, retrying: %s", key, error)
        result = self._retry(key)
        lasts = (self._clock() - self._failing_since[key]).total_seconds()
        if lasts >= MAX_CONFLICT_SECONDS and self._queue.failures(key) >= MIN_FAILURES_REPORTED:
            reason = TERMINATING if isinstance(error, errors.Terminating) else CONFLICT
            log.warning("%s: %s: %s", key, reason, error)
            await self._report_problem(key, Verdict(Progress.WAITING, reason, str(error), warning=True), {})
        return result

    async def _panic(self, key: Key, error: Exception) -> str:
        """Retry after an error that only a bug explains, and report it if it persists."""
        metrics.PANICS.labels(controller=self._controller.name).inc()
        log.exception("%s: internal error (a bug in the operator); retrying", key)
        result = self._retry(key)
        if self._queue.failures(key) >= MIN_FAILURES_REPORTED:
            message = (
                f"The operator fails with an internal error, {type(error).__name__}, and retries with back-off. The "
                "servers are not changed. Its log has the details: report them to its maintainers."
            )
            await self._report_problem(key, Verdict(Progress.WAITING, INTERNAL_ERROR, message, warning=True), {})
        return result

    def _forget_failures(self, key: Key) -> None:
        self._queue.forget_failures(key)
        self._failing_since.pop(key, None)

    async def _overrun(self, key: Key) -> str:
        """Retry a reconcile that was stopped, as after a crash, and report it without observing the servers again."""
        message = (
            f"The reconcile was stopped after {RECONCILE_TIMEOUT_SECONDS:.0f} s: servers answer too slowly, or it "
            "waited for others of its namespace whose volume claims have large annotations. The next one continues, "
            "with back-off. Check the load of the servers, these annotations, and the log of the operator."
        )
        log.warning("%s: %s: %s", key, RECONCILE_TIMEOUT, message)
        result = self._retry(key)
        verdict = Verdict(Progress.WAITING, RECONCILE_TIMEOUT, message, warning=True)
        await self._report_problem(key, verdict, {}, observes=False)
        return result

    def _retry(self, key: Key, *, at_least: float = 0.0, at_most: float = MAX_RETRY_SECONDS) -> str:
        end_if_cancelled()  # a failure of the clean-up may have replaced the cancellation
        self._failing_since.setdefault(key, self._clock())
        metrics.RECONCILE_ERRORS.labels(controller=self._controller.name).inc()
        self._queue.retry(key, at_least=at_least, at_most=at_most)
        return "error"

    async def _fail(self, key: Key, error: errors.KubeError | DatabaseError) -> str:
        """Retry after an error that may be temporary, and report it if it persists."""
        requested = error.retry_after if isinstance(error, errors.KubeError) else None
        patience = error.failures_reported if isinstance(error, DatabaseError) else MIN_FAILURES_REPORTED
        at_most = MAX_RETRY_SECONDS
        if isinstance(error, errors.Undiscovered):
            patience, at_most = MAX_DISCOVERY_FAILURES + 1, DISCOVERY_RETRY_SECONDS
        result = self._retry(key, at_least=requested or 0.0, at_most=at_most)
        failures = self._queue.failures(key)
        is_overloaded = isinstance(error, errors.KubeError) and error.status in OVERLOADED
        if is_overloaded and failures > patience and failures & (failures - 1):
            return result  # a report is more requests: it is repeated after 4, 8, 16 … failures
        if failures >= patience:
            reason = error.reason if isinstance(error, DatabaseError) else _reason(error)
            log.warning("%s: %s: %s", key, reason, error)
            await self._report_problem(key, Verdict(Progress.WAITING, reason, str(error), warning=True), {})
        return result

    async def _postpone(self, key: Key, obj: Obj, loss: Loss) -> str:
        """Do nothing while the state of a resource is unknown, and report that if it lasts.

        The status keeps its last observed content: the database may serve while the operator is blind.
        """
        result = self._retry(key)
        self._failing_since.pop(key, None)  # conflicts are counted from the first reconcile that observes
        is_reported = accessors.condition(obj, conditions.READY).get("reason") == NOT_OBSERVED
        if loss.seconds < LOSS_REPORTED_SECONDS or is_reported:
            return result
        message = f"The operator does not observe {loss.what}, and changes nothing until it does: {loss.why}"
        try:
            # The cached resource may be outdated too, and the API server would then reject the status.
            live = await self._kube.get(self._controller.kind, key.namespace, key.name)
            was_ready = accessors.is_true(live, conditions.READY) and accessors.is_current(live)
            verdict = Verdict(Progress.WAITING, NOT_OBSERVED, message, warning=True, ready=was_ready)
            await self._write(live, accessors.status_of(live), verdict, _blind(live, loss.why))
        except errors.KubeError as error:
            log.debug("%s: cannot report that %s: %s", key, message, error)
        return result

    async def _stall(self, key: Key, error: Exception) -> str:
        """Report an error that only a user can fix, and check again later."""
        metrics.TERMINAL_ERRORS.labels(controller=self._controller.name).inc()
        reasons = {
            InvalidSpec: INVALID_SPEC,
            ownership.ForeignObject: FOREIGN_OBJECT,
            ownership.FormerObject: FOREIGN_OBJECT,
        }
        reason = reasons.get(type(error), REJECTED)
        verdict = Verdict(Progress.BLOCKED, reason, str(error), warning=True)
        await self._report_problem(key, verdict, {"phase": "Failed"})
        self._forget_failures(key)
        self._queue.add_after(key, RECHECK_SECONDS)
        return "terminal_error"

    async def _report_problem(self, key: Key, verdict: Verdict, change: Obj, *, observes: bool = True) -> None:
        """Report an error together with the state of what runs (`observes`), before a repair that is not complete."""
        obj = self._cache.get(self._controller.kind, key.namespace, key.name)
        if obj is None:
            return
        try:
            plan = await self._current_plan(obj) if observes else None
            reported = (plan.status if plan else accessors.status_of(obj)) | change
            if plan is not None and plan.heals_after is not None:
                reason = plan.verdict.announces or verdict.reason
                verdict = dataclasses.replace(
                    verdict, reason=reason, message=f"{verdict.message} {plan.verdict.message}"
                )
            health = plan.health if plan else _blind(obj, verdict.message)
            verdict = reconciliation_pause.judged(obj, verdict)
            if "reason" in reported:  # some APIs have a reason next to the phase
                reported["reason"] = verdict.message
            await self._report(obj, reported, verdict, health)
        except errors.Conflict:  # the cache may be behind: the next retry reports
            await self._refresh(key)
        except errors.KubeError as error:
            log.warning("%s: cannot write the status: %s", key, error)

    async def _refresh(self, key: Key) -> None:
        """Read a resource live into the cache."""
        try:
            self._cache.put(self._controller.kind, await self._kube.get(self._controller.kind, *key))
        except errors.KubeError as error:
            log.warning("%s: cannot read the resource: %s", key, error)

    async def _current_plan(self, obj: Obj) -> Plan | None:
        """Return the plan for the present state; None if the spec or the state cannot be read."""
        try:
            resource = self._controller.resource(obj, self._cache)
            key = _key(obj)
            with self._dependencies.reconcile(key), self._dependencies.noting(key, self._kube) as kube:
                seen = await self._controller.observe(resource, self._cache, kube)
            return self._controller.plan(resource, seen, self._now(obj))
        except (InvalidSpec, errors.KubeError, DatabaseError):
            return None
        except Exception:  # a bug, which may be the problem that is reported
            log.debug("%s: cannot plan", _key(obj), exc_info=True)
            return None


def _blind(resource: Obj, why: str) -> Health:
    """Return the health of a resource whose state is not known now: as last reported, but not observed."""
    if not accessors.condition(resource, conditions.OBSERVED):  # of a kind that serves no clients, or a new resource
        return Health()
    message = f"The operator does not observe the servers, and keeps their last reported state: {why}"
    return Health(observed=Finding(False, NOT_OBSERVED, message))


def _with_records(planned: Obj, before: Obj, after: Obj) -> Obj:
    """Return the status of a plan with the fields that its execution has written since: calls record their progress."""
    written = {field for field in before.keys() | after.keys() | {RECORD} if before.get(field) != after.get(field)}
    kept = {field: value for field, value in planned.items() if field not in written | {RECORD}}
    return kept | {field: after[field] for field in written & after.keys()}


def _described(action: Action) -> str:
    """Return an action in a few words."""
    if isinstance(action, Call | Attempt):
        return str(action)
    return f"{type(action).__name__} {action.obj['kind']} {action.obj['metadata']['name']}"


def _awaiting_budget(plan: Plan, refusal: errors.NotEvictable) -> Plan:
    """Return the plan with the reason why an eviction waits. That is no failure: a drain may use the budget now."""
    message = f"{plan.verdict.message} {refusal} The operator retries until its disruption budget allows it."
    return dataclasses.replace(
        plan,
        verdict=dataclasses.replace(plan.verdict, message=message.strip()),
        requeue=min(plan.requeue or EVICTION_RETRY_SECONDS, EVICTION_RETRY_SECONDS),
    )


def _spec(obj: Obj) -> tuple[object, ...]:
    """Return what identifies the spec of a resource."""
    return obj["metadata"]["uid"], obj["metadata"].get("generation")


def _key(obj: Obj) -> Key:
    return Key(obj["metadata"]["namespace"], obj["metadata"]["name"])


_REASONS = {
    errors.TooLarge: TOO_LARGE,
    errors.NotFound: NOT_FOUND,
    errors.Forbidden: FORBIDDEN,
    errors.Refused: REJECTED,
}


def _reason(error: errors.KubeError) -> Reason:
    return next((_REASONS[each] for each in type(error).__mro__ if each in _REASONS), API_UNAVAILABLE)
