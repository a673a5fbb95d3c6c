"""Primaries whose pods are deleted or evicted, one after the other, under a thousand writes a second of each shard."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict

import pytest

from e2e.scenarios.redis import versions
from e2e.scenarios.redis.cluster import Cluster
from e2e.scenarios.redis.pulse import Pulse, key_in
from e2e.scenarios.redis.versions import Spec
from e2e.scenarios.support.commands import Kubectl, until

ROUNDS = int(os.environ.get("HANDOVERS", "6"))
"""Pods that end, half of them by eviction; more for the table in docs/performance.md."""

WITHOUT_HANDOVER = 4.0
"""Seconds without writes that an election takes at least: it begins after cluster-node-timeout, 5 s by default."""


ENGINES = (versions.REDIS_7, versions.REDIS_8, versions.VALKEY_8, versions.VALKEY_9)


def end(cluster: Cluster, pod: str, *, evicted: bool) -> None:
    """Evict or delete a pod, and wait until the cluster is Ready with its successor."""
    kubectl, before = cluster.kubectl, cluster.uids()[pod]
    if evicted:
        path = f"/api/v1/namespaces/{kubectl.namespace}/pods/{pod}/eviction"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        kubectl("create", "--raw", path, "-f", "-", given=eviction)
    else:
        kubectl("delete", "pod", pod, "--wait=false")
    until(f"{pod} is replaced", lambda: cluster.uids().get(pod, before) != before)
    cluster.await_ready(6)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES, ids=lambda each: each["version"])
def test_clients_do_not_notice_that_primaries_end(kubectl: Kubectl, engine: Spec) -> None:
    cluster = Cluster.create(kubectl, replicas=6, **engine)
    cluster.await_ready(6)
    slots = defaultdict[str, list[int]](list)
    for slot, owner in cluster.owners().items():
        slots[owner].append(slot)
    gaps = []
    with Pulse.running(cluster.addresses, [key_in(owned) for owned in slots.values()]) as pulse:
        until("every key is written", lambda: len(pulse.written) == len(slots))
        for number in range(ROUNDS):
            pulse.reset()
            end(cluster, cluster.shard(number % 3)[0], evicted=bool(number % 2))
            gaps.append(pulse.longest)
    print(f"longest time without writes: {', '.join(f'{1000 * gap:.0f}' for gap in gaps)} ms")
    print(f"median {1000 * statistics.median(gaps):.0f} ms, max {1000 * max(gaps):.0f} ms, {len(gaps)} handovers")
    with cluster.client() as client:
        assert {key: int(client.get(key)) for key in pulse.keys} == pulse.written
    assert max(gaps) < WITHOUT_HANDOVER
