"""Items after a restart of a server's container."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import uids

pytestmark = pytest.mark.nightly

ITEMS = {f"key-{number}": (f"value {number} " * (1 + number % 50)).encode() for number in range(2_000)}


def pod_of(kubectl: Kubectl) -> dict[str, Any]:
    [pod] = kubectl.items("pods")
    found: dict[str, Any] = pod
    return found


def restarts(kubectl: Kubectl) -> int:
    [state] = pod_of(kubectl)["status"]["containerStatuses"]
    return int(state["restartCount"]) if state["ready"] else -1


def filled(kubectl: Kubectl) -> Memcached:
    cache = Memcached.create(kubectl, "cache", size=1, warmRestart=True)
    cache.await_ready(1)
    with cache.access.client(cache.servers[0]) as client:
        assert client.set_many(ITEMS) == []
    return cache


def stored_items(cache: Memcached) -> dict[str, bytes]:
    with cache.access.client(cache.servers[0]) as client:
        found: dict[str, bytes] = client.get_many(list(ITEMS))
    return found


@pytest.mark.commit
def test_items_survive_a_restart_of_the_container(kubectl: Kubectl) -> None:
    cache = filled(kubectl)
    pod = pod_of(kubectl)
    # The longer name of the same image makes the kubelet restart the container in the same pod.
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "docker.io/library/memcached:1.6.38"}]
    kubectl("patch", "pod", pod["metadata"]["name"], "--type=json", f"--patch={json.dumps(image)}")
    until("the container is restarted", lambda: restarts(kubectl) == 1)
    cache.await_ready(1)
    assert stored_items(cache) == ITEMS
    assert uids(kubectl) == {pod["metadata"]["uid"]}


def test_killed_server_starts_empty_and_serves(kubectl: Kubectl) -> None:
    cache = filled(kubectl)
    runtime.signal(pod_of(kubectl), "memcached", "SIGKILL")
    until("the container is restarted", lambda: restarts(kubectl) == 1)
    cache.await_ready(1)
    assert stored_items(cache) == {}
    assert cache.serves() == 1


def test_new_pod_starts_empty(kubectl: Kubectl) -> None:
    cache = filled(kubectl)
    before = uids(kubectl)
    kubectl("delete", "pods", "--all")
    until("a new pod", lambda: before.isdisjoint(uids(kubectl)))
    cache.await_ready(1)  # the status may still be of the former pod, whose address does not answer
    until("the new server serves", lambda: cache.serves() == 1)
    assert stored_items(cache) == {}
