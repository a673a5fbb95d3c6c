"""Two replicas on a real API server: one works, the other takes over."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.cluster.controlplane import ControlPlane
from shared.kubernetes.kinds import DEPLOYMENT, EVENT, LEASE, Obj
from shared.runtime.reconciler import Reconciler
from tests.api.support.gate import Gate
from tests.api.support.replicas import Replica, wait
from tests.api.support.running import NAME, Operator
from tests.api.support.world import World
from tests.api.test_rights import rights

log = logging.getLogger(__name__)

QUICK = (
    "--leader-elect-lease-duration=4",
    "--leader-elect-renew-deadline=2",
    "--leader-elect-retry-period=0.2",
)


def flags(world: World) -> tuple[str, ...]:
    return ("--leader-elect", f"--leader-elect-namespace={world.namespace}", f"--watch-namespace={world.namespace}")


@contextmanager
def two(plane: ControlPlane, world: World, *arguments: str) -> Iterator[tuple[Replica, Replica]]:
    """The leader and a standby, both ready."""
    with Replica.running(plane.kubeconfig, *flags(world), *arguments) as leader:
        wait(lambda: leader.leads)
        with Replica.running(plane.kubeconfig, *flags(world), *arguments) as standby:
            yield leader, standby


def lease(world: World) -> Obj:
    spec: Obj = world.get(LEASE, NAME)["spec"]
    return spec


def scaled(world: World, size: int) -> None:
    """See a change through, as it shows in the Deployment."""
    world.change(size=size)
    wait(lambda: world.get(DEPLOYMENT)["spec"]["replicas"] == size)


def test_only_the_leader_writes(plane: ControlPlane, world: World) -> None:
    with two(plane, world) as (leader, standby):
        world.create(size=1)
        world.eventually(world.is_ready)
        assert leader.metric("controller_runtime_reconcile_total") > 0
        assert not standby.leads
        assert standby.metric("controller_runtime_reconcile_total") == 0
        assert standby.metric("workqueue_depth") == 0, "nothing waits for a worker that there is not"
        for method in ("POST", "PATCH", "PUT", "DELETE"):
            assert standby.metric(f'rest_client_requests_total{{method="{method}"}}') == 0
        assert standby.metric('platform_cached_objects{controller="memcached",kind="Memcached"}') == 1, (
            "its cache is warm"
        )
        [told] = [event for event in world.listed(EVENT) if event["reason"] == "LeaderElection"]
        assert told["message"] == f"{lease(world)['holderIdentity']} became leader"


def test_a_leader_that_is_told_to_end_hands_over_within_two_seconds(plane: ControlPlane, world: World) -> None:
    with two(plane, world) as (leader, standby):
        world.create(size=1)
        world.eventually(world.is_ready)
        before = lease(world)
        leader.signal(signal.SIGTERM)
        began = time.monotonic()
        wait(lambda: standby.leads)
        scaled(world, 2)
        took = time.monotonic() - began
        assert leader.end() == 0
        log.info("handover: %.2f s from SIGTERM to the standby's first write", took)
        assert took < 2
        assert lease(world)["leaseTransitions"] == before["leaseTransitions"] + 1
        assert any("Lease given back" in line for line in leader.said)


def test_a_leader_that_is_killed_is_replaced_within_twenty_seconds(plane: ControlPlane, world: World) -> None:
    """With the default times."""
    with two(plane, world) as (leader, standby):
        world.create(size=1)
        world.eventually(world.is_ready)
        leader.signal(signal.SIGKILL)
        began = time.monotonic()
        wait(lambda: standby.leads, 30)
        scaled(world, 2)
        took = time.monotonic() - began
        log.info("killed leader: %.2f s from SIGKILL to the standby's first write", took)
        assert 10 < took < 20


def test_a_leader_that_was_frozen_finds_itself_followed(plane: ControlPlane, world: World) -> None:
    with two(plane, world, *QUICK) as (leader, standby):
        world.create(size=1)
        world.eventually(world.is_ready)
        leader.signal(signal.SIGSTOP)
        wait(lambda: standby.leads)
        written = standby.metric('rest_client_requests_total{method="PATCH"}')
        world.change(size=2)
        leader.signal(signal.SIGCONT)
        wait(lambda: not leader.leads)
        wait(lambda: world.get(DEPLOYMENT)["spec"]["replicas"] == 2)
        assert standby.metric('rest_client_requests_total{method="PATCH"}') > written
        assert leader.process.poll() is None, "it stands by, and needs no restart"
        assert any("stopped leading" in line for line in leader.said)
        assert standby.leads


@pytest.fixture
def elected(plane: ControlPlane, world: World) -> Iterator[Operator]:
    """The operator within this process, the only candidate."""
    operator = Operator(plane.kubeconfig, world.namespace, flags=(*flags(world), *QUICK))
    operator.start()
    yield operator
    operator.stop()


def test_without_an_api_server_a_leader_stops_and_later_goes_on(world: World, elected: Operator) -> None:
    world.create(size=1)
    world.eventually(world.is_ready)
    transitions = lease(world)["leaseTransitions"]
    elected.wire.faults.lose_request(when=lambda *_: True, times=None)
    world.change(size=2)
    time.sleep(5)  # longer than the Lease lasts
    elected.wire.faults.clear()
    wait(lambda: world.get(DEPLOYMENT)["spec"]["replicas"] == 2, 10)
    assert lease(world)["leaseTransitions"] == transitions, "nobody else led"


def test_workers_that_cannot_be_stopped_end_the_process(
    world: World, elected: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another may begin soon: better no leader than two."""
    elected.stop()

    async def work(_: object) -> None:
        for _ in range(60):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.1)

    monkeypatch.setattr(Reconciler, "work", work)
    elected.start()
    wait(lambda: world.find(LEASE, NAME) and lease(world).get("holderIdentity"))
    elected.wire.faults.lose_request(when=lambda *_: True, times=None)
    with pytest.raises(TimeoutError, match=r"leadership was lost, and memcached-worker-0, .* could not be stopped"):
        elected.ended()


def test_the_lease_is_given_back_last(world: World, elected: Operator) -> None:
    """What was under way is written, and told, before another may begin."""
    world.create(size=1)
    wait(lambda: world.events())
    elected.stop()
    *_, last = elected.wire.writes
    assert last.path == LEASE.path(world.namespace, NAME)
    assert lease(world).get("holderIdentity", "") == ""
    elected.start()


def test_an_election_needs_get_create_and_patch_of_its_lease(plane: ControlPlane, world: World, gate: Gate) -> None:
    operator = Operator(plane.kubeconfig, world.namespace, host=gate.url, flags=(*flags(world), *QUICK))
    operator.start()
    wait(lambda: world.find(LEASE, NAME))
    time.sleep(1)
    operator.stop()
    sent = {right for passed in gate.passed for right in rights(passed) if right[0] == "leases"}
    assert sent == {("leases", verb) for verb in ("get", "create", "patch")}
    assert {passed.path for passed in gate.passed if "/leases" in passed.path} == {
        LEASE.path(world.namespace),
        LEASE.path(world.namespace, NAME),
    }
