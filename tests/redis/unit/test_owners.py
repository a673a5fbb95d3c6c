"""After a change of the spec, every object has the owners of the objects of a fresh resource with that spec.

Owners decide what is deleted with the resource: certificates and passwords must not be, if the pods are to stay.
"""

from __future__ import annotations

import pytest

from shared.kubernetes.kinds import EVENT, Obj
from tests.harness.scenario import ScenarioStep
from tests.harness.scenario_runner import ScenarioRun, World
from tests.support.redis.scenarios import ALONE, REDIS, cluster

SPEC: Obj = {**ALONE, "tls": {"mode": "self"}, "auth": {}}


def spec(**changed: object) -> ScenarioStep:
    return cluster(3, **{**SPEC, **changed})


DELETED = spec(storage={"size": "1Gi", "retain": False})
RETAINED = spec(storage={"size": "1Gi", "retain": True})
KEPT = spec(storage={"size": "1Gi", "retain": False}, finalizers="")


async def owners(*steps: ScenarioStep) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Return kind and name of the owners of each object."""
    run = ScenarioRun(World(REDIS))
    await run.run_steps(steps)
    return {
        (kind.name, obj["metadata"]["name"]): sorted(
            (owner["kind"], owner["name"]) for owner in obj["metadata"].get("ownerReferences") or ()
        )
        for kind, obj in run.world.server.objects()
        if kind != EVENT
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [(DELETED, KEPT), (KEPT, DELETED), (DELETED, RETAINED), (RETAINED, DELETED)],
    ids=["finalizers removed", "finalizers set", "volumes retained", "volumes not retained"],
)
async def test_owners_are_those_of_a_fresh_resource(before: ScenarioStep, after: ScenarioStep) -> None:
    changed, fresh = await owners(before, after), await owners(after)
    assert changed == fresh
    assert await owners(before) != fresh
