"""A restart of the only member, or of one of two, is reported as a change in progress, not as a lost quorum."""

from __future__ import annotations

from typing import Any

import pytest

from operators.etcd.api import resource as api
from shared.kubernetes.accessors import condition
from shared.kubernetes.kinds import EVENT, POD, Obj
from simulator.harness import NAMESPACE, Harness
from tests.harness.scenario_runner import World
from tests.support.etcd.scenarios import ETCD, MIDDLE, NEW


class Single:
    """A cluster of one member, or of two."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.world = World(ETCD)
        self.operator: Harness = self.world.operator()
        self.seen: list[tuple[str, str]] = []

    async def apply(self, **spec: Any) -> None:
        self.operator.apply("demo", size=self.size, **{"version": MIDDLE, **spec})

    async def settle(self) -> None:
        """Settle turn by turn, and note every reason and message of Ready."""
        for _ in range(200):
            before = self.world.server.version
            await self.operator.run()
            self.note()
            self.world.workloads.step()
            if self.world.server.version == before:
                self.world.clock.wait(5)
                self.operator.queue.ring()
                await self.operator.run()
                self.note()
                if self.world.server.version == before and not len(self.operator.queue):
                    return

    def note(self) -> None:
        ready = self.ready
        if ready and (not self.seen or self.seen[-1] != (ready["reason"], ready["message"])):
            self.seen.append((ready["reason"], ready["message"]))

    @property
    def ready(self) -> Obj:
        return condition(self.operator.user_client.get(api.API.kind, NAMESPACE, "demo"), "Ready")

    async def warnings(self) -> list[str]:
        await self.operator.events()
        return [obj["reason"] for _, obj in self.world.server.objects(EVENT) if obj["type"] == "Warning"]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("change", [{"version": NEW}, {"labels": {"a": "b"}}], ids=["version", "template"])
async def test_planned_restart_without_a_spare_member_is_no_warning(change: Obj, size: int) -> None:
    single = Single(size)
    await single.apply()
    await single.settle()
    single.seen.clear()
    uid = single.operator.user_client.get(POD, NAMESPACE, "demo-0")["metadata"]["uid"]
    await single.apply(**change)
    await single.settle()
    assert single.operator.user_client.get(POD, NAMESPACE, "demo-0")["metadata"]["uid"] != uid, "it was restarted"
    assert single.ready["status"] == "True", single.seen
    assert await single.warnings() == [], single.seen
    assert "Updating" in {reason for reason, _ in single.seen}
    assert "NoQuorum" not in {reason for reason, _ in single.seen}


@pytest.mark.parametrize("size", [1, 2])
async def test_restarted_member_that_does_not_return_is_a_lost_quorum(size: int) -> None:
    single = Single(size)
    await single.apply()
    await single.settle()
    single.world.database.halted = True  # type: ignore[attr-defined]
    await single.apply(labels={"a": "b"})
    await single.settle()
    for _ in range(6):
        single.world.clock.wait(30)
        await single.settle()
    assert single.ready["reason"] == "NoQuorum", single.seen
    assert "NoQuorum" in await single.warnings()


@pytest.mark.parametrize("size", [1, 2])
async def test_member_that_fails_without_an_update_is_a_lost_quorum(size: int) -> None:
    single = Single(size)
    await single.apply()
    await single.settle()
    single.operator.user_client.delete(POD, NAMESPACE, "demo-0")
    single.seen.clear()
    await single.settle()
    assert "NoQuorum" in {reason for reason, _ in single.seen}
