"""Any function that a reconcile calls may raise: its worker continues, others are served, and the resource recovers.

The callees are not listed: the interpreter reports each call from the modules of the reconcile, and one of them raises
instead. So there is none that the test could have overlooked.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from types import FrameType
from typing import Any

import pytest

from shared.api.spec import InvalidSpec
from shared.kubernetes import accessors
from shared.kubernetes.client import Kube
from shared.kubernetes.errors import Conflict, KubeError, Unavailable
from shared.kubernetes.kinds import CONFIG_MAP, POD, SECRET, Key, Kind, Obj
from shared.kubernetes.ownership import Owner
from shared.runtime.cache import Cache
from shared.runtime.controller import Controller
from shared.runtime.errors import DatabaseError
from shared.runtime.plan import Action, Apply, Attempt, Call, Delete, Patch, Plan, Record, WriteSecret
from shared.runtime.queue import Queue
from shared.runtime.reconciler import MIN_FAILURES_REPORTED, Reconciler
from shared.runtime.reflector import LOSS_REPORTED_SECONDS, Loss
from shared.runtime.supervisor import Supervisor
from shared.status.events import Recorder
from shared.status.health import Finding, Health
from shared.status.reasons import Reason
from shared.status.verdict import Verdict
from simulator.api_server.server import ApiServer

BOX = Kind("example.com", "v1", "Box", "boxes")
BAD, GOOD = Key("default", "bad"), Key("default", "good")
CONTROLLER = "box"

CALLERS = (
    "runtime/reconciler.py",
    "runtime/executor.py",
    "runtime/field_conflicts.py",
    "status/conditions.py",
    "status/readiness.py",
)
"""Modules whose calls raise. An error of what their callees call in turn looks the same from here."""

UNRECOVERABLE = {"Queue.done"}
"""Callees that lose the resource if they raise: it stays in process until the operator restarts. Others are served."""

Site = tuple[str, int, str]
"""A call: calling function, line, and called function."""


class Injected(Exception):
    """The error of a callee."""


class Calls:
    """The calls of the reconcile's modules while the context is entered.

    Args:
        raises: the call that raises once; None for none.

    Attributes:
        made: all calls, in order, each once.
    """

    def __init__(self, raises: Site | None = None) -> None:
        self.raises = raises
        self.made: dict[Site, None] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        gc.disable()  # a finalizer would count as a call of the function that runs at that moment
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)
            gc.enable()

    def _profile(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            caller, name = frame.f_back, frame.f_code.co_qualname
        elif event == "c_call":
            caller, name = frame, called.__qualname__
        else:
            return
        if caller is None or not caller.f_code.co_filename.endswith(CALLERS):
            return
        site = (caller.f_code.co_qualname, caller.f_lineno, name)
        self.made.setdefault(site)
        if site == self.raises:
            self.raises = None
            raise Injected(str(site))


@dataclass(frozen=True, slots=True)
class Shake(Call):
    """A call on the database of a box."""

    box: str

    def __str__(self) -> str:
        return f"shake {self.box}"


class Refused(DatabaseError):
    """The box refuses a call."""

    reason = Reason("Refused")


class Bench:
    """Two boxes, each with a ConfigMap, and a worker that reconciles them.

    Attributes:
        problem: error of the bad box; None for none.
        at: function that raises it: parse, observe, plan or call.
        actions: further actions of the next plan for the bad box.
        loss: collection that is not observed.
    """

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.at = ""
        self.actions: list[Callable[[Owner], Action]] = []
        self.loss: Loss | None = None
        self.server = ApiServer([BOX])
        self.user = self.server.actor("kubectl")
        kube = Kube(self.server, manager="box-operator")
        controller: Controller[Obj, Obj] = Controller(
            "box-operator", BOX, (CONFIG_MAP, POD), self._parse, self._observe, self._plan, self._call
        )
        self.queue = Queue(CONTROLLER, jitter=lambda: 0.0)
        self.cache = controller.cache(lambda _: None)
        for kind in controller.kinds:
            self.server.subscribe(lambda event, kind=kind: self._receive(kind, event), kind)  # type: ignore[misc]
        self.reconciler = Reconciler(
            controller,
            kube=kube,
            cache=self.cache,
            queue=self.queue,
            recorder=Recorder(kube, component="box-operator"),
            loss=lambda key: self.loss if key == BAD else None,
        )
        self.supervisor = Supervisor(sleep=lambda _: asyncio.sleep(0))
        self.worker = self.supervisor.start("worker", self.reconciler.work)
        for key in (BAD, GOOD):
            self.set_size(key, 1)

    def set_size(self, key: Key, size: int) -> None:
        metadata = {"name": key.name, "namespace": key.namespace}
        obj = {"apiVersion": BOX.api_version, "kind": BOX.name, "metadata": metadata, "spec": {"size": size}}
        self.user.apply(BOX, obj, force=True)

    async def reconcile(self, key: Key = BAD, times: int = 1) -> None:
        """Reconcile until nothing waits, several times."""
        for _ in range(times):
            self.queue.add(key)
            for _ in range(5000):
                await asyncio.sleep(0)
                if not len(self.queue) and not self.queue.ages():
                    break

    def reported(self, key: Key) -> Obj:
        return accessors.status_of(self.user.get(BOX, *key))

    def _receive(self, kind: Kind, event: Obj) -> None:
        obj = {"apiVersion": kind.api_version, "kind": kind.name} | event["object"]
        (self.cache.on_deleted if event["type"] == "DELETED" else self.cache.on_changed)(kind, obj)

    def _fail(self, obj: Obj, at: str) -> None:
        if self.problem is not None and self.at == at and obj["metadata"]["name"] == BAD.name:
            raise self.problem

    def _parse(self, obj: Obj) -> Obj:
        self._fail(obj, "parse")
        return obj

    async def _observe(self, resource: Obj, _: Cache, __: Kube) -> Obj:
        self._fail(resource, "observe")
        return resource

    def _plan(self, resource: Obj, _: Obj, __: datetime) -> Plan:
        self._fail(resource, "plan")
        metadata, size = resource["metadata"], str(resource["spec"]["size"])
        own = Owner(BOX, metadata["namespace"], metadata["name"], metadata["uid"], "box", "box-operator")
        actions: list[Action] = [Apply(CONFIG_MAP, own.object(CONFIG_MAP, own.name, component="box", data={"n": size}))]
        if metadata["name"] == BAD.name:
            while self.actions:
                actions.append(self.actions.pop(0)(own))
        fine = Finding(True, Reason("Any"), "")
        return Plan((tuple(actions),), Verdict(message="All is well."), {"size": size}, health=Health(fine, fine, fine))

    async def _call(self, call: Call, _: Record) -> None:
        assert isinstance(call, Shake)
        self._fail({"metadata": {"name": call.box}}, "call")


Path = Callable[[Bench], Awaitable[None]]


async def change(bench: Bench) -> None:
    """Create the objects of a box, and carry out other kinds of actions."""
    await bench.reconcile()

    def labelled(own: Owner) -> Obj:
        return bench.user.get(CONFIG_MAP, *BAD)

    bench.actions = [
        lambda own: Patch(CONFIG_MAP, labelled(own), {"metadata": {"annotations": {"a": "b"}}}),
        lambda own: Shake(own.name),
        lambda own: Attempt(Shake(own.name), Refused, CONFIG_MAP, labelled(own), ("refused", "why")),
        lambda own: WriteSecret(own.object(SECRET, "s", component="box"), None, token="password"),
    ]
    await bench.reconcile(times=2)


async def restore(bench: Bench) -> None:
    """Restore an object that another client keeps changing, and one that it deletes."""
    for number in range(4):
        bench.server.actor("helm").merge(CONFIG_MAP, *BAD, {"data": {"n": f"{number + 7}"}})
        await bench.reconcile()
    bench.user.delete(CONFIG_MAP, *BAD)
    await bench.reconcile()


async def delete(bench: Bench) -> None:
    """Delete an object of a box, and then the box."""
    bench.actions = [lambda _: Delete(CONFIG_MAP, bench.user.get(CONFIG_MAP, *BAD))]
    await bench.reconcile()
    bench.user.delete(BOX, *BAD)
    await bench.reconcile()


def failing(at: str, problem: Exception) -> Path:
    async def fail(bench: Bench) -> None:
        bench.at, bench.problem = at, problem
        bench.actions = [lambda own: Shake(own.name) for _ in range(9)]
        await bench.reconcile(times=MIN_FAILURES_REPORTED + 1)

    return fail


async def blind(bench: Bench) -> None:
    bench.loss = Loss("pods", "injected", LOSS_REPORTED_SECONDS)
    await bench.reconcile(times=2)


PATHS: dict[str, Path] = {
    "change": change,
    "restore": restore,
    "delete": delete,
    "invalid": failing("parse", InvalidSpec("size")),
    "bug": failing("plan", KeyError("lid")),
    "bug while observing": failing("observe", KeyError("lid")),
    "database": failing("call", Refused("no")),
    "conflict": failing("plan", Conflict("old")),
    "unavailable": failing("observe", Unavailable("no answer")),
    "blind": blind,
}


async def course(path: Path, calls: Calls) -> None:
    """Take a path with calls that raise, and require that nothing but the bad box, and only for now, is disturbed."""
    bench = Bench()
    try:
        if path is not change:
            await bench.reconcile()
        with calls.watched(), suppress(KubeError):  # the user finds no object, because its creation failed
            await path(bench)
        assert not bench.worker.done(), "the worker continues"
        bench.server.collect_garbage()
        bench.set_size(GOOD, 5)
        await bench.reconcile(GOOD)
        assert bench.reported(GOOD).get("size") == "5", "another resource is served"
        bench.problem, bench.loss = None, None
        bench.set_size(BAD, 6)
        await bench.reconcile(times=2)
        assert bench.reported(BAD).get("size") == "6", "the next event repairs the resource itself"
        assert accessors.is_true(bench.user.get(BOX, *BAD), "Ready")
    finally:
        bench.worker.cancel()
        await asyncio.wait({bench.worker})


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Log nothing: thousands of tracebacks are most of the time."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


# A callee that would have awaited a coroutine raises instead.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", PATHS)
async def test_callee_that_raises_disturbs_nothing_else(name: str) -> None:
    reference = Calls()
    await course(PATHS[name], reference)
    assert len(reference.made) > 30, "the calls of the reconcile are noticed"
    for site in reference.made:
        calls = Calls(site)
        if site[2] in UNRECOVERABLE:
            continue
        try:
            await course(PATHS[name], calls)
        except (AssertionError, Injected) as error:
            raise AssertionError(f"{site}: {error}") from error
        assert calls.raises is None, f"{site} was not called again"


async def test_cancellation_of_what_a_reconcile_awaits_restarts_no_worker_and_is_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as of a connection whose pool was closed. That of the worker itself ends it."""
    bench = Bench()
    await bench.reconcile()

    async def cancelled(*_: object) -> Obj:
        waiter: asyncio.Future[Obj] = asyncio.get_running_loop().create_future()
        waiter.cancel()
        return await waiter

    monkeypatch.setattr(bench.reconciler, "_converge", cancelled)
    await bench.reconcile()
    assert bench.supervisor.note() is None, "no worker was restarted"
    assert bench.queue.failures(BAD) > 0, "the resource is reconciled again without an event"
    waits = asyncio.Event()
    monkeypatch.setattr(bench.reconciler, "_converge", lambda *_: waits.wait())
    bench.queue.add(GOOD)
    await asyncio.sleep(0.01)
    bench.worker.cancel()
    await asyncio.wait({bench.worker})
    assert bench.worker.cancelled()


@pytest.mark.parametrize("also", [(), ("retry",)], ids=["reconcile", "reconcile and its retry"])
async def test_unexpected_error_restarts_no_worker_and_is_retried(
    monkeypatch: pytest.MonkeyPatch, also: tuple[str, ...]
) -> None:
    """The supervisor would restart the worker, but after a delay, and the resource would wait for its next event."""
    bench = Bench()
    await bench.reconcile()

    def fail(*_: object, **__: object) -> None:
        raise Injected

    monkeypatch.setattr(bench.reconciler._readiness, "begin", fail)
    for name in also:
        monkeypatch.setattr(bench.queue, name, fail)
    try:
        await bench.reconcile()
        assert bench.supervisor.note() is None, "no worker was restarted"
        assert also or bench.queue.failures(BAD) > 0, "the resource is reconciled again without an event"
    finally:
        bench.worker.cancel()
        await asyncio.wait({bench.worker})
