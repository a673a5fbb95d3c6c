"""The time of plans does not step with the wall clock, and follows it slowly; restorations continue after a step."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from shared.kubernetes.kinds import DEPLOYMENT, Obj
from shared.runtime.field_conflicts import MAX_DELAY
from shared.runtime.steady_clock import MAX_DEVIATION, SLEW, ResourceClock, SteadyClock
from simulator.clock import Clock
from simulator.harness import NOW, Harness
from tests.platform.unit.shared.runtime.test_convergence import Lab

HOUR = timedelta(hours=1)


@pytest.fixture
def real() -> Clock:
    """Return the real time, with the error of the wall clock."""
    return Clock(NOW)


@pytest.fixture
def steady(real: Clock) -> SteadyClock:
    return SteadyClock(real.wall, real.monotonic)


@pytest.mark.parametrize("error", [-HOUR, HOUR])
def test_step_is_followed_slowly(real: Clock, steady: SteadyClock, error: timedelta) -> None:
    real.error = error
    assert steady() == NOW
    real.wait(10)
    assert abs(steady() - real()) == timedelta(seconds=10 * SLEW)
    times = [steady()]
    for _ in range(11 * 60):
        real.wait(60)
        times.append(steady())
    assert times == sorted(times)
    assert times[-1] == real.wall()


@pytest.mark.parametrize("error", [-2 * MAX_DEVIATION, 2 * MAX_DEVIATION])
def test_other_date_is_followed_at_once(real: Clock, steady: SteadyClock, error: timedelta) -> None:
    real.error = error
    assert steady() == NOW + error


def test_recorded_times_are_not_in_the_future_of_their_resource(real: Clock) -> None:
    def status(recorded: datetime) -> Obj:
        entry = {"type": "Ready", "lastTransitionTime": f"{recorded:%Y-%m-%dT%H:%M:%SZ}"}
        return {"status": {"conditions": [entry, {"since": 5}, None], "moves": [{"since": "soon"}]}}

    assert ResourceClock(status(NOW - HOUR), real)() == NOW
    assert ResourceClock(status(NOW + 3 * HOUR), real)() == NOW, "such a time is no error of the clock"
    clock = ResourceClock(status(NOW + HOUR), real)
    assert clock() == NOW + HOUR
    real.wait(100)
    assert clock() == NOW + HOUR + timedelta(seconds=100 * (1 - SLEW))
    real.wait(20 * 3600)
    assert clock() == real()


async def test_restorations_continue_after_the_clock_was_set_back(real: Clock, steady: SteadyClock) -> None:
    """A client that sets the replicas to 0 again and again is damped, for at most 10 seconds each time."""
    lab = Lab()
    lab.harness = Harness(lab.boxes.controller, workloads=lab.harness.workloads, clock=steady)
    await lab.harness.run()
    for _ in range(5):
        lab.edit(DEPLOYMENT, {"replicas": 0}, "helm")
        await lab.again()
        real.wait(1)
    real.error = -HOUR
    lab.edit(DEPLOYMENT, {"replicas": 0}, "helm")
    real.wait(2 * MAX_DELAY.total_seconds())
    await lab.again()
    assert lab.get(DEPLOYMENT)["spec"]["replicas"] == 1
