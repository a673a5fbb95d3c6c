"""Incidents as values: what breaks, and what an on-call engineer must see within which time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from dashboards.model import Colour
from e2e.scenarios.etcd.cluster import EtcdCluster
from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.support.commands import Kubectl
from e2e.scenarios.support.operator import Operator
from e2e.scenarios.support.resource import Resource


@dataclass(frozen=True)
class Scene:
    """A healthy resource in a namespace of its own, to which an incident happens.

    Attributes:
        kubectl: kubectl in the namespace of the resource.
        resource: the resource.
        operator: the operator of the resource.
        directory: directory for files of the incident.
    """

    kubectl: Kubectl
    resource: Resource
    operator: Operator
    directory: Path

    @property
    def etcd(self) -> EtcdCluster:
        assert isinstance(self.resource, EtcdCluster)
        return self.resource

    @property
    def redis(self) -> Cluster:
        assert isinstance(self.resource, Cluster)
        return self.resource

    @property
    def memcached(self) -> Memcached:
        assert isinstance(self.resource, Memcached)
        return self.resource


@dataclass(frozen=True)
class Calm:
    """A healthy resource that incidents happen to.

    Attributes:
        name: name of the set-up.
        operator: name of the operator.
        create: creates the resource, waits until it is Ready, and returns it.
        prepared: changes its surroundings for the duration of a context.
    """

    name: str
    operator: str
    create: Callable[[Kubectl, Path], Resource]
    prepared: Callable[[Resource], AbstractContextManager[object]] = nullcontext


Fault = Callable[[Scene], AbstractContextManager[None]]
"""Causes the incident for the duration of a context; a short incident is over before the block begins."""


@dataclass(frozen=True)
class Tile:
    """State of a dashboard's tile during an incident. Before and afterwards it has another colour.

    Attributes:
        dashboard: uid of the dashboard.
        title: title of the tile.
        colour: expected colour.
        text: expected text; empty: any.
        series: name of the series, if the tile shows several.
    """

    dashboard: str
    title: str
    colour: Colour
    text: str = ""
    series: str = ""


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One incident and what it must show. An alert that is not named must not fire.

    Times are in seconds of the test; the durations of the rules are divided by 60 (see `watch.FACTOR`).

    Attributes:
        name: name of the incident, also of its test.
        calm: healthy resource that it happens to.
        fault: causes and ends it.
        pages: critical alerts that must fire, each with the seconds within which it does.
        warns: warnings that must fire, likewise.
        may: alerts that may fire as well: a consequence that depends on timing.
        conditions: conditions of the resource during the incident, as "status" or "status reason", by type.
        tiles: states of tiles during the incident.
        brief: whether it ends by itself within a minute. Then alerts must not fire with the durations of the charts; at
            the fast pace, a second would count as a minute.
        seen_within: seconds within which conditions and tiles show it.
        lasts: seconds that it lasts at least, to see that no other alert fires.
        quiet_within: seconds after its end within which all alerts have ended, and conditions and tiles are as before.
        shared: whether it touches what other tests use: an operator or the API server.
        nightly: whether it is played each night; the others are played each week.
    """

    name: str
    calm: Calm
    fault: Fault
    pages: Mapping[str, float] = field(default_factory=dict)
    warns: Mapping[str, float] = field(default_factory=dict)
    may: tuple[str, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    tiles: tuple[Tile, ...] = ()
    brief: bool = False
    seen_within: float = 60
    lasts: float = 25
    quiet_within: float = 180
    shared: bool = False
    nightly: bool = False

    @property
    def fires(self) -> dict[str, float]:
        """Alerts that must fire, each with the seconds within which it does."""
        return {**self.pages, **self.warns}
