"""Metrics of resources: gauges computed at each scrape from the cache of the leader.

The series of a deleted resource disappear with it, a standby replica exposes none, and they cost nothing between
scrapes. Values come from the status, so that alerts also cover servers that are no longer scraped.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from shared.kubernetes import accessors
from shared.kubernetes.kinds import Key, Kind, Obj
from shared.observability import metrics
from shared.status import conditions, progress

log = logging.getLogger(__name__)

RESOURCE = ("kind", "namespace", "name")
"""Labels of every metric: kind, namespace and name of the resource."""


@dataclass(frozen=True, slots=True)
class State:
    """A gauge of resources. Call it to make a sample for one resource.

    Attributes:
        name: name of the metric.
        description: help text, including when the series is absent.
        labels: names of further labels, which follow `RESOURCE`.
    """

    name: str
    description: str
    labels: tuple[str, ...] = ()

    def __call__(self, value: float | None, *labels: str) -> Sample:
        return Sample(self, value, labels)


def states_in(file: Path) -> Mapping[str, State]:
    """Return the gauges in a TOML file, by name: the `help` of each, and its `labels` if it has further ones."""
    rows = tomllib.loads(file.read_text("utf-8"))
    return {name: State(name, row["help"], tuple(row.get("labels", ()))) for name, row in rows.items()}


class Sample(NamedTuple):
    """A value of a gauge for one resource (None: no series), with the values of the gauge's own labels."""

    state: State
    value: float | None
    labels: tuple[str, ...]


_STATES = states_in(Path(__file__).with_suffix(".toml"))
INFO = _STATES["platform_resource_info"]
DESIRED = _STATES["platform_resource_desired_replicas"]
READY = _STATES["platform_resource_ready_replicas"]
PHASE = _STATES["platform_resource_phase"]
CONDITION = _STATES["platform_resource_condition"]
UNREADY_SINCE = _STATES["platform_resource_unready_since_timestamp_seconds"]
PAUSED = _STATES["platform_resource_paused"]
GENERATION = _STATES["platform_resource_generation"]
OBSERVED_GENERATION = _STATES["platform_resource_observed_generation"]
CERTIFICATE_EXPIRY = _STATES["platform_resource_certificate_expiry_timestamp_seconds"]
CERTIFICATE_NOT_BEFORE = _STATES["platform_resource_certificate_not_before_timestamp_seconds"]
CERTIFICATE_NOT_AFTER = _STATES["platform_resource_certificate_not_after_timestamp_seconds"]
ADVISORY = _STATES["platform_resource_advisory"]
PROGRESS = _STATES["platform_resource_progress_ratio"]
REMAINING = _STATES["platform_resource_progress_remaining_seconds"]

STATES = tuple(_STATES.values())
"""Metrics of every operator; further ones are in operators/*/report/metrics.py."""


def common(obj: Obj) -> Iterator[Sample]:
    """Return the samples of a resource that do not depend on its kind."""
    metadata, status = obj["metadata"], accessors.status_of(obj)
    yield INFO(1, status.get("serverVersion") or status.get("version") or "")
    if phase := status.get("phase"):
        yield PHASE(1, phase)
    yield GENERATION(metadata.get("generation", 0))
    yield OBSERVED_GENERATION(status.get("observedGeneration", 0))
    for name in conditions.COMPOSED:
        if found := accessors.condition(obj, name):
            yield CONDITION(1, name, found["status"], found.get("reason") or "")
    for work in status.get(progress.FIELD) or ():
        yield PROGRESS(work["done"] / work["total"], work["what"])
        yield REMAINING(work.get("remainingSeconds"), work["what"])
    if not accessors.is_true(obj, conditions.READY):
        since = accessors.condition(obj, conditions.READY).get("lastTransitionTime") or metadata["creationTimestamp"]
        yield UNREADY_SINCE(timestamp(since))


class Period(NamedTuple):
    """The validity of a certificate.

    Attributes:
        begins, ends: Unix times.
    """

    begins: float
    ends: float


Certificates = Mapping[str, Period]
"""Periods of the certificates of a resource, by the name of the Secret to renew."""


def of_certificates(certificates: Certificates) -> Iterator[Sample]:
    """Return the samples of the certificates of a resource."""
    yield CERTIFICATE_EXPIRY(min((each.ends for each in certificates.values()), default=None))
    for secret, period in certificates.items():
        yield CERTIFICATE_NOT_BEFORE(period.begins, secret)
        yield CERTIFICATE_NOT_AFTER(period.ends, secret)


def timestamp(moment: str | None) -> float | None:
    """Convert a time in RFC 3339 to Unix time; None stays None."""
    return datetime.fromisoformat(moment).timestamp() if moment else None


class Resources(NamedTuple):
    """The resources of one kind.

    Attributes:
        all: returns the resources in the cache.
        states: returns the samples of a resource that depend on its kind; pure.
        certificates: certificates of each resource that has any.
    """

    kind: Kind
    all: Callable[[], Iterable[Obj]]
    states: Callable[[Obj], Iterable[Sample]]
    certificates: Mapping[Key, Certificates]


@contextmanager
def shown(*resources: Resources, registry: CollectorRegistry = REGISTRY) -> Iterator[None]:
    """Expose metrics of resources until the context exits."""
    collector = _Collector(resources)
    registry.register(collector)
    try:
        yield
    finally:
        registry.unregister(collector)


class _Collector(Collector):
    """Computes the samples at each scrape."""

    def __init__(self, resources: Iterable[Resources]) -> None:
        self._resources = tuple(resources)
        self._failed: set[tuple[Kind, Key]] = set()

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registration does not read the cache."""
        return ()

    def collect(self) -> Iterable[Metric]:
        families: dict[State, GaugeMetricFamily] = {}
        failed: set[tuple[Kind, Key]] = set()
        for resources in self._resources:
            for obj in resources.all():
                key = Key(obj["metadata"]["namespace"], obj["metadata"]["name"])
                try:
                    self._add(families, resources, key, obj)
                except Exception:  # any client with the permission may write any status, and all tenants share a scrape
                    failed.add((resources.kind, key))
                    if (resources.kind, key) not in self._failed:
                        metrics.PANICS.labels(controller=resources.kind.name.lower()).inc()
                        log.exception("%s: internal error (a bug in the operator): no metrics of this resource", key)
        self._failed = failed
        return families.values()

    def _add(self, families: dict[State, GaugeMetricFamily], resources: Resources, key: Key, obj: Obj) -> None:
        of_secrets = of_certificates(resources.certificates.get(key, {}))
        samples = [
            (state, float(value), [*map(str, labels)])
            for state, value, labels in (*common(obj), *resources.states(obj), *of_secrets)
            if value is not None
        ]
        for state, value, labels in samples:
            family = families.get(state)
            if family is None:
                names = (*RESOURCE, *state.labels)
                family = families[state] = GaugeMetricFamily(state.name, state.description, labels=names)
            family.add_metric((resources.kind.name, *key, *labels), value)
