"""What people do to a resource, as data: the same scenario is played in memory and on a real API server.

A scenario of the next operator is a dozen lines:

    def controller(database: FakeEtcd) -> Controller[EtcdCluster, Observed]:
        return ...  # as __main__ makes it, with observe and call speaking to this database

    ETCD = Subject("etcd", controller, database=FakeEtcd)  # FakeEtcd.state() is compared in the end, too

    GROW = Scenario(
        "grow",
        given=(apply(size=1),),                    # played before anything is disturbed
        steps=(apply(size=3), lose(POD), *away(apply(size=5)), edit(SERVICE, {"spec": {"ports": None}})),
        ends="Ready",                              # the reason of the resource's Ready condition in the end
    )

    @pytest.mark.parametrize("disturbance", DISTURBANCES, ids=str)
    async def test_growing_survives(disturbance: Disturbance, scoreboard: Scoreboard) -> None:
        scoreboard.require(await sweep(ETCD, GROW, disturbance))

After each step the operator, Kubernetes' controllers and the garbage collector come to rest, unless it is one of
`at_once(...)` or `hurried`; during those of `away(...)` there is no operator. A step of another kind is a function:
`Step("what happens", lambda stage: stage.database.partition("a", "b"))`. `shared.testing.harness.disturbance` tells
what can go wrong meanwhile, and `shared.testing.harness.sweep` what must hold all the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from shared.kubernetes.errors import NotFound
from shared.kubernetes.kinds import POD, Kind, Obj
from shared.runtime.controller import Controller
from shared.testing.api_server.actor import Actor
from shared.testing.api_server.kinds import Served
from shared.testing.api_server.requests import Aimed
from shared.testing.kubelet.kubelet import Processes
from shared.testing.kubelet.workloads import Workloads


class Database(Protocol):
    """A database's stand-in: calls change it, and it outlives the operator's processes as a real one does."""

    def state(self) -> Any:
        """What of it must be equal in the end, as JSON."""

    def counts(self) -> Counter[str]:
        """How often something was done, where it should not be done twice."""


class Unsafe(AssertionError):
    """Something was done that may cost people their data."""


@runtime_checkable
class Simulated(Database, Processes, Protocol):
    """A database whose processes run in the pods that there are, and that knows what must never be done to it.

    Attributes:
        violations: what was done all the same. They are looked for, since an operator survives any exception.
    """

    violations: list[str]

    def witness(self, asked: Aimed, live: Obj | None) -> None:
        """The operator has made this write.

        Args:
            live: the object as it was before; None if there was none.

        Raises:
            Unsafe: it must not.
        """


@runtime_checkable
class Timed(Protocol):
    """A database in which things happen as time passes.

    Attributes:
        clock: the world's; it is given.
    """

    clock: Callable[[], datetime]


class NoDatabase:
    """Of an operator that asks its database nothing."""

    def state(self) -> Any:
        return None

    def counts(self) -> Counter[str]:
        return Counter()


@dataclass(frozen=True)
class Subject:
    """The operator under test.

    Attributes:
        name: as the summary names it: memcached.
        controller: makes the controller as a process does when it starts; of what came before, only the database is
            left. Its `call` is carried out by the database, and is counted and struck by faults as writes are.
        database: makes the database of a new world.
        serves: kinds that the API server must know beyond Kubernetes' own and the resource's.
        patience: seconds that the operator's timers are waited for; longer ones ring as if no time had passed.
        unstable: fields, as keys at any depth, that may end otherwise where something went wrong: who leads.
        nodes: how many of Kubernetes' nodes pods are spread over.
    """

    name: str
    controller: Callable[[Any], Controller[Any, Any]]
    database: Callable[[], Database] = NoDatabase
    serves: tuple[Kind | Served, ...] = ()
    patience: float = 0.0
    unstable: tuple[str, ...] = ()
    nodes: int = 1


@dataclass
class Clock:
    """The time of a world; it stands still unless a step moves it, or the operator waits (`Subject.patience`)."""

    now: datetime

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Stage:
    """Where a scenario is played, as its steps see it.

    Attributes:
        kind: the resource's kind.
        namespace: where everything happens.
        person: who does what the steps say.
        workloads: Kubernetes' controllers; a step may give their pods trouble.
        database: the subject's; what a step does to it, no operator does.
        clock: the time, where it can be moved.
    """

    kind: Kind
    namespace: str
    person: Actor
    workloads: Workloads
    database: Any = None
    clock: Clock | None = None

    def find(self, kind: Kind | None = None) -> list[Obj]:
        """The objects of a kind, resources where none is given, in order of name."""
        return self.person.list(kind or self.kind, self.namespace)


@dataclass(frozen=True)
class ScenarioStep:
    """Something that happens.

    Attributes:
        text: what, for people.
        act: does it.
        absent: whether there is no operator meanwhile.
        turns: how many turns operator and workloads get before the next step; None for as many as they need to rest.
        untold: whether no watch tells the operator, so that it learns of it when it looks at everything again.
    """

    text: str
    act: Callable[[Stage], object]
    absent: bool = False
    turns: int | None = None
    untold: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Scenario:
    """A course of events, and how it ends.

    Attributes:
        given: steps that lead to the world in which it begins; nothing goes wrong in these.
        ends: the reason of the resource's Ready condition in the end; empty if there is no resource then.
        counted: whether every run must create and delete as much as the undisturbed one; not so where a hurried step
            makes that a matter of time.
    """

    name: str
    steps: tuple[ScenarioStep, ...]
    given: tuple[ScenarioStep, ...] = ()
    ends: str = "Ready"
    counted: bool = True

    def __str__(self) -> str:
        return self.name


def apply(name: str = "cache", **spec: Any) -> ScenarioStep:
    """A person applies a resource: fields that an earlier apply had and this has not are gone."""

    def act(stage: Stage) -> None:
        body = {"apiVersion": stage.kind.api_version, "kind": stage.kind.name}
        metadata = {"name": name, "namespace": stage.namespace}
        stage.person.apply(stage.kind, {**body, "metadata": metadata, "spec": spec}, force=True)

    return ScenarioStep(f"apply {name} {_short(spec)}", act)


def create(kind: Kind, name: str, **body: Any) -> ScenarioStep:
    """A person creates an object of another kind."""

    def act(stage: Stage) -> None:
        head = {"apiVersion": kind.api_version, "kind": kind.name}
        stage.person.create(kind, {**head, "metadata": {"name": name, "namespace": stage.namespace}, **body})

    return ScenarioStep(f"create {kind} {name}", act)


def edit(kind: Kind | None, patch: Obj, name: str = "cache") -> ScenarioStep:
    """A person merges a patch into an object; without a kind, into the resource."""
    return ScenarioStep(
        f"edit {kind or 'resource'} {name} {_short(patch)}",
        lambda stage: stage.person.merge(kind or stage.kind, stage.namespace, name, patch),
    )


def delete(kind: Kind | None = None, name: str = "cache", **options: Any) -> ScenarioStep:
    """A person deletes an object, without a kind the resource; options as in DeleteOptions."""
    return ScenarioStep(
        f"delete {kind or 'resource'} {name}",
        lambda stage: stage.person.delete(kind or stage.kind, stage.namespace, name, **options),
    )


def lose(kind: Kind = POD) -> ScenarioStep:
    """The first object of a kind, by name, is gone at once."""

    def act(stage: Stage) -> None:
        there = stage.find(kind)
        if not there:
            raise NotFound(f"there is no {kind} to lose")
        stage.person.delete(kind, stage.namespace, there[0]["metadata"]["name"], gracePeriodSeconds=0)

    return ScenarioStep(f"lose a {kind}", act)


def trouble(what: str) -> ScenarioStep:
    """Pods fail from now on as `Workloads.trouble` says; with an empty word they are well again."""

    def act(stage: Stage) -> None:
        stage.workloads.trouble = lambda _: what

    return ScenarioStep(f"pods are {what or 'well'}", act)


def later(seconds: float) -> ScenarioStep:
    """So much time passes at once (in memory only)."""

    def act(stage: Stage) -> None:
        assert stage.clock is not None, "this world's time cannot be moved"
        stage.clock.wait(seconds)

    return ScenarioStep(f"{seconds:g} s pass", act)


def away(*steps: ScenarioStep) -> tuple[ScenarioStep, ...]:
    """There is no operator while these happen; it starts again before the next step, or in the end."""
    return tuple(replace(step, absent=True) for step in steps)


def at_once(*steps: ScenarioStep) -> tuple[ScenarioStep, ...]:
    """Nobody has time to do anything between these."""
    return (*(hurried(step, 0) for step in steps[:-1]), *steps[-1:])


def hurried(step: ScenarioStep, turns: int) -> ScenarioStep:
    """The next step comes before this one has led to all that it leads to; where nobody counts turns, at once."""
    return replace(step, turns=turns)


def untold(step: ScenarioStep) -> ScenarioStep:
    """No watch tells the operator of this: it learns of it when it looks at everything again, as it does by itself."""
    return replace(step, untold=True)


def story(steps: Iterable[ScenarioStep]) -> str:
    """Steps as a line for people."""
    return ", then ".join(map(str, steps))


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
