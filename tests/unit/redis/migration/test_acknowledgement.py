"""Copies of moved keys: only a member that replicates the target keeps one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from operators.redis.client.errors import TargetNotReplicating
from operators.redis.client.responses import Facts, Follower, Node, NodeReport
from operators.redis.migration.acknowledgement import require_replica

ME, REPLICA = "a" * 40, "b" * 40
TARGET: Any = SimpleNamespace(
    name="demo-1",
    report=NodeReport(
        ME,
        nodes=(
            Node(ME, "10.0.0.1", 6379, frozenset({"myself", "master"})),
            Node(REPLICA, "10.0.0.2", 6379, frozenset({"slave"}), primary=ME),
        ),
    ),
)
OWN, FOREIGN = Follower("10.0.0.2", 6379, True, 100), Follower("10.9.9.9", 6379, True, 100)


def test_member_that_replicates_the_target_keeps_a_copy() -> None:
    require_replica(TARGET, Facts(offset=100, replicas=(FOREIGN, OWN)))


@pytest.mark.parametrize("followers", [(FOREIGN,), (FOREIGN, replace(OWN, online=False))])
def test_other_client_that_replicates_the_target_keeps_none(followers: tuple[Follower, ...]) -> None:
    with pytest.raises(TargetNotReplicating, match="none of its replicas is online"):
        require_replica(TARGET, Facts(offset=100, replicas=followers))
