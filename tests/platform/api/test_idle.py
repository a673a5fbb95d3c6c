"""Healthy resources, and changes without effect, cause no requests."""

from __future__ import annotations

import time

import pytest

from shared.kubernetes.accessors import is_true
from shared.kubernetes.kinds import SERVICE, STATEFUL_SET
from shared.status.conditions import READY
from tests.platform.api.support.gate import Gate
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import MEMCACHED, World

pytestmark = pytest.mark.nightly

QUIET = 1.5
"""Seconds without a request after which the operator counts as idle."""


def wait_until_idle(gate: Gate) -> None:
    """Wait until only the watches are open."""
    deadline = time.monotonic() + 30
    seen, since = len(gate.passed), time.monotonic()
    while time.monotonic() - since < QUIET:
        assert time.monotonic() < deadline, f"the operator does not become idle; last requests: {gate.passed[-20:]}"
        time.sleep(0.05)
        if len(gate.passed) != seen:
            seen, since = len(gate.passed), time.monotonic()


def test_fifty_healthy_resources_cause_no_requests(world: World, gate: Gate, gated: Operator) -> None:
    for number in range(50):
        world.create(f"cache-{number}", size=int(number < 4))
    world.eventually(lambda: all(is_true(resource, READY) for resource in world.listed(MEMCACHED)), 60)
    wait_until_idle(gate)
    gate.passed.clear()
    time.sleep(8)
    assert gate.passed == []


def test_unrelated_edits_cause_no_requests(world: World, gate: Gate, gated: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    wait_until_idle(gate)
    gate.passed.clear()
    note = {"metadata": {"annotations": {"example.com/note": "mine"}}}
    for kind in (MEMCACHED, STATEFUL_SET, SERVICE):
        world.edit(kind, note)
    time.sleep(QUIET)
    assert [passed for passed in gate.passed if passed.method != "GET"] == []
    assert gate.passed == []


def test_scaling_causes_one_apply_and_status_updates_only(world: World, gated: Operator, gate: Gate) -> None:
    world.create()
    world.eventually(world.is_ready)
    wait_until_idle(gate)
    gated.wire.sent.clear()
    workloads, world.workloads = world.workloads, None
    world.change(size=3)
    world.eventually(lambda: world.reason() == "Scaling")
    world.workloads = workloads
    world.eventually(world.is_ready)
    wait_until_idle(gate)
    paths = [sent.path for sent in gated.wire.writes]
    assert sum(path.endswith("/statefulsets/cache") for path in paths) == 1
    assert not any(path.endswith("/services/cache") for path in paths)
    reads = [sent.path.rpartition("/")[2] for sent in gated.wire.sent if sent.method == "GET"]
    # A reconcile after a poll of the Secrets reads the one that the operator itself writes.
    read = [name for name in reads if name != "cache-connection"]
    published = sum(path.endswith("/secrets/cache-connection") for path in paths)
    assert 1 <= published <= 2, "the addresses of the servers, as they become ready"
    # An apply that keeps deferred changes out requires the newest spec, and so does what clients read.
    assert read == ["cache"] * (1 + published), "nothing else is read"


def test_overwritten_status_is_restored_once(world: World, gate: Gate, gated: Operator) -> None:
    world.create()
    world.eventually(world.is_ready)
    wait_until_idle(gate)
    before = world.get(MEMCACHED)["status"]
    gated.wire.sent.clear()
    world.user_client.merge(MEMCACHED, world.namespace, "cache", {"status": {"phase": "Odd"}}, subresource="status")
    world.eventually(lambda: world.get(MEMCACHED)["status"] == before)
    wait_until_idle(gate)
    assert [sent.path.rpartition("/")[2] for sent in gated.wire.sent] == ["status"]
