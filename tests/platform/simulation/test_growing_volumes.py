"""A StatefulSet is recreated once for larger volumes, although it ends while the operator observes the database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shared.kubernetes.kinds import STATEFUL_SET
from shared.runtime.controller import Controller
from simulator.harness import Harness, View
from tests.harness.scenario import Subject
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.etcd import scenarios as etcd
from tests.support.redis import scenarios as redis


class Collecting(World):
    """A world whose garbage collector ends an orphaned object while the operator observes the database."""

    def harness(self, controller: Controller[Any, Any], patience: float, view: View | None = None) -> Harness:
        async def observe(*given: Any) -> Any:
            seen = await controller.observe(*given)
            self.server.collect_garbage()
            return seen

        return super().harness(replace(controller, observe=observe), patience, view)


SIZES = ("1Gi", "2Gi")
STEPS = {
    "etcd": [etcd.cluster(3, **etcd.volumes(size)) for size in SIZES],
    "redis": [redis.cluster(3, **redis.ALONE, storage=etcd.volumes(size)["storage"]) for size in SIZES],
}


@pytest.mark.parametrize("subject", [etcd.ETCD, redis.REDIS], ids=lambda subject: subject.name)
async def test_stateful_set_is_recreated_once_for_larger_volumes(
    subject: Subject,
) -> None:
    """On a cluster it got the former size again and again, for over a minute."""
    play = ScenarioRun(Collecting(subject))
    await play.run_steps((etcd.EXPANDABLE, *STEPS[subject.name]))
    [found] = play.stage.find(STATEFUL_SET)
    [template] = found["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "2Gi"
    made = [
        write
        for write in play.world.server.log.writes(changed=True)
        if (write.kind, write.status) == ("StatefulSet", 201)
    ]
    assert len(made) == 2
