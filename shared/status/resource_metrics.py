"""What resources are in, as metrics: gauges made at each scrape from what the leader's cache holds.

So the series of a deleted resource vanish with it, a standby has none, and between scrapes they cost nothing. They tell
what the status says, so that an alert can say "gone" of servers that nobody scrapes any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.status import conditions

RESOURCE = ("kind", "namespace", "name")
"""Labels of every state: whose it is."""


@dataclass(frozen=True, slots=True)
class State:
    """A gauge of resources, called to say what it is for one of them.

    Attributes:
        name: the metric's.
        description: what it tells, and when there is none.
        labels: names of its own labels, which follow `RESOURCE`.
    """

    name: str
    description: str
    labels: tuple[str, ...] = ()

    def __call__(self, value: float | None, *labels: str) -> Sample:
        return Sample(self, value, labels)


class Sample(NamedTuple):
    """What a state is for one resource: None if it has none, and the values of the state's own labels."""

    state: State
    value: float | None
    labels: tuple[str, ...]


INFO = State(
    "platform_resource_info", "1; the label is the lowest version that runs, where the status tells it.", ("version",)
)
DESIRED = State("platform_resource_desired_replicas", "Servers, members or nodes that the spec asks for.")
READY = State("platform_resource_ready_replicas", "Those of them that clients may use, by the status.")
PHASE = State("platform_resource_phase", "1 for the phase that the status tells; none for others.", ("phase",))
CONDITION = State(
    "platform_resource_condition",
    "1 for what Ready, Reconciling and Stalled are; none for what they are not.",
    ("type", "status", "reason"),
)
UNREADY_SINCE = State(
    "platform_resource_unready_since_timestamp_seconds",
    "Since when Ready is not True, in Unix time; none while it is.",
)
PAUSED = State("platform_resource_paused", "1 while a person asks the operator to keep off, else 0.")
GENERATION = State("platform_resource_generation", "The spec's generation.")
OBSERVED_GENERATION = State(
    "platform_resource_observed_generation", "The generation that the status tells of; 0 before there is one."
)
CERTIFICATE_EXPIRY = State(
    "platform_resource_certificate_expiry_timestamp_seconds",
    "When the first of the resource's certificates ends, in Unix time; none where it has none.",
)

STATES = (
    INFO,
    DESIRED,
    READY,
    PHASE,
    CONDITION,
    UNREADY_SINCE,
    PAUSED,
    GENERATION,
    OBSERVED_GENERATION,
    CERTIFICATE_EXPIRY,
)
"""Those of every operator; their own are in operators/*/resource_metrics.py."""

CONDITIONS = (conditions.READY, conditions.RECONCILING, conditions.STALLED)


def common(obj: Obj) -> Iterator[Sample]:
    """The states of a resource that do not depend on its kind."""
    metadata, told = obj["metadata"], obj.get("status") or {}
    yield INFO(1, told.get("version") or "")
    if phase := told.get("phase"):
        yield PHASE(1, phase)
    yield GENERATION(metadata.get("generation", 0))
    yield OBSERVED_GENERATION(told.get("observedGeneration", 0))
    for name in CONDITIONS:
        if found := accessors.condition(obj, name):
            yield CONDITION(1, name, found["status"], found.get("reason") or "")
    if not accessors.is_true(obj, conditions.READY):
        since = accessors.condition(obj, conditions.READY).get("lastTransitionTime") or metadata["creationTimestamp"]
        yield UNREADY_SINCE(timestamp(since))


def timestamp(moment: str | None) -> float | None:
    """Unix time of a moment in RFC 3339; None for none."""
    return datetime.fromisoformat(moment).timestamp() if moment else None


class Resources(NamedTuple):
    """The resources of one kind.

    Attributes:
        all: as they are in the cache.
        states: of one of them, pure.
        certificate_expiry: when the first certificate of a resource ends, in Unix time, by resource.
    """

    kind: Kind
    all: Callable[[], Iterable[Obj]]
    states: Callable[[Obj], Iterable[Sample]]
    certificate_expiry: Mapping[Key, float]


@contextmanager
def shown(*resources: Resources, registry: CollectorRegistry = REGISTRY) -> Iterator[None]:
    """Show states of resources among the metrics, until the context is left."""
    collector = _Collector(resources)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)


class _Collector(Collector):
    """Makes the samples whenever somebody scrapes."""

    def __init__(self, resources: Iterable[Resources]) -> None:
        self._resources = tuple(resources)

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that to register it does not read the cache."""
        return ()

    def collect(self) -> Iterable[Metric]:
        families: dict[State, GaugeMetricFamily] = {}
        for resources in self._resources:
            for obj in resources.all():
                self._add(families, resources, obj)
        return families.values()

    def _add(self, families: dict[State, GaugeMetricFamily], resources: Resources, obj: Obj) -> None:
        key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
        expiry = CERTIFICATE_EXPIRY(resources.certificate_expiry.get(key))
        for state, value, labels in (*common(obj), *resources.states(obj), expiry):
            if value is None:
                continue
            family = families.get(state)
            if family is None:
                names = (*RESOURCE, *state.labels)
                family = families[state] = GaugeMetricFamily(state.name, state.description, labels=names)
            family.add_metric((resources.kind.name, *key, *labels), value)
