"""Worlds of all operators (`whole`), their replay and reduction, and what destructive acts need (`shared_world`)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from random import Random

import pytest

from shared.kubernetes.client import Request
from shared.kubernetes.kinds import PERSISTENT_VOLUME_CLAIM, POD, Kind
from tests.etcd.simulation.courses import Course
from tests.etcd.simulation.courses import Kind as EtcdKind
from tests.harness.scenario import Unsafe
from tests.platform.simulation import whole
from tests.platform.simulation.shared_world import MAX_EVIDENCE_SECONDS, Part, SharedWorld
from tests.support import paths
from tests.support.course_runner import numbers
from tests.support.etcd.scenarios import MIDDLE


def test_world_of_all_operators_is_the_same_for_the_same_seed() -> None:
    """Of a seed with small clusters. The second run finds in caches much that the first one had to make."""
    first, second = (whole.run_in_virtual_time(2932, events=4) for _ in range(2))
    assert first.text == second.text
    assert first.world.server.log.all_writes == second.world.server.log.all_writes


@pytest.mark.nightly
@pytest.mark.parametrize("seed", numbers(1, 3))
def test_some_worlds(seed: int) -> None:
    whole.run_in_virtual_time(seed)


@pytest.mark.weekly
@pytest.mark.parametrize("seed", numbers(4, 200))
def test_many_worlds(seed: int) -> None:
    whole.run_in_virtual_time(seed)


@pytest.mark.nightly
def test_world_does_not_depend_on_the_hashes_of_a_process() -> None:
    def output(hash_seed: int) -> str:
        command = [sys.executable, "-m", whole.__name__, "--first", "3", "--count", "1", "--events", "6"]
        environment = os.environ | {"PYTHONHASHSEED": str(hash_seed)}
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=paths.REPOSITORY, env=environment
        )
        return done.stdout.partition("\n")[0]

    assert "requests" in output(1)
    assert output(1) == output(2)


def test_failure_is_reduced_to_its_events_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain fails if a cache is stale: of all other events, none is left."""

    async def stale(world: whole.Whole, _: Random) -> None:
        world.theme = "stale"

    async def drain(world: whole.Whole, _: Random) -> None:
        if world.theme == "stale":
            raise Unsafe("a drain meets a stale cache")

    monkeypatch.setattr(whole, "MODULES", {"memcached": whole.MODULES["memcached"]})
    monkeypatch.setattr(whole, "SHARES", {"memcached": 1, "world": 2})
    monkeypatch.setattr(whole, "WORLD", ("stale", "late", "fresh", "refuse", "drain"))
    monkeypatch.setattr(whole.Whole, "_stale", stale)
    monkeypatch.setattr(whole.Whole, "_drain", drain)
    events = 8
    seed, expected = next((seed, found) for seed in range(20) if (found := whole.failure_of(seed, events, None)))
    left = whole.shrunk(range(events), lambda kept: whole.failure_of(seed, events, kept) == expected)
    script = dict(whole.Whole(seed, events).script)
    assert [str(script[number]) for number in left] == ["world.stale", "world.drain"]
    with pytest.raises(Unsafe, match="a drain meets a stale cache") as failure:
        whole.run_in_virtual_time(seed, events, left)
    assert f"{left[0]} world.stale; {left[1]} world.drain" in failure.value.__notes__[0]


@pytest.mark.parametrize("needed", [(), (5,), (2, 17), (0, 9, 19)])
def test_script_is_reduced_to_the_events_that_fail(needed: Sequence[int]) -> None:
    assert list(whole.shrunk(range(20), lambda kept: {*needed} <= {*kept})) == [*needed]


# Destructive acts.


async def begun() -> tuple[SharedWorld, Part, Callable[[Kind, str], str]]:
    """Return a world with an etcd member, its part of the world, and a function that returns the UID of an object."""
    world = SharedWorld(module.SUBJECT for module in whole.MODULES.values())
    part = world.parts["etcd"]
    course = Course(0)
    course.kind = EtcdKind(1, MIDDLE, tls=False, has_backups=False)
    await course.begin(part)

    def uid(kind: Kind, name: str) -> str:
        found = world.server.stored(kind, part.namespace, name)
        assert found is not None
        return str(found["metadata"]["uid"])

    return world, part, uid


async def deleted(world: SharedWorld, kind: Kind, name: str, uid: str = "", namespace: str = "etcd") -> None:
    """Delete an object as the operator that acted last."""
    body = {"preconditions": {"uid": uid}} if uid else {}
    await world.server.request(Request("DELETE", kind.path(namespace, name), body=body))


async def test_destructive_act_must_name_the_object_that_was_observed() -> None:
    world, _, _ = await begun()
    with pytest.raises(Unsafe, match="etcd operator sends DELETE Pod etcd/cache-0, by its name alone"):
        await deleted(world, POD, "cache-0")


async def test_destructive_act_must_follow_from_a_recent_observation() -> None:
    world, _, uid = await begun()
    world.clock.wait(MAX_EVIDENCE_SECONDS + 1)
    with pytest.raises(Unsafe, match="DELETE Pod etcd/cache-0, and observed the database"):
        await deleted(world, POD, "cache-0", uid(POD, "cache-0"))


@pytest.mark.parametrize(("kind", "name"), [(POD, "cache-0"), (PERSISTENT_VOLUME_CLAIM, "data-cache-0")], ids=str)
async def test_operator_that_reaches_no_server_destroys_nothing(kind: Kind, name: str) -> None:
    world, part, uid = await begun()
    part.observed_at = world.clock.now
    part.database.cut_off = True
    with pytest.raises(Unsafe, match=f"DELETE {kind} etcd/{name}, although it reaches no server"):
        await deleted(world, kind, name, uid(kind, name))


async def test_operator_changes_nothing_of_another_one() -> None:
    world, _, uid = await begun()
    world.acting = world.parts["memcached"]
    with pytest.raises(Unsafe, match="memcached operator sends DELETE Pod etcd/cache-0, which is of another operator"):
        await deleted(world, POD, "cache-0", uid(POD, "cache-0"))
