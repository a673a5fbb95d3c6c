"""Soak test: random changes, failures and restarts for minutes; the resource must always converge to its spec."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support.clients import Access, Names, tls_client, tls_secret, users
from e2e.scenarios.support.commands import Kubectl, Refused, until
from e2e.scenarios.support.operator import Operator
from tools.local.pki import Authority

DISRUPTIONS = 30
LOGIN = ("app", "secret")
CHOICES: dict[str, list[Any]] = {
    "size": [0, 1, 2, 3],
    "version": ["1.6.38", "1.6.18"],
    "workload": ["Deployment", "StatefulSet"],
    "warmRestart": [False, True],
    "auth": [None, {"secretName": "users"}],
    "tls": [None, {"secretName": "certificate"}],
    "metrics": [None, {}],
    "podDisruptionBudget": [None, {}],
}


@pytest.mark.weekly
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_resource_converges_to_its_spec_after_random_disruptions(
    kubectl: Kubectl, operator: Operator, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    authority = Authority(tmp_path / "authority")
    kubectl.apply(users("users", LOGIN))
    hosts = [f"cache.{kubectl.namespace}.svc"]
    kubectl.apply(tls_secret("certificate", authority, authority.issue("server", "cache", hosts=hosts)))
    spec: dict[str, Any] = {"size": 2, "version": "1.6.38"}
    cache = Memcached.create(kubectl, "cache", **spec)
    cache.await_ready(2)

    def change_spec() -> None:
        changed = chance.sample(sorted(CHOICES), 3)
        spec.update({field: chance.choice(CHOICES[field]) for field in changed})
        patch = f"--patch={json.dumps({'spec': spec})}"
        # The operator may be down, and its webhooks with it.
        until(
            "the API server accepts the change", partial(kubectl, "patch", "memcached", "cache", "--type=merge", patch)
        )

    def delete_pods() -> None:
        kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")

    def scale_workload() -> None:
        with contextlib.suppress(Refused):  # it may not exist, or be of the other kind
            kind = chance.choice(["deployment", "statefulset"])
            kubectl("patch", kind, "cache", "--type=merge", "-p", '{"spec": {"replicas": 5}}')

    def delete_owned() -> None:
        kind = chance.choice(["deployment", "statefulset", "service"])
        kubectl("delete", kind, "cache", "--wait=false", "--ignore-not-found")

    disruptions: list[Callable[[], None]] = [
        change_spec,
        change_spec,
        delete_pods,
        scale_workload,
        delete_owned,
        operator.kill,
    ]
    for _ in range(DISRUPTIONS):
        chance.choice(disruptions)()
        time.sleep(chance.uniform(0, 1.5))
    print(f"seed {seed}: final spec {spec}")
    size = spec["size"]
    cache.await_ready(size, seconds=300)
    until("there are no surplus pods", lambda: len(kubectl.items("pods")) == size)
    cache.access = Access(
        login=LOGIN if spec.get("auth") else None,
        tls=tls_client(authority, checks_names=False) if spec.get("tls") else None,
        names=Names(kubectl),
    )
    assert cache.serves() == size
    assert cache.versions() <= {spec["version"]}
    workloads = [found["kind"] for found in kubectl.items("deployments,statefulsets")]
    assert workloads == [spec.get("workload", "StatefulSet")]
    assert len(kubectl.items("services")) == 1
    assert len(kubectl.items("poddisruptionbudgets")) == (spec.get("podDisruptionBudget") is not None)
    operator.await_rollout()
