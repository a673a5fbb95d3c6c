"""Scenarios as data: the actions of users and failures. The same scenario runs in memory and on a real API server.

Scenarios of a new operator take a dozen lines:

    def controller(database: FakeEtcd) -> Controller[EtcdCluster, Observed]:
        return ...  # as in __main__, with observe and call bound to this database

    ETCD = Subject("etcd", controller, database=FakeEtcd)  # FakeEtcd.state() is compared at the end as well

    GROW = Scenario(
        "grow",
        given=(apply(size=1),),                    # setup, without disturbances
        steps=(apply(size=3), lose(POD), *operator_down(apply(size=5)), edit(SERVICE, {"spec": {"ports": None}})),
        ends="Ready",                              # final reason of the resource's Ready condition
    )

    @pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
    async def test_growing_survives(disturbance: Disturbance, scoreboard: Scoreboard) -> None:
        scoreboard.require(await sweep(ETCD, GROW, disturbance))

After each step the operator, Kubernetes' controllers and the garbage collector settle, except after steps of
`at_once(...)` and `limit_turns`. No operator runs during the steps of `operator_down(...)`. Any function can be a step:
`ScenarioStep("partition a from b", lambda stage: stage.database.partition("a", "b"))`. The disturbances are in
`tests.harness.disturbance`, the oracles that check each run in `tests.harness.sweep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD, Kind, Obj
from shared.runtime.controller import Controller
from simulator.api_server.actor import Actor
from simulator.api_server.kinds import Served
from simulator.api_server.requests import TargetedRequest
from simulator.clock import Clock
from simulator.kubelet.kubelet import Processes
from simulator.kubelet.workloads import Workloads


class Database(Protocol):
    """A fake database. Calls change it, and like a real one it outlives the operator's processes."""

    def state(self) -> Any:
        """Return the state that must be equal at the end, as JSON."""

    def counts(self) -> Counter[str]:
        """Count the operations that must not be repeated."""


class Unsafe(AssertionError):
    """An operation that may lose users' data."""


@runtime_checkable
class Simulated(Database, Processes, Protocol):
    """A database whose processes run in the pods, and that detects unsafe operations.

    Attributes:
        violations: unsafe operations that were carried out. The harness checks them after each turn; an exception would
            not fail the run, because an operator handles any exception.
    """

    violations: list[str]

    def check_write(self, target: TargetedRequest, live: Obj | None) -> None:
        """Check a write that the operator made.

        Args:
            live: object before the write; None if it did not exist.

        Raises:
            Unsafe: the write may lose users' data.
        """


@runtime_checkable
class Timed(Protocol):
    """A database whose state changes over time.

    Attributes:
        clock: clock of the world, set by the harness.
    """

    clock: Callable[[], datetime]


@runtime_checkable
class Watching(Protocol):
    """A database that compares writes with other objects of the world.

    Attributes:
        objects: returns the objects of a kind, or all; set by the harness.
    """

    objects: Callable[[Kind], list[tuple[Kind, Obj]]]


@runtime_checkable
class Judging(Protocol):
    """A database that knows whether what the operator reports is true."""

    def judge(self, objects: Sequence[tuple[Kind, Obj]]) -> None:
        """Judge the resources among all objects: called whenever operator and workloads have settled.

        Raises:
            Unsafe: a status claims what is not true, or an object has not the owners that it must have.
        """


class NoDatabase:
    """The database of an operator without database calls."""

    def state(self) -> Any:
        return None

    def counts(self) -> Counter[str]:
        return Counter()


@dataclass(frozen=True)
class Subject:
    """The operator under test.

    Attributes:
        name: name in the summary, such as memcached.
        controller: builds the controller as a new process does. Only the database outlives a process. The database
            carries out `call`; calls are counted and subject to faults as writes are.
        database: builds the database of a new world.
        serves: kinds that the API server must serve in addition to the built-in ones and the resource's.
        patience: longest timer of the operator for which time passes, in seconds. Longer timers fire immediately.
        unstable: fields, as keys at any depth, that a disturbance may change at the end, such as the leader.
        nodes: number of Kubernetes nodes over which pods are spread.
    """

    name: str
    controller: Callable[[Any], Controller[Any, Any]]
    database: Callable[[], Database] = NoDatabase
    serves: tuple[Kind | Served, ...] = ()
    patience: float = 0.0
    unstable: tuple[str, ...] = ()
    nodes: int = 1


@dataclass
class Stage:
    """The world as the steps of a scenario see it.

    Attributes:
        kind: kind of the resource.
        namespace: namespace of all objects.
        user_client: client of the user that carries out the steps.
        workloads: Kubernetes' controllers; a step can make their pods fail.
        database: database of the subject, which steps change directly.
        clock: clock of the world, if it can be advanced.
    """

    kind: Kind
    namespace: str
    user_client: Actor
    workloads: Workloads
    database: Any = None
    clock: Clock | None = None

    def find(self, kind: Kind | None = None) -> list[Obj]:
        """List the objects of a kind, by default the resources, in order of name."""
        return self.user_client.list(kind or self.kind, self.namespace)


@dataclass(frozen=True)
class ScenarioStep:
    """An action of a user, or a failure.

    Attributes:
        text: description for reports.
        act: carries out the step.
        absent: whether no operator runs during the step.
        turns: number of turns of operator and workloads before the next step; None until they settle.
        unobserved: whether no watch event reports the step, so that the operator observes it at its next resync.
    """

    text: str
    act: Callable[[Stage], object]
    absent: bool = False
    turns: int | None = None
    unobserved: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Scenario:
    """A sequence of steps with the expected end.

    Attributes:
        given: setup steps, during which no disturbance is injected.
        ends: reason of the resource's Ready condition at the end; empty if the resource is deleted.
        exact_counts: whether every run must create and delete as many objects as the undisturbed one. Set to False if
            these numbers depend on timing, as with a limit on turns.
        inexact: kind and name of each object for which this does not hold, as in `Secret cache-connection`.
    """

    name: str
    steps: tuple[ScenarioStep, ...]
    given: tuple[ScenarioStep, ...] = ()
    ends: str = "Ready"
    exact_counts: bool = True
    inexact: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.name


def apply(name: str = "cache", **spec: Any) -> ScenarioStep:
    """Apply a resource as a user. Fields of an earlier apply that are missing here are removed."""

    def act(stage: Stage) -> None:
        body = {"apiVersion": stage.kind.api_version, "kind": stage.kind.name}
        metadata = {"name": name, "namespace": stage.namespace}
        stage.user_client.apply(stage.kind, {**body, "metadata": metadata, "spec": spec}, force=True)

    return ScenarioStep(f"apply {name} {_short(spec)}", act)


def create(kind: Kind, name: str, **body: Any) -> ScenarioStep:
    """Create an object of another kind as a user."""

    def act(stage: Stage) -> None:
        head = {"apiVersion": kind.api_version, "kind": kind.name}
        stage.user_client.create(kind, {**head, "metadata": {"name": name, "namespace": stage.namespace}, **body})

    return ScenarioStep(f"create {kind} {name}", act)


def edit(kind: Kind | None, patch: Obj, name: str = "cache") -> ScenarioStep:
    """Merge a patch into an object as a user; by default into the resource."""
    return ScenarioStep(
        f"edit {kind or 'resource'} {name} {_short(patch)}",
        lambda stage: stage.user_client.merge(kind or stage.kind, stage.namespace, name, patch),
    )


def delete(kind: Kind | None = None, name: str = "cache", **options: Any) -> ScenarioStep:
    """Delete an object as a user, by default the resource; `options` are DeleteOptions."""
    return ScenarioStep(
        f"delete {kind or 'resource'} {name}",
        lambda stage: stage.user_client.delete(kind or stage.kind, stage.namespace, name, **options),
    )


def if_present(text: str, act: Callable[[Stage], object]) -> ScenarioStep:
    """Act, unless the object does not exist."""

    def tolerant(stage: Stage) -> None:
        with suppress(NotFound):
            act(stage)

    return ScenarioStep(text, tolerant)


def lose(kind: Kind = POD) -> ScenarioStep:
    """Delete the first object of a kind, by name, without a grace period."""

    def act(stage: Stage) -> None:
        there = stage.find(kind)
        if not there:
            raise NotFound(f"there is no {kind} to lose")
        stage.user_client.delete(kind, stage.namespace, there[0]["metadata"]["name"], gracePeriodSeconds=0)

    return ScenarioStep(f"lose a {kind}", act)


def pod_problem(what: str) -> ScenarioStep:
    """Make pods fail from now on for a reason, as in `Workloads.pod_problem`; an empty one makes them ready again."""

    def act(stage: Stage) -> None:
        stage.workloads.pod_problem = lambda _: what

    return ScenarioStep(f"pods are {what or 'ready'}", act)


def later(seconds: float) -> ScenarioStep:
    """Advance the clock (in memory only)."""

    def act(stage: Stage) -> None:
        assert stage.clock is not None, "this world's time cannot be moved"
        stage.clock.wait(seconds)

    return ScenarioStep(f"{seconds:g} s pass", act)


def operator_down(*steps: ScenarioStep) -> tuple[ScenarioStep, ...]:
    """Run no operator during these steps. It starts again before the next step, or at the end."""
    return tuple(replace(step, absent=True) for step in steps)


def at_once(*steps: ScenarioStep) -> tuple[ScenarioStep, ...]:
    """Carry out these steps without any reaction between them."""
    return (*(limit_turns(step, 0) for step in steps[:-1]), *steps[-1:])


def limit_turns(step: ScenarioStep, turns: int) -> ScenarioStep:
    """Continue with the next step after this many turns, before this one has settled; on a real server, immediately."""
    return replace(step, turns=turns)


def unobserved(step: ScenarioStep) -> ScenarioStep:
    """Hide this step from watches: the operator observes it at its next resync."""
    return replace(step, unobserved=True)


def describe_steps(steps: Iterable[ScenarioStep]) -> str:
    """Describe steps in one line."""
    return ", then ".join(map(str, steps))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
