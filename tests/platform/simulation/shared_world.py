"""One world of several operators: one API server, one kubelet and one time; each database has its own namespace.

An operator is judged by the guard of its database as in a world of its own. In addition, `Part` requires of each
destructive act of an operator (a pod, a volume claim or a StatefulSet is deleted or evicted):

- the object is one of its own database;
- the request carries the UID or the version of the object, so that it cannot hit a newer one of the same name;
- the operator observed the database at most `MAX_EVIDENCE_SECONDS` before;
- an operator that reaches no server of the database stops no server that runs, and deletes no volume.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from shared.kubernetes.accessors import is_terminating
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, STATEFUL_SET, Kind, Obj
from shared.runtime.controller import Controller
from shared.runtime.steady_clock import SteadyClock
from simulator.api_server.request_log import is_pinned
from simulator.api_server.requests import TargetedRequest
from simulator.api_server.server import ApiServer
from simulator.clock import Clock
from simulator.harness import NOW, Harness, View
from simulator.kubelet.kubelet import ProcessStatus
from simulator.kubelet.workloads import Workloads
from tests.etcd.simulation.database import FakeEtcd
from tests.harness.scenario import Judging, Subject, Unsafe
from tests.harness.scenario_runner import World
from tests.redis.simulation.database import FakeRedis

MAX_EVIDENCE_SECONDS = 60.0
"""Age of an observation from which no destructive act may follow any more."""

NODES = 4


class SharedWorld:
    """The worlds of several operators, as one.

    Args:
        subjects: operators, each with a database of its own in a namespace of the subject's name.

    Attributes:
        parts: the world as each operator has it, by namespace.
        acting: part whose operator runs now.
    """

    def __init__(self, subjects: Iterable[Subject]) -> None:
        given = [(subject, subject.database()) for subject in subjects]
        self.clock = Clock(NOW)
        kinds = [each for subject, database in given for each in (subject.controller(database).kind, *subject.serves)]
        self.server = ApiServer(kinds, clock=self.clock)
        self.workloads = Workloads(self.server, processes=self, nodes=NODES)
        self._namespaces: dict[str, str] = {}  # of each pod and claim, by UID
        self._connect(given)

    def _connect(self, given: Iterable[tuple[Subject, Any]]) -> None:
        self.parts = {subject.name: Part(self, subject, database) for subject, database in given}
        self.acting: Part | None = None
        self.server.check_write = self._check_write

    def fork(self) -> SharedWorld:
        """Return an independent copy of this world."""
        world = SharedWorld.__new__(SharedWorld)
        world.clock = copy.copy(self.clock)
        world.server = self.server.fork(world.clock)
        world.workloads = self.workloads.fork(world.server, world)
        world._namespaces = dict(self._namespaces)
        kept = {id(each): each for each in (self.server, self.clock, *self.parts.values())}
        world._connect((part.subject, copy.deepcopy(part.database, dict(kept))) for part in self.parts.values())
        return world

    # Processes in pods, of all databases.

    reads_files = True

    def run(self, pod: Obj, claims: Mapping[str, Obj]) -> ProcessStatus:
        """Start the processes of a pod, of the database of its namespace."""
        for each in (pod, *claims.values()):
            self._namespaces[each["metadata"]["uid"]] = pod["metadata"]["namespace"]
        found: ProcessStatus = self.parts[pod["metadata"]["namespace"]].database.run(pod, claims)
        return found

    def end(self, uid: str) -> None:
        """Handle the deletion of a pod or claim."""
        self.parts[self._namespaces[uid]].database.end(uid)

    def _check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        assert self.acting is not None, f"no operator runs, and one writes {target.what}"
        self.acting.check_write(target, live)


class Part(World):
    """The shared world as one operator has it: with its own database, and the objects of its namespace.

    Attributes:
        observed_at: time at which the operator that runs now observed a database last.
    """

    database: Any

    def __init__(self, shared: SharedWorld, subject: Subject, database: Any) -> None:
        self.shared, self.subject, self.namespace, self.database = shared, subject, subject.name, database
        self.clock, self.server, self.workloads = shared.clock, shared.server, shared.workloads
        self.observed_at: datetime | None = None
        self._before = 0
        database.clock, database.objects = shared.clock, self.objects

    def fork(self) -> World:
        return self.shared.fork().parts[self.namespace]

    def objects(self, kind: Kind | None = None) -> list[tuple[Kind, Obj]]:
        """Return the objects of the namespace."""
        return [each for each in self.server.objects(kind) if each[1]["metadata"].get("namespace") == self.namespace]

    def judge(self) -> None:
        if isinstance(self.database, Judging):
            self.database.judge(self.objects())

    def harness(self, controller: Controller[Any, Any], patience: float, view: View | None = None) -> Harness:
        noted = dataclasses.replace(controller, observe=self._noting(controller.observe))
        clock = SteadyClock(self.clock.wall, self.clock.monotonic)
        return _Acting(self, noted, clock, patience, view)

    def _noting(self, observe: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def noting(*given: Any) -> Any:
            seen = await observe(*given)
            self.observed_at = self.clock.now
            return seen

        return noting

    # Destructive acts.

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        """Check a write of the operator, as the guard of its database does, and destructive ones in addition."""
        if target.namespace not in ("", self.namespace):
            self._fail(target, "which is of another operator")
        if target.verb in ("DELETE", "EVICT") and target.kind in (POD, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET) and live:
            self._require_evidence(target, live)
        self.database.check_write(target, live)

    def _require_evidence(self, target: TargetedRequest, live: Obj) -> None:
        if not is_pinned(target):
            self._fail(target, "by its name alone")
        age = (self.clock.now - self.observed_at).total_seconds() if self.observed_at else None
        if age is None or age > MAX_EVIDENCE_SECONDS:
            self._fail(target, f"and observed the database {age} s ago")
        runs = target.stops_pod and not is_terminating(live) and live["metadata"]["name"] in running(self.database)
        if is_blind(self.database) and (runs or target.kind == PERSISTENT_VOLUME_CLAIM):
            self._fail(target, "although it reaches no server")

    def _fail(self, target: TargetedRequest, why: str) -> None:
        what = f"{target.kind} {target.namespace}/{target.name}"
        violation = f"the {self.subject.name} operator sends {target.verb} {what}, {why}"
        self.database.violations.append(violation)
        raise Unsafe(violation)


class _Acting(Harness):
    """A process of an operator in a shared world, which records whose writes follow."""

    def __init__(
        self, part: Part, controller: Controller[Any, Any], clock: SteadyClock, patience: float, view: View | None
    ) -> None:
        self._part = part
        super().__init__(
            controller, workloads=part.workloads, clock=clock, view=view, patience=patience, wait=part.clock.wait
        )

    async def run(self) -> list[str]:
        self._part.shared.acting = self._part
        return await super().run()


def running(database: Any) -> set[str]:
    """Return the pods in which a server runs that the operator can reach at all."""
    return {process.pod for process in getattr(database, "running", ())}


def is_blind(database: Any) -> bool:
    """Return whether an operator reaches no server of its database, although some run."""
    pods = running(database)
    if isinstance(database, FakeRedis):
        return bool(pods) and (database.cut_off or pods <= database.hidden)
    if isinstance(database, FakeEtcd):
        numbers = {int(pod.rpartition("-")[2]) for pod in pods}
        return bool(pods) and (database.cut_off or numbers <= database.unreachable)
    return False
