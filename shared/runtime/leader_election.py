"""One replica works, the others stand by: leader election by a Lease, with client-go's rules.

The rules, and why none needs the replicas' clocks to agree:

- A Lease is another's until nothing in it changed for as long as it says, by *our own* monotonic clock; what times
  are written in it is for people.
- A leader that could not renew for `renew_deadline` stops working; others begin at `lease_duration` at the earliest,
  and in the time between, its workers end. It then stands by, its cache kept warm, and takes part again: an API server
  that is away for a minute costs a minute, and no restart.
- A leader that ends gives the Lease back, so that another begins within a `retry_period`.

A new leader's cache is as fresh as its watches, so the old leader's last writes may be missing in it. That is harmless
by how writes are made (docs/architecture.md): what exists is not created again, and what changed or was replaced since
it was seen is refused by the API server, then looked at anew.

Why not the official client's `kubernetes.aio.leaderelection`: it never gives the Lease back, goes by the wall clock,
counts no transitions, and waits for a request that hangs beyond the renew deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from shared.kubernetes.client import Kube, Request, Response, Transport
from shared.kubernetes.errors import Conflict, KubeError, NotFound, Unavailable
from shared.kubernetes.kinds import LEASE, Obj
from shared.observability import metrics
from shared.status.events import Event, Recorder
from shared.status.reasons import LEADER_ELECTION

log = logging.getLogger(__name__)

RENEWALS_PER_DEADLINE = 4
"""How often a leader renews within its renew deadline."""


@dataclass(frozen=True, slots=True)
class Times:
    """When what happens, in seconds.

    Attributes:
        lease_duration: from a leader's last renewal until another takes over.
        renew_deadline: from its last renewal until a leader stops working; below lease_duration.
        retry_period: between tries to take the Lease, or to renew it after a failure.
    """

    lease_duration: int = 15
    renew_deadline: float = 10.0
    retry_period: float = 1.0

    @property
    def notice(self) -> float:
        """What a leader that lost the Lease has to end its work, before another begins."""
        return self.lease_duration - self.renew_deadline


@dataclass(frozen=True, slots=True)
class LeaseObservation:
    """A Lease, and since when, by our own clock, it has said what it says."""

    lease: Obj
    since: float

    @property
    def spec(self) -> Obj:
        return self.lease.get("spec") or {}

    @property
    def holder(self) -> str:
        """Whose it is; empty if nobody's."""
        return self.spec.get("holderIdentity") or ""

    def next(self, lease: Obj, now: float) -> LeaseObservation:
        """What is seen now; the time stays where the Lease says what it said."""
        seen = LeaseObservation(lease, now)
        return LeaseObservation(lease, self.since) if seen.spec == self.spec else seen

    def may_be_taken_by(self, identity: str, now: float) -> bool:
        """Whether it is nobody's, the candidate's own, or was not renewed in time."""
        return self.holder in ("", identity) or now >= self.since + self.spec.get("leaseDurationSeconds", 0)


def claim(sight: LeaseObservation | None, identity: str, duration: int, now: datetime) -> Obj:
    """The spec of a Lease as its taker, or its holder once more, writes it.

    Args:
        sight: what there was; None for nothing.
        duration: seconds that others wait without news.
        now: the wall clock, for people.
    """
    spec = {"holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": _micro_time(now)}
    if sight is None:
        return spec | {"acquireTime": _micro_time(now), "leaseTransitions": 0}
    if sight.holder == identity:
        return spec
    return spec | {"acquireTime": _micro_time(now), "leaseTransitions": sight.spec.get("leaseTransitions", 0) + 1}


def release(now: datetime) -> Obj:
    """The spec of a Lease that is given back; a second is the shortest duration that the API takes."""
    return {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": _micro_time(now)}


def _micro_time(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


Term = Callable[[], contextlib.AbstractAsyncContextManager[asyncio.Future[None]]]
"""Makes a context that is entered once we may work; what it gives is done when we may no longer."""


@contextlib.asynccontextmanager
async def unopposed() -> AsyncIterator[asyncio.Future[None]]:
    """The term of an operator that runs alone: it begins at once and is never lost."""
    yield asyncio.get_running_loop().create_future()


class Leadership:
    """A candidate for a Lease.

    Args:
        name: the Lease's name: the operator's.
        identity: who we are; by default the host's name (the pod's) and something of this process alone.
        clock: our own, monotonic, in seconds.
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
    ) -> None:
        self._kube = kube
        self._recorder = recorder
        self._name = name
        self._namespace = namespace
        self._times = times
        self._identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self._clock = clock or asyncio.get_running_loop().time
        self._sight: LeaseObservation | None = None
        self._is_current = False  # nobody wrote the Lease after what we saw, as far as we know
        self._may_be_ours = False  # even if no answer said so
        self._renewed: float | None = None  # when the last successful renewal was sent; None: we do not lead
        self._trouble = ""
        self._master = metrics.LEADER.labels(name=name)
        self._master.set(0)

    @property
    def has_expired(self) -> bool:
        """Whether another may lead by now."""
        return self._renewed is None or self._clock() >= self._renewed + self._times.lease_duration

    def permit(self, act: str) -> None:
        """Let pass what only the leader may do.

        Args:
            act: what is about to be done, for the message.

        Raises:
            Unavailable: another may lead by now.
        """
        if self.has_expired:
            raise Unavailable(f"nothing was done, for another replica may lead by now ({act})")

    @contextlib.asynccontextmanager
    async def term(self) -> AsyncIterator[asyncio.Future[None]]:
        """Wait until we lead; lead until the context is left, then give the Lease back.

        What is given is done when leadership is lost: work must end then, before `Times.notice` is over. While the
        context is left slowly, the Lease is renewed, so that nobody begins before the work has ended.
        """
        try:
            await self._acquire()
            self._master.set(1)
            self._tell("became leader")
            renewal = asyncio.create_task(self._renew(), name="leadership")
            try:
                yield renewal
            finally:
                renewal.cancel()
                await asyncio.wait({renewal})
        finally:
            await self._release()
            self._renewed = None
            self._master.set(0)

    async def _acquire(self) -> None:
        """Try until we lead."""
        while True:
            if await self._attempt(self._times.renew_deadline / 2):
                return
            await asyncio.sleep(self._times.retry_period * random.uniform(0.9, 1.1))

    async def _renew(self) -> None:
        """Keep the Lease; returns when it is lost."""
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
        self._tell("stopped leading", warning=True)

    async def _attempt(self, seconds: float) -> bool:
        """Take or renew the Lease, if we may and an answer comes in time.

        Returns:
            Whether that was done.
        """
        try:
            async with asyncio.timeout(seconds):
                done = await self._take()
        except Conflict:  # another was first, or edited it: looked at anew by the next try
            return False
        except (KubeError, TimeoutError) as error:
            self._note(str(error) or f"no answer within {seconds:.1f} s")
            return False
        self._note("")
        return done

    async def _take(self) -> bool:
        is_current, self._is_current = self._is_current, False  # until an answer says so
        if not is_current:
            await self._look()
        if self._sight and not self._sight.may_be_taken_by(self._identity, self._clock()):
            self._renewed, self._may_be_ours = None, False
            return False
        sent = self._clock()
        self._may_be_ours = True
        await self._write(claim(self._sight, self._identity, self._times.lease_duration, datetime.now(UTC)))
        self._renewed, self._is_current = sent, True
        return True

    async def _release(self) -> None:
        """Give the Lease back, if it may be ours; its end does it, too, if that fails."""
        if not self._may_be_ours:
            return
        self._is_current = self._may_be_ours = False
        try:
            async with asyncio.timeout(self._times.retry_period):
                await self._look()
                if self._sight and self._sight.holder == self._identity:
                    await self._write(release(datetime.now(UTC)))
                    log.info("%s: Lease given back", self._name)
        except (KubeError, TimeoutError) as error:
            log.warning("%s: Lease not given back: %s", self._name, str(error) or "no answer in time")

    async def _look(self) -> None:
        try:
            lease = await self._kube.get(LEASE, self._namespace, self._name)
        except NotFound:
            self._sight = None
            return
        before, now = self._sight, self._clock()
        self._sight = before.next(lease, now) if before else LeaseObservation(lease, now)
        if self._sight.holder not in ("", self._identity, before.holder if before else ""):
            log.info("%s: %s leads; standing by", self._name, self._sight.holder)

    async def _write(self, spec: Obj) -> None:
        """Make the Lease say this, unless it was changed since it was seen (Conflict)."""
        metadata = {"name": self._name, "namespace": self._namespace}
        if self._sight is None:
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata, "spec": spec}
            written = await self._kube.create(LEASE, body)
        else:
            version = self._sight.lease["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": spec}
            written = await self._kube.merge(LEASE, self._namespace, self._name, patch)
        self._sight = LeaseObservation(written, self._clock())

    def _tell(self, turn: str, *, warning: bool = False) -> None:
        log.log(logging.WARNING if warning else logging.INFO, "%s: %s %s", self._name, self._identity, turn)
        if self._sight:
            told = f"{self._identity} {turn}"
            self._recorder.record(Event.about(self._sight.lease, LEADER_ELECTION, told, warning=warning))

    def _note(self, trouble: str) -> None:
        """Log what is wrong when it begins, not at every try."""
        if trouble and not self._trouble:
            log.warning("Lease %s/%s: trying again: %s", self._namespace, self._name, trouble)
        self._trouble = trouble


class Fence:
    """A transport whose writes end with the term.

    Tasks are cancelled when leadership is lost, but a process that was frozen for a minute wakes up in the middle of
    them, before it knows. Steps on the database, which pass no transport, ask `Leadership.permit` themselves.
    """

    def __init__(self, transport: Transport, leadership: Leadership) -> None:
        self._transport = transport
        self._leadership = leadership

    async def request(self, request: Request) -> Response:
        if request.method != "GET":
            self._leadership.permit(str(request))
        return await self._transport.request(request)
