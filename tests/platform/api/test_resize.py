"""Pods that the API server cannot resize are replaced.

Before Kubernetes 1.33 pods have no subresource resize. Later versions refuse to resize a pod whose kubelet does not
report the resources of its containers, as here. Real kubelets resize pods in e2e/scenarios/memcached/test_resize.py.
"""

from __future__ import annotations

from shared.kubernetes.kinds import POD, STATEFUL_SET, Obj
from tests.platform.api.support.running import Operator
from tests.platform.api.support.world import World

BEFORE: Obj = {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m"}}
AFTER: Obj = {"limits": {"memory": "512Mi"}, "requests": {"cpu": "100m"}}


def memory(holder: Obj) -> str:
    found: str = holder["spec"]["containers"][0]["resources"]["limits"]["memory"]
    return found


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.listed(POD)}


def test_pods_are_replaced_if_the_api_server_refuses_to_resize_them(world: World, operator: Operator) -> None:
    world.create(size=2, resources=BEFORE)
    world.eventually(world.is_ready)
    before = uids(world)
    world.change(resources=AFTER)
    world.eventually(lambda: world.is_ready() and {memory(pod) for pod in world.listed(POD)} == {"512Mi"})
    assert not uids(world) & before
    assert memory(world.get(STATEFUL_SET)["spec"]["template"]) == "512Mi"
