"""A change of CPU and memory: in the running pods if the API server has their subresource resize, else by a roll."""

from __future__ import annotations

from e2e.cluster import binaries
from e2e.cluster.controlplane import ControlPlane
from shared.kubernetes.kinds import DEPLOYMENT, POD, Obj
from tests.api.support.running import Operator
from tests.api.support.world import World

BEFORE: Obj = {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}}
AFTER: Obj = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m"}}


def memory(holder: Obj) -> str:
    found: str = holder["spec"]["containers"][0]["resources"]["limits"]["memory"]
    return found


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.listed(POD)}


def report_resources(world: World) -> None:
    """Report the resources of running containers, as a kubelet that can resize them does."""
    kubelet = world.actor("kubelet")
    for pod in world.listed(POD):
        states = [{**each, "resources": BEFORE} for each in pod["status"]["containerStatuses"]]
        status = {"status": {"containerStatuses": states}}
        kubelet.merge(POD, world.namespace, pod["metadata"]["name"], status, subresource="status")


def test_pods_get_other_amounts_in_the_way_that_the_version_has(
    plane: ControlPlane, world: World, operator: Operator
) -> None:
    resizes = binaries.minor_version(plane.kubernetes) >= 33
    world.create(size=2, resources=BEFORE)
    world.eventually(world.is_ready)
    if resizes:
        report_resources(world)
    before = uids(world)
    world.change(resources=AFTER)
    world.eventually(lambda: world.is_ready() and {memory(pod) for pod in world.listed(POD)} == {"512Mi"})
    assert (uids(world) == before, not uids(world) & before) == (resizes, not resizes)
    assert memory(world.get(DEPLOYMENT)["spec"]["template"]) == ("256Mi" if resizes else "512Mi")
