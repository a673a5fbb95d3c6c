"""CPU and memory of running servers change without a restart, so that their items stay."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import uids

pytestmark = pytest.mark.nightly

ITEMS = {f"key-{number}": b"value" for number in range(100)}


def amounts(kubectl: Kubectl) -> list[dict[str, Any]]:
    """Return the resources that the kubelet reports for each server."""
    return [
        state["resources"]
        for pod in kubectl.items("pods")
        for state in pod["status"].get("containerStatuses", ())  # a new pod has none yet
        if state["name"] == "memcached" and "resources" in state
    ]


def restarts(kubectl: Kubectl) -> int:
    return sum(state["restartCount"] for pod in kubectl.items("pods") for state in pod["status"]["containerStatuses"])


def await_amounts(cache: Memcached, kubectl: Kubectl, cpu: str, memory: str, servers: int) -> None:
    """Wait until the servers have these resources."""

    def have_the_amounts() -> bool:
        found = amounts(kubectl)
        return len(found) == servers and all(
            (each["requests"]["cpu"], each["limits"]["memory"]) == (cpu, memory) for each in found
        )

    until(f"the kubelets report {cpu} and {memory}", have_the_amounts)
    cache.await_ready(servers)


def test_servers_keep_their_items_when_cpu_and_memory_change(kubectl: Kubectl) -> None:
    if kubectl.server_minor < 33:
        pytest.skip("Kubernetes before 1.33 cannot resize pods: they are replaced (tests/platform/api/test_resize.py)")
    cache = Memcached.create(
        kubectl, "cache", size=2, resources={"requests": {"cpu": "50m"}, "limits": {"memory": "200Mi"}}
    )
    cache.await_ready(2)
    with cache.access.client(cache.servers[0]) as client:
        assert client.set_many(ITEMS) == []
    before = uids(kubectl)
    resources = {"requests": {"cpu": "60m"}, "limits": {"memory": "256Mi"}}
    changed = cache.manifest("cache", size=2, resources=resources)
    with cache.planned(partial(kubectl.apply, changed), resources=resources):
        await_amounts(cache, kubectl, "60m", "256Mi", 2)
    assert (uids(kubectl), restarts(kubectl)) == (before, 0)
    with cache.access.client(cache.servers[0]) as client:
        assert client.get_many(list(ITEMS)) == ITEMS

    kubectl("delete", "pods", "--all")
    until("new pods", lambda: before.isdisjoint(uids(kubectl)))
    await_amounts(cache, kubectl, "60m", "256Mi", 2)  # new pods start with the former amounts, and are resized


def test_amounts_that_no_node_has_replace_the_servers(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", workload="Deployment", size=1, resources={"requests": {"cpu": "50m"}})
    cache.await_ready(1)
    kubectl.apply(cache.manifest("cache", workload="Deployment", size=1, resources={"requests": {"cpu": "1000"}}))
    until("a pod of the new template", lambda: len(uids(kubectl)) > 1)
    served = cache.serves()  # the former server runs until a new one is ready
    assert served == 1, (cache.status, [pod["status"] for pod in kubectl.items("pods")])
