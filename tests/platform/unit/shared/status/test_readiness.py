"""Time until a resource matches its spec, and periods that are not counted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.kubernetes.kinds import Key, Kind, Obj
from shared.pki.validity import Validity
from shared.runtime.controller import Controller
from shared.runtime.plan import Plan
from shared.status.readiness import Readiness
from shared.status.resource_metrics import Period
from shared.status.verdict import Progress, Verdict
from simulator.harness import Harness

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = Key("default", "a")

DONE, PROGRESSING = Verdict(), Verdict(Progress.PROGRESSING, "Scaling")
STALLED, BLOCKED = Verdict(Progress.BLOCKED, "InvalidSpec"), Verdict(Progress.PAUSED, "Paused")


class Watched:
    """A `Readiness` and its measurements."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.readiness = Readiness(name)
        self._before = self._seen()

    def begin(self, generation: int, after: float, *, observed: int | None = None, uid: str = "1") -> None:
        made = f"{NOW - timedelta(seconds=5):%Y-%m-%dT%H:%M:%SZ}"
        metadata = {"uid": uid, "generation": generation, "creationTimestamp": made}
        status = {} if observed is None else {"observedGeneration": observed}
        self.readiness.begin(KEY, {"metadata": metadata, "status": status}, NOW + timedelta(seconds=after))

    def report(self, verdict: Verdict, after: float) -> None:
        self.readiness.report(KEY, verdict, NOW + timedelta(seconds=after))

    @property
    def counted(self) -> tuple[float, float]:
        """Return the number of changes and their total time in seconds."""
        count, total = self._seen()
        return count - self._before[0], total - self._before[1]

    def _seen(self) -> tuple[float, float]:
        name, labels = "platform_time_to_ready_seconds", {"controller": self._name}
        return tuple(REGISTRY.get_sample_value(f"{name}_{what}", labels) or 0.0 for what in ("count", "sum"))  # type: ignore[return-value]


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Watched:
    return Watched(request.node.name)


def test_new_resource_is_timed_since_its_creation(watched: Watched) -> None:
    watched.begin(1, 0)
    watched.report(PROGRESSING, 1)
    watched.begin(1, 2, observed=1)
    assert watched.counted == (0, 0)
    watched.report(DONE, 10)
    assert watched.counted == (1, 15)


def test_change_is_timed_since_it_was_observed(watched: Watched) -> None:
    watched.begin(2, 100, observed=1)
    watched.report(DONE, 104)
    assert watched.counted == (1, 4)


def test_change_during_another_change_is_the_same_measurement(watched: Watched) -> None:
    watched.begin(2, 100, observed=1)
    watched.report(PROGRESSING, 101)
    watched.begin(3, 130, observed=2)
    watched.report(DONE, 160)
    assert watched.counted == (1, 60)


def test_recovery_without_a_change_is_not_measured(watched: Watched) -> None:
    watched.begin(2, 0, observed=2)
    watched.report(PROGRESSING, 0)
    watched.report(DONE, 60)
    assert watched.counted == (0, 0)


def test_time_with_an_invalid_spec_counts(watched: Watched) -> None:
    watched.begin(2, 0, observed=1)
    watched.report(STALLED, 0)
    watched.begin(3, 50, observed=2)
    watched.report(DONE, 60)
    assert watched.counted == (1, 60)


def test_pause_ends_the_measurement(watched: Watched) -> None:
    watched.begin(2, 0, observed=1)
    watched.report(BLOCKED, 1)
    watched.begin(3, 3600, observed=2)
    watched.report(DONE, 3602)
    assert watched.counted == (1, 2)


def test_recreated_resource_starts_a_new_measurement(watched: Watched) -> None:
    watched.begin(2, -1000, observed=1)
    watched.begin(1, 0, uid="2")
    watched.report(DONE, 1)
    assert watched.counted == (1, 6)


def test_measurements_are_dropped_after_another_replica_led(watched: Watched) -> None:
    watched.begin(2, 0, observed=1)
    watched.readiness.clear()
    watched.report(DONE, 3600)
    assert watched.counted == (0, 0)


def test_deleted_resource_is_not_measured(watched: Watched) -> None:
    watched.begin(2, 0, observed=1)
    watched.readiness.forget(KEY)
    watched.report(DONE, 3600)
    assert watched.counted == (0, 0)


async def test_reconcile_times_each_change_once_and_records_certificates() -> None:
    kind = Kind("test.example.com", "v1", "Timed", "timeds")
    validity = {"server": Validity(NOW, NOW + timedelta(days=2)), "client": Validity(NOW, NOW + timedelta(days=1))}
    periods = {name: Period(of.begins.timestamp(), of.ends.timestamp()) for name, of in validity.items()}

    async def observe(*_: Any) -> dict[str, Validity]:
        return validity

    controller: Controller[Obj, dict[str, Validity]] = Controller(
        operator="timed-operator",
        kind=kind,
        owns=(),
        parse=lambda obj: obj,
        observe=observe,
        plan=lambda *_: Plan((), DONE, {}),
        validity=lambda seen: seen,
    )
    harness, watched = Harness(controller), Watched("timed")
    key = Key("default", "a")
    for size in (1, 2):
        harness.apply("a", size=size)
        await harness.run()
        harness.queue.add(key)
        await harness.run()
        assert watched.counted[0] == size
    assert harness.reconciler.certificates == {key: periods}
    validity.clear()
    harness.queue.add(key)
    await harness.run()
    assert harness.reconciler.certificates == {}
    validity["server"] = Validity(NOW, NOW)
    harness.queue.add(key)
    await harness.run()
    harness.user_client.delete(kind, *key)
    await harness.run()
    assert harness.reconciler.certificates == {}
