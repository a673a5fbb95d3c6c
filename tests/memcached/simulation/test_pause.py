"""A change that replaces the servers waits until clients have filled each new one, and no longer than the spec allows.

The judge counts what clients find: the servers never hold less than the items of one of them are worth.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from typing import Any

import pytest

from operators.memcached.api.resource import WORKLOADS
from shared.kubernetes import accessors
from shared.kubernetes.kinds import POD, Obj
from simulator.memcached.clients import Clients
from tests.harness.scenario import apply
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.memcached.scenarios import MEMCACHED, Servers
from tests.support.plugin import Terminal

UNHURRIED = dataclasses.replace(MEMCACHED, patience=0.0)
"""Subject whose time passes only through steps, although the operator looks again and again."""

SIZE = 3
KEYS, RATE = 600, 10  # clients store all their keys within 65 s
STEP_SECONDS = 10
ONE_EMPTY = (SIZE - 1) / SIZE - 0.1
"""Share of the keys that clients find at least while one server is empty and the others are nearly full."""


class Cache:
    """A Memcached with clients that have filled it."""

    def __init__(self, **spec: Any) -> None:
        self.run = ScenarioRun(World(UNHURRIED))
        servers = self.run.world.database
        assert isinstance(servers, Servers)
        self.servers, self.clients = servers, servers.clients
        self.spec: Obj = {"size": SIZE, **spec}

    async def fill(self, *, keys: int = KEYS) -> None:
        self.clients.keys, self.clients.rate = keys, RATE
        await self.run.run_steps((apply(**self.spec),))
        await self.run.wait(600)
        self.clients.least_found = 1.0

    async def change(self) -> None:
        self.spec["memoryMB"] = 128
        await self.run.run_steps((apply(**self.spec),))

    @property
    def is_ready(self) -> bool:
        return accessors.is_true(self.resource, "Ready")

    @property
    def message(self) -> str:
        return str(accessors.condition(self.resource, "Ready")["message"])

    @property
    def resource(self) -> Obj:
        (found,) = self.run.stage.find()
        return found

    @property
    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.run.stage.find(POD)}

    async def wait_until_ready(self, limit: float = 3600) -> float:
        """Return the seconds until the resource is ready."""
        waited = 0.0
        while not self.is_ready:
            assert waited < limit, self.message
            await self.run.wait(STEP_SECONDS)
            waited += STEP_SECONDS
        return waited


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_change_leaves_clients_most_of_their_items(workload: str) -> None:
    cache = Cache(workload=workload)
    await cache.fill()
    assert cache.clients.found == 1.0
    before = cache.uids
    await cache.change()
    waited = await cache.wait_until_ready()
    assert not before & cache.uids
    lost = 1 / SIZE if workload == "Deployment" else 0  # keys move with the addresses of the servers
    assert cache.clients.least_found >= ONE_EMPTY - lost
    assert waited <= 120 * SIZE, "the evidence shortens the pause"


async def test_bound_ends_the_wait_for_servers_that_fill_slowly() -> None:
    cache = Cache(workload="StatefulSet", updateStrategy={"pauseSeconds": 60})
    await cache.fill()
    cache.clients.keys = 6000
    await cache.run.wait(1200)
    await cache.change()
    assert 120 <= await cache.wait_until_ready() <= 120 + 2 * STEP_SECONDS


@pytest.mark.parametrize("size", [1, SIZE, 10])
async def test_servers_without_traffic_are_not_waited_for(size: int) -> None:
    cache = Cache(workload="StatefulSet", size=size)
    await cache.fill(keys=0)
    await cache.change()
    assert 30 * (size - 1) <= await cache.wait_until_ready() <= 40 * size


async def test_only_server_of_a_deployment_stays_until_the_new_one_is_filled() -> None:
    cache = Cache(workload="Deployment", size=1)
    await cache.fill()
    (old,) = cache.uids
    await cache.change()
    await cache.run.wait(STEP_SECONDS, times=2)
    assert old in cache.uids
    assert await cache.wait_until_ready() <= 300
    assert old not in cache.uids


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_scaling_does_not_wait(workload: str) -> None:
    cache = Cache(workload=workload)
    await cache.fill()
    for size in (SIZE + 2, 1):
        cache.spec["size"] = size
        await cache.run.run_steps((apply(**cache.spec),))
        assert await cache.wait_until_ready() <= STEP_SECONDS


async def test_operator_that_restarts_all_the_time_replaces_no_server_sooner() -> None:
    cache = Cache(workload="StatefulSet")
    await cache.fill()
    await cache.change()
    for _ in range(2 * 300 // STEP_SECONDS + 6):
        if cache.is_ready:
            break
        cache.run.end()
        cache.run.begin()
        await cache.run.wait(STEP_SECONDS)
    assert cache.is_ready, cache.message
    assert cache.clients.least_found >= ONE_EMPTY


async def test_update_continues_without_the_operator_and_keeps_the_longest_pause() -> None:
    cache = Cache(workload="StatefulSet")
    await cache.fill()
    before = cache.uids
    await cache.change()
    cache.run.end()
    left = []
    for _ in range(4):
        await cache.run.wait(150)
        left.append(len(before & cache.uids))
    assert left == [2, 1, 1, 0]
    assert cache.clients.least_found >= ONE_EMPTY


async def test_unknown_hit_ratio_is_waited_for_until_the_bound_and_reported() -> None:
    cache = Cache(workload="StatefulSet", updateStrategy={"pauseSeconds": 120})
    await cache.fill()
    await cache.change()
    cache.servers.hung = set(cache.servers.uids)
    await cache.run.wait(STEP_SECONDS)
    assert re.search("The hit ratio of cache-2 is unknown: .* no response to 'version' within 3 s", cache.message)
    assert "waiting at most 2 min more" in cache.message
    waited = 0
    while accessors.condition(cache.resource, "Ready")["reason"] != "ServerNotResponding":
        assert waited < 600, cache.message
        await cache.run.wait(STEP_SECONDS)
        waited += STEP_SECONDS
    assert 220 <= waited <= 260, "all are replaced, and hang"
    cache.servers.hung = set()
    assert await cache.wait_until_ready() <= STEP_SECONDS


@pytest.mark.parametrize("workload", WORKLOADS)
async def test_servers_without_tls_are_no_failure_while_a_change_introduces_it(workload: str) -> None:
    """The operator speaks the protocol of the spec, which the servers that are not replaced yet do not."""
    cache = Cache(workload=workload, updateStrategy={"pauseSeconds": 60})
    await cache.fill()
    before = cache.uids
    cache.spec["tls"] = {"mode": "self"}
    await cache.run.run_steps((apply(**cache.spec),))
    waited = 0
    while before & cache.uids:
        assert waited < 600, cache.message
        assert accessors.is_true(cache.resource, "Observed"), accessors.condition(cache.resource, "Observed")
        await cache.run.wait(STEP_SECONDS)
        waited += STEP_SECONDS
    await cache.wait_until_ready()
    assert accessors.is_true(cache.resource, "Observed")


async def test_server_that_clients_do_not_use_yet_is_waited_for() -> None:
    """Clients that read the list of servers rarely do not know the new address yet."""
    cache = Cache(workload="StatefulSet")
    await cache.fill()
    cache.clients.rate = 0
    await cache.change()
    (new,) = (uid for uid, name in cache.clients.names.items() if name == "cache-2")
    cache.clients.shunned.add(new)
    cache.clients.rate = RATE
    await cache.run.wait(STEP_SECONDS, times=10)
    assert re.search(r"cache-2 gets 0\.0 requests per second, the others \d\.\d on average", cache.message)
    cache.clients.shunned.clear()
    await cache.wait_until_ready()
    assert cache.clients.least_found >= ONE_EMPTY


async def test_status_compares_with_what_the_servers_count() -> None:
    cache = Cache(workload="StatefulSet")
    await cache.fill()
    await cache.change()
    found = 0
    for _ in range(6):
        await cache.run.wait(STEP_SECONDS)
        claimed = re.search(r"cache-2 has hit ratio ([0-9.]+), the others ([0-9.]+)", cache.message)
        (new,) = (uid for uid, name in cache.clients.names.items() if name == "cache-2")
        hits, misses = cache.clients.hits[new], cache.clients.misses[new]
        if claimed and sum((hits, misses)):
            found += 1
            assert abs(float(claimed[1]) - hits / (hits + misses)) < 0.15  # over the window, and since the start
            assert float(claimed[2]) == pytest.approx(0.93, abs=0.02)
    assert found


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Terminal:
    """The plugin, and a Memcached with full servers of the kind of workload that is the parameter."""
    made = Terminal(monkeypatch, UNHURRIED, apply(size=SIZE, workload=request.param))
    found = clients_of(made)
    found.keys, found.rate = KEYS, RATE
    asyncio.run(made.play.wait(600))
    found.least_found = 1.0
    made.transport.between = lambda: made.play.wait(1)
    return made


def clients_of(terminal: Terminal) -> Clients:
    servers = terminal.play.world.database
    assert isinstance(servers, Servers)
    return servers.clients


def uids_of(terminal: Terminal) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in terminal.play.stage.find(POD)}


@pytest.mark.parametrize("terminal", WORKLOADS, indirect=True)
def test_restart_by_the_plugin_waits_for_the_same_evidence(terminal: Terminal) -> None:
    before, since = uids_of(terminal), terminal.play.world.clock()
    result = terminal.run("restart memcached/cache --yes")
    assert result.exit_code == 0, result.output
    assert not {*before.values()} & {*uids_of(terminal).values()}
    lost = 1 / SIZE if len(before.keys() & uids_of(terminal).keys()) < SIZE else 0  # keys move with the names
    assert clients_of(terminal).least_found >= ONE_EMPTY - lost
    assert "has hit ratio" in result.output, "what it waits for"
    assert (terminal.play.world.clock() - since).total_seconds() <= 150 * SIZE, "the evidence shortens the pause"
    asyncio.run(terminal.play.wait(STEP_SECONDS, times=3))
    assert not {*before.values()} & {*uids_of(terminal).values()}
    (resource,) = terminal.play.stage.find()
    assert accessors.is_true(resource, "Ready")


@pytest.mark.parametrize("terminal", ["StatefulSet"], indirect=True)
def test_restart_of_some_servers_by_the_plugin_pauses_between_them(terminal: Terminal) -> None:
    before = uids_of(terminal)
    result = terminal.run("restart memcached/cache --yes --pod cache-0 --pod cache-2")
    assert result.exit_code == 0, result.output
    after = uids_of(terminal)
    assert {name for name in before if before[name] != after[name]} == {"cache-0", "cache-2"}
    assert clients_of(terminal).least_found >= ONE_EMPTY
    assert "1 of 3 servers are new: waiting until clients have filled them, 300 s" in result.output
