"""The regular relist: by the leader only, and one collection after the other."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from shared.kubernetes.client import Request, Response
from shared.kubernetes.encoding import MAX_PARSED_BYTES
from shared.kubernetes.kinds import CONFIG_MAP, LEASE
from shared.kubernetes.ownership import INSTANCE, MANAGED_BY
from shared.runtime import cache
from shared.runtime.process import Process
from tests.harness import ApiServer
from tests.platform.unit.shared.runtime.test_garbage import BOX, NAME, World
from tests.support.virtual_time import in_virtual_time

RESYNC_SECONDS = 600.0
"""Default of --resync."""

COLLECTIONS = {BOX.path(), CONFIG_MAP.path()}
NAMESPACED = CONFIG_MAP.path("default")


class Listed:
    """The connection of one process.

    Attributes:
        lists: time and path of each list of a watched collection, or of ConfigMaps in the namespace default.
    """

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.lists: list[tuple[float, str]] = []

    async def request(self, request: Request) -> Response:
        if request.method == "GET" and request.path in {*COLLECTIONS, NAMESPACED}:
            self.lists.append((asyncio.get_running_loop().time(), request.path))
        return await self._server.request(request)


def connected(world: World) -> tuple[Process, Listed]:
    """Return a process, and its connection to the world's API server."""
    listed = Listed(world.server)
    return world.process(lambda transports: replace(transports, work=listed)), listed


@in_virtual_time
async def test_each_replica_lists_left_out_objects_as_soon_as_there_is_space(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica that began to lead still lacked what was deleted weeks before."""
    monkeypatch.setattr(cache, "MAX_STORED_BYTES", 2 * MAX_PARSED_BYTES)
    monkeypatch.setattr(cache, "ENTRY_BYTES", MAX_PARSED_BYTES // 10)
    world = World()
    world.forbid_watching_secrets()
    (first, by_first), (second, by_second) = connected(world), connected(world)
    tasks = [asyncio.create_task(process.run()) for process in (first, second)]
    await world.until("the first reconcile", lambda: world.reported() == ("one", "1", "True"))
    await asyncio.sleep(60)
    user = world.server.actor("user")
    labels = {MANAGED_BY: NAME, INSTANCE: "other"}
    for number in range(30):
        metadata = {"name": f"junk-{number}", "namespace": "default", "labels": labels}
        user.create(CONFIG_MAP, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    await asyncio.sleep(5)
    by_first.lists.clear()
    by_second.lists.clear()
    for number in range(30):
        user.delete(CONFIG_MAP, "default", f"junk-{number}")
    await asyncio.sleep(RESYNC_SECONDS / 10)
    assert [path for _, path in by_second.lists] == [NAMESPACED]
    assert NAMESPACED in [path for _, path in by_first.lists]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


@in_virtual_time
async def test_only_the_leader_lists_again_one_collection_after_the_other() -> None:
    world = World()
    world.forbid_watching_secrets()
    (first, by_first), (second, by_second) = connected(world), connected(world)
    leader = asyncio.create_task(first.run())
    await world.until("the first reconcile", lambda: world.reported() == ("one", "1", "True"))
    follower = asyncio.create_task(second.run())
    await asyncio.sleep(60)
    assert {path for _, path in by_second.lists} == COLLECTIONS, "it fills its cache"
    by_first.lists.clear()
    by_second.lists.clear()

    await asyncio.sleep(3 * RESYNC_SECONDS)
    assert by_second.lists == []
    for path in COLLECTIONS:
        assert 2 <= len([each for _, each in by_first.lists if each == path]) <= 4
    times = [at for at, _ in by_first.lists]
    assert all(later - earlier > RESYNC_SECONDS / 8 for earlier, later in itertools.pairwise(times))

    leader.cancel()
    await asyncio.wait({leader})
    by_first.lists.clear()
    await asyncio.sleep(0.95 * RESYNC_SECONDS)  # kopf kills a thread that continues ten minutes after the shutdown
    assert by_first.lists == []
    assert {path for _, path in by_second.lists} == COLLECTIONS, "it leads now"
    assert [lease["spec"]["holderIdentity"] for _, lease in world.server.objects(LEASE)]
    follower.cancel()
    await asyncio.wait({follower})
