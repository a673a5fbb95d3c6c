"""Leader election by a Lease, with the rules of client-go: one replica leads, the others wait.

The rules do not depend on synchronized clocks:

- A Lease belongs to its holder until it has not changed for its lease duration, measured by this replica's *own*
  monotonic clock. The times in the Lease are only informational.
- A leader that cannot renew within `renew_deadline` stops its workers. Another replica takes over after
  `lease_duration` at the earliest. The former leader then waits with a warm cache and takes part in the election:
  an API server that is unavailable for a minute does not cause a restart.
- A leader that shuts down releases the Lease, so that another replica takes over within a `retry_period`.

The cache of a new leader may lack the last writes of the former leader. This is safe because of how writes are made
(docs/decisions/writes-are-conditional.md): an existing object is not created again, and a write to an object that has
changed or was replaced since it was observed is rejected by the API server; the object is then observed again.

The official client's `kubernetes.aio.leaderelection` is not used: it never releases the Lease, depends on the wall
clock, does not count transitions, and may wait for a hanging request beyond the renew deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.kubernetes.client import Kube, Request, Response, Transport
from shared.kubernetes.errors import Conflict, KubeError, Unavailable
from shared.kubernetes.kinds import LEASE, Obj
from shared.observability import metrics
from shared.runtime.supervisor import MustEnd
from shared.status.events import Event, Recorder
from shared.status.reasons import LEADER_ELECTION

log = logging.getLogger(__name__)

RENEWALS_PER_DEADLINE = 4
"""Number of renewals within the renew deadline."""

REQUESTED_BY = "platform.ydzs.io/lease-requested-by"
"""Annotation of a Lease: identity of a replica that requests it, because its holder leads several."""

RESERVED_PERIODS = 3
"""Number of retry periods for which a Lease that is handed over is reserved for its new holder."""


@dataclass(frozen=True, slots=True)
class Times:
    """Timing of leader election, in seconds.

    Attributes:
        lease_duration: time after the last renewal until another replica takes over.
        renew_deadline: time after the last renewal until the leader stops; less than lease_duration.
        retry_period: time between attempts to acquire the Lease, or to renew it after a failure.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 1.0

    @property
    def notice(self) -> float:
        """Time that a leader that lost the Lease has to stop its work, before another replica starts."""
        return self.lease_duration - self.renew_deadline


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """A Lease, and the time of its last observed change by this replica's clock."""

    lease: Obj
    since: float

    @property
    def spec(self) -> Obj:
        return self.lease.get("spec") or {}

    @property
    def holder(self) -> str:
        """Identity of the holder; empty if the Lease is free."""
        return self.spec.get("holderIdentity") or ""

    @property
    def requester(self) -> str:
        """Identity of the replica that requests the Lease; empty for none."""
        return (self.lease["metadata"].get("annotations") or {}).get(REQUESTED_BY) or ""

    def next(self, lease: Obj, now: float) -> LeaseObservation:
        """Return the new observation; its time changes only if the spec changed."""
        seen = LeaseObservation(lease, now)
        return LeaseObservation(lease, self.since) if seen.spec == self.spec else seen

    def may_be_taken_by(self, identity: str, now: float) -> bool:
        """Whether the Lease is free, owned by `identity`, or expired."""
        return self.holder in ("", identity) or now >= self.since + self.spec.get("leaseDurationSeconds", 0)


def claim(observation: LeaseObservation | None, identity: str, duration: int, now: datetime) -> Obj:
    """Return the spec to acquire or renew a Lease.

    Args:
        observation: last observation; None if there is no Lease.
        duration: lease duration in seconds.
        now: wall clock time, only informational.
    """
    spec = {"holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": _micro_time(now)}
    if observation is None:
        return spec | {"acquireTime": _micro_time(now), "leaseTransitions": 0}
    if observation.holder == identity:
        return spec
    return spec | {"acquireTime": _micro_time(now), "leaseTransitions": observation.spec.get("leaseTransitions", 0) + 1}


def release(now: datetime) -> Obj:
    """Return the spec to release a Lease; the API requires a duration of at least one second."""
    return {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time(now)}


def _micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Term = Callable[[], contextlib.AbstractAsyncContextManager[asyncio.Future[None]]]
"""Returns a context that is entered as the leader, with a future that is done when leadership is lost."""


@contextlib.asynccontextmanager
async def unopposed() -> AsyncIterator[asyncio.Future[None]]:
    """The term of an operator without leader election: it starts at once and is never lost."""
    yield asyncio.get_running_loop().create_future()


class EvenBalance:
    """Spreads the shards over the replicas: each leads as many as any other, or one more.

    Args:
        identity: identity of this replica.

    Attributes:
        leaderships: candidacy of the replica for each shard.
    """

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self.leaderships: Sequence[Leadership] = ()

    def wants(self, leadership: Leadership) -> bool:
        """Whether the holder leads at least two more than this replica, also when all requests are granted."""
        holders = [each.next_holder for each in self.leaderships]
        return holders.count(leadership.next_holder) > holders.count(self._identity) + 1

    def can_spare(self) -> bool:
        """Whether this replica leads another shard, too."""
        return sum(each.leads and not each.requested.is_set() for each in self.leaderships) > 1


def new_identity() -> str:
    """Return a unique identity of this process: the host name (the pod) and a suffix."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Leadership:
    """A candidate in the election.

    Args:
        name: name of the Lease.
        identity: identity of this replica; by default a new one.
        clock: monotonic time in seconds.
        balance: spreads several Leases over the replicas; None if there is only one Lease.
        is_shared: whether several replicas hold the Lease together, under the same identity. It is then never released.

    Attributes:
        requested: set while another replica requests the Lease; the term should then end.
    """

    def __init__(
        self,
        kube: Kube,
        recorder: Recorder,
        *,
        name: str,
        namespace: str,
        times: Times,
        identity: str = "",
        clock: Callable[[], float] | None = None,
        balance: EvenBalance | None = None,
        is_shared: bool = False,
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._name = name
        self._namespace = namespace
        self._times = times
        self._identity = identity or new_identity()
        self._clock = clock or asyncio.get_running_loop().time
        self._observation: LeaseObservation | None = None
        self._is_current = False  # no other write since the observation is known
        self._may_hold = False  # a write may have succeeded without a response
        self._renewed: float | None = None  # when the last successful renewal was sent; None if not leading
        self._problem = ""
        self._balance = balance
        self._is_shared = is_shared
        self.requested = asyncio.Event()
        self._successor = ""  # the replica that requested the Lease
        self._is_requesting = False  # a request of this replica is being written
        self._is_unbroken = self._continues = False  # no other replica can have led since the former term
        self._report(leads=False)

    @property
    def next_holder(self) -> str:
        """Identity of the replica that requested the Lease, or else of its holder; empty if it is free or unknown."""
        if self._is_requesting:
            return self._identity
        return (self._observation.requester or self._observation.holder) if self._observation else ""

    @property
    def leads(self) -> bool:
        return self._renewed is not None

    def continues(self) -> bool:
        """Whether no other replica can have led since the former term of this one.

        The Lease named this process when it led again, as after an outage: another holder would have left another name.
        """
        return self._continues

    @property
    def has_expired(self) -> bool:
        """Whether another replica may lead by now."""
        return self._renewed is None or self._clock() >= self._renewed + self._times.lease_duration

    def permit(self, act: str) -> None:
        """Return if this replica may act as the leader.

        Args:
            act: the intended act, for the message.

        Raises:
            Unavailable: another replica may lead by now.
        """
        if self.has_expired:
            raise Unavailable(f"{act}: not executed, because another replica may be the leader")

    @contextlib.asynccontextmanager
    async def term(self) -> AsyncIterator[asyncio.Future[None]]:
        """Wait for leadership, lead until the context exits, then release the Lease.

        The yielded future is done when leadership is lost; work must then stop within `Times.notice`. The Lease is
        renewed until the body has ended, so that no other replica starts before the work has stopped. If the body ends
        with `MustEnd`, work continues, and the Lease is not released: it expires after the process has ended.
        """
        try:
            await self._acquire()
            self._continues, self._is_unbroken = self._is_unbroken, not self._is_shared
            self._report(leads=True)
            self._announce("became leader")
            renewal = asyncio.create_task(self._renew(), name="leadership")
            try:
                yield renewal
            finally:
                renewal.cancel()
                await asyncio.wait({renewal})
        except MustEnd:
            self._may_hold = False
            raise
        finally:
            await self._release()
            self._renewed = None
            self._successor = ""
            self.requested.clear()
            self._report(leads=False)

    async def _acquire(self) -> None:
        """Try until this replica leads."""
        while True:
            if await self._attempt(self._times.renew_deadline / 2):
                return
            await asyncio.sleep(self._times.retry_period * random.uniform(0.9, 1.1))

    async def _renew(self) -> None:
        """Renew the Lease; returns when it is lost."""
        deadline, pause = self._times.renew_deadline, self._times.renew_deadline / RENEWALS_PER_DEADLINE
        while self._renewed is not None:
            await asyncio.sleep(min(pause, self._renewed + deadline - self._clock()))
            left = self._renewed + deadline - self._clock()
            if left <= 0:
                self._renewed = None
            elif await self._attempt(min(left, deadline / 2)):
                pause = deadline / RENEWALS_PER_DEADLINE
            else:
                pause = self._times.retry_period
        self._announce("stopped leading", warning=True)

    async def _attempt(self, seconds: float) -> bool:
        """Acquire or renew the Lease, if this replica may and a response arrives in time.

        Returns:
            Whether the Lease was acquired or renewed.
        """
        try:
            async with asyncio.timeout(seconds):
                done = await self._take()
        except Conflict:  # another replica was first; the next attempt reads the Lease again
            return False
        except (KubeError, TimeoutError) as error:
            self._note(str(error) or f"no response within {seconds:.1f} s")
            return False
        self._note("")
        return done

    async def _take(self) -> bool:
        is_current, self._is_current = self._is_current, False  # until the write succeeds
        if not is_current:
            await self._observe()
        if self._observation is None or self._observation.holder != self._identity:
            self._is_unbroken = False
        if self._observation and not self._observation.may_be_taken_by(self._identity, self._clock()):
            self._renewed, self._may_hold = None, False
            await self._request()
            return False
        self._consider_request()
        sent = self._clock()
        self._may_hold = True
        await self._write(claim(self._observation, self._identity, self._times.lease_duration, datetime.now(UTC)))
        self._renewed, self._is_current = sent, not self._is_shared
        return True

    async def _request(self) -> None:
        """Request the Lease from its holder, which may lead too many; the holder clears the request."""
        seen = self._observation
        if seen is None or seen.requester or self._balance is None or not self._balance.wants(self):
            return
        log.info("%s: requesting the Lease from %s, which leads more than this replica", self._name, seen.holder)
        change = {
            "resourceVersion": seen.lease["metadata"]["resourceVersion"],
            "annotations": {REQUESTED_BY: self._identity},
        }
        self._is_requesting = True
        try:
            written = await self._kube.merge(LEASE, self._namespace, self._name, {"metadata": change})
        finally:
            self._is_requesting = False
        self._observation = seen.next(written, self._clock())

    def _consider_request(self) -> None:
        """Hand over the Lease if a replica requests it and this one leads others. A refused request is cleared."""
        requester = self._observation.requester if self._observation else ""
        is_other = requester not in ("", self._identity)
        if is_other and self.leads and not self._successor and self._balance is not None and self._balance.can_spare():
            log.info("%s: %s requests the Lease; handing it over", self._name, requester)
            self._successor = requester
            self.requested.set()

    async def _release(self) -> None:
        """Release the Lease if this replica may hold it; if that fails, the Lease expires."""
        if not self._may_hold:
            return
        self._is_current = self._may_hold = False
        if self._is_shared:
            return
        try:
            async with asyncio.timeout(self._times.retry_period):
                while not await self._try_release():
                    pass
        except (KubeError, TimeoutError) as error:
            log.warning("%s: Lease not released: %s", self._name, str(error) or "timeout")

    async def _try_release(self) -> bool:
        """Release the Lease if this replica holds it; return False if another client changed it at the same time."""
        await self._observe()
        if self._observation and self._observation.holder == self._identity:
            try:
                await self._write(self._release_spec(datetime.now(UTC)))
            except Conflict:  # such as a request for the Lease
                return False
            log.info("%s: Lease released", self._name)
        return True

    def _release_spec(self, now: datetime) -> Obj:
        """Return the spec to release the Lease, or to reserve it for the replica that requested it."""
        if not self._successor:
            return release(now)
        reserved = max(1, round(RESERVED_PERIODS * self._times.retry_period))
        return claim(self._observation, self._successor, reserved, now)

    async def _observe(self) -> None:
        lease = await self._kube.find(LEASE, self._namespace, self._name)
        if lease is None:
            self._observation = None
            return
        before, now = self._observation, self._clock()
        self._observation = before.next(lease, now) if before else LeaseObservation(lease, now)
        if self._observation.holder not in ("", self._identity, before.holder if before else ""):
            log.info("%s: %s leads; waiting", self._name, self._observation.holder)

    async def _write(self, spec: Obj) -> None:
        """Write the Lease, unless it has changed since it was observed (Conflict)."""
        metadata = {"name": self._name, "namespace": self._namespace}
        if self._observation is None:
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": spec}
            written = await self._kube.create(LEASE, body)
        else:
            version = self._observation.lease["metadata"]["resourceVersion"]
            change: Obj = {"resourceVersion": version}
            is_handing_over = self._successor and spec["holderIdentity"] == self._identity
            if self._observation.requester and not is_handing_over:
                change["annotations"] = {REQUESTED_BY: None}
            written = await self._kube.merge(LEASE, self._namespace, self._name, {"metadata": change, "spec": spec})
            if written["metadata"]["resourceVersion"] == version:
                # Other replicas would not observe this renewal: one that shares the Lease wrote the same microsecond.
                raise Conflict(f"Lease {self._name} was not changed by its renewal")
        self._observation = LeaseObservation(written, self._clock())

    def _announce(self, change: str, *, warning: bool = False) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "%s: %s %s", self._name, self._identity, change)
        if self._observation and not self._is_shared:
            message = f"{self._identity} {change}"
            self._recorder.record(Event.about(self._observation.lease, LEADER_ELECTION, message, warning=warning))

    def _report(self, *, leads: bool) -> None:
        if not self._is_shared:
            metrics.LEADER.labels(name=self._name).set(leads)

    def _note(self, problem: str) -> None:
        """Log a problem when it begins, not at every attempt."""
        if problem and not self._problem:
            log.warning("Lease %s/%s: retrying: %s", self._namespace, self._name, problem)
        self._problem = problem


class Fence:
    """A transport that rejects writes after the end of the term.

    Tasks are cancelled when leadership is lost, but a process that was suspended resumes within a task before it learns
    of the loss. Database calls, which do not use this transport, check `Leadership.permit` themselves.

    Args:
        permit: raises Unavailable if another replica may lead (`Leadership.permit`).
    """

    def __init__(self, transport: Transport, permit: Callable[[str], None]) -> None:
        self._transport = transport
        self._permit = permit

    async def request(self, request: Request) -> Response:
        if request.method != "GET":
            self._permit(str(request))
        return await self._transport.request(request)
