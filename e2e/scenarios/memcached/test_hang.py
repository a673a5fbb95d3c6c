"""A server that hangs: its sidecar finds that, and ends it when that is certain."""

from __future__ import annotations

import time
from typing import Any

import pytest

from e2e.scenarios.memcached.servers import Memcached
from e2e.scenarios.support import runtime
from e2e.scenarios.support.commands import Kubectl, until
from e2e.scenarios.support.resource import conditions
from operators.memcached.exporter.watch import HUNG_SECONDS, SERVING_SECONDS

pytestmark = pytest.mark.nightly

PROBE_SECONDS = 30.0
"""Time for the kubelet's probe to fail, and for the status."""


def reported(cache: Memcached, *names: str) -> set[str]:
    found = conditions(cache.now)
    return {found[name] for name in names}


def test_server_that_hangs_is_not_ready_and_starts_again_after_two_minutes(kubectl: Kubectl) -> None:
    cache = Memcached.create(kubectl, "cache", size=2, metrics={})
    cache.await_ready(2)

    def hung() -> dict[str, Any]:
        found: dict[str, Any] = kubectl.get("pod", "cache-0")
        return found

    def restarts() -> int:
        [server] = [each for each in hung()["status"]["containerStatuses"] if each["name"] == "memcached"]
        return int(server["restartCount"])

    before = hung()["metadata"]["uid"]
    runtime.signal(hung(), "memcached", "SIGSTOP")
    stopped_at = time.monotonic()
    until(
        "the server is not ready",
        lambda: conditions(hung())["Ready"] == "False",
        seconds=SERVING_SECONDS + PROBE_SECONDS,
    )
    until("the status reports it", lambda: reported(cache, "Ready", "Available") == {"False"}, seconds=PROBE_SECONDS)
    until("a new container", lambda: restarts() == 1, seconds=HUNG_SECONDS + 2 * PROBE_SECONDS)
    assert time.monotonic() - stopped_at > HUNG_SECONDS, "the items are lost, so it must be certain"
    assert hung()["metadata"]["uid"] == before, "the pod stays"
    cache.await_ready(2)
    assert cache.serves() == 2
