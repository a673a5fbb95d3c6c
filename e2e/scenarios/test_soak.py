"""Everything at once, for minutes: people, failures and restarts in random order, and always the same kind of end."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections.abc import Callable

import pytest

from e2e.scenarios.conftest import Kubectl, until
from e2e.scenarios.memcached import Memcached

ROUNDS = 30
SIZES, VERSIONS = (0, 1, 2, 3), ("1.6.38", "1.6.18")


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_interference_always_ends_as_the_spec_says(kubectl: Kubectl, system: Kubectl, seed: int) -> None:
    chance = random.Random(seed)
    cache = Memcached.create(kubectl, "cache", size=2)
    cache.await_ready(2)
    size, version = 2, VERSIONS[0]

    def respecify() -> None:
        nonlocal size, version
        size, version = chance.choice(SIZES), chance.choice(VERSIONS)
        patch = f'{{"spec": {{"size": {size}, "version": "{version}"}}}}'
        kubectl("patch", "memcached", "cache", "--type=merge", "-p", patch)

    def lose_servers() -> None:
        kubectl("delete", "pods", "--all", "--grace-period=0", "--force", "--wait=false")

    def meddle() -> None:
        with contextlib.suppress(subprocess.CalledProcessError):  # it may just be gone
            kubectl("patch", "deployment", "cache", "--type=merge", "-p", '{"spec": {"replicas": 5}}')

    def delete_owned() -> None:
        kubectl("delete", chance.choice(["deployment", "service"]), "cache", "--wait=false", "--ignore-not-found")

    def kill_operator() -> None:
        name = "app.kubernetes.io/name=memcached-operator"
        system("delete", "pods", "-l", name, "--grace-period=0", "--force", "--wait=false")

    moves: list[Callable[[], None]] = [respecify, lose_servers, meddle, delete_owned, kill_operator]
    for _ in range(ROUNDS):
        chance.choice(moves)()
        time.sleep(chance.uniform(0, 1.5))
    cache.await_ready(size, seconds=180)
    until("no pod is left over", lambda: len(kubectl.items("pods")) == size)
    assert cache.serves() == size
    assert cache.versions() <= {version}
    assert len(kubectl.items("deployments")) == len(kubectl.items("services")) == 1
